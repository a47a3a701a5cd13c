"""Parts of a large uncompressed shard, which can be read at once: each from a record on."""

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from tfrtool.errors import ShardError
from tfrtool.records.compression import Compression, detect_compression
from tfrtool.records.framing import FRAME_SIZE, HEADER_SIZE, LENGTH, Fault
from tfrtool.records.resync import headers
from tfrtool.records.stream import Stream, open_shard
from tfrtool.storage.capped_list import CappedList

PART_BYTES = 32 * 1024 * 1024
"""The most of a shard in one part. So the parts, and what comes of them, depend on the shard alone,
and not on how many workers there are."""

_LOOKED_AT = 64 * 1024
"""Bytes in which the first header is looked for at a time; mostly it is in the first of them."""

_FEWEST = 4
"""Parts that are worth it: a smaller shard is read in the time in which a few processes start."""

_DISK_BLOCK = 512
"""Bytes of a block in ``st_blocks``, on every system."""

Stamp = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The records of a shard that start in some of its bytes.

    Attributes:
        path: the file.
        stamp: its size and its time of change (ns), when it was cut into parts.
        start: the first of the bytes.
        end: the offset behind the last one.
    """

    path: Path
    stamp: Stamp
    start: int
    end: int

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
    """Return the parts of a shard; none if it is read as one, as what can't be read is, too.

    A sparse file is read as one, for its holes are skipped.
    """
    if isinstance(source, Stream) or (size := _stamp(source)[0]) < _FEWEST * PART_BYTES:
        return []
    try:
        with open_shard(source) as file:
            if detect_compression(file) is not Compression.NONE:
                return []
        blocks = getattr(source.stat(), "st_blocks", None)  # None for an object of a store
        if blocks is not None and blocks * _DISK_BLOCK < size // 2:
            return []
    except (ShardError, OSError):
        return []
    bounds, stamp = [*range(0, size, PART_BYTES), size], _stamp(source)
    return [Part(path=source, stamp=stamp, start=a, end=b) for a, b in pairwise(bounds)]


def later(faults: CappedList[Fault], index: int) -> CappedList[Fault]:
    """Return faults of a part whose records are counted from ``index`` on."""
    faults.kept = [
        fault if fault.record is None else replace(fault, record=fault.record + index)
        for fault in faults.kept
    ]
    return faults


def _stamp(path: Path) -> Stamp:
    """Return the size of a file, and when it was changed; zeros if nobody can tell."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns
