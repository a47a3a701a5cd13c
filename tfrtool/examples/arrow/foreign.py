"""Tables of any Arrow types as columns of features."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tfrtool.errors import SchemaError, reason_of
from tfrtool.examples.arrow.arrays import list_array
from tfrtool.examples.arrow.columns import EXACT, FEATURE, PLACES, TYPES, Column, Columns, Form
from tfrtool.examples.dtypes import as_dtype
from tfrtool.examples.example import DType, PayloadKind, feature_key, feature_name

_BYTES = {"binary", "large_binary", "fixed_size_binary", "binary_view"} | {
    "string", "large_string", "string_view"
}  # fmt: skip
"""The names of the types of bytes and texts."""

_IMAGE = {"bytes", "path"}
"""The fields of Hugging Face's images; the bytes are what is kept."""


def foreign_columns(schema: pa.Schema) -> tuple[Columns, tuple[str, ...]]:
    """Return the columns that hold the rows of any schema, and notes on what changes.

    Raises:
        SchemaError: no feature holds a column; the error names it.
    """
    columns, notes = [], []
    for key, field in _keys(schema).items():
        kind, form = _plain_type(field.type), Form.SCALAR
        if pa.types.is_null(kind):
            notes.append(f"column {field.name!r} has no values; skipped")
            continue
        if kind == FEATURE:
            columns.append(Column(key=key, form=Form.FEATURE, dtype=None))
            continue
        if _is_list(kind):
            kind, form = _plain_type(kind.value_type), Form.LIST
        dtype, note = _mapping(kind)
        if dtype is None:
            raise SchemaError(
                f"unsupported type of column {field.name!r}",
                expected="numbers, strings, bytes, times or lists of them, or --select without it",
                found=field.type,
            )
        if note:
            notes.append(f"column {field.name!r}: {note}")
        columns.append(Column(key=key, form=form, dtype=dtype))
    return Columns(PayloadKind.EXAMPLE, tuple(columns)), tuple(notes)


def _keys(schema: pa.Schema) -> dict[bytes, pa.Field]:
    """Return the columns that are features, by the features' keys."""
    declared = Columns.declared(schema)
    known = {} if declared is None else dict(zip(declared.names, declared.columns, strict=False))
    own = () if declared is None else (EXACT, *PLACES)
    found: dict[bytes, pa.Field] = {}
    for field in schema:
        key = known[field.name].key if field.name in known else feature_key(field.name)
        if key in found:
            raise SchemaError(f"duplicate column {field.name!r}")
        if field.name not in own:
            found[key] = field
    return found


def _mapping(kind: pa.DataType) -> tuple[DType | None, str]:
    """Return the type of feature that holds values of a type, if one does; and what changes."""
    types = pa.types
    if types.is_integer(kind) or types.is_boolean(kind):
        return DType.INT64, ""
    if types.is_floating(kind):
        return DType.FLOAT32, ""
    if types.is_decimal(kind):
        return DType.STRING, "decimals become text with all their digits"
    if types.is_temporal(kind) and not types.is_interval(kind):
        cut = "; nanoseconds are truncated" if getattr(kind, "unit", "") == "ns" else ""
        return DType.INT64, f"times become int64, in microseconds{cut}"
    if types.is_struct(kind) and {field.name for field in kind} == _IMAGE:
        return DType.STRING, "image bytes are kept, paths are dropped"
    return (DType.STRING if str(kind).partition("[")[0] in _BYTES else None), ""


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        return _plain_type(kind.storage_type)
    encoded = pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind)
    return _plain_type(kind.value_type) if encoded else kind


def _plain(array: pa.Array) -> pa.Array:
    """Return an array without what is wrapped around its values."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(array.storage)
    if pa.types.is_dictionary(kind):
        return _plain(array.dictionary_decode())
    return _plain(pc.run_end_decode(array)) if pa.types.is_run_end_encoded(kind) else array


def double_columns(schema: pa.Schema) -> dict[str, bytes]:
    """Return the names of the columns of doubles, or of lists of them, with the features' keys."""
    found = {}
    for key, field in _keys(schema).items():
        kind = _plain_type(field.type)
        if pa.types.is_float64(_plain_type(kind.value_type) if _is_list(kind) else kind):
            found[field.name] = key
    return found


