"""The documentation and the types list what registries declare."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import get_args

from tests.rules.breaches import expect_none
from tfrtool.convert.formats.format_specs import FORMATS, FormatName
from tfrtool.examples.example import DType
from tfrtool.inspection.stats.number_fold import NumberFold
from tfrtool.inspection.stats.stats_fold import FeatureFold, FeatureKey
from tfrtool.sources.annotations.annotation_kinds import KINDS, ExportKind

DOCS = Path(__file__).parents[2] / "docs"
KINDS_FILE = "tfrtool/sources/annotations/annotation_kinds.py"
FORMATS_FILE = "tfrtool/convert/formats/format_specs.py"


def _missing(page: str, *texts: str) -> Iterator[str]:
    """Yield which texts a page doesn't have; its links to headings all look like ``(#...)``."""
    text = re.sub(r"\(#[\w-]+\)", "(#...)", (DOCS / page).read_text("utf-8"))
    yield from (f"docs/{page}: {one.strip()}" for one in texts if one not in text)


def test_annotation_kinds_are_documented() -> None:
    """The tables of annotations.md have a row for each kind, and one for each that is exported."""
    missing = list[str]()
    for kind in KINDS.values():
        row = f"| {kind.title} | [`write --annotations {kind.argument}`](#...) |"
        rows = [f"{row} |"]
        if kind.writer:
            rows = [f"{row} [`extract --annotations {kind.name}`](#...) |", f"\n| `{kind.name}` |"]
        missing += _missing("annotations.md", *rows)
    expect_none(
        missing,
        "Each annotation format has a row in the first table of docs/annotations.md, with a link "
        "to a section about what is read, and one under Export annotations if it is written:",
    )


def test_annotation_kinds_with_writers_are_choices() -> None:
    """`extract --annotations` takes each kind that has a writer."""
    exported = {kind.name for kind in KINDS.values() if kind.writer}
    expect_none(
        exported.symmetric_difference(get_args(ExportKind)),
        f"ExportKind in {KINDS_FILE} lists the formats with a writer:",
    )
    expect_none(
        [name for name in exported if resolve_name(KINDS[name].writer).kind != name],
        f"The `kind` of a writer is its name in {KINDS_FILE}:",
    )


def test_conversion_formats_are_documented() -> None:
    """The table of formats in convert.md has a row for each, with the names of its files."""
    missing = list[str]()
    for spec in FORMATS.values():
        file = spec.file_name.format(dataset="NAME", split="SPLIT", index=0, count=8)
        missing += _missing("commands/convert.md", f"\n| `{spec.name}` |", f"`{file}`")
    expect_none(
        missing, "Each format has a row in the table under Formats, with names of its files:"
    )


def test_conversion_formats_are_choices() -> None:
    """`--from` and `--to` take each format, whose class knows its declaration."""
    expect_none(
        {*FORMATS}.symmetric_difference(get_args(FormatName)),
        f"FormatName in {FORMATS_FILE} lists all formats:",
    )
    implementations = {resolve_name(one.implementation): one for one in FORMATS.values()}
    expect_none(
        [str(found) for found, one in implementations.items() if found.spec is not one],
        f"The `spec` of a format's class is its declaration in {FORMATS_FILE}:",
    )


def test_statistics_are_documented() -> None:
    """Docs of `inspect stats` have each key of a feature and of numbers."""
    keys = set(NumberFold().to_json())
    for dtype in DType:
        fold = FeatureFold()
        fold.formats["image/png"] += 1
        for name in ("lengths", "steps", "values", "bytes", "width", "height"):
            fold.numbers[name].merge(NumberFold())
        feature = fold.to_json(FeatureKey(b"x", is_list=True, dtype=dtype), 1, ())
        keys |= {*feature, *feature["images"]}
    section = (DOCS / "commands/inspect.md").read_text("utf-8").split("\n### inspect stats\n")[1]
    section = section.split("\n### ")[0]
    expect_none(
        [f"`{key}`" for key in sorted(keys) if f"`{key}`" not in section],
        "Each statistic is a key in the tables under inspect stats of docs/commands/inspect.md:",
    )
