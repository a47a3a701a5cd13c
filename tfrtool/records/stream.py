"""A shard that is to be read: a file; or a stream, such as standard input, which comes once."""

import contextlib
import errno
import io
import os
import select
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tfrtool.errors import ShardError, UsageError, os_reason
from tfrtool.records.window import BLOCK_SIZE
from tfrtool.storage.arguments import as_path
from tfrtool.storage.opening import NotRegularFileError, open_regular, size_of_file
from tfrtool.storage.remote_path import AnyPath

STREAM = "-"
"""What a stream is called instead of a path. A file of that name is ``./-``."""


class Stream:
    """A binary stream as a shard, which is read once.

    Attributes:
        bytes: how many have come.
    """

    def __init__(self, stream: BinaryIO) -> None:
        """Begin where ``stream`` is, which stays its owner's, and need not be seekable."""
        self._stream = stream
        self._begun = False
        self.bytes = 0

    def single_pass(self) -> BinaryIO:
        """Return the stream as a file; `OSError` the second time."""
        if self._begun:
            raise OSError(errno.ESPIPE, "can't be read twice")
        self._begun = True
        return io.BufferedReader(_Raw(self), BLOCK_SIZE)

    def read(self, size: int) -> bytes:
        """Return up to ``size`` bytes as they come, and none only at the end."""
        part = self._stream.read(size)
        while part is None:  # nothing has come yet, and the stream says so instead of waiting
            select.select([self._stream], [], [])
            part = self._stream.read(size)
        self.bytes += len(part)
        return part


class _Raw(io.RawIOBase):
    """Gives as much as is asked for: a pipe alone would give what happens to be there."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        view = memoryview(buffer).cast("B")
        filled = 0
        while filled < len(view) and (part := self._stream.read(len(view) - filled)):
            view[filled : filled + len(part)] = part
            filled += len(part)
        return filled


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
