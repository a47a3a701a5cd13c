"""The paths and classes that README, CONTRIBUTING and the page on architecture name exist."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.rules.breaches import expect_none

REPOSITORY = Path(__file__).parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", "docs/architecture.md")
DEVELOPMENT = PAGES[1:]
"""Pages whose spans with a slash are all paths of ours; README also names files of users."""

ROOTS = (REPOSITORY, REPOSITORY / "tfrtool")
SOURCES = ("tfrtool", "tests", "fixtures")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(?<!`)`([^`\n]+(?:\n[^`\n]+)?)`(?!`)")
_PATH = re.compile(r"\.?[A-Za-z_][\w.-]*/[\w./-]*")
_IN_README = re.compile(r"(?:fixtures|tests|tfrtool|docs)/[\w./-]*\w")
_CLASS = re.compile(r"[A-Z]\w*[a-z]\w*")
_PLACEHOLDER = re.compile(r"(?<![A-Za-z])[A-Z]{2,}(?![A-Za-z])")
"""Part of a path that stands for any name, such as NAME in ``NAME_command.py``."""


def spans_of(text: str) -> list[str]:
    """Return the code spans of a Markdown page, without those in code blocks."""
    return [" ".join(span.split()) for span in _SPAN.findall(_FENCE.sub("", text))]


def paths_of(text: str) -> set[str]:
    """Return the paths in the code spans of a page for developers."""
    words = {word for span in spans_of(text) for word in span.split()}
    return {word for word in words if _PATH.fullmatch(word) and not _is_built(word)}


def _is_built(path: str) -> bool:
    """Return whether a path is ignored by git, such as ``site/``: a command creates it."""
    ignored = (REPOSITORY / ".gitignore").read_text("utf-8").split()
    return path.partition("/")[0] in {name.strip("/") for name in ignored}


def exists(path: str) -> bool:
    """Return whether a path exists below the repository or below ``tfrtool``."""
    pattern = _PLACEHOLDER.sub("*", path.rstrip("/"))
    return any(any(root.glob(pattern)) for root in ROOTS)


def missing_paths(page: str, paths: Iterable[str]) -> list[tuple[str, str]]:
    """Return the paths of a page that don't exist, each with the page."""
    return [(page, path) for path in sorted({*paths}) if not exists(path)]


def classes_of(folders: Iterable[str]) -> Iterator[str]:
    """Yield the names of all classes in some folders."""
    for folder in folders:
        for file in (REPOSITORY / folder).rglob("*.py"):
            yield from re.findall(r"^\s*class (\w+)", file.read_text("utf-8"), re.MULTILINE)


def missing_classes(page: str, text: str, classes: set[str]) -> list[tuple[str, str]]:
    """Return the classes that a page names and that don't exist, each with the page."""
    named = {span for span in spans_of(text) if _CLASS.fullmatch(span)} - {*dir(builtins)}
    return [(page, name) for name in sorted(named - classes)]


def test_paths_of_pages_exist() -> None:
    """Paths in code spans exist, below the repository or below tfrtool."""
    wrong = []
    for page in PAGES:
        text = (REPOSITORY / page).read_text("utf-8")
        paths = paths_of(text) if page in DEVELOPMENT else _IN_README.findall(text)
        wrong += missing_paths(page, paths)
    expect_none(
        wrong,
        "Paths that pages name exist below the repository or below tfrtool/. "
        "Correct the path or the page:",
    )


def test_classes_of_pages_exist() -> None:
    """Classes in code spans of the pages for developers exist."""
    classes, wrong = {*classes_of(SOURCES)}, []
    for page in DEVELOPMENT:
        wrong += missing_classes(page, (REPOSITORY / page).read_text("utf-8"), classes)
    expect_none(
        wrong,
        f"Classes that pages name are in {', '.join(SOURCES)}. Correct the name or the page; a "
        "class of another library needs its module, such as os.PathLike:",
    )


def test_checks_can_fail() -> None:
    """Missing paths and classes are found; placeholders and built folders are not."""
    text = "`cli/render/page.py`, `cli/app.py` and `.venv/bin/python -m pytest tests/nothing`\n"
    text += "`cli/commands/NAME_command.py`, `cli/commands/NAME_text.py` and `site/`\n"
    names = ("cli/commands/NAME_text.py", "cli/render/page.py", "tests/nothing")
    assert missing_paths("p.md", paths_of(text)) == [("p.md", name) for name in names]
    text = "`Format`, `RecordFolder`, `NAME`, `None`"
    assert missing_classes("p.md", text, {"Format"}) == [("p.md", "RecordFolder")]
