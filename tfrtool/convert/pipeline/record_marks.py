"""What is to be known of each record before it is known where it goes: a row of numbers each."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tfrtool.convert.pipeline.job_report import Faults
from tfrtool.convert.pipeline.record_sources import SourceShard, append_file
from tfrtool.convert.pipeline.segments import Frames, read_frames
from tfrtool.convert.pipeline.tally import Tally
from tfrtool.engines.processes import map_shards
from tfrtool.errors import WriteError, os_errors_as
from tfrtool.storage.progress import OnProgress, Progress, silent

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
    marks.touch()
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
