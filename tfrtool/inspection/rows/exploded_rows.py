"""Records as rows for the items of their lists."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tfrtool.errors import human_count
from tfrtool.examples.arrow.arrays import numbers_array
from tfrtool.examples.arrow.columns import PLACES, Columns
from tfrtool.features.explode import ExplodedTable
from tfrtool.features.exploded_columns import needed_columns, selected_paths
from tfrtool.inspection.rows.batches import Batch, OnFault
from tfrtool.inspection.verify.payload_check import unparseable
from tfrtool.records.framing import LocatedFault

RECORD = pa.field(PLACES[1], pa.int64())
"""The column with the number of the record that an item is from."""


def explode_columns(
    columns: Columns,
    fields: Sequence[str],
    select: Sequence[str] | None,
    extra: Sequence[pa.Field],
) -> tuple[Columns, ExplodedTable]:
    """Return the columns to decode records to, and how these become rows.

    Args:
        columns: those of the records.
        fields: the lists that are taken apart.
        select: the columns and fields to have; None for all.
        extra: more columns that the table of the records has.

    Raises:
        UsageError: there is no such list, or no such column.
    """
    table = ExplodedTable.of(pa.schema([*columns.to_arrow(), *extra]), fields)
    if select is None:
        return columns, table
    paths = selected_paths(columns, select)
    needed = needed_columns(columns, paths, table.lists)
    paths = [*paths, *(field.name for field in extra)]
    return needed, ExplodedTable.of(pa.schema([*needed.to_arrow(), *extra]), fields, paths)


@dataclass(slots=True)
class Exploder:
    """Makes rows of batches of records.

    Attributes:
        table: how records become rows.
        on_fault: called with each record whose lists don't fit together.
        empty: the number of records without items so far.
    """

    table: ExplodedTable
    on_fault: OnFault
    empty: int = 0

    def rows(self, batch: Batch, table: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows of records; ``table`` has them with all their columns."""
        found = self.table.explode(table)
        for row, why in found.rejected.items():
            fault = unparseable(batch.records[row], why)
            self.on_fault(LocatedFault(path=batch.path, fault=fault))
        self.empty += found.empty
        yield from found.batches

    def numbered(self, batches: Iterator[Batch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of batches, with the number of each record among all of them."""
        path, first, following = None, 0, 0
        for batch in batches:
            if batch.path != path:
                path, first = batch.path, following
            indexes = [record.index for record in batch.records]
            following = first + indexes[-1] + 1
            numbers = {index: first + index for index in indexes}
            yield from self.rows(batch, with_numbers(batch, numbers))

    def note(self) -> str | None:
        """Return a note on records without items; None if there were none."""
        return None if not self.empty else empty_note(self.table, self.empty)


def with_numbers(batch: Batch, numbers: Mapping[int, int]) -> pa.RecordBatch:
    """Return the table of a batch with the numbers of its records, by their indexes."""
    found = np.array([numbers[record.index] for record in batch.records], np.int64)
    schema = pa.schema([*batch.table.schema, RECORD])
    return pa.RecordBatch.from_arrays([*batch.table.columns, numbers_array(found)], schema=schema)


def empty_note(table: ExplodedTable, count: int) -> str:
    """Return a note on records without items."""
    lists = " and ".join(repr("/".join(path)) for path in table.lists)
    return f"{human_count(count, 'record')} without items in {lists}, and thus without rows"
