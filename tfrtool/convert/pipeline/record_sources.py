"""The shards that a job reads: found, and gone through once."""

import re
import shutil
from array import array
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from tfrtool.engines.pool import map_shards
from tfrtool.errors import (
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
from tfrtool.records.count import hop
from tfrtool.records.framing import Fault, FaultKind, LocatedFault, frame
from tfrtool.records.parts import Part, parts_of
from tfrtool.records.reader import read_records, read_shard
from tfrtool.records.shard_sets import find_conflicts
from tfrtool.records.stream import open_shard
from tfrtool.records.tally import Words
from tfrtool.storage.arguments import Paths, as_paths
from tfrtool.storage.opening import stamp_of
from tfrtool.storage.progress import BYTES, Meter
from tfrtool.writing.job_report import Faults
from tfrtool.writing.job_settings import JobSettings

Numbers = NDArray[np.int64]

UNSPLIT = "train"
"""The split of records whose files say none: TFDS reads none without a name."""

_AT_ONCE = 1_000_000
"""Records whose places are held in memory."""


def find_sources(
    sources: Paths, target: Path, look: Callable[[Path], Sequence[Path]] = lambda _: ()
) -> DatasetFiles:
    """Do what `find_files` does for a job.

    `UsageError` if there is no source, or the target lies in one; `DatasetError` if there are none
    of the files that metadata names.
    """
    places, goal = as_paths(sources), target.resolve()
    if not places:
        raise UsageError("no source: expected files or directories")
    found = find_files(places, _named, look)
    within = any(goal.is_relative_to(path.resolve()) for path in places)
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


def _named(split: str) -> str:
    return UNSPLIT if split in ("", "all") else re.sub(r"\W+", "_", split, flags=re.ASCII)


def faults_of(files: DatasetFiles, records: Mapping[Path, int], *, stop: bool = False) -> Faults:
    """Return what is missing, and which shards should have other numbers of records."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceShard:
    """A shard that has been gone through.

    Attributes:
        path: the file.
        stamp: its size and time of change (ns).
        records: how many whole records it has; payload CRCs may not hold.
        size: what they take, uncompressed, in bytes.
        copy: all whole records uncompressed, if the file is compressed, or its framing damaged.
        lost: the indices in the file of those that the copy does not have.
        faults: the damage that was met.
    """

    path: Path
    stamp: tuple[int, int]
    records: int
    size: int
    copy: Path | None = None
    lost: Sequence[int] = ()
    faults: Faults = field(default_factory=Faults)

    @property
    def place(self) -> Path:
        """The file to read."""
        return self.copy or self.path

    @property
    def identity(self) -> str:
        """What its records depend on, for the digest of a plan."""
        return repr((str(self.path.absolute()), self.stamp))

    def row(self, index: int) -> int | None:
        """Return the place among its whole records of the one of an index; None if it is lost."""
        before = bisect_left(self.lost, index)
        return None if index in self.lost[before : before + 1] else index - before

    def check_stamp(self, file: BinaryIO) -> None:
        """Raise a `ShardError` if the shard, which is open, is not any more what it was."""
        if stamp_of(file) != self.stamp:
            raise changed(self.path)


def changed(path: Path) -> ShardError:
    """Return the error of a source that is not any more what was planned for."""
    return ShardError("changed while it was being read", path=path)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPool:
    """All records of shards, numbered from 0 in their order.

    Attributes:
        shards: the shards.
        index: a file with the place of each record, and of each shard's end: 8 bytes each.
    """

    shards: Sequence[SourceShard]
    index: Path

    @property
    def firsts(self) -> Numbers:
        """The number of the first record of each shard, and how many there are in all."""
        return np.cumsum([0, *(shard.records for shard in self.shards)])

    def places(self, numbers: Words) -> tuple[Numbers, Words, Numbers]:
        """Return the shards of records, and where they start in those, and how long they are."""
        shards = np.searchsorted(self.firsts, numbers.astype(np.int64), side="right") - 1
        index = np.memmap(self.index, np.uint64, "r")
        at = numbers.astype(np.int64) + shards
        starts = np.asarray(index[at])
        return shards, starts, (index[at + 1] - starts).astype(np.int64)


def scan_shards(
    files: DatasetFiles, scratch: Path, settings: JobSettings
) -> tuple[RecordPool, Faults]:
    """Go through shards from header to header, on several workers; return the damage, too.

    What is compressed, or damaged so that records can't be told by their headers, is copied to the
    scratch folder uncompressed, whole records only; there is the index of all, too.
    `CorruptShardError` at the first damage if the job is to stop.
    """
    found: list[SourceShard] = []
    scan = partial(_scan_shard, scratch=scratch, stop=settings.stop)
    size = sum(path.stat().st_size for path in files.paths)
    index = scratch / "index"
    with os_errors_as(WriteError, scratch, "can't be written to"), index.open("wb") as out:
        cut = [parts_of(path) for path in files.paths]
        jobs: list[tuple[int, Path | Part]] = []
        for number, (path, parts) in enumerate(zip(files.paths, cut, strict=True)):
            jobs += [(number, job) for job in (*parts,) or (path,)]
        meter = Meter(settings.on_progress, "scanning", BYTES, size)
        results = map_shards(scan, jobs, settings.workers, size=size, on_counts=meter.add)
        for number, (path, parts) in enumerate(zip(files.paths, cut, strict=True)):
            held = [next(results) for _ in (*parts,) or (path,)]
            shard = _joined(number, parts, held, scratch) if parts else held[0]
            if shard is None:
                shard = scan((number, path))
            part = _index_of(scratch, len(found))
            with part.open("rb") as file:
                shutil.copyfileobj(file, out)
            part.unlink()
            found.append(shard)
        meter.finish()
    whole = {shard.path: shard.records for shard in found if not shard.faults.count}
    faults = faults_of(files, whole, stop=settings.stop)
    for shard in found:
        faults.merge(shard.faults)
    return RecordPool(shards=found, index=index), faults


def first_fault(path: Path) -> str:
    """Return what is wrong first with a shard of which no record can be read."""
    faults = (item.message for item in read_shard(path) if isinstance(item, Fault))
    return next(faults, "it has no records")


def _index_of(scratch: Path, number: int, start: int | None = None) -> Path:
    return scratch / f"{number}{'' if start is None else f'.{start}'}.index"


def _joined(
    number: int, parts: Sequence[Part], found: Sequence[SourceShard], scratch: Path
) -> SourceShard | None:
    """Return a shard whose parts were gone through; None if they don't meet."""
    places = [_index_of(scratch, number, part.start) for part in parts]
    at = 0
    with _index_of(scratch, number).open("wb") as out:
        array("Q", (0,)).tofile(out)
        for part, one, place in zip(parts, found, places, strict=True):
            with place.open("rb") as file:
                start = array("Q", file.read(8) or bytes(8))[0]
                if at < part.end and start == at:
                    at = one.size
                    shutil.copyfileobj(file, out)
            place.unlink()
    stamp = found[0].stamp
    if at != stamp[0] or any(one.stamp != stamp for one in found):
        return None
    path, records = parts[0].path, _index_of(scratch, number).stat().st_size // 8 - 1
    return SourceShard(path=path, stamp=stamp, records=records, size=at)


def _scan_part(number: int, part: Part, scratch: Path) -> SourceShard:
    """Write where a part begins, and where its records end; its size is where they all do."""
    index, ends = _index_of(scratch, number, part.start), array("Q")
    with (
        open_shard(part.path) as file,
        os_errors_as(WriteError, index, "can't be written"),
        index.open("wb") as out,
    ):
        stamp, end = stamp_of(file), 0
        start = part.find(file)
        if start is not None:
            _, end = hop(file, part.end, ends, start)
            _, end = hop(file, stamp[0], ends, end, most=int(end < part.end))
            array("Q", (start, *ends)).tofile(out)
    return SourceShard(path=part.path, stamp=stamp, records=len(ends), size=end)


def _scan_shard(numbered: tuple[int, Path | Part], scratch: Path, stop: bool) -> SourceShard:
    number, path = numbered
    if isinstance(path, Part):
        return _scan_part(number, path, scratch)
    index = _index_of(scratch, number)
    with open_shard(path) as file:
        stamp = stamp_of(file)
        if detect_compression(file) is Compression.NONE:
            records, end = _index_records(path, stamp[0], index)
            if end == stamp[0]:
                return SourceShard(path=path, stamp=stamp, records=records, size=end)
        copy, faults = scratch / f"{number}.records", Faults(stop=stop)
        records, lost = 0, array("Q")
        with os_errors_as(WriteError, copy, "can't be written"), copy.open("xb") as out:
            for item in read_records(file):
                if isinstance(item, Fault):
                    faults.add(LocatedFault(path=path, fault=item))
                else:
                    lost.extend(range(records + len(lost), item.index))
                    records += 1
                    out.write(frame(item.payload))
    size = copy.stat().st_size
    if _index_records(copy, size, index) != (records, size):
        raise changed(path)
    return SourceShard(
        path=path, stamp=stamp, records=records, size=size, copy=copy, lost=lost, faults=faults
    )


def _index_records(path: Path, size: int, index: Path) -> tuple[int, int]:
    """Write where records start, and where they end; return how many there are, and the end."""
    total = end = 0
    with (
        open_shard(path) as file,
        os_errors_as(WriteError, index, "can't be written"),
        index.open("wb") as out,
    ):
        array("Q", (0,)).tofile(out)
        records = _AT_ONCE
        while records == _AT_ONCE:
            ends = array("Q")
            records, end = hop(file, size, ends, end, most=_AT_ONCE)
            ends.tofile(out)
            total += records
    return total, end
