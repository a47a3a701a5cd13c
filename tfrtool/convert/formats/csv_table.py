"""CSV: rows of text, in which types show from all cells of a column."""

import base64
import contextlib
import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from tfrtool.convert.formats.cell_columns import CellReader, Row, required_columns, with_texts
from tfrtool.convert.formats.format_specs import FORMATS
from tfrtool.convert.formats.json_cells import Read
from tfrtool.convert.formats.record_format import Content, Scan, WriteBatch
from tfrtool.convert.formats.row_format import RowFormat, create_text, schema_next_to
from tfrtool.errors import SchemaError, SourceError, os_errors_as, printable
from tfrtool.examples.dtypes import INT64, LEADING_ZERO, NUMBER
from tfrtool.examples.example import DType
from tfrtool.inspection.rows.batches import LABEL_NAME, rows_of
from tfrtool.inspection.summary.summary_json import as_json
from tfrtool.sources.formats.cell_types import JSON_DTYPES, CellTypes, cell_number
from tfrtool.sources.formats.csv_options import CsvOptions
from tfrtool.sources.formats.csv_rows import (
    DELIMITERS,
    check_header,
    check_width,
    csv_rows,
    detect_delimiter,
)
from tfrtool.sources.formats.unpacked import plain_suffix
from tfrtool.storage.limits import MAX_TEXT_ROW_BYTES
from tfrtool.storage.remote_path import AnyPath

_BASE64 = '{"base64":'


class _TextCells(CellReader):
    """Cells of text; an empty one is missing."""

    def named(self, row: Row) -> Row:
        """Return a row in which each column has a name, as pandas gives them."""
        if "" not in row:
            return row
        names = [*row]  # pandas' index comes first
        new = "index" if not names[0] and "index" not in names else f"Unnamed: {names.index('')}"
        return {name or new: cell for name, cell in row.items()}

    def add(self, column: CellTypes, cell: Any, row: int) -> bool:
        """Add a cell to its column, as a number if it is one."""
        if not cell:
            return True
        column.cells += 1
        number = cell_number(cell)
        if number is None and NUMBER.fullmatch(cell) and not LEADING_ZERO.match(cell):
            number = float(cell)  # beyond doubles: an error when it is decoded
        if number is None or (isinstance(number, int) and number not in INT64):
            column.add(cell, DType.STRING, row)
        else:
            column.add(number, JSON_DTYPES[type(number)], row)
        return True

    def notes(self, columns: Mapping[str, CellTypes]) -> list[str]:
        """Return which columns of numbers are text."""
        return [
            f"column {name!r} is text: record {one.text[0]} has {printable(repr(one.text[1][:40]))}"
            for name, one in columns.items()
            if one.text and (len(one.dtypes) > 1 or NUMBER.fullmatch(one.text[1]))
        ]

    def reader(self, kind: pa.DataType, *, declared: bool, required: bool, in_tree: bool) -> Read:
        """Return what reads a cell; an empty one is missing unless it has to be text."""
        nested = pa.types.is_nested(kind)
        leaf = kind.value_type if nested and not declared else kind  # a cell has JSON of lists
        is_string = pa.types.is_binary(leaf) or pa.types.is_string(leaf)
        read_value = super().reader(kind, declared=declared, required=required, in_tree=in_tree)

        def read(cell: Any) -> Any:
            if not cell and not (required and is_string):
                return read_value(None)
            if declared and (nested or cell.startswith(_BASE64)):
                cell = json.loads(cell)
            elif pa.types.is_boolean(leaf):
                cell = cell == "True"
            return read_value(cell)

        return read


