"""The paths and classes that README, CONTRIBUTING and the page on architecture name exist."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

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


def missing_paths(page: str, paths: Iterable[str]) -> list[str]:
    """Return a message for each path of a page that does not exist."""
    return [
        f"{page}: {path} does not exist: correct the path or the page"
        for path in sorted(paths)
        if not exists(path)
    ]


def classes_of(folders: Iterable[str]) -> Iterator[str]:
    """Yield the names of all classes in some folders."""
    for folder in folders:
        for file in (REPOSITORY / folder).rglob("*.py"):
            yield from re.findall(r"^\s*class (\w+)", file.read_text("utf-8"), re.MULTILINE)


def missing_classes(page: str, text: str, classes: set[str]) -> list[str]:
    """Return a message for each class that a page names and that does not exist."""
    named = {span for span in spans_of(text) if _CLASS.fullmatch(span)} - {*dir(builtins)}
    return [
        f"{page}: no class {name} in {', '.join(SOURCES)}: correct the name or the page; "
        "a class of another library needs its module, such as os.PathLike"
        for name in sorted(named - classes)
    ]


def test_paths_of_pages_exist() -> None:
    """Paths in code spans exist, below the repository or below tfrtool."""
    wrong = []
    for page in PAGES:
        text = (REPOSITORY / page).read_text("utf-8")
        wrong += missing_paths(
            page, paths_of(text) if page in DEVELOPMENT else _IN_README.findall(text)
        )
    assert not wrong, "\n".join(wrong)


def test_classes_of_pages_exist() -> None:
    """Classes in code spans of the pages for developers exist."""
    classes, wrong = {*classes_of(SOURCES)}, []
    for page in DEVELOPMENT:
        wrong += missing_classes(page, (REPOSITORY / page).read_text("utf-8"), classes)
    assert not wrong, "\n".join(wrong)


def test_checks_can_fail() -> None:
    """Missing paths and classes are found; placeholders and built folders are not."""
    text = "`cli/render/page.py`, `cli/app.py` and `.venv/bin/python -m pytest tests/nothing`\n"
    text += "`cli/commands/NAME_command.py`, `cli/commands/NAME_text.py` and `site/`\n"
    assert missing_paths("p.md", paths_of(text)) == [
        f"p.md: {path} does not exist: correct the path or the page"
        for path in ("cli/commands/NAME_text.py", "cli/render/page.py", "tests/nothing")
    ]
    found = missing_classes("p.md", "`Format`, `RecordFolder`, `NAME`, `None`", {"Format"})
    assert [line.partition(" in ")[0] for line in found] == ["p.md: no class RecordFolder"]
