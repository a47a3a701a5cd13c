"""The records that a job reads: shards are scanned once into a table, then read by offsets."""

import re
import shlex
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import chain, groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfrtool.engines.engine import Workers
from tfrtool.engines.pool import MIN_BYTES_PER_PROCESS, map_shards
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
from tfrtool.records.count import read_ranges, skip_records
from tfrtool.records.frames import in_batches
from tfrtool.records.framing import (
    CRC,
    FOOTER_SIZE,
    FRAME_SIZE,
    HEADER_SIZE,
    Fault,
    FaultKind,
    LocatedFault,
    Record,
    frame,
    header,
    masked_crc32c,
)
from tfrtool.records.reader import RecordReader, read_shard
from tfrtool.records.shard_sets import find_conflicts
from tfrtool.records.stream import open_shard
from tfrtool.records.tally import Tally, payload_key
from tfrtool.storage.arguments import Paths, as_paths
from tfrtool.storage.opening import open_regular, stamp_of
from tfrtool.storage.progress import BYTES, Meter, OnProgress
from tfrtool.storage.remote_path import AnyPath
from tfrtool.writing.job_report import Faults

UNSPLIT = "train"
"""The split of records whose files have none in their names: TFDS requires one."""

ROW = np.dtype([("shard", "u4"), ("size", "u4"), ("index", "i8"), ("offset", "i8")])
"""A record: its shard, its size with the frame, its number in the file, and its offset there."""

Rows = NDArray[Any]

OnFault = Callable[[Fault], None]

Marker = Callable[[AnyPath, list[Record], OnFault], Iterable[tuple[list[Record], Rows]]]
"""Makes a row of numbers of each record of a batch; records that it doesn't return are dropped."""

_BATCH_BYTES, _BATCH_RECORDS = 4 * 1024 * 1024, 65_536
_MIN_BYTES_PER_PROCESS = 64 * 1024 * 1024
"""Bytes of records that are marked in the time that a process takes to start."""

_COPIED = 8192
"""Longest payload in bytes that is copied to check it."""

_FILES_OPEN = 100
_COUNTED = 4096


def find_sources(
    sources: Paths, target: AnyPath, look: Callable[[AnyPath], Sequence[AnyPath]] = lambda _: ()
) -> DatasetFiles:
    """Find the shards of sources, like `find_files`.

    Raises:
        UsageError: there is no source, or the target is inside one.
        DatasetError: none of the files that the metadata names exists.
    """
    paths, resolved_target = as_paths(sources), target.resolve()
    if not paths:
        raise UsageError("no source: expected files or directories")
    found = find_files(paths, _split_name, look)
    within = any(resolved_target.is_relative_to(path.resolve()) for path in paths)
    if within or resolved_target in [path.resolve() for path in found.folders]:
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


def faults_of(files: DatasetFiles, records: Mapping[AnyPath, int], *, stop: bool = False) -> Faults:
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


def no_readable_record(paths: Sequence[AnyPath]) -> DatasetError:
    """Return the error for shards without a readable record; names the first fault."""
    faults = (item.message for item in read_shard(paths[0]) if isinstance(item, Fault))
    why = next(faults, "it has no records")
    return DatasetError(f"no record can be read: {why}", path=paths[0])


def changed(path: AnyPath) -> ShardError:
    """Return the error for a source that has changed since it was scanned."""
    return ShardError("changed while it was being read", path=path)


def shard_stamp(path: AnyPath) -> tuple[int, int]:
    """Return the size and time of change (ns) of a shard; `ShardError` if it can't be opened."""
    with os_errors_as(ShardError, path), open_regular(path) as file:
        return stamp_of(file)


def check_unchanged(path: AnyPath, stamp: tuple[int, int]) -> None:
    """Raise a `ShardError` if a shard doesn't have this stamp any more."""
    if shard_stamp(path) != stamp:
        raise changed(path)


