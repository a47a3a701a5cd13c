"""Columns of stored features as fields."""

from dataclasses import replace

from tfrtool.examples.arrow.columns import CONTEXT, LISTS, Column, Columns
from tfrtool.examples.example import PayloadKind, feature_key, feature_name
from tfrtool.examples.fields import Field, ListOf, Struct, Values


def tree_of_flat(columns: Columns) -> Struct:
    """Return columns, each a feature, as fields; those of SequenceExamples as two structs."""
    fields: dict[str, Field] = {feature_name(one.key): one.item for one in columns.context}
    if columns.kind is not PayloadKind.SEQUENCE_EXAMPLE:
        return Struct(fields)
    steps = {feature_name(one.key): ListOf(item=one.item) for one in columns.lists}
    parts: dict[str, Field] = {CONTEXT: Struct(fields), LISTS: Struct(steps)}
    return Struct({name: part for name, part in parts.items() if part != Struct({})})


def sequences_of_tree(root: Struct) -> Columns:
    """Return the columns of SequenceExamples whose tree is that of `tree_of_flat`.

    Values that may be missing are lists, which hold every difference between records.
    """
    columns = list[Column]()
    for name, part in root.fields.items():
        for key, item in part.fields.items() if isinstance(part, Struct) else ():
            is_list = name == LISTS and isinstance(item, ListOf)
            item = item.item if is_list and isinstance(item, ListOf) else item
            if isinstance(item, Values) and item.info.get("optional"):
                item = ListOf(item=replace(item, info={}))
            if not isinstance(item, Struct):
                columns.append(Column(key=feature_key(key), item=item, is_list=is_list))
    return Columns(PayloadKind.SEQUENCE_EXAMPLE, tuple(columns))
