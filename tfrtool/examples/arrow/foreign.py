"""Tables of any Arrow types as columns of features."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tfrtool.errors import SchemaError, reason_of, some_of
from tfrtool.examples.arrow.arrays import list_array
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
from tfrtool.storage.limits import MAX_DIMENSIONS
from tfrtool.storage.remote_path import AnyPath

_BYTES = {"binary", "large_binary", "fixed_size_binary", "binary_view"} | {
    "string", "large_string", "string_view"
}  # fmt: skip
"""The names of the types of bytes and texts."""

_SHOWN = 100
"""Columns that an error names at most."""

_TYPE_CHARACTERS = 200
"""Characters of a type that an error shows."""

_IMAGE = {"bytes", "path"}
"""The fields of Hugging Face's images; the bytes are what is kept."""


def foreign_columns(
    schema: pa.Schema, sizes: Mapping[str, Sequence[set[int]]] | None = None
) -> tuple[Columns, tuple[str, ...]]:
    """Return the columns that hold the rows of any schema, and notes on what changes.

    Args:
        schema: its types.
        sizes: lengths of the lists within lists, by column and level, as `NestedSizes` finds them.

    Raises:
        SchemaError: no feature holds some columns; the error names all of them.
    """
    columns, notes, unsupported = [], [], dict[str, pa.DataType]()
    for key, field in _keys(schema).items():
        kind, shape = _unnested_type(field.type)
        if pa.types.is_null(kind) and not shape:
            continue
        if kind == FEATURE:
            columns.append(Column(key=key, form=Form.FEATURE, dtype=None))
            continue
        dtype, note = _mapping(kind)
        note = note or "UUIDs become 16 bytes each" * ("arrow.uuid" in str(field.type))
        levels = [{size} if size else None for size in shape[1:]]
        for level, lengths in enumerate((sizes or {}).get(field.name, ())):
            levels[level] = lengths or None
        is_ragged = any(one is not None and (len(one) > 1 or 0 in one) for one in levels)
        if dtype is None or is_ragged or len(shape) > MAX_DIMENSIONS:
            unsupported[field.name] = field.type
            continue
        if note:
            notes.append(f"column {field.name!r}: {note}")
        inner = [0 if one is None else next(iter(one)) for one in levels]
        text = dtype is DType.STRING and not _is_bytes(kind)
        columns.append(
            Column(
                key=key,
                form=Form.LIST if shape else Form.SCALAR,
                dtype=dtype,
                is_text=text,
                logical=logical_word(kind),
                shape=(shape[0], *inner) if shape else (),
            )
        )
    if unsupported:
        raise _unsupported(unsupported)
    return Columns(PayloadKind.EXAMPLE, tuple(columns)), tuple(notes)


def _unsupported(types: Mapping[str, pa.DataType]) -> SchemaError:
    """Return the error for columns whose types no feature holds."""
    names = [f"{name!r}" for name in types]
    several = len(names) > 1
    structs = any(pa.types.is_struct(_unnested_type(one)[0]) for one in types.values())
    return SchemaError(
        f"unsupported type{'s' * several} of column{'s' * several} {some_of(names, _SHOWN)}",
        expected="numbers, strings, bytes, times, lists of them or tensors, or --select "
        f"without {'them' if several else 'it'}",
        found=some_of(
            [*dict.fromkeys(str(one)[:_TYPE_CHARACTERS] for one in types.values())], _SHOWN
        ),
        hint="use --flatten to make columns of the fields of structs" if structs else None,
    )


def flattened(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch whose structs, and lists of structs, are columns of their fields, ``a/b``.

    Structs of our own tables and those of images stay.
    """
    if Columns.declared(batch.schema) is not None:
        return batch
    named = [
        pair
        for name, array in zip(batch.schema.names, batch.columns, strict=True)
        for pair in _fields_of(name, array)
    ]
    arrays = [array for _, array in named]
    schema = pa.schema([(name, array.type) for name, array in named], batch.schema.metadata)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _fields_of(name: str, array: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """Yield the fields of a struct or of a list of structs; other arrays as they are."""
    array, kind = _plain(array), _plain_type(array.type)
    values = _plain(array.flatten()) if _is_list(kind) else array
    is_flat = not pa.types.is_struct(values.type) or not values.type.num_fields
    if is_flat or _is_image(values.type) or values.type == FEATURE:
        yield name, array
        return
    for field, child in zip(values.type, values.flatten(), strict=True):
        if values is not array:
            places = np.flatnonzero(np.asarray(array.is_valid()))
            counts = np.asarray(pc.fill_null(pc.list_value_length(array), 0))[places]
            child = list_array(pa.list_(child.type), len(array), places, counts, child)
        yield from _fields_of(f"{name}/{field.name}", child)


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


def _is_bytes(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) or "binary" in str(kind)


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _unnested_type(kind: pa.DataType) -> tuple[pa.DataType, tuple[int, ...]]:
    """Return the type of the values in lists of any depth, and the sizes of the lists.

    A size is -1 for any number of lists, and 0 for any number of values within one.
    """
    shape: list[int] = []
    kind = _plain_type(kind)
    while _is_list(kind):
        is_fixed = pa.types.is_fixed_size_list(kind)
        shape.append(kind.list_size if is_fixed else 0 if shape else -1)
        kind = _plain_type(kind.value_type)
    return kind, tuple(shape)


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


class NestedSizes:
    """Lengths of the lists within lists, in columns whose types don't have them.

    Attributes:
        sizes: the lengths, by column and level.
    """

    def __init__(self, schema: pa.Schema) -> None:
        """Find the columns of a schema."""
        shapes = {field.name: _unnested_type(field.type)[1][1:] for field in _keys(schema).values()}
        self.sizes = {
            name: [set[int]() for _ in shape] for name, shape in shapes.items() if 0 in shape
        }

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in rows."""
        for name, levels in self.sizes.items():
            array = _plain(batch.column(name))
            for lengths in levels:
                array = _plain(array.flatten())
                lengths |= {*pc.list_value_length(array).drop_null().unique().to_pylist()}


def double_columns(schema: pa.Schema) -> dict[str, bytes]:
    """Return the names of the columns of doubles, or of lists of them, with the features' keys."""
    return {
        field.name: key
        for key, field in _keys(schema).items()
        if pa.types.is_float64(_unnested_type(field.type)[0])
    }


def flat_values(array: pa.Array) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the numbers of a column, without nulls, and the row of each from 0."""
    array, rows = _plain(array), np.arange(len(array))
    while _is_list(array.type):
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
