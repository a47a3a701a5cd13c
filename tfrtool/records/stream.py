"""A shard that is to be read: a file; or a stream, such as standard input, which comes once.

A `Window` holds the part of it that is in memory.
"""

import contextlib
import errno
import io
import os
import select
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

from tfrtool.errors import ShardError, UsageError, os_reason
from tfrtool.records.compression import HEAD_BYTES
from tfrtool.records.framing import HEADER_SIZE, holds_header
from tfrtool.storage.arguments import as_path
from tfrtool.storage.opening import NotRegularFileError, open_regular, size_of_file
from tfrtool.storage.remote_path import AnyPath

STREAM = "-"
"""What a stream is called instead of a path. A file of that name is ``./-``."""

BLOCK_SIZE = 512 * 1024
"""Bytes read at a time: they stay in a core's second-level cache until they are checked."""

_FIRST_BLOCK = 64 * 1024
"""The first is smaller, and each of the next twice as large: who wants little reads little."""


class Stream:
    """A binary stream as a shard, which is read once.

    Attributes:
        bytes: how many have come.
    """

    def __init__(self, stream: BinaryIO) -> None:
        """Begin where ``stream`` is, which stays its owner's, and need not be seekable."""
        self._stream = stream
        self._read = _reader_of(stream)
        self._begun = False
        self.bytes = 0

    def single_pass(self) -> BinaryIO:
        """Return the stream as a file; `OSError` the second time."""
        if self._begun:
            raise OSError(errno.ESPIPE, "can't be read twice")
        self._begun = True
        return _StreamFile(_Raw(self), BLOCK_SIZE)

    def read(self, size: int) -> bytes:
        """Return up to ``size`` bytes as they come, and none only at the end."""
        part = self._read(size)
        while part is None:  # nothing has come yet, and the stream says so instead of waiting
            select.select([self._stream], [], [])
            part = self._read(size)
        self.bytes += len(part)
        return part


def _reader_of(stream: BinaryIO) -> Callable[[int], bytes | None]:
    """Return what reads a stream: as much as is there, if it may wait for as much as is asked for.

    `read1` doesn't distinguish the end of a stream from one that never waits.
    """
    if isinstance(stream, io.BufferedReader) and hasattr(os, "get_blocking"):
        with contextlib.suppress(OSError, ValueError):
            if os.get_blocking(stream.fileno()):
                return stream.read1
    return stream.read


class _Raw(io.RawIOBase):
    """Gives what has come; only at its start, it waits until that can be recognized."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._least = HEAD_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        view = memoryview(buffer).cast("B")
        least, self._least, filled = min(self._least, len(view)), 0, 0
        while part := self._stream.read(len(view) - filled):
            view[filled : filled + len(part)] = part
            filled += len(part)
            if filled >= least or holds_header(bytes(view[: min(filled, HEADER_SIZE)])):
                break
        return filled


class _StreamFile(io.BufferedReader):
    """A stream as a file whose ``read`` gives what has come, and none only at the end."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Return up to ``size`` bytes; without a size, all."""
        return super().read() if size is None or size < 0 else self.read1(size)


Location = str | os.PathLike[str] | BinaryIO | Stream


def as_source(shard: Location) -> AnyPath | Stream:
    """Return what a caller gave as a shard: a path, or a stream."""
    if isinstance(shard, Stream):
        return shard
    if isinstance(shard, str | os.PathLike):
        return as_path(shard)
    if not hasattr(shard, "read"):
        found = type(shard).__name__
        raise UsageError(f"a shard must be a str, a PathLike or a binary file, not {found}")
    return Stream(shard)


def path_of(source: AnyPath | Stream) -> AnyPath:
    """Return what a shard is called in messages and reports."""
    return Path(STREAM) if isinstance(source, Stream) else source


def folder_of(source: AnyPath | Stream) -> AnyPath | None:
    """Return where a shard's metadata may lie; a stream has none."""
    return None if isinstance(source, Stream) else source.parent


@contextmanager
def open_shard(source: AnyPath | Stream) -> Iterator[BinaryIO]:
    """Open a shard to read it; `ShardError` if it can't be read, or is not a regular file."""
    try:
        if isinstance(source, Stream):
            yield source.single_pass()
            return
        with open_regular(source) as file:
            yield file
    except OSError as error:
        pipe = isinstance(error, NotRegularFileError)
        raise ShardError(
            f"can't be read: {os_reason(error)}",
            path=path_of(source),
            hint="to read from a pipe, connect it to standard input and pass -" if pipe else None,
        ) from error


def total_bytes(sources: Iterable[AnyPath | Stream]) -> int | None:
    """Return how many bytes files have together; None if a stream is among them."""
    total = 0
    for source in sources:
        if isinstance(source, Stream):
            return None
        with contextlib.suppress(OSError):  # it is reported where it is read
            total += source.stat().st_size
    return total


def size_of(source: AnyPath | Stream, file: BinaryIO) -> int:
    """Return how many bytes an open shard has; of a stream, the rest is read for it."""
    if not isinstance(source, Stream):
        return size_of_file(file)
    while file.read(BLOCK_SIZE):
        pass
    return source.bytes


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
        end: the stream's offset behind the last byte that is held.
        pinned: all bytes from this offset on are kept, whatever is loaded; None keeps none.
    """

    __slots__ = ("_block", "_ended", "_source", "data", "end", "pinned", "start")

    def __init__(self, source: ByteSource, start: int = 0) -> None:
        self._source, self._block = source, _FIRST_BLOCK
        self._ended = False
        self.data = b""
        self.start = self.end = start
        self.pinned: int | None = None

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
            part = self._source.read(wanted)
            self._ended = not part
            self.start, self.data = keep, tail + part
            self.end = keep + len(self.data)
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
            part = self._source.read(min(left, BLOCK_SIZE))
            self._ended = not part
            taken.write(part)
        self.start = self.end = offset + taken.tell()
        return taken.getvalue()

    def give_back(self, offset: int, data: bytes) -> None:
        """Hold again what `take` has returned."""
        if self.start > offset:
            self.start, self.data = offset, data + self.data
