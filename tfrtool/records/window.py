"""The part of an uncompressed stream that the reader holds in memory."""

from __future__ import annotations

import io
from typing import Protocol

BLOCK_SIZE = 256 * 1024
"""Bytes read at a time: they stay in a core's second-level cache until they are checked."""

LARGE = 16 * 1024 * 1024
"""A buffer that had to grow beyond this is given back when it is not needed any more; and payloads
beyond it don't go through the buffer at all."""


_DIRECT = (io.FileIO, io.BufferedReader, io.BytesIO)


class ByteSource(Protocol):
    """Whatever gives out the bytes of a stream in order."""

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes, and none only at the end."""


class Window:
    """A stretch of a stream, addressed by offsets in the stream.

    It moves forward only. It reads into one buffer, over and over: new memory for each block
    would cost more, in page faults, than reading the block. The buffer grows with the bytes that
    have really come: a length that a file claims is never allocated before.

    Attributes:
        buffer: the bytes that are held, and behind `filled` bytes that mean nothing.
        memory: the same, for slices that don't copy.
        filled: how many bytes of the buffer are held.
        start: the stream's offset of ``buffer[0]``.
        ended: whether the source has no more bytes.
        pinned: all bytes from this offset on are kept, whatever is loaded; None keeps none.
    """

    __slots__ = ("_readinto", "_source", "buffer", "ended", "filled", "memory", "pinned", "start")

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        # A class that derives from these may have changed `read` alone.
        self._readinto = (
            source.readinto if isinstance(source, _DIRECT) and type(source) in _DIRECT else None
        )
        self.buffer = bytearray(BLOCK_SIZE)
        self.memory = memoryview(self.buffer)
        self.filled = 0
        self.start = 0
        self.pinned: int | None = None
        self.ended = False

    @property
    def end(self) -> int:
        """The stream's offset behind the last byte that is held."""
        return self.start + self.filled

    def load(self, offset: int, size: int) -> int:
        """Hold ``size`` bytes from ``offset`` on, and drop those before it; return how many.

        These are less than ``size`` only where the stream ends before.
        """
        upto = offset + size
        if upto > self.end and not self.ended:
            self._drop_before(offset if self.pinned is None else min(offset, self.pinned), size)
            while upto > self.end:
                if self.filled == len(self.buffer):
                    self._grow(upto - self.start + BLOCK_SIZE)
                count = self._read()
                if count == 0:
                    self.ended = True
                    break
                self.filled += count
        return max(self.end - offset, 0)

    def view(self, start: int, end: int) -> bytes:
        """Return the bytes between two offsets, both of them held."""
        return bytes(self.memory[start - self.start : end - self.start])

    def take(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes from ``offset`` on, fewer where the stream ends before.

        Bytes that are not held yet are read past the buffer, which goes on behind them: a long
        payload is in memory once. It grows with the bytes that have really come, too.
        """
        with self.memory[offset - self.start : self.filled] as held:
            if len(held) >= size:
                return bytes(held[:size])
            taken = io.BytesIO()
            taken.write(held)
        while (left := size - taken.tell()) and (part := self._source.read(min(left, BLOCK_SIZE))):
            taken.write(part)
        self.ended = left > 0
        self.start, self.filled = offset + taken.tell(), 0
        return taken.getvalue()

    def give_back(self, offset: int, data: bytes) -> None:
        """Hold again what `take` has returned."""
        if self.start > offset:
            buffer = bytearray(data)
            buffer += self.memory[: self.filled]
            self.buffer, self.memory = buffer, memoryview(buffer)
            self.start, self.filled = offset, len(buffer)

    def _drop_before(self, keep: int, size: int) -> None:
        dropped = min(max(keep - self.start, 0), self.filled)
        rest = self.filled - dropped
        if dropped:
            self.buffer[:rest] = self.memory[dropped : self.filled]
            self.start += dropped
            self.filled = rest
        if len(self.buffer) > LARGE and max(rest, size) <= BLOCK_SIZE:
            self.memory.release()
            self.buffer = self.buffer[: 2 * BLOCK_SIZE]
            self.memory = memoryview(self.buffer)

    def _grow(self, wanted: int) -> None:
        """Make room for up to ``wanted`` bytes in all, but not for many more than are held."""
        more = min(wanted - len(self.buffer), len(self.buffer), LARGE)
        self.memory.release()
        self.buffer.extend(bytes(more))
        self.memory = memoryview(self.buffer)

    def _read(self) -> int:
        room = self.memory[self.filled :]
        if self._readinto is not None:
            return int(self._readinto(room) or 0)
        part = self._source.read(min(len(room), BLOCK_SIZE))
        room[: len(part)] = part
        return len(part)
