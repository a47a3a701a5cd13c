"""CSV and JSON files as Arrow tables, whose columns have types that hold every value as it is.

Features have fewer types: see `tfrtool.convert.formats.cell_columns`.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import pyarrow as pa

from tfrtool.errors import SourceError, os_errors_as, printable, reason_of
from tfrtool.examples.dtypes import INT64
from tfrtool.sources.formats.cell_types import cell_number
from tfrtool.sources.formats.csv_rows import check_header, check_width, csv_rows, detect_delimiter
from tfrtool.sources.formats.json_rows import json_rows
from tfrtool.sources.formats.table_limits import check_column_count, check_row_count
from tfrtool.sources.formats.unpacked import open_unpacked, plain_suffix
from tfrtool.storage.limits import MAX_TEXT_ROW_BYTES
from tfrtool.storage.remote_path import AnyPath

_BATCH_ROWS, _BATCH_BYTES = 8192, 16 * 1024 * 1024
_EXACT_DOUBLE = 2**53
_UINT64 = range(2**64)
_DEEPEST, _MOST_KEYS = 16, 1000
"""Levels and keys of objects that become a struct; others are JSON text."""

_KINDS = {bool: "bool", int: "int", float: "float", str: "text", list: "list", dict: "object"}

Row = Mapping[str, Any]
Convert = Callable[[Any], Any]


@dataclass(slots=True)
class JsonTypes:
    """A fold over the values of a JSON column, or of a list or an object in it."""

    kinds: set[str] = field(default_factory=set)
    lowest: int = 0  # of the whole numbers, and 0
    highest: int = 0
    fits_double: bool = True  # whether a double holds each whole number
    items: "JsonTypes | None" = None  # of lists
    members: dict[str, "JsonTypes"] = field(default_factory=dict)  # of objects, by key
    is_struct: bool = True  # whether the objects can become structs

    def add(self, value: Any, depth: int = 0) -> None:
        """Add a value; null adds nothing."""
        if value is None:
            return
        kind = _KINDS[type(value)]
        self.kinds.add(kind)
        if kind == "int":
            self.lowest, self.highest = min(self.lowest, value), max(self.highest, value)
            if not -_EXACT_DOUBLE <= value <= _EXACT_DOUBLE:
                self.fits_double = self.fits_double and _fits_double(value)
        elif kind == "list":
            self.items = self.items or JsonTypes()
            for item in value if depth < _DEEPEST else ():
                self.items.add(item, depth + 1)
        elif kind == "object" and self.is_struct:
            for key, member in value.items() if depth < _DEEPEST else ():
                self.members.setdefault(key, JsonTypes()).add(member, depth + 1)
            self.is_struct = depth < _DEEPEST and len(self.members) <= _MOST_KEYS

    def column(self, depth: int = 0) -> tuple[pa.DataType, Convert | None]:
        """Return the Arrow type that holds all values, and what makes its values of them.

        It is text if no other type does: values that are not text are JSON then.
        """
        if self.kinds <= {"text"}:
            return pa.string(), None
        if self.kinds == {"bool"}:
            return pa.bool_(), None
        if self.kinds == {"int"} and self.lowest in INT64 and self.highest in INT64:
            return pa.int64(), None
        if self.kinds == {"int"} and self.lowest in _UINT64 and self.highest in _UINT64:
            return pa.uint64(), None
        if self.kinds <= {"int", "float"} and "float" in self.kinds and self.fits_double:
            return pa.float64(), float
        if self.kinds == {"list"} and self.items is not None and depth < _DEEPEST:
            kind, convert = self.items.column(depth + 1)
            return pa.list_(kind), convert and (
                lambda values: [_nullable(convert, one) for one in values]
            )
        if self.kinds == {"object"} and self._has_struct_keys():
            return self._struct(depth)
        return pa.string(), _json_text

    def _has_struct_keys(self) -> bool:
        """Return whether DuckDB keeps the keys of the objects distinct and unchanged."""
        names = {key.casefold() for key in self.members}
        is_odd = any("\0" in key or not key for key in self.members)
        return self.is_struct and len(names) == len(self.members) > 0 and not is_odd

    def _struct(self, depth: int) -> tuple[pa.DataType, Convert]:
        columns = {key: one.column(depth + 1) for key, one in self.members.items()}
        converts = {key: convert for key, (_, convert) in columns.items() if convert is not None}

        def to_struct(value: dict[str, Any]) -> dict[str, Any]:
            changed = {key: _nullable(convert, value.get(key)) for key, convert in converts.items()}
            return value | changed

        kind = pa.struct([(key, kind) for key, (kind, _) in columns.items()])
        return kind, to_struct


def _fits_double(value: int) -> bool:
    try:
        return float(value) == value
    except OverflowError:
        return False


def _nullable(convert: Convert, value: Any) -> Any:
    return None if value is None else convert(value)


def _json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


@dataclass(slots=True)
class CsvCellTypes:
    """A fold over the cells of a CSV column: numbers if all are, otherwise text as it is."""

    numbers: JsonTypes = field(default_factory=JsonTypes)
    is_text: bool = False

    def add(self, cell: str | None) -> None:
        """Add a cell; None, or "" in a column of numbers, is NULL."""
        if not cell or self.is_text:
            return
        number = cell_number(cell)
        self.is_text = number is None
        self.numbers.add(number)

    def column(self) -> tuple[pa.DataType, Convert | None]:
        """Return what `JsonTypes.column` does."""
        kind, _ = self.numbers.column()
        if self.is_text or kind == pa.string():
            return pa.string(), None
        read = float if kind == pa.float64() else cell_number
        return kind, lambda cell: read(cell) if cell else None


@dataclass(frozen=True, slots=True)
class TextTable:
    """A file of CSV, JSON Lines or a JSON list, that was read through once for its types."""

    path: AnyPath
    columns: Mapping[str, tuple[pa.DataType, Convert | None]]

    @classmethod
    def scan(cls, path: AnyPath) -> "TextTable":
        """Read a file through; `SourceError` names the row that is wrong."""
        types: dict[str, JsonTypes | CsvCellTypes] = {}
        with os_errors_as(SourceError, path), open_unpacked(path) as file:
            size = path.stat().st_size
            names, rows = _read_rows(file, path)
            types |= {name: CsvCellTypes() for name in names}
            for number, row in enumerate(rows):
                try:
                    for name, value in row.items():
                        types.setdefault(name, JsonTypes()).add(value)
                except RecursionError:
                    raise SourceError("nested too deeply", path=path, record=number) from None
                check_column_count(len(types), path)
                check_row_count(number + 1, size, path)
        if not types:
            raise SourceError("it is empty", path=path)
        return cls(path, {name: one.column() for name, one in types.items()})

    def schema(self) -> pa.Schema:
        """Return the types of the columns."""
        return pa.schema([(name, kind) for name, (kind, _) in self.columns.items()])

    def batches(self, names: Collection[str]) -> Iterator[pa.RecordBatch]:
        """Yield all rows, with the columns of these names."""
        columns = {name: one for name, one in self.columns.items() if name in names}
        schema = pa.schema([(name, kind) for name, (kind, _) in columns.items()])
        rows, first, start = list[Row](), 0, 0
        with os_errors_as(SourceError, self.path), open_unpacked(self.path) as file:
            for row in _read_rows(file, self.path)[1]:
                rows.append(row)
                if len(rows) == _BATCH_ROWS or file.tell() - start > _BATCH_BYTES:
                    yield self._batch(rows, first, schema)
                    first, start = first + len(rows), file.tell()
                    rows = []
        yield self._batch(rows, first, schema)

    def _batch(self, rows: Sequence[Row], first: int, schema: pa.Schema) -> pa.RecordBatch:
        arrays = []
        for name, kind in zip(schema.names, schema.types, strict=True):
            values, convert = [row.get(name) for row in rows], self.columns[name][1]
            try:
                if convert is not None:
                    values = [_nullable(convert, value) for value in values]
                arrays.append(pa.array(values, kind))
            except (ValueError, TypeError, RecursionError, pa.ArrowException) as error:
                what = f"the values of column {printable(name)!r} can't be read as {kind}"
                found = f"{reason_of(error)}"
                raise SourceError(what, path=self.path, record=first, found=found) from error
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _read_rows(file: BinaryIO, path: AnyPath) -> tuple[Sequence[str], Iterator[Row]]:
    """Return the column names of CSV, none for JSON, and the rows."""
    if plain_suffix(path) not in (".csv", ".tsv"):
        return (), _json_objects(file, path)
    delimiter = detect_delimiter(file, path)
    lines = csv_rows(file, path, delimiter, limit=MAX_TEXT_ROW_BYTES, nulls=True)
    names = [name or "" for name in next(lines, ())]
    check_header(names, path)
    return names, _csv_objects(names, lines, path)


def _csv_objects(
    names: Sequence[str], lines: Iterable[Sequence[str | None]], path: AnyPath
) -> Iterator[Row]:
    for number, cells in enumerate(filter(None, lines)):
        check_width(cells, names, path, number)
        yield dict(zip(names, cells, strict=True))


def _json_objects(file: BinaryIO, path: AnyPath) -> Iterator[Row]:
    for position, _, _, row in json_rows(file, path, limit=MAX_TEXT_ROW_BYTES):
        if isinstance(row, str):
            raise SourceError(f"{position}: {row}", path=path)
        yield row
