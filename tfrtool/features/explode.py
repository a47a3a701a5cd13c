"""A table with a row for each item of a list, made of one with a row for each record."""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tfrtool.errors import UsageError, some_of, suggestion
from tfrtool.examples.arrow.arrays import Ints, numbers_array, scattered
from tfrtool.examples.arrow.columns import LISTS, METADATA, PLACES

ITEM = "_item"
"""The column with the number of each item in its record, from 0."""

_BATCH_BYTES = 64 * 1024 * 1024
"""Of a batch of rows: what a record has once is repeated for each of its items."""

_SHOWN = 10
"""Names that a hint has at most."""

FieldPath = tuple[str, ...]
"""The names that lead to a field, through structs and lists."""


class ItemColumn(NamedTuple):
    """A column of a table with a row for each item.

    Attributes:
        name: what it is called.
        path: where it is in a record.
        of_item: whether each item has a value of its own; otherwise it repeats the record's.
    """

    name: str
    path: FieldPath
    of_item: bool


class ExplodedBatch(NamedTuple):
    """Rows made of a batch of records.

    Attributes:
        batches: the rows, in batches of bounded size.
        rejected: why records can't be taken apart, by their places in the batch.
        empty: the number of records without items.
    """

    batches: Iterator[pa.RecordBatch]
    rejected: dict[int, str]
    empty: int


