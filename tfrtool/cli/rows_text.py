"""Records and rows as lines: JSON, CSV, or text for people."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tfrtool.errors import human_bytes, named_record, printable
from tfrtool.examples.content import describe_bytes
from tfrtool.images.header import claimed_sides, is_jpeg, read_jpeg_header
from tfrtool.page import Page, Table
from tfrtool.sources.formats.csv_options import CsvOptions

_SHORT_BYTES = 16
"""Bytes that a table shows as base64; longer values are described."""

_ESCAPED = re.compile(r"(?:[^\\]{,8}\\x[0-9A-F]{2}){3}")
"""Bytes as DuckDB writes them, as in SUMMARIZE."""

_LONGEST = 120
"""Characters of a value in text for people."""

_LONGEST_ESCAPED = 24


_POSITION, _ITEM = ("shard", "record"), "item"


class RecordCsv:
    """Records as CSV, with the features that were selected, or those of the first record.

    Attributes:
        skipped: the names of other records' features that have no column.
    """

    def __init__(
        self, select: Sequence[str] | None, style: CsvOptions, *, items: bool = False
    ) -> None:
        """Begin; the head of a selection is `head`, else the first record has it.

        ``items`` is whether rows are items of records.
        """
        self._names, self._style = select, style
        self._position = (*_POSITION, _ITEM) if items else _POSITION
        self.head = self._head(select) if select and style.header else None
        self.skipped: set[str] = set()

    def line(self, row: Mapping[str, Any]) -> str:
        """Return a record."""
        values, head = feature_values(row), ""
        if not self._names:
            self._names = list(values)
            head = f"{self._head(self._names)}\n" if self._style.header else ""
        names = [_known_name(name, values) for name in self._names]
        self.skipped.update(values.keys() - names)
        cells = [row[name] for name in self._position] + [values.get(name) for name in names]
        return head + self._style.line(cells)

    def _head(self, names: Sequence[str]) -> str:
        """Return the line of names; a feature that is named like a position gets a ``_``."""
        shown = (f"{name}_" if name in self._position else name for name in names)
        return self._style.line([*self._position, *shown])


def _known_name(name: str, values: Mapping[str, Any]) -> str:
    """Return the name that a selected feature has among the values of a record."""
    names = (name, f"context.{name}", f"feature_lists.{name}")
    return next((known for known in names if known in values), name)


def feature_values(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record's features by name; those of a context are ``context.a``."""
    values: dict[str, Any] = {}
    for key, value in row.items():
        if key in ("features", "message"):
            values |= value
        elif key in ("context", "feature_lists", "event"):
            values |= {f"{key}.{name}": feature for name, feature in value.items()}
        elif key not in (*_POSITION, _ITEM):
            values[key] = value
    return values


def record_text(row: Mapping[str, Any]) -> str:
    """Return a record for people."""
    values = feature_values(row)
    item = f", item {row[_ITEM]}" if _ITEM in row else ""
    lines = [f"{named_record(row['shard'], row['record'])}{item}"]
    width = min(max(map(len, values), default=0), 40)
    for name, value in values.items():
        lines.append(f"  {printable(name).ljust(width)}  {_short(value)}")
    return "\n".join(lines)


def folded(value: Any) -> Any:
    """Return a value, in which long bytes that are not text are like ``<JPEG 280x300, 15 kB>``."""
    if isinstance(value, list):
        return [folded(one) for one in value]
    if isinstance(value, dict):
        return {name: folded(one) for name, one in value.items()}
    if not isinstance(value, bytes) or len(value) <= _SHORT_BYTES:
        return value
    content = describe_bytes(value)
    if content == "text":
        return value
    if content.startswith("image/"):
        header = read_jpeg_header(value) if is_jpeg(value) else None
        width, height = (header.width, header.height) if header else claimed_sides(value)
        content = content.removeprefix("image/").upper()
        content += f" {width}x{height}" if width and height else ""
    return f"<{content}, {human_bytes(len(value))}>"


def rows_table(rows: Iterable[Mapping[str, Any]], names: Sequence[str]) -> Page:
    """Return rows as a table, numbers at the right."""
    cells = [[row[name] for name in names] for row in rows]
    numbers = int | float | None
    right = (n for n in range(len(names)) if all(isinstance(row[n], numbers) for row in cells))
    shown = [[_short(value) for value in row] for row in cells]
    head = [printable(name) for name in names]
    return [Table(head=head, rows=shown, right=frozenset(right))]


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else "NULL" if value is None else json.dumps(value)
    longest = _LONGEST_ESCAPED if _ESCAPED.match(text) else _LONGEST
    return printable(text if len(text) <= longest else f"{text[:longest]}...")
