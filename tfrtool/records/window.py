"""The part of an uncompressed stream that the reader holds in memory."""

from __future__ import annotations

from typing import Protocol

__all__ = ["BLOCK_SIZE", "Source", "Window"]

BLOCK_SIZE = 1024 * 1024
"""Bytes read at a time: they stay in a core's second-level cache until they are checked."""

_LARGEST_READ = 16 * 1024 * 1024


class Source(Protocol):
    """Whatever gives out the bytes of a stream in order."""

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes, and none only at the end."""


class Window:
    """A stretch of a stream, addressed by offsets in the stream.

    It moves forward only. Its size is what the caller asks to hold, plus a block: a length that a
    file claims is never allocated before that many bytes have really come.

    Attributes:
        data: the bytes that are held.
        start: the stream's offset of ``data[0]``.
        ended: whether the source has no more bytes.
        pinned: all bytes from this offset on are kept, whatever is loaded; None keeps none.
    """

    __slots__ = ("_source", "data", "ended", "pinned", "start")

    def __init__(self, source: Source) -> None:
        self._source = source
        self.pinned: int | None = None
        self.data = b""
        self.start = 0
        self.ended = False

    @property
    def end(self) -> int:
        """The stream's offset behind the last byte that is held."""
        return self.start + len(self.data)

    def load(self, offset: int, size: int) -> int:
        """Hold ``size`` bytes from ``offset`` on, and drop those before it.

        Returns:
            How many bytes are held from ``offset`` on: less than ``size`` only where the stream
            ends before.
        """
        missing = offset + size - self.end
        if missing > 0 and not self.ended:
            keep = offset if self.pinned is None else min(offset, self.pinned)
            parts = [self.data[max(keep - self.start, 0) :]]
            self.start = max(keep, self.start)
            while missing > 0:
                part = self._source.read(max(BLOCK_SIZE, min(missing, _LARGEST_READ)))
                if not part:
                    self.ended = True
                    break
                missing -= len(part)
                parts.append(part)
            self.data = b"".join(parts)
        return max(self.end - offset, 0)

    def view(self, start: int, end: int) -> bytes:
        """Return the bytes between two offsets, both of them held."""
        return self.data[start - self.start : end - self.start]
