"""Cells of rows as Arrow columns: their types and their values."""

import base64
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import compress
from typing import Any

import pyarrow as pa

from tfrtool.convert.formats.record_format import Content
from tfrtool.errors import SchemaError
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
from tfrtool.examples.dtypes import NumberRange, as_dtype
from tfrtool.examples.example import DType, PayloadKind, feature_key
from tfrtool.features.feature_columns import FeatureColumns
from tfrtool.features.types import Kind, Values, with_info
from tfrtool.sources.formats.cell_types import CellTypes
from tfrtool.storage.remote_path import AnyPath

_DTYPES = {kind.id: dtype for dtype, kind in TYPES.items()} | {pa.string().id: DType.STRING}
"""By the numbers of Arrow's types: to hash a type takes a microsecond."""

JSON_DTYPES = {int: DType.INT64, bool: DType.INT64, float: DType.FLOAT32}

Row = Mapping[str, Any]
_Errors = dict[str, tuple[int, Exception]]
"""The first row of each column that can't be converted, and why."""


class _NestedObjectsError(ValueError):
    """A value has objects in it, which no feature can hold."""

    def __init__(self) -> None:
        super().__init__("features can't hold nested objects")


class CellReader:
    """What cells of JSON stand for; those of other formats derive from it. It has no state."""

    nested_hint: str | None = "use --flatten to make columns of the values of objects"

    def named(self, row: Row) -> Row:
        """Return a row without a schema, each column under the name that its feature gets."""
        return row

    def add(self, column: CellTypes, cell: Any, row: int) -> None:
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
            column.add(value, JSON_DTYPES.get(type(value), DType.STRING), row)

    def notes(self, columns: Mapping[str, CellTypes]) -> list[str]:  # noqa: ARG002
        """Return what becomes of columns, a clause each."""
        return []

    def value(self, cell: Any, kind: pa.DataType, declared: bool, required: bool) -> Any:  # noqa: ARG002
        """Return a cell as Arrow takes it; `ValueError` if the type can't hold it."""
        if cell is None and required:
            raise ValueError("missing value; other rows have one")
        return from_json(cell, kind)


class ColumnInference:
    """A fold over rows without a schema: the columns that hold their cells."""

    def __init__(
        self, cells: CellReader, widest: Callable[[Collection[DType]], DType | None]
    ) -> None:
        """Take what cells stand for, and which type holds values of several types."""
        self._cells, self._widest = cells, widest
        self.columns: dict[str, CellTypes] = {}
        self._errors: _Errors = {}

    def add(self, row: Row, number: int) -> None:
        """Add a row; `SchemaError` if its columns can't be told apart."""
        try:
            named = self._cells.named(row).items()
        except SchemaError as error:
            error.record = number
            raise
        for name, cell in named:
            column = self.columns.setdefault(name, CellTypes())
            known = len(column.dtypes)
            try:
                self._cells.add(column, cell, number)
                if len(column.dtypes) > known:
                    self._widest(column.dtypes)
            except ValueError as error:
                self._errors.setdefault(name, (number, error))

    def notes(self, path: AnyPath) -> list[str]:
        """Return what becomes of columns; `SchemaError` for those that can't be converted."""
        _raise_all(self._errors, path, self._cells.nested_hint)
        return self._cells.notes(self.columns)

    @property
    def blank(self) -> list[str]:
        """The columns without values."""
        return [name for name, one in self.columns.items() if not one.dtypes]

    @property
    def numbers(self) -> dict[str, NumberRange]:
        """The range of the numbers in each column that has any."""
        numbers = {name: one.numbers for name, one in self.columns.items() if one.numbers.seen}
        for one in numbers.values():
            one.flush()
        return numbers

    def result(self, rows: int, path: AnyPath) -> Columns:
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
                for name, one in self.columns.items()
                if (dtype := self._widest(one.dtypes))
            ),
        )
        for name, column in zip(inferred.names, inferred.columns, strict=True):
            if feature_key(name) != column.key:
                raise SchemaError(f"invalid column name {column.key!r}", path=path)
        return inferred


def decode_rows(
    cells: CellReader, rows: Sequence[Row], content: Content, path: AnyPath, first: int
) -> pa.RecordBatch:
    """Return rows as a batch; `SchemaError` with the first row of each column that doesn't fit."""
    arrays, required = list[pa.Array](), required_columns(content)
    columns, errors = _as_texts(content.columns), _Errors()
    rows = rows if content.declared else [*map(cells.named, rows)]
    schema = columns.to_arrow(exact=content.exact)
    for one in schema:
        values: list[Any] = []
        needed = one.name in required
        try:
            for row in rows:
                cell = row.get(one.name)
                values.append(cells.value(cell, one.type, content.declared, needed))
            arrays.append(pa.array(values, one.type))
        except (ValueError, RecursionError) as error:
            errors[one.name] = first + len(values), error
    _raise_all(errors, path, cells.nested_hint)
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    if isinstance(content.columns, FeatureColumns):
        return from_texts(batch, content.schema)
    return batch if columns == content.columns else conform(batch, content.columns, first)


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


def required_columns(content: Content) -> set[str]:
    """Return the names of the columns that have a single value in each row."""
    columns = content.columns
    if isinstance(columns, DecodedColumns):
        return columns.required
    if columns.kind is PayloadKind.EXAMPLE:
        scalars = [one.form is Form.SCALAR for one in columns.columns]
        return {EXACT, *compress(columns.names, scalars)}
    return {EXACT, PAYLOAD}


def _raise_all(
    errors: Mapping[str, tuple[int, Exception]], path: AnyPath, nested_hint: str | None
) -> None:
    """Raise a `SchemaError` for the columns that can't be converted, each with its first row."""
    has_objects = any(isinstance(error, _NestedObjectsError) for _, error in errors.values())
    hint = nested_hint if has_objects else None
    if len(errors) > 1:
        whys = [f"column {name!r}, record {row}: {why}" for name, (row, why) in errors.items()]
        raise conversion_error(whys, path, hint)
    for name, (row, error) in errors.items():
        raise SchemaError(f"column {name!r}: {error}", path=path, record=row, hint=hint) from error
