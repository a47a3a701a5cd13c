"""Parts of a large uncompressed shard, which can be read at once: each from a record on."""

from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import BinaryIO

from tfrtool.errors import ShardError
from tfrtool.records.compression import Compression, detect_compression
from tfrtool.records.framing import FRAME_SIZE, HEADER_SIZE, LENGTH, Fault
from tfrtool.records.resync import headers
from tfrtool.records.stream import Stream, open_shard
from tfrtool.records.window import find_holes
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.remote_path import RemotePath

PART_BYTES = 32 * 1024 * 1024
"""The most of a shard in one part. So the parts, and what comes of them, depend on the shard alone,
and not on how many workers there are."""

_SHARE, _LEAST = 8, 4 * 1024 * 1024
"""Parts get smaller towards the end, so that workers end together: this share of what is left, but
not fewer bytes, for which a part would cost a tenth more. In a store each costs requests, too."""

_LOOKED_AT = 64 * 1024
"""Bytes in which the first header is looked for at a time; mostly it is in the first of them."""

_FEWEST = 4
"""Parts that are worth it: a smaller shard is read in the time in which a few processes start."""

_HOLES = 1000
"""Holes of a file that are looked at."""

_RECORD = 4096
"""Bytes that are read and checked in the time that a record takes beyond its bytes."""

Stamp = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The records of a shard that start in some of its bytes.

    Attributes:
        path: the file.
        stamp: its size and its time of change (ns), when it was cut into parts.
        start: the first of the bytes.
        end: the offset behind the last one.
        work: how many bytes of photographs take as long.
    """

    path: Path
    stamp: Stamp
    start: int
    end: int
    work: int

    def __str__(self) -> str:
        return str(self.path)

    def check(self) -> None:
        """Raise a `ShardError` if the file is not any more what it was."""
        if _stamp(self.path) != self.stamp:
            raise ShardError("was changed while it was read", path=self.path)

    def find(self, file: BinaryIO) -> int | None:
        """Return where its first record seems to start; None if none does.

        A length whose CRC holds stands there. It may be within a payload that holds records: the
        part is right if the one before it ends there.
        """
        at = self.start
        while 0 < at < self.end:
            file.seek(at)
            block = file.read(min(_LOOKED_AT, self.end - at) + HEADER_SIZE - 1)
            for place in headers(block):
                (length,) = LENGTH.unpack_from(block, place)
                if at + place + FRAME_SIZE + length <= self.stamp[0]:
                    return at + place
            at += max(len(block) - HEADER_SIZE + 1, 1)
        return None if at else 0


def parts_of(source: Path | Stream) -> list[Part]:
    """Return the parts of a shard; none if it is read as one, as what can't be read is, too."""
    if isinstance(source, Stream) or (size := _stamp(source)[0]) < _FEWEST * PART_BYTES:
        return []
    try:
        with open_shard(source) as file:
            if detect_compression(file) is not Compression.NONE or _has_hole(file):
                return []
            file.seek(0)
            frame = int.from_bytes(file.read(LENGTH.size), "little") + FRAME_SIZE
    except ShardError:
        return []
    least = PART_BYTES if isinstance(source, RemotePath) else _LEAST
    bounds, stamp = [0], _stamp(source)
    while left := size - bounds[-1]:
        bounds.append(bounds[-1] + min(left, PART_BYTES, max(left // _SHARE, least)))
    return [
        Part(path=source, stamp=stamp, start=a, end=b, work=b - a + (b - a) * _RECORD // frame)
        for a, b in pairwise(bounds)
    ]


def later(faults: CappedList[Fault], index: int) -> CappedList[Fault]:
    """Return faults of a part whose records are counted from ``index`` on."""
    faults.kept = [
        fault if fault.record is None else replace(fault, record=fault.record + index)
        for fault in faults.kept
    ]
    return faults


def _has_hole(file: BinaryIO) -> bool:
    """Return whether a part may lie in a hole of a sparse file, which is skipped in one pass."""
    try:
        with closing(find_holes(file.fileno(), 0)) as holes:
            return any(end - begin >= PART_BYTES for begin, end in islice(holes, _HOLES))
    except OSError:  # an object of a store
        return False


def _stamp(path: Path) -> Stamp:
    """Return the size of a file, and when it was changed; zeros if nobody can tell."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns
