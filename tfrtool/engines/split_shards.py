"""Folds over the records of shards, of which large ones are read in parts at once."""

import pickle
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from tfrtool.engines.engine import Workers
from tfrtool.engines.pool import map_shards
from tfrtool.errors import ShardError
from tfrtool.records.compression import Compression
from tfrtool.records.framing import Fault, Record
from tfrtool.records.parts import Part, parts_of
from tfrtool.records.reader import RecordReader, read_records, read_shard
from tfrtool.records.stream import Stream, open_shard
from tfrtool.storage.progress import OnCounts, counting

Result = TypeVar("Result")
Found = TypeVar("Found", covariant=True)


class ShardFold(Protocol[Found]):
    """A fold over what is read of a shard; over that of a part, it is pickled."""

    def read(self, items: Iterator[Record | Fault]) -> None:
        """Take in what follows."""

    def merge(self, other: Any, index: int) -> bool:
        """Take in the fold over a part that follows, whose records are counted from ``index`` on.

        False, and nothing else, if reading it would have come to something else.
        """

    def found(self) -> Found:
        """Return what it has come to."""


class _Found(NamedTuple):
    fold: bytes
    start: int | None  # None if no record starts in the part
    end: int | None  # None if what follows can't be read without what came before
    records: int


def map_folds(
    begin: Callable[..., ShardFold[Result]],
    sources: Sequence[Path | Stream],
    workers: Workers,
    worth: int,
    *,
    whole: Callable[[Any], Result] | None = None,
    one_pass: Collection[Path | Stream] = (),
    on_counts: OnCounts | None = None,
) -> Iterator[Result]:
    """Yield what the fold that ``begin(source)`` makes finds in each shard, in order.

    Large ones are read as parts, by folds that ``begin(path, part=True)`` makes. A part that
    doesn't start where the one before it ended, or may be read otherwise because of damage before
    it, is read once more, from there to the end of the shard. Those in ``one_pass`` are never
    split. ``whole(source)`` gives the result, if it is there, of what is read as one. ``on_counts``
    gets the bytes of the files that are read. `map_shards` says the rest.
    """
    cut = [[] if source in one_pass else parts_of(source) for source in sources]
    tasks, size = list[Path | Stream | Part](), 0
    for source, parts in zip(sources, cut, strict=True):
        tasks += parts or [source]
        if isinstance(source, Path) and source.is_file():
            size += source.stat().st_size
    run = partial(_run, whole=whole, begin=begin)
    results = map_shards(run, tasks, workers, worth, size, on_counts=on_counts)
    for parts in cut:
        if not parts:
            yield next(results)
            continue
        path = parts[0].path
        fold, at, index = begin(path), 0, 0
        for part, found in zip(parts, results, strict=False):
            if at >= part.end:
                continue
            if (
                found is not None
                and found.start == at
                and (found.end is not None or part.end == part.stamp[0])
                and fold.merge(pickle.loads(found.fold), index)
            ):
                at, index = found.end or part.end, index + found.records
            else:
                with nullcontext() if on_counts is None else counting(on_counts):
                    fold.read(_rest(part, at, index))
                at = part.stamp[0]
        yield fold.found()


def _run(
    task: Any, whole: Callable[[Any], Any] | None, begin: Callable[..., ShardFold[Any]]
) -> Any:
    if not isinstance(task, Part):
        if whole is not None:
            return whole(task)
        fold = begin(task)
        fold.read(read_shard(task))
        return fold.found()
    fold, end, records = begin(task.path, part=True), None, 0
    try:
        with open_shard(task.path) as file:
            start = task.find(file)
            if start is not None:
                file.seek(start)
                reader = RecordReader(file, Compression.NONE, place=(0, start), stop=task.end)
                fold.read(reader.read())
                end, records = reader.end, reader.records
        task.check()
    except ShardError:
        return None
    return _Found(pickle.dumps(fold), start, end, records)


def _rest(part: Part, at: int, index: int) -> Iterator[Record | Fault]:
    """Read a shard to its end, from a record on."""
    part.check()
    with open_shard(part.path) as file:
        file.seek(at)
        yield from read_records(file, compression=Compression.NONE, index=index, offset=at)
    part.check()
