"""Records as an iterable dataset of PyTorch, for shards that can't be read at random.

Import it with ``import tfrtool.torch``; it requires PyTorch.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from torch import distributed
from torch.utils.data import IterableDataset, get_worker_info

from tfrtool.errors import ShardError, UsageError
from tfrtool.inspection.rows.decoded_records import Decode, Size, find_decoder, find_split
from tfrtool.inspection.rows.read_rows import read_records
from tfrtool.records.count import count_records
from tfrtool.records.framing import Record
from tfrtool.records.random_access import decode_record
from tfrtool.storage.arguments import Paths
from tfrtool.storage.remote_path import AnyPath

__all__ = ["IterableRecords"]

_Item = TypeVar("_Item")


class IterableRecords(IterableDataset):  # type: ignore[misc]  # torch need not be installed
    """The records of shards, compressed or not, in sequence, for ``torch.utils.data.DataLoader``.

    Each rank of a distributed run gets an equal part of the records, and each worker of its
    DataLoader an equal part of that. So that all ranks have as many, up to ``world_size - 1``
    records at the end are omitted in each epoch.

    ``state_dict`` and ``load_state_dict`` save and restore the position, as the
    ``StatefulDataLoader`` of torchdata does in its workers. Records before it are read again, but
    not decoded.

    Attributes:
        class_names: names of the classes, as `tfrtool.open_records` has them.
    """

    def __init__(
        self,
        shards: Paths,
        *,
        split: str | None = None,
        decode: Decode | None = None,
        label_feature: str | None = None,
        resize: Size | None = None,
        transform: Callable[[Any], Any] | None = None,
        shuffle_buffer: int = 0,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        """Find the shards, and count their records if no metadata has their number.

        Args:
            shards: path of a shard, a dataset directory or a glob pattern; or several, in order.
            split: as for `tfrtool.open_records`, like ``decode``, ``label_feature``, ``resize`` and
                ``transform``.
            decode: "features", "image" or "objects"; None for `Record` objects.
            label_feature: the label feature, for "image".
            resize: size of all images in pixels: (width, height), or that of the shorter side.
            transform: function of each decoded element, whose result replaces it.
            shuffle_buffer: number of records that each worker holds in memory to shuffle them. The
                order of shards changes, too, in each epoch. 0 keeps records in order.
            seed: random seed for shuffling.
            rank: number of this process among those of a distributed run; None asks
                ``torch.distributed``, if it was initialized.
            world_size: number of these processes.

        Raises:
            ShardError: a file does not exist or can't be read; or no image, label or boxes were
                detected in its first record.
            CorruptShardError: a shard is damaged.
            SchemaError: the features.json can't be read, or most records are something else.
            UsageError: invalid argument, or unknown split.
        """
        super().__init__()
        found = find_split(shards, split)
        self._lengths = {
            path: count_records(path) if length is None else length
            for path, length in found.items()
        }
        if rank is None and world_size is None and distributed.is_initialized():
            rank, world_size = distributed.get_rank(), distributed.get_world_size()
        self._rank, self._world_size = rank or 0, world_size or 1
        if shuffle_buffer < 0 or not 0 <= self._rank < self._world_size:
            raise UsageError(
                f"invalid shuffle_buffer {shuffle_buffer}, rank {rank} or world_size {world_size}"
            )
        self._buffer, self._seed = shuffle_buffer, seed
        paths = [path for path, length in self._lengths.items() if length]
        self._decode = find_decoder(
            paths,
            lambda: next(read_records(paths[0])).payload if paths else None,
            decode,
            label_feature=label_feature,
            resize=resize,
            transform=transform,
        )
        self.class_names = self._decode.class_names if self._decode else ()
        self._epoch = self._done = 0
        self._loaded: dict[str, Any] = {}

    def __len__(self) -> int:
        """Return the number of records of this rank."""
        return sum(self._lengths.values()) // self._world_size

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next epoch, which determines the order when records are shuffled.

        Call it before each epoch if workers are not persistent, for these always begin with the
        epoch of the dataset that they are copied from.
        """
        self._epoch, self._done, self._loaded = epoch, 0, {}

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch, and how many elements of it were returned by this worker."""
        return {"epoch": self._epoch, "done": self._done, "part": self._part()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Have the next iteration continue where ``state_dict`` was called.

        Iterating raises a `UsageError` if the state is that of another worker, or of other shards.
        """
        self._epoch, self._done, self._loaded = state["epoch"], state["done"], state

    def _part(self) -> list[int]:
        """Return the numbers of the first record and of the one behind the last."""
        worker, size = get_worker_info(), len(self)
        number, count = (0, 1) if worker is None else (worker.id, worker.num_workers)
        start = self._rank * size
        return [start + size * number // count, start + size * (number + 1) // count]

    def __iter__(self) -> Iterator[Any]:
        part, loaded = self._part(), self._loaded
        if (found := loaded.get("part", part)) != part:
            raise UsageError(
                "the state belongs to another worker or to other shards",
                expected=f"records {part[0]} to {part[1]}",
                found=f"records {found[0]} to {found[1]}",
                hint="load it with the same shards and numbers of workers and ranks",
            )
        self._done, self._loaded = loaded.get("done", 0), {}
        order = random.Random(f"{self._seed} {self._epoch}")
        paths = list(self._lengths)
        if self._buffer:
            order.shuffle(paths)
        items: Iterable[tuple[AnyPath, Record]] = self._records(paths, *part)
        if self._buffer:
            items = _shuffled(items, self._buffer, random.Random(f"{order.random()} {part}"))
        for path, record in islice(items, self._done, None):
            self._done += 1
            yield record if self._decode is None else decode_record(self._decode, record, path)
        self.set_epoch(self._epoch + 1)

    def _records(
        self, paths: Iterable[AnyPath], first: int, stop: int
    ) -> Iterator[tuple[AnyPath, Record]]:
        """Yield the records from one to another, counted over all shards, and their shards."""
        for path in paths:
            length = self._lengths[path]
            start, end = max(first, 0), min(stop, length)
            count = 0
            if start < end:
                for record in islice(read_records(path), start, end):
                    yield path, record
                    count += 1
                if count < end - start:
                    what = "has fewer records than expected"
                    raise ShardError(what, path=path, expected=length, found=start + count)
            first, stop = first - length, stop - length


def _shuffled(items: Iterable[_Item], size: int, chance: random.Random) -> Iterator[_Item]:
    """Yield items in another order, holding at most ``size`` of them."""
    buffer: list[_Item] = []
    for item in items:
        if len(buffer) < size:
            buffer.append(item)
            continue
        at = chance.randrange(size)
        yield buffer[at]
        buffer[at] = item
    chance.shuffle(buffer)
    yield from buffer
