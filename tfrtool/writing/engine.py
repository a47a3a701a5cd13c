"""The seam behind which shards are written: here in threads, elsewhere by anything else."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from tfrtool.images.audit import quiet_pillow
from tfrtool.writing.plan import ShardResult, ShardTask
from tfrtool.writing.pool import Tally, run_in_threads

__all__ = ["Engine", "LocalEngine"]


class Engine(Protocol):
    """Runs `write_shard` for every task, anywhere and in any order; no shard needs another."""

    def run(
        self, tasks: Sequence[ShardTask], on_progress: Callable[[int, int], None]
    ) -> Iterator[ShardResult]:
        """Yield each shard's result when it is whole.

        Args:
            tasks: the shards to write; each task holds all that is needed for it.
            on_progress: called now and then with the records and bytes written so far.

        Raises:
            WriteError: a shard could not be written; the others may be left half-done.
        """


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """Writes shards in threads of this process.

    Where images are decoded or waited for, shards are filled on all cores. Else filling is the
    interpreter's own work, which threads would only take from each other; what remains of a shard,
    the disk and the digests, is done beside it.

    Attributes:
        workers: how many threads fill shards at most.
        waits: whether reading images means waiting for them.
    """

    workers: int
    waits: bool = True

    def run(
        self, tasks: Sequence[ShardTask], on_progress: Callable[[int, int], None]
    ) -> Iterator[ShardResult]:
        """Yield each shard's result when it is whole."""
        # TensorFlow is only needed, and only loaded, once there is something to write.
        from tfrtool.writing.shard import fill_shard, finish_shard

        tally = Tally(on_progress)
        decodes = any(task.recipe.always or task.convert for task in tasks)
        workers = self.workers if decodes or self.waits else 1
        with (
            quiet_pillow(),
            ThreadPoolExecutor(1, "tfrtool-write") as writing,
            ThreadPoolExecutor(2, "tfrtool-finish") as finishing,
        ):

            def work(task: ShardTask) -> Future[ShardResult]:
                filled = fill_shard(task, tally.count, writing if workers == 1 else None)
                return finishing.submit(finish_shard, filled)

            pending: deque[Future[ShardResult]] = deque()
            for _, future in run_in_threads(work, tasks, workers, tally):
                pending.append(future)
                # No more shards are unfinished than can be worked on.
                while pending and (pending[0].done() or len(pending) > 2):
                    yield pending.popleft().result()
            for future in pending:
                yield future.result()
