"""The part of an uncompressed stream that the reader holds in memory."""

import io
from typing import Protocol

BLOCK_SIZE = 512 * 1024
"""Bytes read at a time: they stay in a core's second-level cache until they are checked."""

_FIRST_BLOCK = 64 * 1024
"""The first is smaller, and each of the next twice as large: who wants little reads little."""


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
            tail = self.data[keep - self.start :]
            wanted = max(self._block, len(tail) // 4)
            self._block = min(2 * self._block, BLOCK_SIZE)
            if tail and self.pinned is None:  # then the next block is read alone, and not copied
                wanted = min(missing, wanted)
            self.start, self.data = keep, tail + self._read(wanted)
        return max(self.end - offset, 0)

    def view(self, start: int, end: int) -> bytes:
        """Return the bytes between two offsets, both of them held."""
        return self.data[start - self.start : end - self.start]

    def take(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes from ``offset`` on, fewer where the stream ends before.

        Where they are not held yet, none are afterwards: a long payload is in memory once.
        """
        loaded = self.view(offset, offset + size)
        if len(loaded) == size:
            return loaded
        taken = io.BytesIO()
        taken.write(loaded)
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
