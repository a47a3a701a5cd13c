"""What is to be known of each record before it is known where it goes: a row of numbers each."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from tfrtool.convert.pipeline.job_report import Faults
from tfrtool.convert.pipeline.record_sources import SourceShard, append_file
from tfrtool.convert.pipeline.segments import Frames, read_frames, read_payloads
from tfrtool.convert.pipeline.tally import Tally
from tfrtool.engines.processes import map_shards
from tfrtool.errors import UsageError, WriteError, os_errors_as
from tfrtool.examples.arrow.columns import Columns
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.example import PayloadKind
from tfrtool.inspection.rows.batches import decode_records, infer_columns, with_places
from tfrtool.records.framing import Fault, LocatedFault, Record
from tfrtool.storage.progress import OnProgress, Progress, silent

if TYPE_CHECKING:
    import pyarrow as pa

Result = TypeVar("Result")

KEPT = 1
"""The mark of a record that is kept. 0 is that of a damaged one, others are of rules."""

_WORTH_A_PROCESS = 64 * 1024 * 1024

Marks = NDArray[Any]


class Lens(Protocol):
    """Looks at records; it can be pickled."""

    @property
    def dtype(self) -> "np.dtype[Any]":
        """Of a row: first a byte ``mark``."""

    def look(self, shard: SourceShard, frames: Frames, faults: Faults) -> Marks:
        """Return a row for each record."""


class Uncertain(Exception):  # noqa: N818 - it leads to another attempt
    """A record does not have the columns that the first records made expect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """Decodes some columns of records.

    Attributes:
        columns: those to decode.
        certain: whether all records have been looked at for them, so that one which doesn't fit is
            damaged; else it is `Uncertain`.
    """

    columns: Columns
    certain: bool

    def rows(
        self, shard: SourceShard, frames: Frames, faults: Faults
    ) -> Iterator[tuple[list[int], "pa.RecordBatch"]]:
        """Yield tables, each with where its rows are in ``frames``; they have `PLACES`, too."""

        def tell(fault: Fault) -> None:
            if not self.certain:
                raise Uncertain
            faults.add(LocatedFault(path=shard.path, fault=fault))

        records = [
            Record(shard.original(frames.record + at), 0, payload, 0)
            for at, payload in enumerate(frames.payloads)
        ]
        places = {record.index: at for at, record in enumerate(records)}
        for batch in decode_records(shard.path, records, self.columns, tell):
            yield [places[record.index] for record in batch.records], with_places(batch).table

    def values(self, table: "pa.RecordBatch") -> list[Any]:
        """Return the values of a table's only column of features."""
        column = self.columns.columns[0]
        if self.columns.kind is PayloadKind.SEQUENCE_EXAMPLE:
            struct = table.column("feature_lists" if column.is_list else "context")
            return list(struct.field(self.columns.names[0]).to_pylist())
        return list(table.column(self.columns.names[0]).to_pylist())


def with_columns(
    shards: Sequence[SourceShard],
    workers: int | None,
    use: Callable[[Columns, bool], Result],
) -> Result:
    """Return what ``use`` makes of the columns of records, and of whether they are certain.

    The first records tell the columns, if that will do: else all have to be read once more.
    """
    fold = ColumnsFold()
    for shard in shards:
        if shard.records:
            for payloads in read_payloads(shard.head, Faults().add):
                fold.add(payloads)
    try:
        return use(fold.columns(), False)
    except (Uncertain, UsageError):
        return use(infer_columns([shard.place for shard in shards], workers=workers), True)


def mark_records(
    shards: Sequence[SourceShard],
    lens: Lens,
    scratch: Path,
    *,
    workers: int | None = None,
    stop: bool = False,
    on_progress: OnProgress = silent,
) -> tuple[Marks, Tally, Faults]:
    """Read all records, on several workers; return a row for each, what was read, and the damage.

    The rows are in a file, and in memory only as far as they are used. Damaged records have zeros.
    """
    marks, tally, faults = scratch / "marks", Tally(), Faults()
    marks.write_bytes(b"")
    mark = partial(_mark_shard, lens=lens, scratch=scratch, stop=stop)
    size = sum(shard.size for shard in shards)
    worth = _WORTH_A_PROCESS if workers is None else 1
    total = sum(shard.records for shard in shards)
    jobs = list(enumerate(shards))
    for number, found in enumerate(map_shards(mark, jobs, workers, worth, size)):
        tally.merge(found[0])
        faults.merge(found[1])
        append_file(scratch / f"{number}.marks", marks)
        done = tally.records + faults.count
        on_progress(Progress(what="looking", done=done, total=total, unit="records"))
    if not total:
        return np.zeros(0, lens.dtype), tally, faults
    return np.memmap(marks, lens.dtype, "r+"), tally, faults


def _mark_shard(
    numbered: tuple[int, SourceShard], lens: Lens, scratch: Path, stop: bool
) -> tuple[Tally, Faults]:
    number, shard = numbered
    tally, faults, done = Tally(), Faults(stop=stop), 0
    path = scratch / f"{number}.marks"
    with os_errors_as(WriteError, path, "can't be written"), path.open("wb") as file:
        if shard.records:
            for frames in read_frames(shard.whole, faults.add):
                np.zeros(frames.record - done, lens.dtype).tofile(file)
                rows = lens.look(shard, frames, faults)
                rows.tofile(file)
                tally.add_keys(frames.keys)
                done = frames.record + len(frames.keys)
        np.zeros(shard.records - done, lens.dtype).tofile(file)
    return tally, faults
