"""Columns of tables of records that no record stores: of folders, runs, and of all numbers."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tfrtool.examples.arrow.arrays import numbers_array
from tfrtool.examples.arrow.columns import EXACT, PLACES
from tfrtool.records.count import first_numbers
from tfrtool.records.partitions import PartitionKind, partition_columns
from tfrtool.records.shard_sets import run_of
from tfrtool.storage.arguments import Paths, as_paths
from tfrtool.storage.remote_path import AnyPath

INDEX = "_index"
"""The column with the number of each record among those of all shards, from 0."""

RUN = "run"
"""The column with the run of TensorBoard that an event is from."""

_TYPES = {
    PartitionKind.TEXT: pa.string(),
    PartitionKind.INTEGER: pa.int64(),
    PartitionKind.DATE: pa.date32(),
}


@dataclass(frozen=True, slots=True)
class ExtraColumn:
    """A column whose values depend on the shard.

    Attributes:
        name: what it is called.
        kind: the type of its values.
        values: the value of each shard's records, or that of its first record.
        is_counted: whether the values of a shard's records count from the first one on.
    """

    name: str
    kind: pa.DataType
    values: Mapping[AnyPath, Any]
    is_counted: bool = False

    def value(self, path: AnyPath, index: int) -> Any:
        """Return the value of a record."""
        return self.values.get(path, 0) + index if self.is_counted else self.values.get(path)

    def array(self, path: AnyPath, indexes: NDArray[np.int64]) -> pa.Array:
        """Return the values of records of a shard."""
        if self.is_counted:
            return numbers_array(indexes + self.values[path])
        return pa.repeat(pa.scalar(self.values.get(path), self.kind), len(indexes))


@dataclass(frozen=True, slots=True)
class ExtraColumns:
    """The columns that follow those of features.

    Attributes:
        columns: these, in order.
        order: the names of all columns of the table; None for those of features first.
    """

    columns: tuple[ExtraColumn, ...] = ()
    order: tuple[str, ...] | None = None

    @classmethod
    def of(cls, shards: Sequence[AnyPath], names: Collection[str]) -> "ExtraColumns":
        """Return the columns that the folders of shards are.

        ``names`` are those of other columns; a column of the same name gets a trailing ``_``.
        """
        taken = {name.casefold() for name in (*names, *PLACES, EXACT, INDEX)}
        columns = []
        for one in partition_columns(shards):
            name = one.name.replace("\0", "\\x00")
            while name.casefold() in taken:
                name += "_"
            taken.add(name.casefold())
            columns.append(ExtraColumn(name, _TYPES[one.kind], one.values))
        return cls(tuple(columns))

    def of_shards(self, shards: Collection[AnyPath]) -> "ExtraColumns":
        """Return the same with the values of only these shards."""
        return replace(
            self,
            columns=tuple(
                replace(one, values={path: one.values[path] for path in shards})
                for one in self.columns
            ),
        )

    def same_values(self, shard: AnyPath) -> tuple[Any, ...]:
        """Return the values of a shard's records, if they are not counted."""
        return tuple(one.values[shard] for one in self.columns)

    @property
    def fields(self) -> list[pa.Field]:
        """Their fields in an Arrow schema."""
        return [pa.field(one.name, one.kind) for one in self.columns]

    def select(
        self, select: Sequence[str], names: Collection[str], shards: Sequence[AnyPath]
    ) -> tuple[list[str], "ExtraColumns"]:
        """Return the selected columns: the names of others, and those of these that are selected.

        Args:
            select: the names; `INDEX` is one of them if no other column is called so.
            names: those of all other columns.
            shards: where the records are from.
        """
        known = {one.name: one for one in self.columns}
        if INDEX in select and INDEX not in names:
            known[INDEX] = index_column(shards)
        chosen = tuple(known[name] for name in dict.fromkeys(select) if name in known)
        others = [name for name in select if name not in known]
        return others, ExtraColumns(chosen, tuple(dict.fromkeys(select)) if chosen else None)

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of a table with these columns, too."""
        if not self.columns:
            return schema
        return self._ordered(pa.schema([*schema, *self.fields], schema.metadata))

    def add_to(
        self, table: pa.RecordBatch, path: AnyPath, indexes: Sequence[int]
    ) -> pa.RecordBatch:
        """Return a table of records of a shard with these columns, too."""
        if not self.columns:
            return table
        numbers = np.asarray(indexes, np.int64)
        arrays = [*table.columns, *(one.array(path, numbers) for one in self.columns)]
        schema = pa.schema([*table.schema, *self.fields], table.schema.metadata)
        added = pa.RecordBatch.from_arrays(arrays, schema=schema)
        return added.select(self._ordered(schema).names)

    def values(self, path: AnyPath, index: int) -> dict[str, Any]:
        """Return the values of a record by column."""
        return {one.name: one.value(path, index) for one in self.columns}

    def _ordered(self, schema: pa.Schema) -> pa.Schema:
        if self.order is None or {*self.order} != {*schema.names}:
            return schema
        return pa.schema([schema.field(name) for name in self.order], schema.metadata)


def run_column(shards: Sequence[AnyPath], sources: Paths) -> ExtraColumn:
    """Return the column with the run of each shard, as TensorBoard names them.

    Runs are relative to the directories that are ``sources``, or else to the folder of all shards.
    """
    roots = [path for path in as_paths(sources) if path.is_dir()] if sources else []
    if not roots:
        roots = [_folder_of_all(shards)]
    runs = {}
    for shard in shards:
        root = next((one for one in roots if shard.is_relative_to(one)), shard.parent)
        runs[shard] = run_of(shard.parent, root)
    return ExtraColumn(RUN, pa.string(), runs)


def _folder_of_all(shards: Sequence[AnyPath]) -> AnyPath:
    folder = shards[0].parent
    while not all(shard.is_relative_to(folder) for shard in shards) and folder != folder.parent:
        folder = folder.parent
    return folder


def index_column(shards: Sequence[AnyPath]) -> ExtraColumn:
    """Return the column with numbers that count through shards."""
    return ExtraColumn(INDEX, pa.int64(), first_numbers(shards), is_counted=True)


def select_extra(
    shards: Sequence[AnyPath], names: Collection[str], select: Sequence[str] | None
) -> tuple[Sequence[str] | None, ExtraColumns]:
    """Return the selected columns that records store, and those that they don't.

    ``names`` are those of all columns that records store; ``select`` is None for all columns.
    """
    extra = ExtraColumns.of(shards, names)
    return (None, extra) if select is None else extra.select(select, names, shards)
