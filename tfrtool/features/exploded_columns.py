"""The columns of tables with a row for each item, and those of the records that they need."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from tfrtool.errors import SchemaError
from tfrtool.examples.arrow.columns import CONTEXT, LISTS, METADATA, Columns
from tfrtool.examples.example import PayloadKind
from tfrtool.examples.fields import (
    Field,
    Kind,
    ListOf,
    Struct,
    Values,
    leaves_of,
    only_fields,
    select_fields,
)
from tfrtool.features.explode import ITEM, ExplodedTable, FieldPath, is_related
from tfrtool.features.feature_columns import FeatureColumns
from tfrtool.features.nested import arrow_type

_CHEAP = (Kind.BOOL, Kind.NUMBER, Kind.LABEL)
_INTEGER = Values(kind=Kind.NUMBER, dtype="int64")


@dataclass(frozen=True, slots=True)
class ExplodedColumns(FeatureColumns):
    """The columns of a table with a row for each item of a list, which has no way back.

    Attributes:
        exploded: the paths of the lists.
    """

    exploded: tuple[str, ...] = ()

    @classmethod
    def of_table(
        cls,
        columns: Columns,
        table: ExplodedTable,
        images: Collection[str],
        extra: Mapping[str, Field],
    ) -> "ExplodedColumns":
        """Return the columns of rows that are made of records with these columns.

        Args:
            columns: those of the records.
            table: how records become rows.
            images: the columns that have images.
            extra: the columns that no record stores, by name.

        Raises:
            SchemaError: records have several types of one feature.
        """
        root, fields = _tree_of(columns), dict[str, Field]()
        for column in table.columns:
            found: Field | None
            if column.of_item:
                found = _item_at(root, column.path, {*table.lists})
            else:
                (name,) = column.path
                below = [path[1:] for path in table.lists if path[0] == name]
                found = _without(root.fields.get(name, extra.get(name, _INTEGER)), below)
                if name in images and isinstance(found, Values):
                    found = replace(found, kind=Kind.IMAGE)
            if found is not None:
                fields[column.name] = found
        lists = tuple("/".join(path) for path in table.lists)
        fields[ITEM] = _INTEGER
        return cls(PayloadKind.UNKNOWN, root=Struct(fields), exploded=lists)

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each column."""
        return tuple(self.root.fields)

    def to_arrow(
        self,
        *,
        exact: bool = False,  # noqa: ARG002
    ) -> pa.Schema:
        """Return the schema of a table with these columns."""
        fields = [(name, arrow_type(item)) for name, item in self.root.fields.items()]
        content = json.dumps({"exploded": self.exploded})
        return pa.schema(fields, {METADATA: content})

    def encode(self, batch: pa.RecordBatch) -> list[bytes]:  # noqa: ARG002
        """Raise a `SchemaError`: records can't be made of their items."""
        raise SchemaError("records can't be made of a row for each item")


def selected_paths(columns: Columns, select: Sequence[str]) -> list[str]:
    """Return the paths that a selection means; `UsageError` if a name is unknown."""
    if isinstance(columns, FeatureColumns):
        select_fields(columns.root, select)
    elif columns.kind is PayloadKind.SEQUENCE_EXAMPLE:
        parts = [columns.select([name]) for name in select]
        pairs = [(part.columns[0].is_list, part.names[0]) for part in parts]
        return [f"{LISTS if is_list else CONTEXT}/{name}" for is_list, name in pairs]
    else:
        columns.select(select)
    return [*select]


def needed_columns(columns: Columns, paths: Collection[str], lists: Sequence[FieldPath]) -> Columns:
    """Return the columns of records with what some paths lead to.

    Each of the lists has at least one field, as its length counts.
    """
    wanted, list_paths = {*paths}, ["/".join(path) for path in lists]
    if isinstance(columns, FeatureColumns):
        leaves = [*leaves_of(columns.root)]
        for path in paths:
            if any(one.startswith(f"{path}/") for one in list_paths):  # of a struct around it
                below = [leaf.path for leaf in leaves if leaf.path.startswith(f"{path}/")]
                wanted |= {
                    leaf for leaf in below if not any(is_related(leaf, one) for one in list_paths)
                }
                wanted.remove(path)
        for path in list_paths:
            if not any(one == path or one.startswith(f"{path}/") for one in wanted):
                items = [leaf for leaf in leaves if is_related(leaf.path, path)]
                wanted.add(min(items, key=lambda leaf: leaf.values.kind not in _CHEAP).path)
        root = only_fields(columns.root, wanted)
        return replace(columns, root=root if isinstance(root, Struct) else Struct({}))
    wanted |= {*list_paths}
    if columns.kind is PayloadKind.SEQUENCE_EXAMPLE:
        named = zip(columns.names, columns.columns, strict=True)
        known = [f"{LISTS if column.is_list else CONTEXT}/{name}" for name, column in named]
        chosen = [path for path in known if any(is_related(path, one) for one in wanted)]
        return columns.select([path.replace("/", ".", 1) for path in chosen])
    return columns.select(
        [name for name in columns.names if any(is_related(name, one) for one in wanted)]
    )


def _tree_of(columns: Columns) -> Struct:
    """Return the fields of columns."""
    if isinstance(columns, FeatureColumns):
        return Struct(dict(zip(columns.names, columns.root.fields.values(), strict=True)))
    fields, lists = dict[str, Field](), dict[str, Field]()
    for name, column in zip(columns.names, columns.columns, strict=False):
        if column.dtype is None:
            what = f"feature {name!r} has several types, and can't be in a row for each item"
            raise SchemaError(what, hint="use --select to leave it out")
        if column.is_list:
            lists[name] = ListOf(item=column.item)
        else:
            fields[name] = column.item
    if columns.kind is not PayloadKind.SEQUENCE_EXAMPLE:
        return Struct(fields)
    return Struct(({CONTEXT: Struct(fields)} if fields else {}) | {LISTS: Struct(lists)})


def _item_at(root: Struct, path: FieldPath, lists: Collection[FieldPath]) -> Field | None:
    """Return the item of a list, or a field of its items."""
    item: Field | None = root
    for end, name in enumerate(path, 1):
        item = item.fields.get(name) if isinstance(item, Struct) else None
        if path[:end] in lists:
            if isinstance(item, Values):
                item = replace(item, shape=item.shape[1:])
            item = item.item if isinstance(item, ListOf) else item
    return item


def _without(item: Field, paths: Sequence[FieldPath]) -> Field | None:
    """Return a field without what some paths in it lead to."""
    if () in paths:
        return None
    if not paths or not isinstance(item, Struct):
        return item
    parts = {
        name: _without(part, [path[1:] for path in paths if path[0] == name])
        for name, part in item.fields.items()
    }
    fields = {name: part for name, part in parts.items() if part is not None}
    return Struct(fields) if fields else None
