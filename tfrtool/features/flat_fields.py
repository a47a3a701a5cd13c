"""Columns of stored features as fields."""

from tfrtool.examples.arrow.columns import Column, Columns, Form
from tfrtool.examples.example import DType, feature_name
from tfrtool.features.types import Field, Kind, ListOf, Struct, Values

_OPTIONAL = {"optional": True, "empty_is_missing": True}


def tree_of_flat(columns: Columns) -> Struct:
    """Return the columns of Examples, each a feature, as fields."""
    return Struct({feature_name(one.key): flat_field(one) for one in columns.columns})


def flat_field(column: Column) -> Field:
    """Return the field that a column of stored features is."""
    dtype, shape = column.dtype, tuple(None if size < 0 else size for size in column.shape)
    info = {} if column.form in (Form.SCALAR, Form.LIST) else _OPTIONAL
    if dtype is None:
        return Values(kind=Kind.MIXED)
    if column.logical is not None:
        values = Values(kind=Kind.TIME, dtype=column.logical, info=info)
    elif dtype is DType.STRING:
        values = Values(kind=Kind.TEXT if column.is_text else Kind.BYTES, info=info)
    else:
        values = Values(kind=Kind.NUMBER, dtype=dtype.value, info=info)
    if column.form is not Form.LIST:
        return values
    if shape and 0 not in shape and shape != (None,):
        is_fixed = None not in shape
        return Values(
            kind=values.kind,
            dtype=values.dtype,
            shape=shape,
            info={"optional": True} if is_fixed else {},
        )
    return ListOf(item=values)
