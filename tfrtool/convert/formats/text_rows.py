"""JSON Lines and CSV: rows as text, and their types in a ``schema.json`` beside them."""

import base64
import contextlib
import csv
import json
import math
import re
from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tfrtool.convert.formats.registry import (
    Content,
    Format,
    Mark,
    Put,
    Scan,
)
from tfrtool.errors import (
    SchemaError,
    SourceError,
    UsageError,
    human_count,
    os_errors_as,
    printable,
)
from tfrtool.examples.arrow.columns import TYPES, Column, Columns, Form
from tfrtool.examples.dtypes import (
    FLOAT32_END,
    LEADING_ZERO,
    NUMBER,
    NumberRange,
    as_dtype,
    exact_number,
)
from tfrtool.examples.example import DType, PayloadKind, feature_key
from tfrtool.examples.tfds_metadata import DatasetInfo
from tfrtool.inspection.rows.batches import BATCH_BYTES, BATCH_RECORDS, rows_of
from tfrtool.inspection.summary.summary_json import as_json
from tfrtool.sources.tables.table_columns import check_column_count
from tfrtool.sources.tables.table_rows import DELIMITERS, csv_rows, text_lines
from tfrtool.storage.json_files import read_json, reading_metadata
from tfrtool.storage.limits import MAX_TEXT_ROW_BYTES
from tfrtool.storage.opening import open_regular
from tfrtool.storage.progress import BYTES, count_work

SCHEMA = "schema.json"
_MARK_EVERY = 256
_BASE64 = '{"base64":'
_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_INTEGER = re.compile(r"[+-]?[0-9]{1,30}")
_LONG_NUMBER = re.compile(r"[0-9]{16}\.|[0-9]{15}[eE]|[eE]\+?[0-9]{3}")
"""What a number has that may be whole, and beyond what a double holds."""

_SHOWN, _SHORT = 40, 18
_HEAD, _ROWS_LOOKED_AT = 65_536, 100
_DTYPES = {kind: dtype for dtype, kind in TYPES.items()}


def from_json(value: Any, kind: pa.DataType) -> Any:
    """Return what `as_json` has made of a value of this type; `ValueError` if it is no such value.

    A value alone stands for a list of it.
    """
    if value is None:
        return None
    if pa.types.is_list(kind):
        inner = kind.value_type
        held = [from_json(one, inner) for one in (value if isinstance(value, list) else [value])]
        if None in held and not pa.types.is_nested(inner):
            raise ValueError("lists can't hold null")
        return held
    if pa.types.is_struct(kind) and isinstance(value, dict):
        if unknown := value.keys() - {one.name for one in kind}:
            raise ValueError(f"unknown key {min(unknown)!r}")
        return {one.name: from_json(value.get(one.name), one.type) for one in kind}
    if pa.types.is_binary(kind):
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, dict) and list(value) == ["base64"]:
            if not isinstance(value["base64"], str):
                raise ValueError("base64 must be a string")
            return base64.b64decode(value["base64"], validate=True)
    elif pa.types.is_floating(kind) and isinstance(value, str) and value in _WORDS:
        return _WORDS[value]
    elif pa.types.is_floating(kind) and isinstance(value, int | float):
        if not abs(value) >= FLOAT32_END or math.isinf(value):
            return float(value)
    elif isinstance(value, float) and value.is_integer() and pa.types.is_integer(kind):
        return from_json(int(value), kind)
    elif isinstance(value, int) and -(2**63) <= value < 2**63:
        return bool(value) if pa.types.is_boolean(kind) else int(value)
    raise ValueError(f"{kind} can't hold this {type(value).__name__}")


def load_json(text: str, path: Path, where: str) -> Any:
    """Return what JSON says; a `SourceError` for a number that no double holds.

    Python's own reader makes infinity of it.
    """

    def number(digits: str) -> int | float:
        value = exact_number(digits)
        if math.isinf(value):
            what = f"{where}: the number {digits[:_SHOWN]} is too large"
            raise SourceError(what, path=path)
        return value

    return json.loads(text, parse_float=number) if _LONG_NUMBER.search(text) else json.loads(text)


