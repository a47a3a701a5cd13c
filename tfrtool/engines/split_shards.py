"""Folds over the records of shards; large uncompressed shards are read in parts, at once."""

import pickle
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, BinaryIO, NamedTuple, Protocol, TypeVar

from tfrtool.engines.engine import Workers
from tfrtool.engines.pool import map_shards
from tfrtool.errors import ShardError
from tfrtool.records.compression import Compression, detect_compression
from tfrtool.records.framing import FRAME_SIZE, HEADER_SIZE, LENGTH, Fault, Record
from tfrtool.records.reader import RecordReader, read_pieces
from tfrtool.records.resync import headers
from tfrtool.records.stream import Stream, open_shard
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.progress import OnCounts, counting
from tfrtool.storage.remote.remote_file import RemoteFile
from tfrtool.storage.remote_path import AnyPath

Result = TypeVar("Result")
Found = TypeVar("Found", covariant=True)

PART_BYTES = 32 * 1024 * 1024
"""Most bytes of one part. Results depend on the shard alone, not on the number of workers."""

_FEWEST = 4
"""Parts that are worth it: a smaller shard is read in the time in which a few processes start."""

_LOOKED_AT = 64 * 1024


class ShardFold(Protocol[Found]):
    """A fold over the items of a shard; the fold over a part is pickled."""

    def read(self, pieces: Iterator[Sequence[Record] | Fault]) -> None:
        """Take in what follows: consecutive intact records together, and faults."""

    def merge(self, other: Any, index: int) -> bool:
        """Take in the fold over the next part, whose records are counted from ``index`` on.

        Return False, and change nothing, if reading its items would have a different result.
        """

    def found(self) -> Found:
        """Return the result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The records of a shard that start between two offsets."""

    path: AnyPath
    stamp: tuple[int, int]  # size and time of change (ns) of the file when it was cut
    start: int
    end: int

    def __str__(self) -> str:
        return str(self.path)

    def check(self) -> None:
        """Raise a `ShardError` if the file has changed."""
        if _stamp(self.path) != self.stamp:
            raise ShardError("was changed while it was read", path=self.path)

    def find_first(self, file: BinaryIO) -> int | None:
        """Return where its first record seems to start, by the CRC of a length, or None.

        It may be inside a payload that contains records: the part counts only if the one before
        it ends there.
        """
        at = self.start
        while 0 < at < self.end:
            file.seek(at)
            block = file.read(min(_LOOKED_AT, self.end - at) + HEADER_SIZE - 1)
            for position in headers(block):
                (length,) = LENGTH.unpack_from(block, position)
                if at + position + FRAME_SIZE + length <= self.stamp[0]:
                    return at + position
            at += max(len(block) - HEADER_SIZE + 1, 1)
        return None if at else 0


class _PartResult(NamedTuple):
    fold: bytes
    start: int | None  # None if no record starts in the part
    end: int | None  # None if the next part can't be read without this one
    records: int


def parts_of(source: AnyPath | Stream) -> list[Part]:
    """Return the parts of a shard; none if it is read as a whole, as an unreadable one is."""
    if isinstance(source, Stream):
        return []
    stamp = size, _ = _stamp(source)
    try:
        if size < _FEWEST * PART_BYTES:
            return []
        with open_shard(source) as file:
            if detect_compression(file) is not Compression.NONE:
                return []
    except (ShardError, OSError):
        return []
    bounds = pairwise([*range(0, size, PART_BYTES), size])
    return [Part(path=source, stamp=stamp, start=start, end=end) for start, end in bounds]


def shift_record_index(faults: CappedList[Fault], index: int) -> CappedList[Fault]:
    """Return the faults of a part whose records are counted from ``index`` on."""
    faults.entries = [
        fault if fault.record is None else replace(fault, record=fault.record + index)
        for fault in faults.entries
    ]
    return faults


def map_folds(
    begin: Callable[..., ShardFold[Result]],
    sources: Sequence[AnyPath | Stream],
    workers: Workers,
    worth: int,
    *,
    read_unsplit: Callable[[Any], Result] | None = None,
    one_pass: Collection[AnyPath | Stream] = (),
    on_counts: OnCounts | None = None,
) -> Iterator[Result]:
    """Yield the result of a fold over each shard, in order.

    A part that doesn't start where the one before it ended, or may be read differently because of
    damage before it, is read again, from there to the end of the shard.

    Args:
        begin: makes a fold over a source; with ``part=True``, one over a part.
        sources: the shards.
        workers: as for `map_shards`.
        worth: as for `map_shards`.
        read_unsplit: reads a source that is not split, and returns its result; None uses ``begin``.
        one_pass: sources that are not read in parts.
        on_counts: gets the bytes of the files that are read.
    """
    cut = [[] if source in one_pass else parts_of(source) for source in sources]
    tasks, size = list[AnyPath | Stream | Part](), 0
    for source, parts in zip(sources, cut, strict=True):
        tasks += parts or [source]
        if not isinstance(source, Stream) and source.is_file():
            size += source.stat().st_size
    run = partial(_run, read_unsplit=read_unsplit, begin=begin)
    short = all(isinstance(task, Part) for task in tasks)
    results = map_shards(run, tasks, workers, worth, size, on_counts=on_counts, short=short)
    for parts in cut:
        if not parts:
            yield next(results)
            continue
        fold, at, index = begin(parts[0].path), 0, 0
        for part, result in zip(parts, results, strict=False):
            if at >= part.end:
                continue
            if (
                result is not None
                and result.start == at
                and (result.end is not None or part.end == part.stamp[0])
                and fold.merge(pickle.loads(result.fold), index)
            ):
                at, index = result.end or part.end, index + result.records
            else:
                with nullcontext() if on_counts is None else counting(on_counts):
                    fold.read(_rest(part, at, index))
                at = part.stamp[0]
        yield fold.found()


def _run(
    task: Any, read_unsplit: Callable[[Any], Any] | None, begin: Callable[..., ShardFold[Any]]
) -> Any:
    if not isinstance(task, Part):
        if read_unsplit is not None:
            return read_unsplit(task)
        fold = begin(task)
        fold.read(read_pieces(task))
        return fold.found()
    fold, end, records = begin(task.path, part=True), None, 0
    try:
        with open_shard(task.path) as file:
            if isinstance(file, RemoteFile):
                file.expect_end(task.end)
            start = task.find_first(file)
            if start is not None:
                file.seek(start)
                reader = RecordReader(file, Compression.NONE, position=(0, start), stop=task.end)
                fold.read(reader.pieces())
                end, records = reader.end, reader.records
        task.check()
    except ShardError:
        return None
    return _PartResult(pickle.dumps(fold), start, end, records)


def _rest(part: Part, at: int, index: int) -> Iterator[Sequence[Record] | Fault]:
    """Read a shard to its end, from a record on."""
    part.check()
    with open_shard(part.path) as file:
        file.seek(at)
        yield from RecordReader(file, Compression.NONE, position=(index, at)).pieces()
    part.check()


def _stamp(path: AnyPath) -> tuple[int, int]:
    """Return the size of a file and when it was changed; zeros if it can't be read."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns
