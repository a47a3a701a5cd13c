"""JSON Lines: rows as objects."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import pyarrow as pa

from tfrtool.convert.formats.cell_columns import CellReader, Row, with_texts
from tfrtool.convert.formats.format_specs import FORMATS
from tfrtool.convert.formats.record_format import Content, WriteBatch
from tfrtool.convert.formats.row_format import RowFormat, create_text
from tfrtool.errors import SchemaError, SourceError, printable
from tfrtool.examples.example import DType
from tfrtool.inspection.rows.batches import rows_of
from tfrtool.inspection.summary.summary_json import as_json
from tfrtool.sources.formats.json_rows import json_rows
from tfrtool.storage.limits import MAX_TEXT_ROW_BYTES
from tfrtool.storage.remote_path import AnyPath

_DEEPEST = 32
"""Levels of objects that become columns."""


class _FlatCells(CellReader):
    """Cells of which objects become columns of their values."""

    nested_hint = None

    def named(self, row: Row) -> Row:
        pairs = [pair for name, cell in row.items() for pair in _flat_cells(name, cell)]
        flat = dict(pairs)
        if len(flat) < len(pairs):
            names = [name for name, _ in pairs]
            duplicate = next(name for name in names if names.count(name) > 1)
            raise SchemaError(f"duplicate column {printable(duplicate)!r}")
        return flat


class JsonLinesFormat(RowFormat):
    """An object on each line, or in a list; a missing feature is left out, or null."""

    spec = FORMATS["jsonl"]
    widening: ClassVar[Sequence[DType]] = (DType.INT64, DType.FLOAT32)

    def __init__(self, flatten: bool = False) -> None:
        """Choose whether objects become columns of their values."""
        self._flatten = flatten

    @property
    def cells(self) -> CellReader:  # type: ignore[override]
        """How cells become values."""
        return _FlatCells() if self._flatten else CellReader()

    def _rows(self, file: BinaryIO, path: AnyPath, start: int) -> Iterator[tuple[Row, int]]:
        for location, _, end, row in json_rows(file, path, start=start, limit=MAX_TEXT_ROW_BYTES):
            if isinstance(row, str):
                after = f" after offset {start}" if start else ""
                raise SourceError(f"{location}{after}: {row}", path=path)
            yield row, end

    @contextlib.contextmanager
    def write(self, path: Path, content: Content) -> Iterator[WriteBatch]:
        """Give a file to write."""

        def lines(batch: pa.RecordBatch) -> Iterator[str]:
            rows = rows_of(with_texts(content.with_names(batch)))
            return (json.dumps(as_json(row), ensure_ascii=False) + "\n" for row in rows)

        with create_text(path) as file:
            yield lambda batch: file.writelines(lines(batch))


def _flat_cells(name: str, cell: Any, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield the values of an object, or of a list of objects, by names such as ``a/b``."""
    if cell == {}:
        yield name, None
        return
    objects = cell if isinstance(cell, list) else [cell]
    nested = (isinstance(one, dict) and list(one) != ["base64"] for one in objects)
    if depth > _DEEPEST or not any(objects) or not all(nested):
        yield name, cell
        return
    for key in dict.fromkeys(key for one in objects for key in one):
        values = [one.get(key) for one in objects]
        inner = values if isinstance(cell, list) else values[0]
        yield from _flat_cells(f"{name}/{key}", inner, depth + 1)