@dataclass(frozen=True, slots=True)
class ExplodedTable:
    """How records become rows: one for each item of a list, or of several lists side by side.

    Attributes:
        lists: where the lists are.
        columns: the columns of the rows, without `ITEM`: those of the record, of the item, and
            `PLACES`.
        schema: the Arrow schema of the rows.
        notes: which columns have other names than their fields, a clause each.
    """

    lists: tuple[FieldPath, ...]
    columns: tuple[ItemColumn, ...]
    schema: pa.Schema
    notes: tuple[str, ...]

    @classmethod
    def of(
        cls, schema: pa.Schema, fields: Sequence[str], select: Sequence[str] | None = None
    ) -> "ExplodedTable":
        """Find the lists in the schema of a table of records.

        Args:
            schema: its types.
            fields: the names of the lists, or the paths to them through structs.
            select: the columns to have, in this order, by the paths of their fields, such as
                ``steps/action``; None for all.

        Raises:
            UsageError: there is no such list.
        """
        lists = tuple(_list_path(schema, name) for name in dict.fromkeys(fields))
        found = [one for one in _columns(schema, lists) if select is None or _rank(one, select)]
        if select is not None:
            found.sort(key=lambda column: _rank(column, select))
        columns, notes = _renamed(found)
        table = pa.RecordBatch.from_arrays(
            [pa.nulls(0, field.type) for field in schema], schema=schema
        )
        draft = cls(lists, columns, pa.schema([]), notes)
        arrays = draft._arrays(table, draft._items(table))
        named = {one.name: schema.field(one.path[0]).metadata for one in columns if not one.of_item}
        kinds = [pa.field(name, one.type, metadata=named.get(name)) for name, one in arrays.items()]
        content = {"exploded": ["/".join(path) for path in lists]}
        metadata = {METADATA: json.dumps(content)}
        exploded = pa.schema([*kinds, pa.field(ITEM, pa.int64())], metadata)
        return cls(lists, columns, exploded, notes)

    def explode(self, table: pa.RecordBatch) -> ExplodedBatch:
        """Return the rows of a batch of records.

        Args:
            table: a table of the schema, or with only some of its fields. It has each of the lists
                in any case.
        """
        items = self._items(table)
        counts = np.maximum.reduce([one.counts for one in items])
        rejected = _unequal(items, counts)
        if rejected:
            rows = np.delete(np.arange(table.num_rows), [*rejected])
            return self.explode(table.take(numbers_array(rows)))._replace(rejected=rejected)
        return ExplodedBatch(self._batches(table, items, counts), {}, int((counts == 0).sum()))

    def paths(self, names: Collection[str]) -> set[str]:
        """Return the paths of the fields that columns are made of."""
        return {"/".join(column.path) for column in self.columns if column.name in names}

    def _items(self, table: pa.RecordBatch) -> list["_Items"]:
        return [_Items.of(path, _array_at(table, path)) for path in self.lists]

    def _arrays(self, table: pa.RecordBatch, items: Sequence["_Items"]) -> dict[str, pa.Array]:
        """Return the columns that a table has: of its records, or of all their items."""
        arrays = dict[str, pa.Array]()
        values = {one.path: one.values for one in items}
        for name, path, of_item in self.columns:
            if not of_item:
                if path[0] in table.schema.names:
                    array = _without(
                        table.column(path[0]), [one[1:] for one in self.lists if one[0] == path[0]]
                    )
                    arrays |= {} if array is None else {name: array}
                continue
            array = values.get(path)
            if array is None:
                array = _child(values[path[:-1]], path[-1])
            arrays |= {} if array is None else {name: array}
        return arrays

    def _batches(
        self, table: pa.RecordBatch, items: Sequence["_Items"], counts: Ints
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows; `explode` has checked that the lists fit."""
        owners = np.repeat(np.arange(table.num_rows), counts)
        starts = np.cumsum(counts) - counts
        numbers = np.arange(len(owners)) - starts[owners]
        items = [one.filled(counts) for one in items]
        arrays = self._arrays(table, items)
        of_item = {one.name for one in self.columns if one.of_item}
        sizes = np.full(len(owners), numbers.itemsize)
        for name, array in arrays.items():
            sizes += _row_bytes(array) if name in of_item else _row_bytes(array)[owners]
        fields = [self.schema.field(name).with_type(one.type) for name, one in arrays.items()]
        schema = pa.schema([*fields, self.schema.field(ITEM)], self.schema.metadata)
        for start, stop in _cuts(sizes):
            rows = numbers_array(owners[start:stop])
            columns = [
                array.slice(start, stop - start) if name in of_item else array.take(rows)
                for name, array in arrays.items()
            ]
            columns.append(numbers_array(numbers[start:stop]))
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


class _Items(NamedTuple):
    """A list of each record.

    Attributes:
        path: where it is.
        counts: the number of items of each record.
        present: which records have the list at all.
        values: all items, one after the other.
    """

    path: FieldPath
    counts: Ints
    present: np.ndarray[tuple[int], np.dtype[np.bool_]]
    values: pa.Array

    @classmethod
    def of(cls, path: FieldPath, array: pa.Array) -> "_Items":
        return cls(path, _lengths(array), np.asarray(array.is_valid()), array.flatten())

    def filled(self, counts: Ints) -> "_Items":
        """Return items with null ones for records that don't have the list, but others."""
        if np.array_equal(counts, self.counts):
            return self
        places = np.flatnonzero(np.repeat(self.present, counts))
        return self._replace(values=scattered(self.values, int(counts.sum()), places))


def _unequal(items: Sequence[_Items], counts: Ints) -> dict[int, str]:
    """Return why the lists of records don't fit together, by the places of these records."""
    rejected = dict[int, str]()
    for one in items:
        for row in np.flatnonzero(one.present & (one.counts != counts)).tolist():
            longest = next(other for other in items if other.counts[row] == counts[row])
            what = f"{_name(longest.path)!r} has {longest.counts[row]} items"
            what = f"{what} and {_name(one.path)!r} has {one.counts[row]}"
            rejected.setdefault(row, f"lists of different lengths: {what}")
    return rejected


def _name(path: FieldPath) -> str:
    """Return what a list is called in messages."""
    return path[1] if path[0] == LISTS and len(path) == 2 else "/".join(path)


def _cuts(sizes: Ints) -> Iterator[tuple[int, int]]:
    """Yield the first row and the end of each batch; one row it has in any case."""
    ends = np.cumsum(sizes)
    start = before = 0
    while start < len(ends):
        stop = int(np.searchsorted(ends, before + _BATCH_BYTES, "right"))
        stop = max(stop, start + 1)
        yield start, stop
        start, before = stop, int(ends[stop - 1])


def _lists_of(
    fields: Sequence[pa.Field], path: FieldPath = ()
) -> Iterator[tuple[FieldPath, pa.DataType]]:
    """Yield the lists among fields and in their structs."""
    for field in fields:
        if _is_list(field.type):
            yield (*path, field.name), field.type
        elif pa.types.is_struct(field.type):
            yield from _lists_of([*field.type], (*path, field.name))


def _list_path(schema: pa.Schema, name: str) -> FieldPath:
    """Return where a list of a name is."""
    known = dict[str, FieldPath]()
    for path, _ in _lists_of([*schema]):
        known["/".join(path)] = path
        if path[0] == LISTS and len(path) == 2:
            known[f"{LISTS}.{path[1]}"] = path
            known.setdefault(path[1], path)
    if name in known:
        return known[name]
    outer = next((path for path in known if name.startswith(f"{path}/")), None)
    if outer is not None:
        raise UsageError(f"{name!r} is in the list {outer!r}", hint=f"use {outer!r} itself")
    names = [_name(path) for path in dict.fromkeys(known.values())]
    hint = f"lists are {some_of([*map(repr, names)], _SHOWN)}" if names else None
    if name in schema.names:
        raise UsageError(f"column {name!r} is not a list", hint=hint)
    raise UsageError(f"no list {name!r}", hint=suggestion(name, names, "lists"))


def _columns(schema: pa.Schema, lists: Sequence[FieldPath]) -> list[ItemColumn]:
    """Return the columns of rows, under the names of their fields."""
    fields = [field for field in schema if _without_lists(field, lists)]
    columns = [ItemColumn(field.name, (field.name,), of_item=False) for field in fields]
    types = dict(_lists_of([*schema]))
    for path in lists:
        kind = types[path].value_type
        if pa.types.is_struct(kind):
            columns += [ItemColumn(one.name, (*path, one.name), of_item=True) for one in kind]
        else:
            columns.append(ItemColumn(path[-1], path, of_item=True))
    return sorted(columns, key=lambda column: not column.of_item and column.name in PLACES)


def _without_lists(field: pa.Field, lists: Sequence[FieldPath]) -> bool:
    """Return whether anything of a field is left without some lists."""
    inner = [path[1:] for path in lists if path[0] == field.name]
    return _without(pa.nulls(0, field.type), inner) is not None


def _rank(column: ItemColumn, select: Sequence[str]) -> int:
    """Return the place of a column in a selection, from 1; 0 if it isn't in there."""
    if column.name in PLACES and not column.of_item:
        return len(select) + 1
    related = (is_related("/".join(column.path), path) for path in select)
    return next((rank for rank, found in enumerate(related, 1) if found), 0)


def is_related(path: str, other: str) -> bool:
    """Return whether a path leads to, or through, what another one leads to."""
    return path == other or path.startswith(f"{other}/") or other.startswith(f"{path}/")


def _renamed(columns: Sequence[ItemColumn]) -> tuple[tuple[ItemColumn, ...], tuple[str, ...]]:
    """Return columns with names that differ, and notes on those that got another one."""
    taken = {ITEM, *PLACES}
    taken |= {one.name for one in columns if not one.of_item}
    renamed, notes = [], []
    for one in columns:
        name = one.name
        if not one.of_item and name == ITEM:
            name += "_"
        elif one.of_item and name in taken:
            name = f"{one.path[-2] if len(one.path) > 1 else one.path[0]}_{one.name}"
        while one.of_item and name in taken:
            name += "_"
        taken.add(name)
        renamed.append(one._replace(name=name))
        if name != one.name:
            notes.append(f"field {'/'.join(one.path)!r} becomes column {name!r}")
    return tuple(renamed), tuple(notes)


def _array_at(table: pa.RecordBatch, path: FieldPath) -> pa.Array:
    """Return what a path through structs leads to."""
    array = table.column(path[0])
    for name in path[1:]:
        array = _child(array, name)
    return array


def _child(array: pa.Array, name: str) -> pa.Array | None:
    """Return a field of structs, null where these are; None if they don't have it."""
    index = array.type.get_field_index(name)
    return None if index < 0 else array.flatten()[index]


def _without(array: pa.Array, paths: Sequence[FieldPath]) -> pa.Array | None:
    """Return an array without what some paths in it lead to; None if nothing is left."""
    if not paths:
        return array
    if () in paths:
        return None
    names = [field.name for field in array.type]
    parts = [
        _without(part, [path[1:] for path in paths if path[0] == name])
        for name, part in zip(names, array.flatten(), strict=True)
    ]
    fields = {name: part for name, part in zip(names, parts, strict=True) if part is not None}
    if not fields:
        return None
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays([*fields.values()], names=[*fields], mask=mask)


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _lengths(array: pa.Array) -> Ints:
    import pyarrow.compute as pc

    return np.asarray(pc.fill_null(pc.list_value_length(array), 0)).astype(np.int64)


def _row_bytes(array: pa.Array) -> Ints:
    """Return the bytes of each row, about."""
    import pyarrow.compute as pc

    kind = array.type
    if pa.types.is_struct(kind):
        parts = [_row_bytes(part) for part in array.flatten()]
        return np.sum(parts, axis=0, dtype=np.int64) if parts else np.zeros(len(array), np.int64)
    if _is_list(kind):
        ends = np.append(0, np.cumsum(_lengths(array)))
        totals = np.append(0, np.cumsum(_row_bytes(array.flatten())))
        sizes: Ints = np.diff(totals[ends])
        return sizes
    if str(kind) in ("binary", "string", "large_binary", "large_string"):
        return np.asarray(pc.fill_null(pc.binary_length(array), 0)).astype(np.int64)
    size = kind.bit_width if hasattr(kind, "bit_width") else 64
    return np.full(len(array), max(size // 8, 1), np.int64)
