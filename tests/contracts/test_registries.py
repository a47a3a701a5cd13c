"""The documentation and the types list what registries declare."""

from __future__ import annotations

import re
from pathlib import Path
from pkgutil import resolve_name
from typing import get_args

from tfrtool.sources.annotations.annotation_kinds import KINDS, ExportKind

REGISTRY = "tfrtool/sources/annotations/annotation_kinds.py"
DOCS = Path(__file__).parents[2] / "docs"


def _missing(page: str, *expected: str) -> list[str]:
    """Return which texts a page doesn't have; its links to headings all look like ``(#...)``."""
    text = re.sub(r"\(#[\w-]+\)", "(#...)", (DOCS / page).read_text("utf-8"))
    return [one for one in expected if one not in text]


def test_annotation_kinds_are_documented() -> None:
    """The tables of annotations.md have a row for each kind, and one for each that is exported."""
    for kind in KINDS.values():
        row = f"| {kind.title} | [`write --annotations {kind.argument}`](#...) |"
        rows = [f"{row} |"]
        if kind.writer:
            rows = [f"{row} [`extract --annotations {kind.name}`](#...) |", f"\n| `{kind.name}` |"]
        add = "add the row, and a section about what is read that it links to"
        assert _missing("annotations.md", *rows) == [], f"docs/annotations.md: {add}"


def test_annotation_kinds_with_writers_are_choices() -> None:
    """`extract --annotations` takes each kind that has a writer."""
    exported = {kind.name for kind in KINDS.values() if kind.writer}
    assert set(get_args(ExportKind)) == exported, f"{REGISTRY}: list them in ExportKind"
    assert {resolve_name(KINDS[name].writer).kind for name in exported} == exported
