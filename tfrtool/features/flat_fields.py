"""Columns of stored features as fields."""

from tfrtool.examples.arrow.columns import Column, Columns, Form
from tfrtool.examples.example import DType, feature_name
from tfrtool.examples.fields import Field, Kind, ListOf, Struct, Values

_OPTIONAL = {"optional": True, "empty_is_missing": True}


def tree_of_flat(columns: Columns) -> Struct:
    """Return the columns of Examples, each a feature, as fields."""
    return Struct({feature_name(one.key): flat_field(one) for one in columns.columns})


def flat_field(column: Column) -> Field:
    """Return the field that a column of stored features is."""
    dtype = column.dtype
    info = {} if column.form in (Form.SCALAR, Form.LIST) else _OPTIONAL
    if dtype is None:
        return Values(kind=Kind.MIXED)
    if dtype is DType.STRING and not column.is_text:
        values = Values(kind=Kind.BYTES, info={**info, "is_utf8": column.is_utf8})
    elif dtype is DType.STRING:
        values = Values(kind=Kind.TEXT, info=info)
    else:
        values = Values(kind=Kind.NUMBER, dtype=dtype.value, info=info)
    return ListOf(item=values) if column.form is Form.LIST else values
