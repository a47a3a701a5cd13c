"""Records of a table as the bytes of their frames, in any order, with their checksums checked."""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfrtool.convert.source_records import Rows, SourceShard, changed
from tfrtool.errors import ShardError, os_errors_as
from tfrtool.records import frames
from tfrtool.records.count import read_ranges
from tfrtool.records.frames import FrameScan, keys_of, picked
from tfrtool.records.framing import (
    CRC,
    FOOTER_SIZE,
    FRAME_SIZE,
    HEADER_SIZE,
    MAX_RECORD_BYTES,
    FaultKind,
    header,
    masked_crc32c,
)
from tfrtool.records.tally import Keys, Words, payload_key
from tfrtool.storage.opening import open_regular, stamp_of
from tfrtool.writing.job_report import Faults

_COPIED = 8192
"""Bytes of a payload, or mean bytes of records, that are copied rather than handled one by one."""

_FILES_OPEN = 100

_LENGTH = np.uint64(0xFFFFFFFF)
"""The half of a `payload_key` that is the payload's length."""

_GAP = 4096
"""Bytes between records that are read in less time than a further call takes."""

_MOST_TOGETHER = 32 * 1024 * 1024
"""Bytes that are read at once: they are held twice while they are put in another order."""

_header = lru_cache(4096)(header)
_Range = tuple[int, int, int]
"""A shard, and where something starts and ends in it."""


