"""JSON Lines and CSV: rows as text, with their types in a ``schema.json`` next to them."""

import abc
import base64
import contextlib
import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from itertools import compress
from pathlib import Path
from typing import IO, Any, BinaryIO, ClassVar

import pyarrow as pa

from tfrtool.convert.formats.format_specs import FORMATS
from tfrtool.convert.formats.record_format import Content, Format, ReadPosition, Scan, WriteBatch
from tfrtool.errors import (
    SchemaError,
    SourceError,
    UsageError,
    os_errors_as,
    printable,
)
from tfrtool.examples.arrow.columns import (
    EXACT,
    PAYLOAD,
    TYPES,
    Column,
    Columns,
    DecodedColumns,
    Form,
)
from tfrtool.examples.arrow.foreign import conform, conversion_error
from tfrtool.examples.arrow.value_types import (
    as_logical,
    innermost_type,
    logical_word,
    map_values,
    texts_of,
)
from tfrtool.examples.dtypes import INT64, LEADING_ZERO, NUMBER, as_dtype
from tfrtool.examples.example import DType, PayloadKind, feature_key
from tfrtool.examples.stored_types import SCHEMA, schema_of
from tfrtool.examples.tfds_metadata import DatasetInfo
from tfrtool.features.feature_columns import FeatureColumns
from tfrtool.features.types import Kind, Values, with_info
from tfrtool.inspection.rows.batches import BATCH_BYTES, BATCH_RECORDS, LABEL_NAME, rows_of
from tfrtool.inspection.summary.summary_json import as_json
from tfrtool.sources.formats.csv_options import CsvOptions
from tfrtool.sources.formats.text_rows import (
    DELIMITERS,
    CellTypes,
    cell_number,
    check_column_count,
    check_header,
    check_row_count,
    check_width,
    csv_rows,
    detect_delimiter,
    json_rows,
)
from tfrtool.sources.formats.unpacked import create_packed, open_unpacked, plain_suffix
from tfrtool.storage.json_files import read_json, reading_metadata
from tfrtool.storage.limits import MAX_TEXT_ROW_BYTES
from tfrtool.storage.progress import BYTES, count_work
from tfrtool.storage.remote_path import AnyPath

_POSITION_EVERY = 256
_BASE64 = '{"base64":'
_DEEPEST = 32
"""Levels of objects that become columns."""

_DTYPES = {kind.id: dtype for dtype, kind in TYPES.items()} | {pa.string().id: DType.STRING}
"""By the numbers of Arrow's types: to hash a type takes a microsecond."""

_JSON_DTYPES = {int: DType.INT64, bool: DType.INT64, float: DType.FLOAT32}

Row = Mapping[str, Any]


class _NestedObjectsError(ValueError):
    """A value has objects in it, which no feature can hold."""

    def __init__(self) -> None:
        super().__init__("features can't hold nested objects")


def from_json(value: Any, kind: pa.DataType) -> Any:
    """Return the Arrow value that `as_json` converted to this one.

    A single value stands for a list of it.

    Raises:
        ValueError: the type can't hold it.
    """
    if value is None:
        return None
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        inner = kind.value_type
        values = [from_json(one, inner) for one in (value if isinstance(value, list) else [value])]
        if pa.types.is_fixed_size_list(kind) and len(values) != kind.list_size:
            raise ValueError(f"expected {kind.list_size} values, found {len(values)}")
        if None in values and not pa.types.is_nested(inner):
            raise ValueError("lists can't hold null")
        return values
    if pa.types.is_struct(kind) and isinstance(value, dict):
        if unknown := value.keys() - {one.name for one in kind}:
            raise ValueError(f"unknown key {min(unknown)!r}")
        return {one.name: from_json(value.get(one.name), one.type) for one in kind}
    dtype = _DTYPES.get(kind.id)
    if isinstance(value, dict) and list(value) == ["base64"] and dtype is DType.STRING:
        if not isinstance(value["base64"], str):
            raise ValueError("base64 must be a string")
        return base64.b64decode(value["base64"], validate=True)
    if pa.types.is_map(kind):
        types = kind.key_type, kind.item_type
        return [tuple(map(from_json, pair, types)) for pair in value]
    if pa.types.is_float64(kind):
        return float(value)
    if pa.types.is_integer(kind) and dtype is None:
        return int(value)
    if pa.types.is_boolean(kind) and isinstance(value, int):
        return bool(value)
    if dtype is None:
        raise ValueError(f"{kind} can't hold this {type(value).__name__}")
    return as_dtype(value, dtype)


