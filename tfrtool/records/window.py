"""The part of an uncompressed stream that the reader holds in memory."""

import errno
import io
import os
from collections.abc import Generator
from contextlib import closing
from typing import Any, Protocol

BLOCK_SIZE = 512 * 1024
"""Bytes read at a time: they stay in a core's second-level cache until they are checked."""

_FIRST_BLOCK = 64 * 1024
"""The first is smaller, and each of the next twice as large: who wants little reads little."""


_LARGE_HOLE = 1024 * 1024
"""From so many bytes on, the hole of a sparse file is skipped."""


class ByteSource(Protocol):
    """Whatever gives out the bytes of a stream in order."""

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes, and none only at the end."""


class Window:
    """A stretch of a stream, addressed by offsets in the stream; it moves forward only.

    Memory grows with the bytes that have really come, not with a length that a file claims.

    Attributes:
        data: the bytes that are held.
        start: the stream's offset of ``data[0]``.
        pinned: all bytes from this offset on are kept, whatever is loaded; None keeps none.
    """

    __slots__ = ("_block", "_ended", "_source", "data", "pinned", "start")

    def __init__(self, source: ByteSource, start: int = 0) -> None:
        self._source, self._block = source, _FIRST_BLOCK
        self._ended = False
        self.data = b""
        self.start = start
        self.pinned: int | None = None

    @property
    def end(self) -> int:
        """The stream's offset behind the last byte that is held."""
        return self.start + len(self.data)

    def load(self, offset: int, size: int) -> int:
        """Hold ``size`` bytes from ``offset`` on, and drop those before it; return how many.

        These are less than ``size`` only where the stream ends before.
        """
        while (missing := offset + size - self.end) > 0 and not self._ended:
            keep = offset if self.pinned is None else min(offset, self.pinned)
            keep = min(max(keep, self.start), self.end)
            kept = self.data[keep - self.start :]
            wanted = max(self._block, len(kept) // 4)
            self._block = min(2 * self._block, BLOCK_SIZE)
            if kept and self.pinned is None:  # then the next block is read alone, and not copied
                wanted = min(missing, wanted)
            self.start, self.data = keep, kept + self._read(wanted)
        return max(self.end - offset, 0)

    def skip_hole(self, offset: int, overlap: int) -> tuple[int, int] | None:
        """Go on behind a hole of a sparse file at an offset, if there is a large one.

        Holds nothing then, and loads from ``overlap`` bytes before its end on. Returns where the
        hole starts and ends.
        """
        source: Any = self._source
        try:
            shift, file = source.tell() - self.end, source.fileno()
            place = offset + shift
            with closing(find_holes(file, max(place - BLOCK_SIZE, 0))) as holes:
                begin, end = next(hole for hole in holes if place < hole[1])
        except (AttributeError, OSError, ValueError, StopIteration):
            return None  # a stream, something compressed, or no hole
        if begin > place or end - max(place, self.end + shift) < _LARGE_HOLE:
            return None  # or what is behind it is held, or nearly
        source.seek(end - overlap)
        self.start, self.data = end - shift - overlap, b""
        return begin - shift, end - shift

    def view(self, start: int, end: int) -> bytes:
        """Return the bytes between two offsets, both of them held."""
        return self.data[start - self.start : end - self.start]

    def take(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes from ``offset`` on, fewer where the stream ends before.

        Where they are not held yet, none are afterwards: a long payload is in memory once.
        """
        held = self.view(offset, offset + size)
        if len(held) == size:
            return held
        taken = io.BytesIO()
        taken.write(held)
        self.data = b""
        while (left := size - taken.tell()) and not self._ended:
            taken.write(self._read(min(left, BLOCK_SIZE)))
        self.start = offset + taken.tell()
        return taken.getvalue()

    def give_back(self, offset: int, data: bytes) -> None:
        """Hold again what `take` has returned."""
        if self.start > offset:
            self.start, self.data = offset, data + self.data

    def _read(self, size: int) -> bytes:
        part = self._source.read(size)
        self._ended = not part
        return part


def find_holes(file: int, start: int) -> Generator[tuple[int, int]]:
    """Yield where the holes of an open file start and end, from an offset on.

    There are none where the system doesn't say. The position in the file stays.
    """
    position, size = os.lseek(file, 0, os.SEEK_CUR), os.fstat(file).st_size
    try:
        while hasattr(os, "SEEK_HOLE") and start < size:
            begin = os.lseek(file, start, os.SEEK_HOLE)
            try:
                start = os.lseek(file, begin, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                start = size  # there is no data behind it
            if begin < start:
                yield begin, start
    finally:
        os.lseek(file, position, os.SEEK_SET)
