"""The records that a job reads: shards are found, scanned once, and then read by record number."""

import re
import shlex
import shutil
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tfrtool.engines.pool import map_shards
from tfrtool.errors import (
    CorruptShardError,
    DatasetError,
    ShardError,
    UsageError,
    WriteError,
    human_count,
    os_errors_as,
    printable,
)
from tfrtool.examples.dataset_files import DatasetFiles, find_files
from tfrtool.examples.tfds_metadata import DATASET_INFO
from tfrtool.records.compression import Compression, detect_compression
from tfrtool.records.count import hop, read_ranges
from tfrtool.records.crc import masked_crc32c
from tfrtool.records.framing import (
    CRC,
    FOOTER_SIZE,
    HEADER_SIZE,
    Fault,
    FaultKind,
    LocatedFault,
    Record,
    frame,
    header,
)
from tfrtool.records.reader import read_records, read_shard
from tfrtool.records.shard_sets import find_conflicts
from tfrtool.records.stream import open_shard
from tfrtool.records.tally import Tally, Words, payload_key
from tfrtool.storage.arguments import Paths, as_paths
from tfrtool.storage.opening import open_regular, stamp_of
from tfrtool.storage.progress import BYTES, Meter
from tfrtool.writing.job_report import Faults
from tfrtool.writing.job_settings import JobSettings

Numbers = NDArray[np.int64]

UNSPLIT = "train"
"""The split of records whose files have none in their names: TFDS requires one."""

_HOPPED = 1_000_000
"""Records whose offsets are in memory while a shard is scanned."""

_NOT_COPIED = 8192
"""Bytes from which on a payload is checked without copying it."""

_FILES_OPEN = 100

_COUNTED = 4096
"""Records that are counted at a time."""


def find_sources(
    sources: Paths, target: Path, look: Callable[[Path], Sequence[Path]] = lambda _: ()
) -> DatasetFiles:
    """Find the shards of sources, like `find_files`.

    Raises:
        UsageError: there is no source, or the target is inside one.
        DatasetError: none of the files that the metadata names exists.
    """
    paths, goal = as_paths(sources), target.resolve()
    if not paths:
        raise UsageError("no source: expected files or directories")
    found = find_files(paths, _split_name, look)
    within = any(goal.is_relative_to(path.resolve()) for path in paths)
    if within or goal in [path.resolve() for path in found.folders]:
        hint = "choose a directory outside"
        raise UsageError("would be inside its source", path=target, hint=hint)
    if not found.paths:
        raise DatasetError("has none of the shards that its metadata lists", path=found.folders[0])
    for aside in found.aside[:1]:
        count = human_count(len(found.aside), "file")
        why = "not listed in the metadata, and not named like the other shards"
        found.notes.append(f"skipped {count}, such as {printable(str(aside))}: {why}")
    read = {*found.paths}
    for sets in find_conflicts(one for one in found.sets if not read.isdisjoint(one.paths)):
        names = " and ".join(printable(str(one.directory / one.name)) for one in sets)
        found.notes.append(f"{names} are both read; one may be left over from an earlier write")
    return found


def _split_name(split: str) -> str:
    return UNSPLIT if split in ("", "all") else re.sub(r"\W+", "_", split, flags=re.ASCII)


def faults_of(files: DatasetFiles, records: Mapping[Path, int], *, stop: bool = False) -> Faults:
    """Return the shards that are missing, or have other numbers of records than the metadata."""
    faults = Faults(stop=stop)
    for name, split in files.splits.items():
        if split.n_missing:
            message = f"split {name!r}: {human_count(split.n_missing, 'shard')} missing"
            faults.note(split.missing[0], FaultKind.MISSING_SHARD, message)
        for path, expected in split.shards.items():
            if expected not in (None, count := records.get(path)) and count is not None:
                message = f"{DATASET_INFO} lists {expected:,} records, but it has {count:,}"
                faults.note(path, FaultKind.COUNT, message)
    return faults


def first_fault(path: Path) -> str:
    """Return the first fault of a shard without a readable record."""
    faults = (item.message for item in read_shard(path) if isinstance(item, Fault))
    return next(faults, "it has no records")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceShard:
    """A shard that was scanned.

    Attributes:
        path: the file.
        stamp: its size and time of change (ns).
        records: number of records with intact framing; their payload CRCs are not checked yet.
        size: bytes that these take uncompressed.
        copy: uncompressed copy of the intact records, if the file is compressed, or its framing
            damaged.
        lost: indices in the file of the records that the copy lacks.
        faults: the damage.
    """

    path: Path
    stamp: tuple[int, int]
    records: int
    size: int
    copy: Path | None = None
    lost: Sequence[int] = ()
    faults: Faults = field(default_factory=Faults)

    @property
    def readable(self) -> Path:
        """The uncompressed file to read."""
        return self.copy or self.path

    @property
    def identity(self) -> str:
        """What its records depend on, for the digest of a plan."""
        return repr((str(self.path.absolute()), self.stamp))

    def row(self, index: int) -> int | None:
        """Return the position of the record with this index among the intact ones, or None."""
        before = bisect_left(self.lost, index)
        return None if index in self.lost[before : before + 1] else index - before

    def check_stamp(self, file: BinaryIO) -> None:
        """Raise a `ShardError` if the open shard has changed since it was scanned."""
        if stamp_of(file) != self.stamp:
            raise changed(self.path)