class RowFormat(Format):
    """Rows of any cells, with a schema of ours next to them, or types that follow from all rows."""

    has_plain_nans = True
    _flatten = False  # whether nested objects become columns

    def _open(self, path: AnyPath, *, trusted: bool = False) -> AbstractContextManager[BinaryIO]:
        """Open a file, decompressed if need be; without limits if it is ``trusted``."""
        return open_unpacked(path, trusted=trusted)

    @abc.abstractmethod
    def _rows(self, file: BinaryIO, path: AnyPath, start: int) -> Iterator[tuple[Row, int]]:
        """Yield rows from an offset on, each with the offset where the next one can be read."""

    def _add(self, column: CellTypes, cell: Any, row: int) -> None:
        """Add a cell without a schema to its column; `ValueError` if no feature holds it."""
        if cell is None:
            return
        column.cells += 1
        column.is_list |= isinstance(cell, list)
        for value in column.add_lists(cell) if isinstance(cell, list) else (cell,):
            if value is None:
                raise ValueError("lists can't hold null")
            if isinstance(value, dict) and list(value) != ["base64"]:
                raise _NestedObjectsError
            column.add(value, _JSON_DTYPES.get(type(value), DType.STRING), row)

    def _named(self, row: Row) -> Row:
        """Return a row without a schema, each column under the name that its feature gets."""
        return row

    def _cells(self, row: Row, number: int) -> Iterable[tuple[str, Any]]:
        try:
            return self._named(row).items()
        except SchemaError as error:
            error.record = number
            raise

    def _notes(self, columns: Mapping[str, CellTypes]) -> list[str]:  # noqa: ARG002
        """Return what becomes of columns, a clause each."""
        return []

    def _value(self, cell: Any, kind: pa.DataType, declared: bool, required: bool) -> Any:  # noqa: ARG002
        """Return a cell as Arrow takes it; `ValueError` if the type can't hold it."""
        if cell is None and required:
            raise ValueError("missing value; other rows have one")
        return from_json(cell, kind)

    def scan(self, path: AnyPath) -> Scan:
        """Read a file through. Without a schema next to it, its columns are inferred."""
        content, positions, rows = schema_next_to(path), [ReadPosition()], 0
        blank = {} if content is None else dict.fromkeys(content.schema.names)
        columns, errors = dict[str, CellTypes](), dict[str, tuple[int, Exception]]()
        left = size = path.stat().st_size
        with os_errors_as(SourceError, path), self._open(path) as file:
            for row, end in self._rows(file, path, 0):
                check_column_count(max(len(row), len(columns)), path)
                for name, cell in self._cells(row, rows) if content is None else ():
                    column = columns.setdefault(name, CellTypes())
                    known = len(column.dtypes)
                    try:
                        self._add(column, cell, rows)
                        if len(column.dtypes) > known:
                            self.widest(column.dtypes)
                    except ValueError as error:
                        errors.setdefault(name, (rows, error))
                if blank:
                    blank = {name: None for name in blank if row.get(name) in (None, "")}
                rows += 1
                check_row_count(rows, size, path)
                if rows % _POSITION_EVERY == 0:
                    count_work(min(end - positions[-1].start, left), BYTES)
                    left = max(left - (end - positions[-1].start), 0)
                    positions.append(ReadPosition(rows, end))
            size = file.tell()
        _raise_all(errors, path, flatten=self._flatten)
        notes = self._notes(columns)
        if content is None:
            content = Content(columns=self._inferred(columns, rows, path), declared=False)
            blank = dict.fromkeys(name for name, one in columns.items() if not one.dtypes)
        numbers = {name: one.numbers for name, one in columns.items() if one.numbers.seen}
        for one in numbers.values():
            one.flush()
        return Scan(
            path=path,
            rows=rows,
            bytes=size,
            positions=positions,
            content=content,
            numbers=numbers,
            blank=tuple(blank),
            notes=tuple(notes),
        )

    def _inferred(self, columns: Mapping[str, CellTypes], rows: int, path: AnyPath) -> Columns:
        """Return the columns that have values."""
        inferred = Columns(
            PayloadKind.EXAMPLE,
            tuple(
                Column(
                    key=feature_key(name),
                    form=Form.LIST
                    if one.is_list
                    else Form.OPTIONAL
                    if one.cells < rows
                    else Form.SCALAR,
                    dtype=dtype,
                    is_text=dtype is DType.STRING and one.is_text,
                    shape=(-1, *one.sizes) if one.is_list else (),
                )
                for name, one in columns.items()
                if (dtype := self.widest(one.dtypes))
            ),
        )
        for name, column in zip(inferred.names, inferred.columns, strict=True):
            if feature_key(name) != column.key:
                raise SchemaError(f"invalid column name {column.key!r}", path=path)
        return inferred

    def read(self, path: AnyPath, position: ReadPosition) -> Iterator[list[Row]]:
        """Yield rows as mappings of cells."""
        return self._batches(path, position.start)

    def read_back(self, path: AnyPath) -> Iterator[list[Row]]:
        """Yield the rows of a file that was just written, without limits."""
        return self._batches(path, 0, trusted=True)

    def _batches(self, path: AnyPath, start: int, *, trusted: bool = False) -> Iterator[list[Row]]:
        rows = list[Row]()
        with os_errors_as(SourceError, path), self._open(path, trusted=trusted) as file:
            for row, end in self._rows(file, path, start):
                rows.append(row)
                if len(rows) == BATCH_RECORDS or end - start > BATCH_BYTES:
                    yield rows
                    rows, start = [], end
            yield rows

    def decode(
        self, rows: Sequence[Row], content: Content, path: AnyPath, first: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows as one batch."""
        arrays, required, columns = list[pa.Array](), _required(content), _as_texts(content.columns)
        errors = dict[str, tuple[int, Exception]]()
        rows = rows if content.declared else [*map(self._named, rows)]
        schema = columns.to_arrow(exact=content.exact)
        for one in schema:
            values: list[Any] = []
            needed = one.name in required
            try:
                for row in rows:
                    cell = row.get(one.name)
                    values.append(self._value(cell, one.type, content.declared, needed))
                arrays.append(pa.array(values, one.type))
            except (ValueError, RecursionError) as error:
                errors[one.name] = first + len(values), error
        _raise_all(errors, path, flatten=self._flatten)
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        if isinstance(content.columns, FeatureColumns):
            yield from_texts(batch, content.schema)
        else:
            yield batch if columns == content.columns else conform(batch, content.columns, first)

    def metadata(self, content: Content, info: DatasetInfo) -> Mapping[str, str]:  # noqa: ARG002
        """Return the schema, which makes the way back lossless."""
        return {SCHEMA: content.to_text()}


class JsonLinesFormat(RowFormat):
    """An object on each line, or in a list; a missing feature is left out, or null."""

    spec = FORMATS["jsonl"]
    widening: ClassVar[Sequence[DType]] = (DType.INT64, DType.FLOAT32)

    def __init__(self, flatten: bool = False) -> None:
        """Choose whether objects become columns of their values."""
        self._flatten = flatten

    def _named(self, row: Row) -> Row:
        if not self._flatten:
            return row
        pairs = [pair for name, cell in row.items() for pair in _flat_cells(name, cell)]
        flat = dict(pairs)
        if len(flat) < len(pairs):
            names = [name for name, _ in pairs]
            duplicate = next(name for name in names if names.count(name) > 1)
            raise SchemaError(f"duplicate column {printable(duplicate)!r}")
        return flat

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

        with _create_text(path) as file:
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


class CsvFormat(RowFormat):
    """Single values as cells, everything else as JSON in a cell; an empty cell is missing."""

    spec = FORMATS["csv"]
    widening = (DType.INT64, DType.FLOAT32, DType.STRING)

    def __init__(self, options: CsvOptions | None = None) -> None:
        """Take the options of CSV."""
        self._options = options = options or CsvOptions()
        self._delimiter, self._nulls = options.delimiter, options.null
        self._quote = "" if options.quote == "none" else options.quote

    def check_written(self) -> None:
        """Raise a `UsageError` for options with which CSV can be read, but not written."""
        self._options.check_written()
        for text in self._nulls:
            if cell_number(text) is not None:
                raise UsageError(f"--null {text!r} is a number, which a value may be")

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

    def _named(self, row: Row) -> Row:
        if "" not in row:
            return row
        names = [*row]  # pandas' index comes first
        new = "index" if not names[0] and "index" not in names else f"Unnamed: {names.index('')}"
        return {name or new: cell for name, cell in row.items()}

    def _add(self, column: CellTypes, cell: Any, row: int) -> None:
        if not cell:
            return
        column.cells += 1
        number = cell_number(cell)
        if number is None and NUMBER.fullmatch(cell) and not LEADING_ZERO.match(cell):
            number = float(cell)  # beyond doubles: an error when it is decoded
        if number is None or (isinstance(number, int) and number not in INT64):
            column.add(cell, DType.STRING, row)
        else:
            column.add(number, _JSON_DTYPES[type(number)], row)

    def _notes(self, columns: Mapping[str, CellTypes]) -> list[str]:
        return [
            f"column {name!r} is text: record {one.text[0]} has {printable(repr(one.text[1][:40]))}"
            for name, one in columns.items()
            if one.text and (len(one.dtypes) > 1 or NUMBER.fullmatch(one.text[1]))
        ]

    def _value(self, cell: Any, kind: pa.DataType, declared: bool, required: bool) -> Any:
        nested = pa.types.is_nested(kind)
        leaf = kind.value_type if nested and not declared else kind  # a cell has JSON of lists
        if not cell and not (required and _DTYPES.get(leaf.id) is DType.STRING):
            return super()._value(None, kind, declared, required)
        if declared and (nested or cell.startswith(_BASE64)):
            cell = json.loads(cell)
        elif pa.types.is_boolean(leaf):
            cell = cell == "True"
        return from_json(cell, kind)

    @contextlib.contextmanager
    def write(self, path: Path, content: Content) -> Iterator[WriteBatch]:
        """Give a table to write."""
        with _create_text(path) as file:
            # In quotes, texts keep the blanks that they start with.
            delimiter = self._delimiter or ("\t" if plain_suffix(path) == ".tsv" else ",")
            quoting: Any = {"quotechar": self._quote, "quoting": csv.QUOTE_NONNUMERIC}
            writer = csv.writer(file, delimiter=delimiter, **quoting)
            names = content.schema.names + ([LABEL_NAME] if content.named_label else [])
            if self._options.header:
                writer.writerow(names)
            # Of columns in which an empty cell is a value that is missing.
            nullable = {*names} - _required(content)
            yield lambda batch: writer.writerows(
                [_cell(value, name in nullable, self._nulls) for name, value in row.items()]
                for row in rows_of(with_texts(content.with_names(batch)))
            )


def with_texts(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with its times and decimals as text."""
    for at, field in enumerate(batch.schema):
        kind = innermost_type(field.type)
        if logical_word(kind) is not None:
            batch = batch.set_column(at, field.name, map_values(batch.column(at), texts_of))
    return batch


def _as_texts(columns: Columns) -> Columns:
    """Return columns with text for times and decimals."""
    if isinstance(columns, FeatureColumns):
        return replace(columns, root=with_info(columns.root, _as_text))
    columns_of_text = (
        replace(one, dtype=DType.STRING, is_text=True, logical=None) if one.logical else one
        for one in columns.columns
    )
    return replace(columns, columns=tuple(columns_of_text))


def _as_text(_: str, values: Values) -> Values:
    """Return text in place of times and decimals."""
    if values.kind is not Kind.TIME:
        return values
    return replace(values, kind=Kind.TEXT, dtype="")


def from_texts(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with the times and decimals of a schema in place of their texts."""
    arrays = []
    for array, field in zip(batch.columns, schema, strict=True):
        kind = innermost_type(field.type)
        if logical_word(kind) is not None:
            array = map_values(array, partial(as_logical, kind=kind))
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _required(content: Content) -> set[str]:
    """Return the names of the columns that have a single value in each row."""
    columns = content.columns
    if isinstance(columns, DecodedColumns):
        return columns.required
    if columns.kind is PayloadKind.EXAMPLE:
        scalars = [one.form is Form.SCALAR for one in columns.columns]
        return {EXACT, *compress(columns.names, scalars)}
    return {EXACT, PAYLOAD}


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


def _raise_all(
    errors: Mapping[str, tuple[int, Exception]], path: AnyPath, *, flatten: bool
) -> None:
    """Raise a `SchemaError` for the columns that can't be converted, each with its first row."""
    has_objects = any(isinstance(error, _NestedObjectsError) for _, error in errors.values())
    hint = None
    if has_objects and not flatten:
        hint = "use --flatten to make columns of the values of objects"
    if len(errors) > 1:
        whys = [f"column {name!r}, record {row}: {why}" for name, (row, why) in errors.items()]
        raise conversion_error(whys, path, hint)
    for name, (row, error) in errors.items():
        raise SchemaError(f"column {name!r}: {error}", path=path, record=row, hint=hint) from error


@contextlib.contextmanager
def _create_text(path: Path) -> Iterator[IO[str]]:
    with create_packed(path) as file, io.TextIOWrapper(file, "utf-8", newline="") as text:
        yield text


def schema_next_to(path: AnyPath) -> Content | None:
    """Return what the schema next to a file says; None if there is none of ours."""
    schema = schema_of(path)
    schema = schema if schema.exists() else path.with_name(SCHEMA)
    with contextlib.suppress(FileNotFoundError), reading_metadata(schema, "tfrtool"):
        data = read_json(schema)
        return Content.from_json(data) if "columns" in data else None
    return None
