"""Tables of any Arrow types as columns of features."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tfrtool.errors import SchemaError, reason_of, some_of
from tfrtool.examples.arrow.arrays import list_array
from tfrtool.examples.arrow.columns import EXACT, FEATURE, PLACES, Column, Columns, Form
from tfrtool.examples.dtypes import as_dtype
from tfrtool.examples.example import DType, PayloadKind, feature_key, feature_name
from tfrtool.storage.remote_path import AnyPath

_BYTES = {"binary", "large_binary", "fixed_size_binary", "binary_view"} | {
    "string", "large_string", "string_view"
}  # fmt: skip
"""The names of the types of bytes and texts."""

_SHOWN = 100
"""Columns that an error names at most."""

_IMAGE = {"bytes", "path"}
"""The fields of Hugging Face's images; the bytes are what is kept."""


def foreign_columns(schema: pa.Schema) -> tuple[Columns, tuple[str, ...]]:
    """Return the columns that hold the rows of any schema, and notes on what changes.

    Raises:
        SchemaError: no feature holds a column; the error names it.
    """
    columns, notes, unsupported = [], [], dict[str, pa.DataType]()
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
            unsupported[field.name] = field.type
            continue
        if note:
            notes.append(f"column {field.name!r}: {note}")
        text = dtype is DType.STRING and not _is_bytes(kind)
        columns.append(Column(key=key, form=form, dtype=dtype, is_text=text))
    if unsupported:
        names = [f"{name!r}" for name in unsupported]
        several = len(names) > 1
        raise SchemaError(
            f"unsupported type{'s' * several} of column{'s' * several} {some_of(names, _SHOWN)}",
            expected="numbers, strings, bytes, times or lists of them, or --select without "
            + ("them" if several else "it"),
            found=some_of([*dict.fromkeys(map(str, unsupported.values()))], _SHOWN),
        )
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


def _is_bytes(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) or "binary" in str(kind)


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
    them, perhaps with other types of value. Rows are counted from ``first_row``.

    Raises:
        SchemaError: a value that no feature holds; the error names the column and the row.
    """
    exact = EXACT in batch.schema.names and Columns.declared(batch.schema) is not None
    schema = columns.to_arrow(exact=exact)
    if columns.kind is not PayloadKind.EXAMPLE:
        try:
            return batch.select(schema.names).cast(schema)
        except (KeyError, ValueError, pa.ArrowException) as error:
            what = f"the schema changes at row {first_row}: {reason_of(error)}"
            raise SchemaError(what) from error
    fields, arrays, errors = _keys(batch.schema), list[pa.Array](), list[SchemaError]()
    for column in columns.columns:
        if column.key not in fields:
            raise SchemaError(f"no column {feature_name(column.key)!r} from row {first_row} on")
        name = fields[column.key].name
        try:
            arrays.append(_conformed(name, _plain(batch.column(name)), column, first_row))
        except SchemaError as error:
            errors.append(error)
    if len(errors) > 1:
        raise conversion_error([error.what for error in errors])
    if errors:
        raise errors[0]
    arrays += [batch.column(EXACT)] if exact else []
    return pa.record_batch(arrays, schema=schema) if arrays else batch.select([])


def conversion_error(
    whys: Sequence[str], path: AnyPath | None = None, hint: str | None = None
) -> SchemaError:
    """Return the error for several columns that can't be converted, each with its reason."""
    what = f"{len(whys)} columns can't be converted: {some_of(whys, _SHOWN, '; ')}"
    return SchemaError(what, path=path, hint=hint)


def _conformed(name: str, array: pa.Array, column: Column, first_row: int) -> pa.Array:
    """Return an array with the type of a column."""
    if column.dtype is None:
        return array.cast(FEATURE)
    lists, rows = _is_list(array.type), np.arange(first_row, first_row + len(array))
    values = _plain(array.flatten()) if lists else array
    if lists != (column.form is Form.LIST) or _mapping(values.type)[0] is None:
        raise SchemaError(f"the type of column {name!r} changes", found=array.type)
    counts = np.asarray(pc.fill_null(pc.list_value_length(array), 0)) if lists else None
    if counts is not None:
        rows = np.repeat(rows, counts)
        nulls = np.flatnonzero(np.asarray(values.is_null()))
        if len(nulls):
            what = "a null within a list, which a feature can't store"
            raise SchemaError(f"column {name!r}, row {rows[nulls[0]]}: {what}")
    try:
        values = _convert(values, column.dtype, column.value_type)
    except ValueError:
        for at, row in enumerate(rows.tolist()):
            try:
                _convert(values.slice(at, 1), column.dtype, column.value_type)
            except ValueError as error:
                what = f"{error}" if type(error) is ValueError else f"a {values.type}"
                what = f"column {name!r}, row {row}: {what} can't be stored as {column.dtype.value}"
                raise SchemaError(what) from None
        raise
    if counts is None:
        return values
    places = np.flatnonzero(np.asarray(array.is_valid()))
    return list_array(column.type, len(array), places, counts[places], values)


def _convert(array: pa.Array, dtype: DType, target: pa.DataType) -> pa.Array:
    """Return values as those of a feature; `ValueError` if one can't be stored."""
    types, kind = pa.types, array.type
    if types.is_struct(kind):
        data, path = (pc.struct_field(array, name) for name in ("bytes", "path"))
        if pc.any(pc.and_(data.is_null(), path.is_valid())).as_py():
            raise ValueError("an image with a path but no bytes")
        return _convert(data, dtype, target)
    if types.is_decimal(kind):
        texts = [None if one is None else format(one, "f") for one in array.to_pylist()]
        array = pa.array(texts, pa.string())
    elif types.is_temporal(kind):
        array = _microseconds(array)
    elif types.is_float64(kind) and dtype is DType.FLOAT32:
        cast = array.cast(target)
        if pc.any(pc.and_(pc.is_inf(cast), pc.invert(pc.is_inf(array)))).as_py():
            raise ValueError("a double")
        return cast
    if _mapping(kind)[0] is dtype or (types.is_float64(kind) and dtype is DType.INT64):
        return array.cast(target)
    values = [None if value is None else as_dtype(value, dtype) for value in array.to_pylist()]
    return pa.array(values, target)


def _microseconds(array: pa.Array) -> pa.Array:
    types, kind = pa.types, array.type
    if getattr(kind, "unit", "") == "ns":
        whole = np.asarray(array.cast(pa.int64()).fill_null(0)) // 1000
        return pa.array(whole, mask=np.asarray(array.is_null()))
    if types.is_date32(kind):
        array = array.cast(pa.timestamp("s"))
    micros = pa.timestamp("us", getattr(kind, "tz", None))
    if types.is_time(kind) or types.is_duration(kind):
        micros = pa.time64("us") if types.is_time(kind) else pa.duration("us")
    return array.cast(micros).cast(pa.int64())