def flat_values(array: pa.Array) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the numbers of a column, without nulls, and the row of each from 0."""
    array, rows = _plain(array), np.arange(len(array))
    if _is_list(array.type):
        rows = np.repeat(rows, np.asarray(pc.fill_null(pc.list_value_length(array), 0)))
        array = _plain(array.flatten())
    return np.asarray(array.drop_null()), rows[np.asarray(array.is_valid())]


def conform(batch: pa.RecordBatch, columns: Columns, first_row: int) -> pa.RecordBatch:
    """Return a batch of any Arrow types as one of these columns.

    ``columns`` are those of its schema: of `Columns.from_arrow` or `foreign_columns`, or some of
    them, perhaps with other types of value. Rows are counted from ``first_row``, which is that of
    the batch's first.

    Raises:
        SchemaError: a value that no feature holds; the error names the column and the row.
    """
    exact = EXACT in batch.schema.names and Columns.declared(batch.schema) is not None
    schema = columns.to_arrow(exact=exact)
    if columns.kind is PayloadKind.EXAMPLE:
        fields = _keys(batch.schema)
        arrays = []
        for column in columns.columns:
            if column.key not in fields:
                raise SchemaError(f"no column {feature_name(column.key)!r} from row {first_row} on")
            name = fields[column.key].name
            arrays.append(_Cells(name, first_row).conformed(batch.column(name), column))
        arrays += [batch.column(EXACT)] if exact else []
        if not arrays:
            return batch.select([])
        return pa.record_batch(arrays, schema=schema)
    try:
        return batch.select(schema.names).cast(schema)
    except (KeyError, ValueError, pa.ArrowException) as error:
        raise SchemaError(f"the schema changes at row {first_row}: {reason_of(error)}") from error


class _Cells:
    """The cells of a column, of which errors say where they are."""

    def __init__(self, name: str, first_row: int) -> None:
        self._name, self._first = name, first_row

    def _refuse(self, rows: NDArray[np.int64], wrong: pa.Array, what: str) -> None:
        """Raise a `SchemaError` if one of the values, whose rows are given, is wrong."""
        bad = np.flatnonzero(np.asarray(pc.fill_null(wrong, False)))
        if len(bad):
            raise SchemaError(f"column {self._name!r}, row {self._first + rows[bad[0]]}: {what}")

    def conformed(self, array: pa.Array, column: Column) -> pa.Array:
        """Return an array with the type of a column."""
        array = _plain(array)
        rows = np.arange(len(array))
        if column.dtype is None:
            return array.cast(FEATURE)
        lists = _is_list(array.type)
        if lists != (column.form is Form.LIST):
            # The schema of another file.
            raise SchemaError(f"the type of column {self._name!r} changes", found=array.type)
        if not lists:
            return self._values(array, column.dtype, rows)
        counts = np.asarray(pc.fill_null(pc.list_value_length(array), 0))
        values = _plain(array.flatten())
        rows = np.repeat(rows, counts)
        self._refuse(rows, values.is_null(), "a null within a list, which a feature can't store")
        values = self._values(values, column.dtype, rows)
        places = np.flatnonzero(np.asarray(array.is_valid()))
        return list_array(column.type, len(array), places, counts[places], values)

    def _values(self, array: pa.Array, dtype: DType, rows: NDArray[np.int64]) -> pa.Array:
        kind, held = array.type, TYPES[dtype]
        types = pa.types
        natural = _mapping(kind)[0]
        if natural is None:
            raise SchemaError(f"the type of column {self._name!r} changes", found=kind)
        if types.is_struct(kind):
            data, path = (pc.struct_field(array, name) for name in ("bytes", "path"))
            lost = pc.and_(data.is_null(), path.is_valid())
            self._refuse(rows, lost, "an image with a path but no bytes")
            return self._values(data, dtype, rows)
        if types.is_decimal(kind):
            texts = [None if one is None else format(one, "f") for one in array.to_pylist()]
            array = pa.array(texts, pa.string())
        if types.is_temporal(kind):
            array = self._microseconds(array, rows)
        if types.is_float64(kind) and dtype is DType.FLOAT32:
            cast = array.cast(held)
            infinite = pc.and_(pc.is_inf(cast), pc.invert(pc.is_inf(array)))
            self._refuse(rows, infinite, "a double too large for float32")
            return cast
        if types.is_float64(kind) and dtype is DType.INT64:
            return self._cast(array, held, rows, "a double that is not an int64")
        if natural is dtype:
            return self._cast(array, held, rows, f"a {kind} too large for {dtype.value}")
        return self._converted(array, dtype, rows)

    def _cast(
        self, array: pa.Array, kind: pa.DataType, rows: NDArray[np.int64], what: str
    ) -> pa.Array:
        """Return values as another type; a `SchemaError` names the first that does not fit."""
        try:
            return array.cast(kind)
        except pa.ArrowInvalid:
            for row, value in zip(rows, array, strict=True):
                try:
                    value.cast(kind)
                except pa.ArrowInvalid:
                    where = f"column {self._name!r}, row {self._first + row}"
                    raise SchemaError(f"{where}: {what}") from None
            raise

    def _converted(self, array: pa.Array, dtype: DType, rows: NDArray[np.int64]) -> pa.Array:
        """Return values of one type as another, which was asked for."""
        values: list[Any] = []
        for value in array.to_pylist():
            try:
                values.append(None if value is None else as_dtype(value, dtype))
            except ValueError as error:
                row = self._first + rows[len(values)]
                raise SchemaError(f"column {self._name!r}, row {row}: {error}") from None
        return pa.array(values, TYPES[dtype])

    def _microseconds(self, array: pa.Array, rows: NDArray[np.int64]) -> pa.Array:
        types, kind = pa.types, array.type
        if getattr(kind, "unit", "") == "ns":
            whole = np.asarray(array.cast(pa.int64()).fill_null(0)) // 1000
            return pa.array(whole, mask=np.asarray(array.is_null()))
        if types.is_date32(kind):
            array = array.cast(pa.timestamp("s"))
        micros = pa.timestamp("us", getattr(kind, "tz", None))
        if types.is_time(kind) or types.is_duration(kind):
            micros = pa.time64("us") if types.is_time(kind) else pa.duration("us")
        what = "a time that doesn't fit into int64 microseconds"
        return self._cast(array, micros, rows, what).cast(pa.int64())
