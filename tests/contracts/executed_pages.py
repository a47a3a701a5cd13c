"""Which pages of the documentation ran since they or the command line changed: ``make pages``.

Running all pages takes long. ``executed_pages.json`` has a digest of each page that ran and of
the help that all commands had then. The gate runs the pages whose digest has changed; ``make
test-several`` runs all of them every night; ``make pages`` runs all and updates the digests.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest

from tests.more import more
from tfrtool.cli.app import cli

__all__ = ["if_changed", "page_digest"]

REPOSITORY = Path(__file__).parents[2]
DIGESTS = Path(__file__).with_name("executed_pages.json")
PAGES = ("README.md", "docs/*.md", "docs/*/*.md")


def if_changed(page: str) -> Any:
    """Return a page as a parameter of a test, which the gate runs only if the page changed."""
    return more(page) if _stored().get(page) == page_digest(page) else page


def page_digest(page: str) -> str:
    """Return the digest of a page and of the help of all commands."""
    return hashlib.sha256(_help_of_all() + (REPOSITORY / page).read_bytes()).hexdigest()


@cache
def _stored() -> dict[str, str]:
    digests: dict[str, str] = json.loads(DIGESTS.read_text("utf-8"))
    return digests


@cache
def _help_of_all() -> bytes:
    return "\n".join(_help_texts(cli, "tfrtool")).encode()


def _help_texts(command: click.Command, name: str) -> Iterator[str]:
    context = click.Context(command, info_name=name)
    yield f"{name}: {command.help}"
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            yield repr(parameter.get_help_record(context))
    if isinstance(command, click.Group):
        for word, child in sorted(command.commands.items()):
            yield from _help_texts(child, f"{name} {word}")


def main() -> None:
    """Run all pages, and store the digests if they pass."""
    code = pytest.main(["-q", "-m", "", str(Path(__file__).with_name("test_examples.py"))])
    if code:
        sys.exit(code)
    pages = sorted(page for pattern in PAGES for page in REPOSITORY.glob(pattern))
    names = [page.relative_to(REPOSITORY).as_posix() for page in pages]
    digests = {name: page_digest(name) for name in names}
    DIGESTS.write_text(json.dumps(digests, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
