"""The seam behind which shards are written: here in threads, elsewhere by anything else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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

    Attributes:
        workers: how many.
    """

    workers: int

    def run(
        self, tasks: Sequence[ShardTask], on_progress: Callable[[int, int], None]
    ) -> Iterator[ShardResult]:
        """Yield each shard's result when it is whole."""
        # TensorFlow is only needed, and only loaded, once there is something to write.
        from tfrtool.writing.shard import write_shard

        tally = Tally(on_progress)
        with quiet_pillow():
            for _, result in run_in_threads(
                lambda task: write_shard(task, tally.count), tasks, self.workers, tally
            ):
                yield result