def read_counted(
    path: AnyPath, tally: Tally, faults: Faults, hint: str | None = None
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


class SourceShard(NamedTuple):
    """A shard that was scanned.

    Attributes:
        path: the file.
        stamp: its size and time of change (ns).
        copy: uncompressed copy of its intact records, if it is compressed.
    """

    path: AnyPath
    stamp: tuple[int, int]
    copy: Path | None = None

    @property
    def identity(self) -> str:
        """What its records depend on, for the digest of a plan."""
        return repr((str(self.path.absolute()), self.stamp))


@dataclass(frozen=True, kw_only=True)
class SourceRecords:
    """The records of shards, in order: 12 bytes for each, and those of its marks.

    Attributes:
        shards: the shards.
        starts: the number of the first record of each shard, and at the end that of all.
        offsets: where each record starts in its file.
        sizes: bytes of each record with its frame.
        indices: the numbers of records in their files, of shards where these have gaps.
        marks: what the marker made of each record. Without one, payloads are not checked yet.
        read: the intact records that were read for the marks.
        faults: the damage.
        split_sizes: number of records by split; those of a split follow each other.
    """

    shards: Sequence[SourceShard] = ()
    starts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))
    offsets: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    sizes: NDArray[np.uint32] = field(default_factory=lambda: np.zeros(0, np.uint32))
    indices: Mapping[int, NDArray[np.int64]] = field(default_factory=dict)
    marks: Rows = field(default_factory=lambda: np.zeros(0, "u1"))
    read: Tally = field(default_factory=Tally)
    faults: Faults = field(default_factory=Faults)
    split_sizes: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return int(self.starts[-1])

    @property
    def split_codes(self) -> NDArray[np.uint16]:
        """For each record 1 + the number of its split."""
        numbers = np.arange(1, len(self.split_sizes) + 1, dtype=np.uint16)
        return np.repeat(numbers, [*self.split_sizes.values()])

    def records_of(self, shard: int) -> slice:
        """Return the range of the records of a shard."""
        return slice(int(self.starts[shard]), int(self.starts[shard + 1]))

    def indices_of(self, shard: int) -> NDArray[np.int64]:
        """Return the numbers of a shard's records in their file."""
        records, known = self.records_of(shard), self.indices.get(shard)
        return np.arange(records.stop - records.start) if known is None else known

    def rows(self, numbers: NDArray[Any]) -> Rows:
        """Return some records as rows of `ROW`, in the given order."""
        rows = np.zeros(len(numbers), ROW)
        rows["shard"] = np.searchsorted(self.starts, numbers, side="right") - 1
        rows["offset"], rows["size"] = self.offsets[numbers], self.sizes[numbers]
        places = rows["index"] = numbers - self.starts[rows["shard"]]
        for shard in self.indices.keys() & {*np.unique(rows["shard"]).tolist()}:
            of_shard = rows["shard"] == shard
            rows["index"][of_shard] = self.indices[shard][places[of_shard]]
        return rows


@dataclass(frozen=True)
class PickedRecords:
    """Some records of a table, in some order; pickled without the others."""

    table: SourceRecords
    numbers: NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.numbers)

    def __reduce__(self) -> tuple[Any, ...]:
        order = np.argsort(self.numbers)
        rows, places = self.table.rows(self.numbers[order]), np.zeros(len(order), np.uint32)
        places[order] = np.arange(len(order), dtype=np.uint32)
        used, firsts = np.unique(rows["shard"], return_index=True)
        starts = np.array([*firsts.tolist(), len(rows)], np.int64)
        part = SourceRecords(
            shards=[self.table.shards[number] for number in used.tolist()],
            starts=starts,
            offsets=rows["offset"].copy(),
            sizes=rows["size"].copy(),
            indices={
                at: rows["index"][low:high].copy()
                for at, (low, high) in enumerate(pairwise(starts.tolist()))
            },
        )
        return PickedRecords, (part, places)

    @property
    def sizes(self) -> NDArray[np.uint32]:
        """Bytes of each record with its frame."""
        return self.table.sizes[self.numbers]

    def rows(self, start: int, stop: int) -> Rows:
        """Return some of the records as rows of `ROW`."""
        return self.table.rows(self.numbers[start:stop])


@dataclass(slots=True)
class _Scanned:
    shard: SourceShard
    offsets: list[NDArray[np.int64]]
    sizes: list[NDArray[np.uint32]]
    indices: list[NDArray[np.int64]] = field(default_factory=list)  # empty if they have no gaps
    marks: list[Rows] = field(default_factory=list)
    read: Tally = field(default_factory=Tally)
    faults: Faults = field(default_factory=Faults)

    def __len__(self) -> int:
        return sum(map(len, self.sizes))


