"""What is to be known of each record before it is known where it goes: a row of numbers each."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tfrtool.convert.pipeline.job_report import Faults
from tfrtool.convert.pipeline.record_sources import INDEX, SourceShard
from tfrtool.convert.pipeline.tally import Tally, payload_key
from tfrtool.engines.processes import map_shards
from tfrtool.errors import WriteError, os_errors_as
from tfrtool.examples.arrow.columns import Columns
from tfrtool.examples.example import PayloadKind
from tfrtool.inspection.rows.batches import (
    BATCH_BYTES,
    BATCH_RECORDS,
    Batch,
    decode_records,
    in_batches,
    infer_columns,
    with_places,
)
from tfrtool.records.framing import Fault, LocatedFault
from tfrtool.records.reader import read_records
from tfrtool.records.stream import open_shard
from tfrtool.storage.progress import OnProgress, Progress

if TYPE_CHECKING:
    import pyarrow as pa

KEPT = 1
"""The mark of a record that is kept. 0 is that of a damaged one, others are of rules."""

UNPARSED = Columns(PayloadKind.UNKNOWN)
"""The columns for those who ask no features."""

_WORTH_A_PROCESS = 64 * 1024 * 1024

Marks = NDArray[Any]
"""Rows of numbers, of which ``mark`` is one."""

Look = Callable[[Batch], Marks]


def values_of(table: "pa.RecordBatch", columns: Columns, name: str) -> list[list[Any] | None]:
    """Return the values of a feature in each record, however the table holds them."""
    if columns.kind is PayloadKind.SEQUENCE_EXAMPLE:
        column = columns.columns[columns.names.index(name)]
        array = table.column("feature_lists" if column.is_list else "context").field(name)
    else:
        array = table.column(name)
    found = []
    for value in array.to_pylist():
        if isinstance(value, dict):  # a struct of a list for each type
            value = next((some for some in value.values() if some is not None), None)
        found.append(value if isinstance(value, list) or value is None else [value])
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanned:
    """Shards that have been gone through, and whose records are to be looked at.

    Attributes:
        shards: those of all splits.
        splits: the splits that they have, and how many records of each, in this order.
        scratch: the folder that `scan_shards` had.
        workers: how many processes at most.
        stop: whether the first damage ends the work.
        on_progress: called after each shard.
    """

    shards: Sequence[SourceShard]
    splits: Mapping[str, int]
    scratch: Path
    workers: int | None
    stop: bool
    on_progress: OnProgress

    def columns(self) -> Columns:
        """Return the columns that all records fit."""
        return infer_columns([shard.place for shard in self.shards], workers=self.workers)

    def mark(self, look: Look, dtype: Any, columns: Columns) -> tuple[Marks, Tally, Faults]:
        """Read all records; return a row for each, what was read, and the damage.

        The rows are in a file, and in memory only as far as they are used. Damaged records have
        zeros. What looks at batches of some columns can be pickled; they have `PLACES`, too.
        """
        tally, faults, marks = Tally(), Faults(), self.scratch / "marks"
        dtype = np.dtype(dtype)
        total = sum(self.splits.values())
        with os_errors_as(WriteError, marks, "can't be written"):
            marks.touch()
            os.truncate(marks, total * dtype.itemsize)
        mark = partial(
            _mark_shard,
            look=look,
            dtype=dtype,
            columns=columns,
            scratch=self.scratch,
            stop=self.stop,
        )
        firsts = accumulate((shard.records for shard in self.shards), initial=0)
        jobs = list(zip(firsts, range(len(self.shards)), self.shards, strict=False))
        worth = _WORTH_A_PROCESS if self.workers is None else 1
        size = sum(shard.size for shard in self.shards)
        for one in map_shards(mark, jobs, self.workers, worth, size):
            tally.merge(one[0])
            faults.merge(one[1])
            done = tally.records + faults.count
            self.on_progress(Progress(what="looking", done=done, total=total, unit="records"))
        return np.memmap(marks, dtype, "r"), tally, faults


def _mark_shard(
    job: tuple[int, int, SourceShard],
    look: Look,
    dtype: "np.dtype[Any]",
    columns: Columns,
    scratch: Path,
    stop: bool,
) -> tuple[Tally, Faults]:
    first, number, shard = job
    tally, faults, marks = Tally(), Faults(stop=stop), scratch / "marks"
    starts = np.memmap(scratch / INDEX, np.uint64, "r")[first + number :][: shard.records]

    def tell(fault: Fault) -> None:
        faults.add(LocatedFault(path=shard.path, fault=fault))

    def met(fault: Fault) -> None:
        if shard.copy is None and shard.records:  # else it was told by the scan
            tell(fault)

    count = min(BATCH_RECORDS, columns.batch_records)
    with (
        open_shard(shard.path) as file,
        os_errors_as(WriteError, marks, "can't be written"),
        marks.open("r+b") as out,
    ):
        for read in in_batches(read_records(file), met, BATCH_BYTES, count):
            if shard.copy is not None:  # which has just these
                places = range(tally.records, tally.records + len(read))
                rows = dict(zip((record.index for record in read), places, strict=True))
            else:  # a reader may find whole records within a damaged one
                offsets = np.array([record.offset for record in read], np.uint64)
                found = np.minimum(np.searchsorted(starts, offsets), shard.records - 1)
                known = starts[found] == offsets
                rows = {
                    record.index: place
                    for record, place, is_known in zip(read, found.tolist(), known, strict=True)
                    if is_known
                }
            records = [record for record in read if record.index in rows]
            if not records:
                continue
            tally.add_keys([payload_key(one.payload_crc, len(one.payload)) for one in records])
            start = rows[records[0].index]
            made = np.zeros(rows[records[-1].index] + 1 - start, dtype)
            for batch in decode_records(shard.path, records, columns, tell):
                own = [rows[record.index] - start for record in batch.records]
                made[own] = look(with_places(batch))
            out.seek((first + start) * dtype.itemsize)
            made.tofile(out)
        shard.check_stamp(file)
    return tally, faults
