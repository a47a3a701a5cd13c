"""The records that a job reads: shards are scanned once into a table, then read by offsets."""

import re
import shlex
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, pairwise
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
from tfrtool.records.count import skip_records
from tfrtool.records.frames import Frames, in_batches, keys_of
from tfrtool.records.framing import (
    FRAME_SIZE,
    Fault,
    FaultKind,
    LocatedFault,
    Record,
    frame,
)
from tfrtool.records.reader import RecordReader, read_pieces, read_shard
from tfrtool.records.shard_sets import find_conflicts
from tfrtool.records.stream import open_shard
from tfrtool.records.tally import Tally, Words
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

KeyMarker = Callable[[Words], Rows]
"""Makes a row of numbers of each payload, knowing only its `payload_key`."""

_LENGTH = np.uint64(0xFFFFFFFF)
"""The half of a `payload_key` that is the payload's length."""

_BATCH_BYTES, _BATCH_RECORDS = 4 * 1024 * 1024, 65_536
_MIN_BYTES_PER_PROCESS = 64 * 1024 * 1024
"""Bytes of records that are marked in the time that a process takes to start."""


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


def counted_pieces(
    path: AnyPath, tally: Tally, faults: Faults, hint: str | None = None
) -> Iterator[Sequence[Record]]:
    """Yield consecutive records of a shard together, and count them and its faults.

    An empty shard has neither.

    Raises:
        CorruptShardError: the first fault, if these stop the job; with this hint, if one is given.
    """
    for piece in read_pieces(path):
        if not isinstance(piece, Fault):
            tally.add_keys(keys_of(piece))
            yield piece
        elif piece.kind is not FaultKind.EMPTY:
            try:
                faults.add(LocatedFault(path=path, fault=piece))
            except CorruptShardError as error:
                if hint and piece.kind is not FaultKind.NOT_TFRECORD:
                    verify = f"run tfrtool verify {shlex.quote(str(path))} to list the damage"
                    error.hint = f"{hint}, or {verify}"
                raise
        del piece  # it is not held while the next is read


def read_counted(
    path: AnyPath, tally: Tally, faults: Faults, hint: str | None = None
) -> Iterator[Record]:
    """Yield the records of `counted_pieces` one by one."""
    for piece in counted_pieces(path, tally, faults, hint):
        yield from piece
        del piece  # it is not held while the next is read


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
    offsets: "array[int]" = field(default_factory=lambda: array("q"))
    sizes: "array[int]" = field(default_factory=lambda: array("I"))
    indices: "array[int]" = field(default_factory=lambda: array("q"))  # empty without gaps
    marks: list[Rows] = field(default_factory=list)
    read: Tally = field(default_factory=Tally)
    faults: Faults = field(default_factory=Faults)

    def __len__(self) -> int:
        return len(self.sizes)

    def add(self, records: Sequence[Record], keys: Words, marks: Rows | None) -> None:
        """Add consecutive records, or those of them that are selected."""
        sizes = (keys & _LENGTH).astype(np.uint32) + np.uint32(FRAME_SIZE)
        self.sizes.frombytes(sizes.tobytes())
        if isinstance(records, Frames):
            offsets = np.frombuffer(records.starts, np.int64)[:-1] + records.offset
            indices = np.arange(records.first, records.first + len(records))
        else:
            offsets = np.array([one.offset for one in records], np.int64)
            indices = np.array([one.index for one in records], np.int64)
        self.offsets.frombytes(offsets.tobytes())
        self.indices.frombytes(indices.tobytes())
        self.marks += [] if marks is None else [marks]


def scan_records(
    files: DatasetFiles,
    scratch: Path | None,
    *,
    workers: Workers,
    on_progress: OnProgress,
    stop: bool = False,
    marker: Marker | None = None,
    key_marker: KeyMarker | None = None,
    dtype: Any = "u1",
) -> SourceRecords:
    """Scan shards, in several processes.

    Intact shards are scanned from header to header, unless there is a marker of one kind.

    Args:
        files: the shards.
        scratch: folder for uncompressed copies of compressed shards; None if records are not read
            again.
        workers: maximum number of worker processes, or an engine.
        on_progress: called with the number of bytes read.
        stop: whether the first damage is an error.
        marker: makes a row of numbers of each intact record; it can be pickled.
        key_marker: does so by the keys alone, which is faster.
        dtype: type of these rows.

    Raises:
        CorruptShardError: the first damage, if the job is to stop there.
    """
    # As a text it isn't looked for on nodes of a cluster: only compressed shards need it.
    folder = None if scratch is None else str(scratch)
    scan = partial(_scan_shard, scratch=folder, stop=stop, marker=marker, key_marker=key_marker)
    size = sum(path.stat().st_size for path in files.paths)
    is_read = marker is not None or key_marker is not None
    meter = Meter(on_progress, "evaluating" if is_read else "scanning", BYTES, size)
    worth = _MIN_BYTES_PER_PROCESS if marker else MIN_BYTES_PER_PROCESS
    jobs = list(enumerate(files.paths))
    found = [*map_shards(scan, jobs, workers, worth, size, on_counts=meter.add)]
    meter.finish()
    return _table_of(files, found, stop=stop, dtype=dtype)