def scan_records(
    files: DatasetFiles,
    scratch: Path | None,
    *,
    workers: Workers,
    on_progress: OnProgress,
    stop: bool = False,
    marker: Marker | None = None,
    dtype: Any = "u1",
) -> SourceRecords:
    """Scan shards, in several processes.

    Intact shards are scanned from header to header, unless there is a marker.

    Args:
        files: the shards.
        scratch: folder for uncompressed copies of compressed shards; None if records are not read
            again.
        workers: maximum number of worker processes, or an engine.
        on_progress: called with the number of bytes read.
        stop: whether the first damage is an error.
        marker: makes a row of numbers of each intact record; it can be pickled.
        dtype: type of these rows.

    Raises:
        CorruptShardError: the first damage, if the job is to stop there.
    """
    # As a text it isn't looked for on nodes of a cluster: only compressed shards need it.
    folder = None if scratch is None else str(scratch)
    scan = partial(_scan_shard, scratch=folder, stop=stop, marker=marker)
    size = sum(path.stat().st_size for path in files.paths)
    meter = Meter(on_progress, "evaluating" if marker else "scanning", BYTES, size)
    worth = _MIN_BYTES_PER_PROCESS if marker else MIN_BYTES_PER_PROCESS
    jobs = list(enumerate(files.paths))
    found = [*map_shards(scan, jobs, workers, worth, size, on_counts=meter.add)]
    meter.finish()
    intact = {one.shard.path: len(one) for one in found if not one.faults.count}
    read, faults = Tally(), faults_of(files, intact, stop=stop)
    for one in found:
        read.merge(one.read)
        faults.merge(one.faults)
    lengths = [*map(len, found)]
    counts = dict(zip(files.paths, lengths, strict=True))
    return SourceRecords(
        shards=[one.shard for one in found],
        starts=np.cumsum([0, *lengths], dtype=np.int64),
        offsets=_joined([one.offsets for one in found], np.int64),
        sizes=_joined([one.sizes for one in found], np.uint32),
        indices={at: np.concatenate(one.indices) for at, one in enumerate(found) if one.indices},
        marks=_joined([one.marks for one in found], dtype),
        read=read,
        faults=faults,
        split_sizes={
            split: sum(map(counts.__getitem__, own.shards)) for split, own in files.splits.items()
        },
    )


def _joined(parts: Sequence[list[Rows]], dtype: Any) -> Rows:
    """Return arrays as one, and let go of each as soon as it is copied."""
    joined, end = np.zeros(sum(map(len, chain.from_iterable(parts))), dtype), 0
    for arrays in parts:
        for part in arrays:
            joined[end : end + len(part)] = part
            end += len(part)
        arrays.clear()
    return joined


def _scan_shard(
    numbered: tuple[int, AnyPath], scratch: str | None, stop: bool, marker: Marker | None
) -> _Scanned:
    number, path = numbered
    with open_shard(path) as file, ExitStack() as stack:
        stamp = stamp_of(file)
        packed = detect_compression(file) is not Compression.NONE
        if marker is None and not packed:
            ends = array("Q", (0,))
            _, end = skip_records(file, stamp[0], ends)
            if end == stamp[0]:
                offsets = np.frombuffer(ends, np.int64)
                sizes = np.diff(offsets).astype(np.uint32)
                return _Scanned(SourceShard(path, stamp), [offsets[:-1]], [sizes])
            file.seek(0)
        copy = Path(scratch, f"{number}.records") if packed and scratch else None
        if copy is not None and not copy.parent.is_dir():
            what = "compressed shards are unpacked to this folder, which a node can't access"
            hint = "set TMPDIR to a folder that all nodes share"
            raise WriteError(what, path=copy.parent, hint=hint)
        scanned = _Scanned(SourceShard(path, stamp, copy), [], [])
        faults = scanned.faults = Faults(stop=stop)

        def report(fault: Fault) -> None:
            if fault.kind is not FaultKind.EMPTY:
                faults.add(LocatedFault(path=path, fault=fault))

        out = None
        if copy is not None:
            stack.enter_context(os_errors_as(WriteError, copy, "can't be written"))
            out = stack.enter_context(copy.open("xb"))
        end = count = 0
        for records in in_batches(
            RecordReader(file).pieces(), report, _BATCH_BYTES, _BATCH_RECORDS
        ):
            keys = [payload_key(one.payload_crc, len(one.payload)) for one in records]
            scanned.read.add_keys(keys)
            for selected, marks in marker(path, records, report) if marker else ((records, None),):
                sizes = np.array([len(one.payload) + FRAME_SIZE for one in selected], np.uint32)
                offsets = np.array([one.offset for one in selected], np.int64)
                if out is not None:
                    ends_of = end + np.cumsum(sizes, dtype=np.int64)
                    offsets, end = ends_of - sizes, int(ends_of[-1]) if selected else end
                    out.writelines(frame(record.payload) for record in selected)
                scanned.offsets.append(offsets)
                scanned.sizes.append(sizes)
                scanned.indices.append(np.array([one.index for one in selected], np.int64))
                scanned.marks += [] if marks is None else [marks]
                count += len(selected)
        last = next((int(part[-1]) for part in reversed(scanned.indices) if len(part)), -1)
        if last == count - 1:
            scanned.indices.clear()
        if stamp_of(file) != stamp:
            raise changed(path)
    return scanned