class _Located(NamedTuple):
    """Records in the order in which they lie in the files.

    Attributes:
        order: their places among the records that are asked for.
        files: the number of the shard of each.
        starts: where each starts in its file.
        ends: where each ends.
    """

    order: NDArray[np.intp]
    files: NDArray[Any]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Rows) -> "_Located":
        """Sort records."""
        order = np.lexsort((rows["offset"], rows["shard"]))
        starts = rows["offset"][order]
        return cls(order, rows["shard"][order], starts, starts + rows["size"][order])

    def runs(self, gap: int) -> tuple[NDArray[np.intp], list[_Range]]:
        """Return where runs of records begin, and their ranges; gaps in them have at most so much.

        The last of the numbers is that of all records.
        """
        is_new = self.files[1:] != self.files[:-1]
        is_new |= self.starts[1:] - self.ends[:-1] > gap
        bounds = np.concatenate([[0], np.flatnonzero(is_new) + 1, [len(self.order)]])
        firsts, lasts = bounds[:-1], bounds[1:] - 1
        found = self.files[firsts], self.starts[firsts], self.ends[lasts]
        return bounds, [*zip(*(part.tolist() for part in found), strict=True)]


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

    def read(self, rows: Rows, faults: Faults) -> tuple[bytes, Keys]:
        """Return the frames of records in the given order, and the `payload_key` of each.

        All CRCs are checked, and records with a wrong one skipped. Records are read in the order in
        which they lie in the files, neighbors at once.
        """
        located = _Located.of(rows)
        found = self._read_together(located, rows)
        return self._read_each(located, rows, faults) if found is None else found

    def _read_together(self, located: _Located, rows: Rows) -> tuple[bytes, Keys] | None:
        """Return the frames if all are intact, and follow each other or native code orders them.

        Long records that don't follow each other are copied once less if they are read one by one.
        """
        for gap in (_GAP, 0):
            bounds, ranges = located.runs(gap)
            sizes = np.array([end - start for _, start, end in ranges])
            if sizes.sum() <= _MOST_TOGETHER:
                break
        else:
            return None
        is_sorted = (located.order[1:] > located.order[:-1]).all()
        is_whole = bool(is_sorted and sizes.sum() == rows["size"].sum(dtype=np.int64))
        is_short = rows["size"].mean() <= _COPIED
        is_faster = is_short if frames.native is None else is_whole or is_short
        is_able = is_whole or frames.native is not None
        pieces = self._read_ranges(ranges) if is_faster and is_able else None
        if pieces is None:
            return None
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if is_whole:
            keys = _intact_keys(data)
            lengths = (np.asarray(keys, np.uint64) & _LENGTH) + np.uint64(FRAME_SIZE)
            return (data, keys) if np.array_equal(lengths, rows["size"]) else None
        shifts = np.cumsum(sizes) - sizes - [start for _, start, _ in ranges]
        places = located.starts + np.repeat(shifts, np.diff(bounds))
        starts = np.empty_like(places)
        starts[located.order] = places
        return picked(data, starts.astype(np.uint64), rows["size"].astype(np.uint64))

    def _read_ranges(self, ranges: Sequence[_Range]) -> list[bytes] | None:
        """Return ranges of shards; None if one of them has become shorter."""
        pieces = list[bytes]()
        for number, group in groupby(ranges, itemgetter(0)):
            shard, spans = self._shards[number], [(start, end - start) for _, start, end in group]
            with os_errors_as(ShardError, shard.copy or shard.path):
                file = self._opened(number)
                for data, (_, size) in zip(read_ranges(file, spans), spans, strict=True):
                    if len(data) != size:
                        return None
                    pieces.append(data)
                self._check_stamp(shard, file)
        return pieces

    def _read_each(self, located: _Located, rows: Rows, faults: Faults) -> tuple[bytes, Keys]:
        """Return the frames, checked one by one."""
        found: list[memoryview | None] = [None] * len(rows)
        keys: Words = np.zeros(len(rows), np.uint64)
        for rank, number, frame in self._frames(located):
            if self._is_intact(frame, number, rows[rank], faults):
                found[rank] = frame
                (crc,) = CRC.unpack_from(frame, len(frame) - FOOTER_SIZE)
                keys[rank] = payload_key(crc, len(frame) - FRAME_SIZE)
        intact = [frame for frame in found if frame is not None]
        return b"".join(intact), keys[[frame is not None for frame in found]]

    def _frames(self, located: _Located) -> Iterator[tuple[int, int, memoryview]]:
        """Yield the place of each record among those that are asked for, its shard and its frame.

        Raises:
            ShardError: a file has changed.
        """
        bounds, ranges = located.runs(0)
        ranks, starts, ends = (part.tolist() for part in (located.order, *located[2:]))
        for (low, high), (number, base, _), data in zip(
            pairwise(bounds.tolist()), ranges, self._ranges(ranges), strict=True
        ):
            view = memoryview(data)
            for rank, start, end in zip(
                ranks[low:high], starts[low:high], ends[low:high], strict=True
            ):
                if end - base > len(data):
                    raise changed(self._shards[number].path)
                yield rank, number, view[start - base : end - base]

    def _is_intact(self, frame: memoryview, number: int, row: Any, faults: Faults) -> bool:
        """Check a frame, and note a wrong checksum of its payload.

        Raises:
            ShardError: the shard has changed since it was scanned.
        """
        shard, end = self._shards[number], len(frame) - FOOTER_SIZE
        body = frame[HEADER_SIZE:end]
        if frame[:HEADER_SIZE] != _header(len(body)):
            raise changed(shard.path)
        # The library takes bytes, or an array, which isn't copied.
        payload: Any = np.frombuffer(body, np.uint8) if len(body) > _COPIED else bytes(body)
        crc, (stored,) = masked_crc32c(payload), CRC.unpack_from(frame, end)
        if stored == crc:
            return True
        if shard.copy is not None:  # all of whose records were intact
            raise changed(shard.path)
        message = (
            f"payload checksum (CRC) mismatch: expected {stored:08x} (stored), "
            f"got {crc:08x} for {len(body)} bytes"
        )
        where = {"offset": int(row["offset"]), "record": int(row["index"])}
        faults.note(shard.path, FaultKind.PAYLOAD_CRC, message, **where)
        return False

    def _ranges(self, ranges: Iterable[_Range]) -> Iterator[bytes]:
        """Yield ranges of shards."""
        for number, group in groupby(ranges, itemgetter(0)):
            shard = self._shards[number]
            with os_errors_as(ShardError, shard.copy or shard.path):
                file = self._opened(number)
                for data in read_ranges(file, [(start, end - start) for _, start, end in group]):
                    self._check_stamp(shard, file)
                    yield data

    def _opened(self, number: int) -> BinaryIO:
        """Return a shard's file; of many, the one that was opened first is closed."""
        if number not in self._files:
            shard = self._shards[number]
            if len(self._files) == _FILES_OPEN:
                self._files.pop(next(iter(self._files))).close()
            self._files[number] = open_regular(shard.copy or shard.path, buffering=0)
        return self._files[number]

    def _check_stamp(self, shard: SourceShard, file: BinaryIO) -> None:
        if shard.copy is None and stamp_of(file) != shard.stamp:
            raise changed(shard.path)


def _intact_keys(data: bytes) -> Keys:
    """Return the `payload_key` of each record that is intact, up to the first that is not."""
    # In Python, the last one is found only before another header.
    padded = data if frames.native is not None else data + bytes(HEADER_SIZE)
    found, _ = FrameScan(MAX_RECORD_BYTES, verify=True).find(padded, 0, len(padded), 0, 0)
    return keys_of(found)
