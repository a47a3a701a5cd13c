"""Shards of images: the tasks of a write, and the threads that do them here."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from tfrtool.engines.pool import Threads, run_in_order
from tfrtool.images.decoder import quiet_pillow
from tfrtool.images.recipe import Check
from tfrtool.records.compression import Compression
from tfrtool.records.tally import Tally
from tfrtool.records.writer import ShardWriter
from tfrtool.sources.items import Item, Starting
from tfrtool.storage.progress import count_work
from tfrtool.writing.image_account import ImageAccount
from tfrtool.writing.image_records import Finding, RecordMaker, batches
from tfrtool.writing.job import FileTask
from tfrtool.writing.job_report import Written
from tfrtool.writing.write_plan import PlannedImage

IMAGES = "images"
"""Unit of the progress of a write."""

ACCOUNT = "images"
"""Key of an `ImageAccount` in the facts of a shard."""

_AT_ONCE = 2
"""Shards that are written here at a time: one is flushed and read back while the next one grows."""

Result = TypeVar("Result")
Task = TypeVar("Task")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageShard(FileTask):
    """A shard of images to write.

    Attributes:
        images: its images, in order.
        maker: what makes records of them.
        compression: the file's.
        tensorflow: whether TensorFlow frames the records; else the same frames are our own.
        threads: number of threads that make records; 0 for a task in a process of its own.
    """

    new: ClassVar[bool] = True
    images: Sequence[PlannedImage]
    maker: RecordMaker
    compression: Compression
    tensorflow: bool = True
    threads: int = 0

    def write(self, path: Path) -> Written:
        """Write the shard, and read it back.

        Where images are decoded or waited for, records are made in threads. A bad image leaves the
        shard one record shorter. The same shard gets the same bytes, with any number of threads.

        Raises:
            SourceError: an image is bad, and these are not to be skipped.
            WriteError: an image can't be read any more, the shard can't be written, or it does not
                read back as it was written.
        """
        framing = None
        if self.tensorflow:
            import tensorflow as tf

            framing = tf.io.TFRecordWriter
        account, jobs = ImageAccount(), batches(self.images, attrgetter("item.bytes"))
        alone, target = self.threads == 0, path.with_name(self.name)
        with (
            quiet_pillow() if alone else nullcontext(),
            ShardWriter(path, self.compression, framing=framing, target=target) as writer,
        ):
            for made in run_in_order(
                partial(_records_of, self.maker), jobs, self.threads or 1, computes=self._computes
            ):
                for item, finding, _ in made:
                    account.add(item, finding, self.maker)
                writer.write(payload for *_, payload in made if payload is not None)
                count_work(len(made), IMAGES)
        tally = writer.verify() if writer.tally.records else Tally()  # else it isn't published
        return Written(tally=tally, read=Tally(), facts={ACCOUNT: account.to_text()})

    @property
    def _computes(self) -> bool:
        """Whether no image is decoded, which threads do at the same time."""
        if self.maker.recipe.always:
            return False
        for image in self.images:
            if image.finding is None:
                return self.maker.recipe.check is not Check.DECODE
            if image.finding.conversion is not None:
                return False
        return True


def _records_of(
    maker: RecordMaker, images: Sequence[PlannedImage]
) -> list[tuple[Item, Finding, bytes | None]]:
    """Return records of images, with what was found of them; None for those that are bad."""
    made: list[tuple[Item, Finding, bytes | None]] = []
    for _, _, finding, item in images:
        if finding is None:
            data, finding = maker.look(item)
        elif finding.problem is None:
            data = maker.read_again(item, finding)
        payload = None if finding.problem is not None else maker.payload(item, data, finding)
        made.append((item, finding, payload))
    return made


class ImageThreads(Threads):
    """Threads of this process that write shards of images."""

    def __init__(self, workers: int, starting: Starting, *, tensorflow: bool = True) -> None:
        """Take so many threads in all.

        Args:
            workers: how many threads make records.
            starting: gives the context in which TensorFlow is loaded.
            tensorflow: whether it is needed.
        """
        super().__init__(min(workers, _AT_ONCE))
        self._workers, self._starting, self._tensorflow = workers, starting, tensorflow

    def threads_of(self, shards: int) -> int:
        """Return how many threads make the records of each of so many shards."""
        return -(-self._workers // min(self.count, shards))

    def map(
        self, function: Callable[[Task], Result], tasks: Iterable[Task], **more: Any
    ) -> Iterator[Result]:
        """Yield the results of tasks; TensorFlow is loaded before the first."""
        tasks = [*tasks]
        if tasks and self._tensorflow:
            with self._starting():
                import tensorflow  # noqa: F401
        with quiet_pillow():
            yield from super().map(function, tasks, **more)
