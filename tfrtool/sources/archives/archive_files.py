"""Bytes of images inside larger files: parts of archives, and what is unpacked from them."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from tfrtool.errors import SourceError, WriteError, os_errors_as
from tfrtool.records.count import reader_at
from tfrtool.sources.items import Item
from tfrtool.storage.limits import unpacked_limit
from tfrtool.storage.opening import open_regular, stamp_of
from tfrtool.storage.remote_path import is_url

UNPACK_HINT = "if you trust it, unpack it yourself and pass the folder as SOURCE"

SPOOL = "unpacked-archive"
"""Name of the file in the scratch folder that holds what is unpacked."""

Stamp = tuple[int, int]
"""Size and time of a file, which show whether it is still the one that was listed."""


@contextmanager
def open_parts(path: str, stamp: Stamp | None = None) -> Iterator[Callable[[int, int], bytes]]:
    """Give a function of a size and an offset that reads a part of a file, in bytes.

    A local file is opened for each use. An object of a store is opened once per process.

    Raises:
        OSError: the file can't be read, or has another stamp.
    """
    file = _open_object(path, os.getpid()) if is_url(path) else open_regular(path, buffering=0)
    try:
        if stamp is not None and stamp_of(file) != stamp:
            raise _changed(path)
        yield reader_at(file)
    finally:
        if not is_url(path):
            file.close()


@lru_cache(maxsize=8)
def _open_object(url: str, _process: int) -> BinaryIO:
    return open_regular(url)


def _changed(path: str) -> OSError:
    return OSError(errno.ESTALE, "it was changed after it was listed", path)


def read_part(path: str, size: int, offset: int, stamp: Stamp | None = None) -> bytes:
    """Return ``size`` bytes of a file; OSError if it has another stamp, or ends before."""
    with open_parts(path, stamp) as read:
        data = read(size, offset)
    if len(data) != size:
        raise _changed(path)
    return data


@dataclass(frozen=True, slots=True)
class PartReader:
    """Reads items whose bytes lie as they are in one file; their places are the offsets."""

    archive: str  # for errors
    data: str | Path  # the file with the bytes: the archive itself, or what was unpacked
    stamp: Stamp | None = None  # of that file, where others may change it

    def read(self, item: Item) -> bytes:
        """Return all bytes of an item."""
        return read_part(str(self.data), item.bytes, item.place, self.stamp)

    def describe(self, item: Item) -> str:
        """Return the path of the archive, and the member's."""
        return f"{self.archive}/{item.key}"


class Spool:
    """A file in the scratch folder into which the contents of a source are unpacked.

    It replaces what an interrupted write left under its name. A disk that is full is a
    `WriteError`.

    Attributes:
        packed: bytes of the packed source: they limit what may be unpacked.
        path: the file.
        reader: reads items at offsets in it.
    """

    def __init__(self, scratch: Path, where: str, packed: int = 0, hint: str = "") -> None:
        """Open the file for the contents of the source ``where``; the hint is for a full disk."""
        self.path, self.packed, self._where = scratch / SPOOL, packed, where
        self.reader = PartReader(where, self.path)
        self._failure = f"can't be unpacked to {self.path}{hint}"
        self._end = 0
        with os_errors_as(WriteError, where, self._failure):
            self.path.unlink(missing_ok=True)
            self._out = self.path.open("xb")

    def __enter__(self) -> "Spool":
        return self

    def __exit__(self, *_: object) -> None:
        with os_errors_as(WriteError, self._where, self._failure):
            self._out.close()

    def add(self, data: bytes) -> int:
        """Append bytes and return their offset; SourceError if the source unpacks to too much."""
        offset, most = self._end, unpacked_limit(self.packed)
        self._end += len(data)
        if self._end > most:
            what = f"unpacks to more than {most:,} bytes"
            raise SourceError(what, path=self._where, hint=UNPACK_HINT)
        with os_errors_as(WriteError, self._where, self._failure):
            self._out.write(data)
        return offset