_header = lru_cache(4096)(header)


class FrameReader:
    """Reads records of a table; a context manager that closes the files."""

    def __init__(self, shards: Sequence[SourceShard]) -> None:
        self._shards = shards
        self._files: dict[int, BinaryIO] = {}

    def __enter__(self) -> "FrameReader":
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    def read(self, rows: Rows, faults: Faults) -> tuple[bytes, list[int]]:
        """Return the frames of records in the given order, and the `payload_key` of each.

        All CRCs are checked, and records with a wrong one skipped. Records are read in the order in
        which they lie in the files, neighbors at once.
        """
        order = np.lexsort((rows["offset"], rows["shard"]))
        files, begins = rows["shard"][order], rows["offset"][order]
        ends = begins + rows["size"][order]
        is_gap = (files[1:] != files[:-1]) | (begins[1:] != ends[:-1])
        runs = [0, *(np.flatnonzero(is_gap) + 1).tolist(), len(order)]
        ranks, offsets, stops = order.tolist(), begins.tolist(), ends.tolist()
        ranges = [(int(files[a]), offsets[a], stops[b - 1]) for a, b in pairwise(runs)]
        frames: list[memoryview | None] = [None] * len(rows)
        keys, data = [0] * len(rows), b""
        for (low, high), (number, base, _), data in zip(
            pairwise(runs), ranges, self._ranges(ranges), strict=True
        ):
            shard, view = self._shards[number], memoryview(data)
            array = np.frombuffer(data, np.uint8)
            for at in range(low, high):
                first, stop = offsets[at] - base, stops[at] - base - FOOTER_SIZE
                body, rank = first + HEADER_SIZE, ranks[at]
                if data[first:body] != _header(stop - body) or stop + FOOTER_SIZE > len(data):
                    raise changed(shard.path)
                # The library takes bytes, or an array, which isn't copied.
                payload: Any = array[body:stop] if stop - body > _COPIED else data[body:stop]
                crc, (stored,) = masked_crc32c(payload), CRC.unpack_from(data, stop)
                if stored == crc:
                    frames[rank] = view[first : stop + FOOTER_SIZE]
                    keys[rank] = payload_key(crc, stop - body)
                elif shard.copy is not None:  # all of whose records were intact
                    raise changed(shard.path)
                else:
                    message = (
                        f"payload checksum (CRC) mismatch: expected {stored:08x} (stored), "
                        f"got {crc:08x} for {stop - body} bytes"
                    )
                    where = {"offset": offsets[at], "record": int(rows["index"][rank])}
                    faults.note(shard.path, FaultKind.PAYLOAD_CRC, message, **where)
        intact = [frame for frame in frames if frame is not None]
        if len(intact) == len(frames) and len(runs) == 2 and ranks == sorted(ranks):
            return data, keys
        pairs = zip(keys, frames, strict=True)
        return b"".join(intact), [key for key, frame in pairs if frame is not None]

    def _ranges(self, ranges: Iterable[tuple[int, int, int]]) -> Iterator[bytes]:
        """Yield ranges of shards, each with a shard, a start and an end."""
        for number, group in groupby(ranges, itemgetter(0)):
            path, stamp, copy = self._shards[number]
            with os_errors_as(ShardError, copy or path):
                if number not in self._files:
                    if len(self._files) == _FILES_OPEN:
                        self._files.pop(next(iter(self._files))).close()
                    self._files[number] = open_regular(copy or path, buffering=0)
                file = self._files[number]
                for data in read_ranges(file, [(start, end - start) for _, start, end in group]):
                    if copy is None and stamp_of(file) != stamp:
                        raise changed(path)
                    yield data
