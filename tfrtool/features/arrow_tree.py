"""The columns of an Arrow table as a tree of fields."""

from dataclasses import replace

import pyarrow as pa

from tfrtool.errors import SchemaError
from tfrtool.examples.arrow.columns import EXACT, METADATA, PLACES
from tfrtool.examples.arrow.value_types import logical_word
from tfrtool.features.feature_columns import FeatureColumns
from tfrtool.features.stored_layout import check_tree
from tfrtool.features.types import MAX_DEPTH, Encoding, Field, Kind, ListOf, Struct, Values

_EXPECTED = "numbers, booleans, text, bytes, times, decimals, or structs and lists of these"


def tree_of_arrow(schema: pa.Schema) -> Struct:
    """Return the tree of a table's columns; what our own metadata says of a column comes first.

    Raises:
        SchemaError: a column has a type that no tree has, or records can't store the tree.
    """
    declared = FeatureColumns.declared_by(schema) or FeatureColumns.of(Struct({}))
    known = dict(zip(declared.names, declared.root.fields.items(), strict=True))
    types = {field.name: field.type for field in declared.to_arrow()}
    fields: dict[str, Field] = {}
    for column in schema:
        if METADATA in (schema.metadata or {}) and column.name in (EXACT, *PLACES):
            continue
        if types.get(column.name) == column.type:
            name, item = known[column.name]
            fields[name] = item
        elif column.name in fields:
            raise SchemaError(f"two columns are called {column.name!r}")
        else:
            fields[column.name] = _field(column.type, column.name, 0)
    root = Struct(fields)
    try:
        check_tree(root)
    except ValueError as error:
        raise SchemaError(str(error)) from error
    return root


def _field(kind: pa.DataType, column: str, depth: int) -> Field:
    types = pa.types
    if depth > MAX_DEPTH:
        raise SchemaError(f"column {column!r} is nested more than {MAX_DEPTH} levels deep")
    if types.is_struct(kind):
        if len({field.name for field in kind}) < len(kind):
            raise SchemaError(f"two fields in column {column!r} have the same name")
        return Struct({field.name: _field(field.type, column, depth + 1) for field in kind})
    if types.is_fixed_size_list(kind):
        return _fixed_list(kind, column, depth)
    if types.is_list(kind) or types.is_large_list(kind):
        return ListOf(item=_field(kind.value_type, column, depth + 1))
    word = logical_word(kind)
    if types.is_timestamp(kind) and kind.unit != "us":
        word = None
    if types.is_boolean(kind):
        return Values(kind=Kind.BOOL, dtype="bool")
    if types.is_integer(kind) or types.is_floating(kind):
        return Values(kind=Kind.NUMBER, dtype=str(kind.to_pandas_dtype()().dtype))
    if types.is_string(kind) or types.is_large_string(kind):
        return Values(kind=Kind.TEXT)
    if types.is_binary(kind) or types.is_large_binary(kind):
        return Values(kind=Kind.BYTES)
    if word is None or types.is_date64(kind):
        what = f"column {column!r} has a type that features don't have"
        raise SchemaError(what, expected=_EXPECTED, found=str(kind))
    return Values(kind=Kind.TIME, dtype=word)


def _fixed_list(kind: pa.DataType, column: str, depth: int) -> Field:
    """Return a tensor, or a list of a length."""
    item, size = _field(kind.value_type, column, depth + 1), int(kind.list_size)
    if isinstance(item, Values) and item.encoding is Encoding.NONE and size:
        try:
            return replace(item, shape=(size, *item.shape))
        except ValueError as error:
            raise SchemaError(f"column {column!r}: {error}") from error
    return ListOf(item=item, length=size)