class CsvFormat(RowFormat):
    """Single values as cells, everything else as JSON in a cell; an empty cell is missing."""

    spec = FORMATS["csv"]
    widening = (DType.INT64, DType.FLOAT32, DType.STRING)
    cells = _TextCells()

    def __init__(self, options: CsvOptions | None = None) -> None:
        """Take the options of CSV."""
        self._options = options = options or CsvOptions()
        self._delimiter, self._nulls = options.delimiter, options.null
        self._quote = "" if options.quote == "none" else options.quote

    def scan(self, path: AnyPath) -> Scan:
        """Read a file through, and note which delimiter was detected."""
        scan = super().scan(path)
        if scan.content.declared or (self._delimiter is not None and scan.rows):
            return scan
        with os_errors_as(SourceError, path), self._open(path) as file:
            delimiter = self._delimiter or detect_delimiter(file, path, self._quote)
            names = (
                [] if scan.rows else next(csv_rows(file, path, delimiter, quote=self._quote), [])
            )
        scan = replace(scan, blank=(*scan.blank, *names))
        if self._delimiter is not None:
            return scan
        if delimiter == DELIMITERS[0]:
            return scan
        shown = "tab" if delimiter == "\t" else repr(delimiter)
        note = f"detected the delimiter {shown}; use --delimiter to choose another"
        return replace(scan, notes=(note, *scan.notes))

    def losses(self, content: Content) -> list[str]:
        """Return what only the schema next to the table has."""
        if not content.schema.names:
            raise SchemaError("CSV needs at least one feature, and the records have none")
        lists = [one.name for one in content.schema if pa.types.is_nested(one.type)]
        return [f"lists become JSON text: {', '.join(map(repr, lists))}"] if lists else []

    def _rows(self, file: BinaryIO, path: AnyPath, start: int) -> Iterator[tuple[Row, int]]:
        delimiter = self._delimiter or detect_delimiter(file, path, self._quote)
        read = partial(csv_rows, file, path, delimiter, quote=self._quote, limit=MAX_TEXT_ROW_BYTES)
        names, behind = next(read(), []), file.tell()
        if not self._options.header:
            names, behind = [f"column{number}" for number in range(1, len(names) + 1)], 0
        check_header(names, path)
        for number, cells in enumerate(filter(None, read(start=start or behind))):
            check_width(cells, names, path, None if start else number)
            if self._nulls:
                cells = ["" if cell in self._nulls else cell for cell in cells]
            yield dict(zip(names, cells, strict=True)), file.tell()

    def decode(
        self, rows: Sequence[Row], content: Content, path: AnyPath, first: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows as one batch; the columns of a schema are in its order without a header."""
        if content.declared and not self._options.header:
            names = (schema_next_to(path) or content).schema.names
            rows = [dict(zip(names, row.values(), strict=False)) for row in rows]
        yield from super().decode(rows, content, path, first)

    @contextlib.contextmanager
    def write(self, path: Path, content: Content) -> Iterator[WriteBatch]:
        """Give a table to write."""
        with create_text(path) as file:
            # In quotes, texts keep the blanks that they start with.
            delimiter = self._delimiter or ("\t" if plain_suffix(path) == ".tsv" else ",")
            quoting: Any = {"quotechar": self._quote, "quoting": csv.QUOTE_NONNUMERIC}
            writer = csv.writer(file, delimiter=delimiter, **quoting)
            names = content.schema.names + ([LABEL_NAME] if content.named_label else [])
            if self._options.header:
                writer.writerow(names)
            # Of columns in which an empty cell is a value that is missing.
            nullable = {*names} - required_columns(content)
            yield lambda batch: writer.writerows(
                [_cell(value, name in nullable, self._nulls) for name, value in row.items()]
                for row in rows_of(with_texts(content.with_names(batch)))
            )


def _cell(value: Any, nullable: bool, nulls: Sequence[str]) -> str | int | float:
    """Return a cell; a missing value is the first of the texts that stand for one."""
    if isinstance(value, int | float):
        return value
    if isinstance(value, str | bytes):
        data = value if isinstance(value, bytes) else value.encode()
        is_null = (nullable and not data) or data in [text.encode() for text in nulls]
        if b"\0" in data or data.startswith(_BASE64.encode()) or is_null:
            return json.dumps({"base64": base64.b64encode(data).decode()})
    value = as_json(value)
    if value is None:
        return nulls[0] if nulls else ""
    return value if isinstance(value, str) else json.dumps(value)
