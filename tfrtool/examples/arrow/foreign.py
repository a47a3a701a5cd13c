"""The rows of tables as columns of features."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfrtool.errors import SchemaError, reason_of, some_of
from tfrtool.examples.arrow.columns import EXACT, FEATURE, PLACES, Column, Columns, Form
from tfrtool.examples.arrow.value_types import (
    as_logical,
    logical_word,
    microseconds_of,
    nested_array,
    texts_of,
)
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


def _is_image(kind: pa.DataType) -> bool:
    return bool(pa.types.is_struct(kind)) and {field.name for field in kind} == _IMAGE


def _keys(schema: pa.Schema) -> dict[bytes, pa.Field]:
    """Return the columns that are features, by the features' keys."""
    declared = Columns.declared(schema)
    known = {} if declared is None else dict(zip(declared.names, declared.columns, strict=False))
    reserved = () if declared is None else (EXACT, *PLACES)
    found: dict[bytes, pa.Field] = {}
    for field in schema:
        if field.name in reserved:
            continue
        key = known[field.name].key if field.name in known else feature_key(field.name)
        if key in found:
            raise SchemaError(f"duplicate column {field.name!r}")
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
        return DType.STRING, "" if logical_word(kind) else "decimals become text"
    if types.is_temporal(kind) and not types.is_interval(kind):
        is_kept = logical_word(kind) is not None
        what = "durations" if types.is_duration(kind) else "times"
        return DType.INT64, "" if is_kept else f"{what} become int64, in microseconds"
    if _is_image(kind):
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
    size, rows = len(array), np.arange(first_row, first_row + len(array))
    is_list, prefix = _is_list(array.type), f"column {name!r}, row"
    values, inner = array, list[int]()
    while _is_list(values.type):
        lengths = np.asarray(pc.fill_null(pc.list_value_length(values), 0))
        if values is not array:
            inner.append(int(lengths[0]) if len(lengths) else 0)
            if (lengths != inner[-1]).any():
                row = rows[np.flatnonzero(lengths != inner[-1])[0]]
                raise SchemaError(f"{prefix} {row}: lists of different lengths")
        rows, values = np.repeat(rows, lengths), _plain(values.flatten())
        nulls = np.flatnonzero(np.asarray(values.is_null()))
        if len(nulls):
            what = "a null within a list, which a feature can't store"
            raise SchemaError(f"{prefix} {rows[nulls[0]]}: {what}")
    if is_list != (column.form is Form.LIST) or _mapping(values.type)[0] is None:
        raise SchemaError(f"the type of column {name!r} changes", found=array.type)
    try:
        values = _convert(values, column)
    except (ValueError, pa.ArrowException):
        for at, row in enumerate(rows.tolist()):
            try:
                _convert(values.slice(at, 1), column)
            except (ValueError, pa.ArrowException) as error:
                what = f"{error}" if type(error) is ValueError else f"a {values.type}"
                target, hint = column.logical or column.dtype.value, None
                if logical_word(values.type) and column.dtype is DType.INT64:
                    target, hint = "int64 microseconds", f"use --cast {name}:string to store text"
                what = f"{prefix} {row}: {what} can't be stored as {target}"
                raise SchemaError(what, hint=hint) from None
        raise
    if not is_list:
        return values
    counts = np.bincount(rows - first_row, minlength=size)
    shape = column.shape or (-1,)
    inner_size = max(int(np.prod(shape[1:])), 1)  # 0 if all inner lists are empty
    wrong = counts % inner_size != 0 if shape[0] < 0 else counts != inner_size * shape[0]
    if inner and len(values) and shape[1:] and tuple(inner) != shape[1:]:
        wrong = counts > 0
    places = np.flatnonzero(np.asarray(array.is_valid()))
    if (wrong := places[wrong[places]]).size:
        sizes = ", ".join("any" if one < 0 else str(one) for one in shape)
        what = f"{counts[wrong[0]]} values don't have the shape [{sizes}]"
        raise SchemaError(f"{prefix} {first_row + wrong[0]}: {what}")
    return nested_array(values, column.shape, size, places, counts[places])


def _convert(array: pa.Array, column: Column) -> pa.Array:
    """Return values as those of a column; `ValueError` or an Arrow error if one can't be stored."""
    types, kind, target = pa.types, array.type, column.value_type
    dtype = column.dtype or DType.STRING  # it has one here
    if types.is_struct(kind):
        data, path = (pc.struct_field(array, name) for name in ("bytes", "path"))
        if pc.any(pc.and_(data.is_null(), path.is_valid())).as_py():
            raise ValueError("an image with a path but no bytes")
        return _convert(data, column)
    if column.logical is not None:
        return as_logical(array, target)
    if types.is_decimal(kind) or (types.is_temporal(kind) and dtype is DType.STRING):
        array = texts_of(array)
    elif types.is_temporal(kind):
        array = microseconds_of(array)
    elif types.is_float64(kind) and dtype is DType.FLOAT32:
        cast = array.cast(target)
        if pc.any(pc.and_(pc.is_inf(cast), pc.invert(pc.is_inf(array)))).as_py():
            raise ValueError("a double")
        return cast
    if _mapping(array.type)[0] is dtype or (types.is_float64(kind) and dtype is DType.INT64):
        return array.cast(target)
    values = [None if value is None else as_dtype(value, dtype) for value in array.to_pylist()]
    return pa.array(values, target)