def changed(path: Path) -> ShardError:
    """Return the error for a source that has changed since it was scanned."""
    return ShardError("changed while it was being read", path=path)


def shard_stamp(path: Path) -> tuple[int, int]:
    """Return the size and time of change (ns) of a shard; `ShardError` if it can't be opened."""
    with os_errors_as(ShardError, path), open_regular(path) as file:
        return stamp_of(file)


def check_unchanged(path: Path, stamp: tuple[int, int]) -> None:
    """Raise a `ShardError` if a shard doesn't have this stamp any more."""
    if shard_stamp(path) != stamp:
        raise changed(path)


def read_counted(
    path: Path, tally: Tally, faults: Faults, hint: str | None = None
) -> Iterator[Record]:
    """Yield the records of a shard, and count them and its faults; an empty shard has neither.

    Raises:
        CorruptShardError: the first fault, if these stop the job; with this hint, if one is given.
    """
    keys: list[int] = []
    for item in read_shard(path):
        if isinstance(item, Record):
            keys.append(payload_key(item.payload_crc, len(item.payload)))
            if len(keys) == _COUNTED:
                tally.add_keys(keys)
                keys.clear()
            yield item
        elif item.kind is not FaultKind.EMPTY:
            try:
                faults.add(LocatedFault(path=path, fault=item))
            except CorruptShardError as error:
                if hint and item.kind is not FaultKind.NOT_TFRECORD:
                    verify = f"run tfrtool verify {shlex.quote(str(path))} to list the damage"
                    error.hint = f"{hint}, or {verify}"
                raise
    tally.add_keys(keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPool:
    """All records of shards, numbered from 0 in their order.

    Attributes:
        shards: the shards.
        index: file with the offset of each record, and of the end of each shard: 8 bytes each.
    """

    shards: Sequence[SourceShard]
    index: Path

    @property
    def firsts(self) -> Numbers:
        """The number of the first record of each shard, and the number of all records."""
        return np.cumsum([0, *(shard.records for shard in self.shards)])

    def locate(self, numbers: Words) -> tuple[Numbers, Numbers, Numbers]:
        """Return the shards of records, their offsets there, and their sizes with frames."""
        at = numbers.astype(np.int64)
        shards = np.searchsorted(self.firsts, at, side="right") - 1
        index = np.memmap(self.index, np.uint64, "r")
        starts = index[at + shards].astype(np.int64)
        return shards, starts, index[at + shards + 1].astype(np.int64) - starts


def scan_shards(
    files: DatasetFiles, scratch: Path, settings: JobSettings
) -> tuple[RecordPool, Faults]:
    """Scan shards from header to header, in several processes; return the damage, too.

    The scratch folder gets an index of all records; and, of shards that are compressed or have
    damaged framing, uncompressed copies of the intact records.

    Raises:
        CorruptShardError: the first damage, if the job is to stop there.
    """
    found: list[SourceShard] = []
    scan = partial(_scan_shard, scratch=scratch, stop=settings.stop)
    size = sum(path.stat().st_size for path in files.paths)
    index = scratch / "index"
    with os_errors_as(WriteError, scratch, "can't be written to"), index.open("wb") as out:
        meter = Meter(settings.on_progress, "scanning", BYTES, size)
        jobs = list(enumerate(files.paths))
        for shard in map_shards(scan, jobs, settings.workers, size=size, on_counts=meter.add):
            part = _index_of(scratch, len(found))
            with part.open("rb") as file:
                shutil.copyfileobj(file, out)
            part.unlink()
            found.append(shard)
        meter.finish()
    intact = {shard.path: shard.records for shard in found if not shard.faults.count}
    faults = faults_of(files, intact, stop=settings.stop)
    for shard in found:
        faults.merge(shard.faults)
    return RecordPool(shards=found, index=index), faults


def _index_of(scratch: Path, number: int) -> Path:
    return scratch / f"{number}.index"


def _scan_shard(numbered: tuple[int, Path], scratch: Path, stop: bool) -> SourceShard:
    number, path = numbered
    index = _index_of(scratch, number)
    with open_shard(path) as file:
        stamp = stamp_of(file)
        if detect_compression(file) is Compression.NONE:
            records, end = _write_index(path, stamp[0], index)
            if end == stamp[0]:
                return SourceShard(path=path, stamp=stamp, records=records, size=end)
        copy, faults, lost = scratch / f"{number}.records", Faults(stop=stop), array("Q")
        records = 0
        with os_errors_as(WriteError, copy, "can't be written"), copy.open("xb") as out:
            for item in read_records(file):
                if isinstance(item, Fault):
                    faults.add(LocatedFault(path=path, fault=item))
                else:
                    lost.extend(range(records + len(lost), item.index))
                    records += 1
                    out.write(frame(item.payload))
    size = copy.stat().st_size
    if _write_index(copy, size, index) != (records, size):
        raise changed(path)
    return SourceShard(
        path=path, stamp=stamp, records=records, size=size, copy=copy, lost=lost, faults=faults
    )


def _write_index(path: Path, size: int, index: Path) -> tuple[int, int]:
    """Write the offsets of records, and the end of the last one; return their number, and it."""
    total = end = 0
    with (
        open_shard(path) as file,
        os_errors_as(WriteError, index, "can't be written"),
        index.open("wb") as out,
    ):
        array("Q", (0,)).tofile(out)
        records = _HOPPED
        while records == _HOPPED:
            ends = array("Q")
            records, end = hop(file, size, ends, end, most=_HOPPED)
            ends.tofile(out)
            total += records
    return total, end


_header = lru_cache(4096)(header)


class PoolReader:
    """Reads records of a pool by their numbers; a context manager that closes the files."""

    def __init__(self, pool: RecordPool) -> None:
        self._pool, self._firsts = pool, pool.firsts
        self._files: dict[int, BinaryIO] = {}

    def __enter__(self) -> "PoolReader":
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    def read(
        self, numbers: Words, places: Sequence[Numbers], faults: Faults
    ) -> tuple[bytes, list[int]]:
        """Return the frames of records in the given order, and the `payload_key` of each.

        All CRCs are checked, and records with a wrong one skipped. Records are read in the order in
        which they lie in the files, neighbors at once. ``places`` come from `RecordPool.locate`.
        """
        frames: list[memoryview | None] = [None] * len(numbers)
        keys = [0] * len(numbers)
        shards, starts, sizes = places
        by_place = np.lexsort((starts, shards))
        files, begins = shards[by_place], starts[by_place]
        ends = begins + sizes[by_place]
        apart = (files[1:] != files[:-1]) | (begins[1:] != ends[:-1])
        runs = [0, *(np.flatnonzero(apart) + 1).tolist(), len(by_place)]
        ranks, offsets, stops = by_place.tolist(), begins.tolist(), ends.tolist()
        ranges = [(int(files[a]), offsets[a], stops[b - 1]) for a, b in pairwise(runs)]
        data = b""
        for (low, high), (number, base, _), data in zip(
            pairwise(runs), ranges, self._read(ranges), strict=True
        ):
            shard = self._pool.shards[number]
            view, array = memoryview(data), np.frombuffer(data, np.uint8)
            for at in range(low, high):
                first, stop = offsets[at] - base, stops[at] - base - FOOTER_SIZE
                body, rank = first + HEADER_SIZE, ranks[at]
                if data[first:body] != _header(stop - body) or stop + FOOTER_SIZE > len(data):
                    raise changed(shard.path)
                # The library takes bytes, or an array, which isn't copied.
                payload: Any = array[body:stop] if stop - body > _NOT_COPIED else data[body:stop]
                crc, (stored,) = masked_crc32c(payload), CRC.unpack_from(data, stop)
                if stored == crc:
                    frames[rank] = view[first : stop + FOOTER_SIZE]
                    keys[rank] = payload_key(crc, stop - body)
                    continue
                if shard.copy is not None:  # all of whose records were intact
                    raise changed(shard.path)
                message = (
                    f"payload checksum (CRC) mismatch: expected {stored:08x} (stored), "
                    f"got {crc:08x} for {stop - body} bytes"
                )
                index = int(numbers[rank]) - int(self._firsts[number])
                kind = FaultKind.PAYLOAD_CRC
                faults.note(shard.path, kind, message, offset=offsets[at], record=index)
        intact = [frame for frame in frames if frame is not None]
        if len(intact) == len(frames) and len(runs) == 2 and ranks == sorted(ranks):
            return data, keys
        pairs = zip(keys, frames, strict=True)
        return b"".join(intact), [key for key, frame in pairs if frame is not None]

    def _read(self, ranges: Iterable[tuple[int, int, int]]) -> Iterator[bytes]:
        """Yield ranges of shards, each with a shard, a start and an end."""
        for number, group in groupby(ranges, itemgetter(0)):
            shard = self._pool.shards[number]
            with os_errors_as(ShardError, shard.readable):
                if number not in self._files:
                    if len(self._files) == _FILES_OPEN:
                        self._files.pop(next(iter(self._files))).close()
                    self._files[number] = open_regular(shard.readable, buffering=0)
                file = self._files[number]
                for data in read_ranges(file, [(start, end - start) for _, start, end in group]):
                    if shard.copy is None:
                        shard.check_stamp(file)
                    yield data
