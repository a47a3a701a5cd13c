"""The shards that a job reads: found, gone through once, and cut into stretches."""

import os
import shutil
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path

from tfrtool.convert.pipeline.job_report import Faults
from tfrtool.convert.pipeline.segments import Segment, changed, stamp_of
from tfrtool.engines.processes import map_shards
from tfrtool.errors import ShardError, UsageError, WriteError, os_errors_as
from tfrtool.examples.roles import info_beside
from tfrtool.inspection.dataset.dataset_summary import find_splits
from tfrtool.records.compression import Compression, detect_compression
from tfrtool.records.count import hop
from tfrtool.records.framing import CRC, Fault, FaultKind, LocatedFault, header
from tfrtool.records.reader import read_records
from tfrtool.records.shard_sets import group_shards
from tfrtool.records.shards import find_folders, locate_shards
from tfrtool.records.stream import open_shard
from tfrtool.storage.locations import as_path
from tfrtool.storage.progress import OnProgress, Progress, silent

UNSPLIT = "train"
"""The split of records whose files say none: TFDS reads none without a name."""

_STEP = 4 * 1024 * 1024
"""Bytes between the records whose places are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSources:
    """What the SRC of a job mean.

    Attributes:
        splits: the shards of each split, in order.
        folders: directories whose metadata describes them.
        expected: how many records a shard has by the metadata; None where that doesn't say.
        faults: shards that are missing.
        notes: what was decided on the way, a sentence each.
    """

    splits: Mapping[str, Sequence[Path]]
    folders: Sequence[Path]
    expected: Mapping[Path, int | None] = field(default_factory=dict)
    faults: Sequence[LocatedFault] = ()
    notes: Sequence[str] = ()


def find_sources(
    sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], target: Path
) -> RecordSources:
    """Find the shards of directories, files and patterns, by split.

    The same split of several sources is one. `UsageError` if the target lies in one of them, and
    the errors of `find_shards`.
    """
    splits: dict[str, list[Path]] = {}
    folders: dict[Path, None] = {}
    expected: dict[Path, int | None] = {}
    faults: list[LocatedFault] = []
    notes: list[str] = []
    for source in [sources] if isinstance(sources, str | os.PathLike) else sources:
        path = as_path(source)
        if path.is_dir():
            found = find_folders(path)
            if not found.shards:
                raise found.nothing()
            within = target.resolve().is_relative_to(path.resolve())
            root = found.root
            notes += [f"{path}: {note}" for note in found.notes]
            of_splits = find_splits(root, info_beside(root), group_shards(found.shards))
            for split, files in of_splits.items():
                splits.setdefault(UNSPLIT if split == "all" else split, []).extend(files.shards)
                expected |= files.shards
                if files.missing:
                    message = f"split {split!r} lacks {files.missing:,} of its shards"
                    fault = Fault(
                        kind=FaultKind.MISSING_SHARD, offset=0, record=None, message=message
                    )
                    faults.append(LocatedFault(path=root, fault=fault))
                if files.extra:
                    notes.append(
                        f"{root}: {files.extra:,} files of split {split!r} are left aside: the "
                        "metadata doesn't have them"
                    )
        else:
            for one in group_shards(locate_shards(path).paths):
                splits.setdefault(one.split or UNSPLIT, []).extend(one.paths)
                root = one.directory
            within = target.resolve() == root.resolve()
        folders[root] = None
        if within:
            raise UsageError(
                "would lie inside its source", path=target, hint="choose a directory outside"
            )
    return RecordSources(
        splits={split: tuple(dict.fromkeys(paths)) for split, paths in splits.items()},
        folders=tuple(folders),
        expected=expected,
        faults=tuple(faults),
        notes=tuple(notes),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceShard:
    """A shard that has been gone through: its records, and the places of some of them.

    Attributes:
        path: the file.
        stamp: its size and time of change (ns).
        records: how many whole records it has; payload CRCs may not hold.
        size: what they take, uncompressed, in bytes.
        copy: all whole records uncompressed, if the file is compressed, or its framing damaged.
        numbers: the indices of some records, in order, and the number of records.
        offsets: where their headers start, and the end.
        faults: the damage that was met.
        shifts: from which index of the copy on the index in the shard is by how many higher.
    """

    path: Path
    stamp: tuple[int, int]
    records: int
    size: int
    copy: Path | None
    numbers: "array[int]"
    offsets: "array[int]"
    faults: Faults = field(default_factory=Faults)
    shifts: Sequence[tuple[int, int]] = ()

    @property
    def place(self) -> Path:
        """The file to read."""
        return self.copy or self.path

    @property
    def identity(self) -> str:
        """What its records are told by, in a fingerprint."""
        return repr((str(self.path.absolute()), self.stamp))

    @property
    def whole(self) -> Segment:
        """All of its records."""
        return _between([self], (0, 0, 0), (1, 0, 0))[0]

    @property
    def head(self) -> Segment:
        """About a megabyte of its first records."""
        return _between([self], (0, 0, 0), (0, self.numbers[1], self.offsets[1]))[0]

    def original(self, index: int) -> int:
        """Return the index in the shard of a record of its copy."""
        at = bisect_right(self.shifts, (index, self.records + 2**32)) - 1
        return index + (self.shifts[at][1] if at >= 0 else 0)

    def in_copy(self, index: int) -> int | None:
        """Return the index in the copy of a record of the shard; None if it was damaged."""
        at = bisect_right([start + shift for start, shift in self.shifts], index) - 1
        found = index - (self.shifts[at][1] if at >= 0 else 0)
        following = self.shifts[at + 1][0] if at + 1 < len(self.shifts) else found + 1
        return found if found < following else None

    def cut(self, *, record: int | None = None, offset: int = 0) -> tuple[int, int]:
        """Return the index and the place of a record: by its index, or the one nearest to a place.

        `ShardError` if the file was changed since.
        """
        known, wanted = (self.offsets, offset) if record is None else (self.numbers, record)
        at = min(bisect_right(known, wanted), len(known) - 1) - 1
        ends = array("Q", (self.offsets[at],))
        with os_errors_as(ShardError, self.place), open_shard(self.place) as file:
            hop(file, self.offsets[at + 1], ends, self.offsets[at])
        if len(ends) - 1 != self.numbers[at + 1] - self.numbers[at]:
            raise changed(self.path)
        index = min(range(len(ends)), key=lambda i: abs(ends[i] - offset))
        if record is not None:
            index = record - self.numbers[at]
        return self.numbers[at] + index, ends[index]


def scan_shards(
    paths: Sequence[Path],
    scratch: Path,
    *,
    workers: int | None = None,
    stop: bool = False,
    index: Path | None = None,
    on_progress: OnProgress = silent,
) -> list[SourceShard]:
    """Go through shards from header to header, on several workers.

    What is compressed, or damaged so that records can't be told by their headers, is copied to the
    scratch folder uncompressed, whole records only. `CorruptShardError` at the first damage if the
    job is to ``stop``. The places of all records are written to ``index``: 8 bytes each, shard by
    shard, with the end of each shard.
    """
    scan = partial(_scan_shard, scratch=scratch, stop=stop, indexed=index is not None)
    found = []
    size = sum(path.stat().st_size for path in paths)
    for shard in map_shards(scan, list(enumerate(paths)), workers, size=size):
        found.append(shard)
        if index is not None:
            append_file(scratch / f"{len(found) - 1}.index", index)
        on_progress(Progress(what="scanning", done=len(found), total=len(paths), unit="shards"))
    return found


def append_file(part: Path, whole: Path) -> None:
    """Move the bytes of a scratch file to the end of another one."""
    with (
        os_errors_as(WriteError, whole, "can't be written"),
        part.open("rb") as read,
        whole.open("ab") as file,
    ):
        shutil.copyfileobj(read, file)
        part.unlink()


def _scan_shard(
    numbered: tuple[int, Path], scratch: Path, stop: bool, indexed: bool
) -> SourceShard:
    number, path = numbered
    faults, copy = Faults(stop=stop), None
    index = scratch / f"{number}.index" if indexed else None
    shifts: list[tuple[int, int]] = []
    with open_shard(path) as file:
        stamp = stamp_of(file)
        places = None
        if detect_compression(file) is Compression.NONE:
            places = _places(path, stamp[0], index)
        if places is None:
            copy = scratch / f"{number}.records"
            records = 0
            with os_errors_as(WriteError, copy, "can't be written"), copy.open("xb") as out:
                for item in read_records(file):
                    if isinstance(item, Fault):
                        faults.add(LocatedFault(path=path, fault=item))
                    else:
                        if item.index - records != (shifts[-1][1] if shifts else 0):
                            shifts.append((records, item.index - records))
                        records += 1
                        out.write(header(len(item.payload)))
                        out.write(item.payload)
                        out.write(CRC.pack(item.payload_crc))
            places = _places(copy, copy.stat().st_size, index)
    if places is None:
        raise changed(path)
    numbers, offsets = places
    return SourceShard(
        path=path,
        stamp=stamp,
        records=numbers[-1],
        size=offsets[-1],
        copy=copy,
        numbers=numbers,
        offsets=offsets,
        faults=faults,
        shifts=shifts,
    )


def _places(path: Path, size: int, index: Path | None) -> "tuple[array[int], array[int]] | None":
    """Return the numbers and places of some records, and of the end; None where headers don't hold.

    They are so far apart that there are few of them, and a record between two is soon found. All
    places go to a file, if one is given.
    """
    numbers, offsets = array("Q", (0,)), array("Q", (0,))
    with open_shard(path) as file, Path(index or os.devnull).open("wb") as out:
        offsets.tofile(out)
        step = _STEP
        while offsets[-1] < size:
            ends = array("Q")
            records, end = hop(file, min(size, offsets[-1] + step), ends, offsets[-1])
            ends.tofile(out)
            if records:
                numbers.append(numbers[-1] + records)
                offsets.append(end)
                step = _STEP
            elif offsets[-1] + step >= size:
                return None
            else:
                step *= 4  # one long record
    return numbers, offsets


def cut_shards(
    shards: Sequence[SourceShard], count: int | None, shard_bytes: int
) -> list[list[Segment]]:
    """Cut the records of shards, taken in a row, into files: so many, or by their bytes.

    By number, files have as many records each; by size, as many bytes, to within a record.
    """
    firsts = list(accumulate((shard.records for shard in shards), initial=0))
    starts = list(accumulate((shard.size for shard in shards), initial=0))
    files = count or max(1, -(-starts[-1] // shard_bytes))
    cuts = [(0, 0, 0)]  # a shard, and a record in it with its place
    for number in range(1, files):
        if count:
            wanted = round(firsts[-1] * number / count)
            at = min(bisect_right(firsts, wanted), len(shards)) - 1
            cut = shards[at].cut(record=wanted - firsts[at])
        else:
            wanted = starts[-1] * number // files
            at = min(bisect_right(starts, wanted), len(shards)) - 1
            cut = shards[at].cut(offset=wanted - starts[at])
        if (at, *cut) > cuts[-1]:
            cuts.append((at, *cut))
    cuts.append((len(shards), 0, 0))
    return [_between(shards, start, end) for start, end in pairwise(cuts)]


def _between(
    shards: Sequence[SourceShard], start: tuple[int, int, int], end: tuple[int, int, int]
) -> list[Segment]:
    segments = []
    for at in range(start[0], min(end[0] + 1, len(shards))):
        shard = shards[at]
        record, offset = start[1:] if at == start[0] else (0, 0)
        until, stop = end[1:] if at == end[0] else (shard.records, shard.size)
        if until > record:
            segments.append(
                Segment(
                    path=shard.path,
                    start=offset,
                    record=record,
                    records=until - record,
                    size=stop - offset,
                    stamp=shard.stamp,
                    copy=shard.copy,
                )
            )
    return segments
