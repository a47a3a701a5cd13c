"""The seam behind which shards are written: here in threads, elsewhere by anything else."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tfrtool.engines.threads import Cancelled, Tally, run_in_order
from tfrtool.images.decoder import quiet_pillow
from tfrtool.sources.items import Starting
from tfrtool.writing.records import Prepared, batches, decodes, prepare
from tfrtool.writing.scan.image_scan import mostly_waits
from tfrtool.writing.write_plan import ShardResult, ShardTask

if TYPE_CHECKING:
    from tfrtool.writing.shard_writer import ShardWriter

_UNFINISHED = 2
"""Shards that are on their way to the disk at a time."""


class Engine(Protocol):
    """Runs `write_shard` for every task, anywhere and in any order; no shard needs another."""

    def run(
        self, tasks: Sequence[ShardTask], on_progress: Callable[[int], None]
    ) -> Iterator[ShardResult]:
        """Yield each shard's result when it is whole.

        Args:
            tasks: the shards to write; each task holds all that is needed for it.
            on_progress: called now and then with the records written so far.

        Raises:
            WriteError: a shard could not be written; the others may be left half-done.
            BadImage: likewise, for what `write_shard` found of an image.
        """


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """Writes shards in threads of this process, one after the other.

    Where images are decoded or waited for, records are made on all cores. Else making them is the
    interpreter's own work, which threads would only take from each other. What remains of a shard,
    the disk and the digests, is done beside the next one.

    Attributes:
        workers: how many threads make records at most.
        starting: gives the context in which TensorFlow is loaded, once there is something to write.
    """

    workers: int
    starting: Starting = nullcontext

    def run(
        self, tasks: Sequence[ShardTask], on_progress: Callable[[int], None]
    ) -> Iterator[ShardResult]:
        """Yield each shard's result when it is whole."""
        tally = Tally(on_progress)
        pending: deque[Future[ShardResult]] = deque()
        with quiet_pillow(), ThreadPoolExecutor(_UNFINISHED, "tfrtool-finish") as finishing:
            for shard in self._filled(tasks, tally):
                pending.append(finishing.submit(shard.finish))
                while pending and (pending[0].done() or len(pending) > _UNFINISHED):
                    yield pending.popleft().result()
            tally.finish()
            for future in pending:
                yield future.result()

    def _filled(self, tasks: Sequence[ShardTask], tally: Tally) -> Iterator[ShardWriter]:
        """Yield each shard when it has all its records."""
        if not tasks:
            return
        with self.starting():
            from tfrtool.writing.shard_writer import ShardWriter

        shard: ShardWriter | None = None
        try:
            for task, places, prepared in self._prepared(tasks, tally):
                shard = shard or ShardWriter(task)
                shard.add(prepared)
                tally.count(len(prepared))
                if places.stop == len(task.items):
                    whole, shard = shard, None
                    yield whole
        except BaseException:
            if shard is not None:
                shard.abandon()
            raise

    def _prepared(
        self, tasks: Sequence[ShardTask], tally: Tally
    ) -> Iterator[tuple[ShardTask, range, list[Prepared]]]:
        """Yield the records of all tasks, in order, some at a time."""

        def work(job: tuple[ShardTask, range]) -> tuple[ShardTask, range, list[Prepared]]:
            if tally.cancelled:
                raise Cancelled
            return (*job, prepare(*job))

        jobs = ((task, places) for task in tasks for places in batches(task))
        if not any(map(decodes, tasks)):
            first = next(jobs, None)
            if first is None:
                return
            prepared, waits = mostly_waits(lambda: work(first))
            yield prepared
            if not waits:
                yield from map(work, jobs)
                return
        yield from run_in_order(work, jobs, self.workers, tally)
