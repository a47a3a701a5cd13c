"""Columns of stored features as fields."""

from tfrtool.examples.arrow.columns import CONTEXT, LISTS, Column, Columns, Form
from tfrtool.examples.example import DType, PayloadKind, feature_key, feature_name
from tfrtool.examples.fields import Field, Kind, ListOf, Struct, Values
from tfrtool.features.stored_layout import stored_dtype

_OPTIONAL = {"optional": True, "empty_is_missing": True}


def tree_of_flat(columns: Columns) -> Struct:
    """Return columns, each a feature, as fields; those of SequenceExamples as two structs."""
    fields = {feature_name(one.key): flat_field(one) for one in columns.context}
    if columns.kind is not PayloadKind.SEQUENCE_EXAMPLE:
        return Struct(fields)
    steps = {feature_name(one.key): ListOf(item=flat_field(one)) for one in columns.lists}
    parts: dict[str, Field] = {CONTEXT: Struct(fields), LISTS: Struct(steps)}
    return Struct({name: part for name, part in parts.items() if part != Struct({})})


def sequences_of_tree(root: Struct) -> Columns:
    """Return the columns of SequenceExamples whose tree is that of `tree_of_flat`.

    Values that may be missing are lists, which hold every difference between records.
    """
    columns = list[Column]()
    for name, part in root.fields.items():
        fields = part.fields if isinstance(part, Struct) else {}
        for key, item in fields.items():
            if name == LISTS and isinstance(item, ListOf):
                columns.append(_column(key, item.item, is_list=True))
            else:
                columns.append(_column(key, item, is_list=False))
    return Columns(PayloadKind.SEQUENCE_EXAMPLE, tuple(columns))


def _column(name: str, item: Field, *, is_list: bool) -> Column:
    values = item.item if isinstance(item, ListOf) else item
    if not isinstance(values, Values) or values.kind is Kind.MIXED:
        return Column(key=feature_key(name), form=Form.FEATURE, dtype=None, is_list=is_list)
    is_single = values is item and not values.info.get("optional")
    dtype = stored_dtype(values)
    return Column(
        key=feature_key(name),
        form=Form.SCALAR if is_single else Form.LIST,
        dtype=dtype,
        is_list=is_list,
        is_text=values.kind is Kind.TEXT,
    )


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