def _table_of(
    files: DatasetFiles, found: Sequence[_Scanned], *, stop: bool, dtype: Any
) -> SourceRecords:
    """Return the records of all shards, whose marks have this type."""
    intact = {one.shard.path: len(one) for one in found if not one.faults.count}
    read, faults = Tally(), faults_of(files, intact, stop=stop)
    for one in found:
        read.merge(one.read)
        faults.merge(one.faults)
    lengths = [*map(len, found)]
    counts = dict(zip(files.paths, lengths, strict=True))
    offsets, sizes = list[list[Rows]](), list[list[Rows]]()
    for one in found:
        offsets.append([np.frombuffer(one.offsets, np.int64)])
        sizes.append([np.frombuffer(one.sizes, np.uint32)])
        one.offsets, one.sizes = array("q"), array("I")
    return SourceRecords(
        shards=[one.shard for one in found],
        starts=np.cumsum([0, *lengths], dtype=np.int64),
        offsets=_joined(offsets, np.int64),
        sizes=_joined(sizes, np.uint32),
        indices={
            at: np.frombuffer(one.indices, np.int64) for at, one in enumerate(found) if one.indices
        },
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
    numbered: tuple[int, AnyPath],
    scratch: str | None,
    stop: bool,
    marker: Marker | None,
    key_marker: KeyMarker | None,
) -> _Scanned:
    number, path = numbered
    with open_shard(path) as file, ExitStack() as stack:
        stamp = stamp_of(file)
        packed = detect_compression(file) is not Compression.NONE
        if marker is None and key_marker is None and not packed:
            ends = array("Q", (0,))
            _, end = skip_records(file, stamp[0], ends)
            if end == stamp[0]:
                scanned = _Scanned(SourceShard(path, stamp))
                offsets = np.frombuffer(ends, np.int64)
                scanned.offsets.frombytes(offsets[:-1].tobytes())
                scanned.sizes.frombytes(np.diff(offsets).astype(np.uint32).tobytes())
                return scanned
            file.seek(0)
        copy = Path(scratch, f"{number}.records") if packed and scratch else None
        scanned = _Scanned(SourceShard(path, stamp, copy), faults=Faults(stop=stop))
        out = stack.enter_context(_new_copy(copy)) if copy is not None else None
        for records, keys, marks in _marked(file, scanned, marker, key_marker):
            if out is not None:
                out.writelines(_frames_of(records))
            scanned.add(records, keys, marks)
        if out is not None:
            sizes = np.frombuffer(scanned.sizes, np.uint32).astype(np.int64)
            offsets = np.cumsum(sizes) - sizes
            scanned.offsets = array("q", offsets.tobytes())
        if not len(scanned) or scanned.indices[-1] == len(scanned) - 1:
            scanned.indices = array("q")
        if stamp_of(file) != stamp:
            raise changed(path)
    return scanned


@contextmanager
def _new_copy(copy: Path) -> Iterator[BinaryIO]:
    """Open the file for the uncompressed records of a shard."""
    if not copy.parent.is_dir():
        what = "compressed shards are unpacked to this folder, which a node can't access"
        hint = "set TMPDIR to a folder that all nodes share"
        raise WriteError(what, path=copy.parent, hint=hint)
    with os_errors_as(WriteError, copy, "can't be written"), copy.open("xb") as out:
        yield out


def _frames_of(records: Sequence[Record]) -> Iterable[bytes]:
    """Return the bytes of records with their frames."""
    if isinstance(records, Frames):
        return [records.stored]
    return (frame(record.payload) for record in records)


def _marked(
    file: BinaryIO, scanned: _Scanned, marker: Marker | None, key_marker: KeyMarker | None
) -> Iterator[tuple[Sequence[Record], Words, Rows | None]]:
    """Yield consecutive records with their keys and marks, and note all intact ones and faults."""
    path = scanned.shard.path

    def report(fault: Fault) -> None:
        if fault.kind is not FaultKind.EMPTY:
            scanned.faults.add(LocatedFault(path=path, fault=fault))

    pieces: Iterable[Sequence[Record] | Fault] = RecordReader(file).pieces()
    if marker is not None:
        pieces = in_batches(pieces, report, _BATCH_BYTES, _BATCH_RECORDS)
    for piece in pieces:
        if isinstance(piece, Fault):
            report(piece)
            continue
        keys = np.asarray(keys_of(piece), np.uint64)
        scanned.read.add_keys(keys)
        if marker is None:
            yield piece, keys, None if key_marker is None else key_marker(keys)
            continue
        for selected, marks in marker(path, [*piece], report):
            yield selected, np.asarray(keys_of(selected), np.uint64), marks