class JsonLinesFormat(Format):
    """An object on each line; a feature that is absent is left out, or null."""

    name = "jsonl"
    own_names = re.compile(r"\.(jsonl|ndjson)$", re.IGNORECASE)
    file_name = "{dataset}-{split}-{index:05d}-of-{count:05d}.jsonl"
    widening: ClassVar[Sequence[DType]] = (DType.INT64, DType.FLOAT32)

    def _rows(self, file: BinaryIO, path: Path, start: int) -> Iterator[Mapping[str, Any]]:
        """Yield rows from an offset on, reading no line beyond the last that was given."""
        lines = text_lines(file, path, start=start, limit=MAX_TEXT_ROW_BYTES)
        for number, line in enumerate(lines, start=1):
            if line.isspace():
                continue
            try:
                row = load_json(line, path, f"line {number}")
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                after = f" after offset {start}" if start else ""
                raise SourceError(f"line {number}{after} is not a JSON object", path=path)
            yield row

    def _kind(self, value: Any) -> tuple[set[DType], bool]:
        """Return the types of a value without a schema, none of null; and whether it is a list."""
        if isinstance(value, list):
            kinds = [self._kind(one) for one in value]
            for dtypes, listed in kinds:
                if listed or not dtypes:
                    raise ValueError(
                        "lists can't hold lists" if listed else "lists can't hold null"
                    )
            return set().union(*(dtypes for dtypes, _ in kinds)), True
        if isinstance(value, dict) and list(value) != ["base64"]:
            raise ValueError("features can't hold nested objects")
        types = {int: DType.INT64, bool: DType.INT64, float: DType.FLOAT32}
        return set() if value is None else {types.get(type(value), DType.STRING)}, False

    def _number(self, value: Any) -> int | float:
        """Return a value of a number's type as a number."""
        return value  # type: ignore[no-any-return]

    def _named(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a row without a schema, each of its columns under the name that it gets."""
        return row

    def _notes(
        self,
        kinds: Mapping[str, set[DType]],  # noqa: ARG002
        texts: Mapping[str, tuple[int, str]],  # noqa: ARG002
    ) -> list[str]:
        """Return what becomes of columns, given the first text of those that have some."""
        return []

    def _value(self, value: Any, kind: pa.DataType, typed: bool) -> Any:
        """Return a value as Arrow takes it; ``typed`` says whether a schema is beside the rows."""
        if typed:
            return from_json(value, kind)
        if pa.types.is_list(kind):
            some = value if isinstance(value, list) else [value]
            return (
                None
                if value is None
                else [self._value(one, kind.value_type, False) for one in some]
            )
        if isinstance(value, int | float):
            return as_dtype(value, _DTYPES[kind])
        return from_json(value, kind)

    def scan(self, path: Path) -> Scan:
        """Read a file through; where no schema is beside it, its columns are inferred."""
        content, marks, rows = _schema_beside(path), [Mark()], 0
        kinds, lists = dict[str, set[DType]](), set[str]()  # of columns
        counts: Counter[str] = Counter()  # of their values
        numbers, texts = dict[str, NumberRange](), dict[str, tuple[int, str]]()
        with os_errors_as(SourceError, path), open_regular(path) as file:
            for row in self._rows(file, path, 0):
                check_column_count(max(len(row), len(kinds)), path)
                for name, value in self._named(row).items() if content is None else ():
                    try:
                        dtypes, listed = self._kind(value)
                        known = kinds.setdefault(name, set())
                        if not dtypes <= known:
                            known |= dtypes
                            self.widest(known)
                    except ValueError as error:
                        what = f"column {name!r}: {error}"
                        raise SchemaError(what, path=path, record=rows) from error
                    if listed:
                        lists.add(name)
                    if DType.STRING in dtypes:
                        texts.setdefault(name, (rows, value))
                    elif dtypes:
                        fold = numbers.setdefault(name, NumberRange())
                        for one in value if listed else (value,):
                            fold.add(self._number(one), rows)
                    counts[name] += bool(dtypes or listed)
                rows += 1
                if rows % _MARK_EVERY == 0:
                    count_work(file.tell() - marks[-1].start, BYTES)
                    marks.append(Mark(rows, file.tell()))
            size = file.tell()
        notes = list[str]()
        if content is None:
            made = []
            for name, dtypes in kinds.items():
                form = Form.LIST if name in lists or counts[name] < rows else Form.SCALAR
                dtype = self.widest(dtypes)
                made += [Column(key=feature_key(name), form=form, dtype=dtype)] if dtype else []
            notes = self._notes(kinds, texts)
            for fold in numbers.values():
                fold.flush()
            content = Content(columns=Columns(PayloadKind.EXAMPLE, tuple(made)), declared=False)
            for name, column in zip(content.columns.names, made, strict=True):
                if feature_key(name) != column.key:
                    raise SchemaError(f"invalid column name {column.key!r}", path=path)
        return Scan(
            path=path,
            rows=rows,
            bytes=size,
            marks=marks,
            content=content,
            numbers=numbers,
            notes=tuple(notes),
        )

    def read(self, path: Path, mark: Mark) -> Iterator[list[Mapping[str, Any]]]:
        """Yield rows as objects."""
        rows, before = list[Mapping[str, Any]](), mark.start
        with os_errors_as(SourceError, path), open_regular(path) as file:
            for row in self._rows(file, path, mark.start):
                rows.append(row)
                if len(rows) == BATCH_RECORDS or file.tell() - before > BATCH_BYTES:
                    yield rows
                    rows, before = [], file.tell()
            yield rows

    def decode(
        self, rows: Sequence[Mapping[str, Any]], content: Content, path: Path, first: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows as one batch."""
        arrays = []
        rows = rows if content.declared else [*map(self._named, rows)]
        for one in content.schema:
            values: list[Any] = []
            try:
                for row in rows:
                    value = self._value(row.get(one.name), one.type, content.declared)
                    if value is None and one.type in TYPES.values():
                        raise ValueError("missing value; other rows have one")
                    values.append(value)
            except (ValueError, RecursionError) as error:
                what = f"column {one.name!r}: {error}"
                raise SchemaError(what, path=path, record=first + len(values)) from error
            arrays.append(pa.array(values, one.type))
        yield pa.RecordBatch.from_arrays(arrays, schema=content.schema)

    def doubles(
        self, rows: Sequence[Mapping[str, Any]], content: Content
    ) -> dict[str, tuple[NDArray[np.float64], NDArray[np.int64]]]:
        """Return the numbers of rows as the file has them, where they become float32."""
        found = {}
        for name, one in zip(content.columns.names, content.columns.columns, strict=False):
            if one.dtype is not DType.FLOAT32 or content.declared:
                continue
            values, places = array("d"), array("q")
            for place, row in enumerate(map(self._named, rows)):
                value = row.get(name)
                for number in value if isinstance(value, list) else (value,):
                    if number is not None and number != "":
                        values.append(float(number))
                        places.append(place)
            found[name] = np.array(values, np.float64), np.array(places, np.int64)
        return found

    @contextlib.contextmanager
    def write(self, path: Path, content: Content) -> Iterator[Put]:  # noqa: ARG002
        """Give a file to write."""

        def lines(batch: pa.RecordBatch) -> Iterator[str]:
            return (json.dumps(as_json(row), ensure_ascii=False) + "\n" for row in rows_of(batch))

        with path.open("x", encoding="utf-8", newline="") as file:
            yield lambda batch: file.writelines(lines(batch))

    def beside(self, content: Content, info: DatasetInfo) -> Mapping[str, str]:  # noqa: ARG002
        """Return the schema, which makes the way back lossless."""
        return {SCHEMA: json.dumps(content.to_json(), indent=1) + "\n"}


class CsvFormat(JsonLinesFormat):
    """Scalars as cells, all else as JSON in a cell; an empty cell is absent."""

    name = "csv"
    own_names = re.compile(r"\.(csv|tsv)$", re.IGNORECASE)
    file_name = "{dataset}-{split}-{index:05d}-of-{count:05d}.csv"
    widening = (DType.INT64, DType.FLOAT32, DType.STRING)

    def __init__(self, delimiter: str | None = None) -> None:
        """Take the character between columns, or "tab"; None finds it in each file."""
        self._delimiter = "\t" if delimiter in ("tab", r"\t") else delimiter
        if self._delimiter is not None and not re.fullmatch(r'[^"\r\n\0]', self._delimiter):
            raise UsageError(f"invalid --delimiter {delimiter!r}: expected one character, or tab")

    def scan(self, path: Path) -> Scan:
        """Read a file through, and note how its header was read."""
        scan = super().scan(path)
        if scan.content.declared:
            return scan
        notes = []
        with os_errors_as(SourceError, path), open_regular(path) as file:
            delimiter = self._delimiter or _delimiter_of(file, path)
            names = next(csv_rows(file, path, delimiter, limit=MAX_TEXT_ROW_BYTES), [])
        if delimiter != DELIMITERS[0] and self._delimiter is None:
            shown = "tab" if delimiter == "\t" else repr(delimiter)
            notes.append(f"detected the delimiter {shown}; use --delimiter to choose another")
        if "" in names:
            number, name = names.index("") + 1, _name_of_unnamed(names)
            notes.append(f"column {number} has no name; it becomes {name!r}")
        return replace(scan, notes=(*notes, *scan.notes))

    def losses(self, content: Content) -> list[str]:
        """Say what only the schema beside the table tells."""
        if not content.schema.names:
            raise SchemaError("CSV needs at least one feature, and the records have none")
        lists = [one.name for one in content.schema if pa.types.is_nested(one.type)]
        return [f"lists become JSON text: {', '.join(map(repr, lists))}"] if lists else []

    def _rows(self, file: BinaryIO, path: Path, start: int) -> Iterator[Mapping[str, Any]]:
        csv.field_size_limit(MAX_TEXT_ROW_BYTES)
        delimiter = self._delimiter or _delimiter_of(file, path)
        names = next(csv_rows(file, path, delimiter, limit=MAX_TEXT_ROW_BYTES), [])
        check_column_count(len(names), path)
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise SourceError(f"two columns are named {printable(twice)!r}", path=path)
        first = not start
        start = start or file.tell()
        rows = csv_rows(file, path, delimiter, start=start, limit=MAX_TEXT_ROW_BYTES)
        for number, cells in enumerate(filter(None, rows)):
            if len(cells) != len(names):
                what = f"{human_count(len(cells), 'cell')} in a table of {len(names)} columns"
                raise SourceError(what, path=path, record=number if first else None)
            yield dict(zip(names, cells, strict=True))

    def _named(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        if "" not in row:
            return row
        new = _name_of_unnamed(row)
        return {name or new: value for name, value in row.items()}

    def _kind(self, value: Any) -> tuple[set[DType], bool]:
        if not value:
            return set(), False
        if _is_short(value):  # most are, and take a third of the time
            return {DType.INT64}, False
        if _INTEGER.fullmatch(value):
            held = -(2**63) <= int(value) < 2**63 and not LEADING_ZERO.match(value)
            return {DType.INT64 if held else DType.STRING}, False
        number = NUMBER.fullmatch(value) and not LEADING_ZERO.match(value)
        return {DType.FLOAT32 if number else DType.STRING}, False

    def _number(self, value: Any) -> int | float:
        whole = _is_short(value) or _INTEGER.fullmatch(value)
        return int(value) if whole else exact_number(value)

    def _notes(
        self, kinds: Mapping[str, set[DType]], texts: Mapping[str, tuple[int, str]]
    ) -> list[str]:
        notes = []
        for name, (row, text) in texts.items():
            shown = printable(repr(text[:_SHOWN]))
            if LEADING_ZERO.match(text) and NUMBER.fullmatch(text):
                notes.append(
                    f"column {name!r} stays text: {shown} in record {row} starts with a zero"
                )
            elif _INTEGER.fullmatch(text):
                notes.append(f"column {name!r} stays text: {shown} in record {row} is not an int64")
            elif len(kinds[name]) > 1:
                notes.append(f"column {name!r} becomes text: record {row} has {shown}")
        return notes

    def _value(self, value: Any, kind: pa.DataType, typed: bool) -> Any:
        nested = pa.types.is_nested(kind)
        leaf = kind.value_type if nested and not typed else kind  # of lists, JSON is in a cell
        if not value and (nested or not pa.types.is_binary(leaf)):
            return None
        if not typed:
            dtype = _DTYPES[leaf]
            plain = dtype is DType.INT64 and _is_short(value)
            value = int(value) if plain else as_dtype(value, dtype)
            return [value] if nested else value
        if pa.types.is_binary(leaf):
            value = json.loads(value) if value.startswith(_BASE64) else value
        elif pa.types.is_nested(leaf):
            value = json.loads(value)
        else:
            read = float if pa.types.is_floating(leaf) else int
            value = value == "True" if pa.types.is_boolean(leaf) else read(value)
        return from_json(value, kind)

    @contextlib.contextmanager
    def write(self, path: Path, content: Content) -> Iterator[Put]:
        """Give a table to write."""
        with path.open("x", encoding="utf-8", newline="") as file:
            # Quoted, texts keep the blanks that they start with.
            delimiter = self._delimiter or ("\t" if _is_tsv(path) else ",")
            writer = csv.writer(file, delimiter=delimiter, quoting=csv.QUOTE_NONNUMERIC)
            writer.writerow(content.schema.names)
            yield lambda batch: writer.writerows(map(_cell, row.values()) for row in rows_of(batch))


def _is_tsv(path: Path) -> bool:
    return path.suffix.lower() == ".tsv"


def _delimiter_of(file: BinaryIO, path: Path) -> str:
    """Return the character that makes most columns, as many in each of the first rows."""
    file.seek(0)
    head = file.read(_HEAD).decode("utf-8-sig", "replace")
    lines = head.splitlines(keepends=True)
    lines = lines[:-1] if len(lines) > 1 and len(head) >= _HEAD else lines
    widths = {}
    for delimiter in "\t" if _is_tsv(path) else DELIMITERS:
        counts = set[int]()
        reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
        try:
            counts.update(len(cells) for cells in islice(reader, _ROWS_LOOKED_AT) if cells)
        except csv.Error as error:
            if "unexpected end" not in str(error):  # a row that goes on behind the head
                continue
        widths[delimiter] = counts.pop() if len(counts) == 1 else 1
    return max(widths, key=lambda one: widths[one], default=DELIMITERS[0])


def _name_of_unnamed(names: Collection[str]) -> str:
    """Return the name that a column without one gets, which pandas' index is."""
    place = [*names].index("")
    return "index" if not place and "index" not in names else f"Unnamed: {place}"


def _is_short(text: str) -> bool:
    """Return whether a text is an integer without a sign, of few digits."""
    digits = text.isdecimal() and text.isascii() and len(text) <= _SHORT
    return digits and (text[0] != "0" or len(text) == 1)


def _cell(value: Any) -> str | int | float:
    if isinstance(value, int | float):
        return value
    if isinstance(value, bytes) and (b"\0" in value or value.startswith(_BASE64.encode())):
        return json.dumps({"base64": base64.b64encode(value).decode()})
    plain = as_json(value)
    return "" if plain is None else plain if isinstance(plain, str) else json.dumps(plain)


def _schema_beside(path: Path) -> Content | None:
    """Return what the schema beside a file says; None where there is none of ours."""
    place = path.with_name(f"{path.stem}.{SCHEMA}")
    place = place if place.exists() else path.with_name(SCHEMA)
    with contextlib.suppress(FileNotFoundError), reading_metadata(place, "tfrtool"):
        data = read_json(place)
        return Content.from_json(data) if "columns" in data else None
    return None
