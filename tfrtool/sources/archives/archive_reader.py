"""Reading a part of a file, for items that lie one behind the other."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tfrtool.sources.items import Item
from tfrtool.storage.opening import open_descriptor

__all__ = ["PartReader", "Stamp", "opened", "read_at", "stamp_of"]


Stamp = tuple[int, int]
"""Size and time of a file, which tell that it is still the one that was listed."""


def stamp_of(descriptor: int) -> Stamp:
    """Return the stamp of an open file."""
    status = os.fstat(descriptor)
    return status.st_size, status.st_mtime_ns


@contextmanager
def opened(path: str, stamp: Stamp | None = None) -> Iterator[int]:
    """Give a descriptor of a file: one for each use, so that threads share no position.

    Raises:
        OSError: it can't be opened, or has not the stamp that it should have.
    """
    descriptor = open_descriptor(path)
    try:
        if stamp is not None and stamp_of(descriptor) != stamp:
            raise OSError(errno.ESTALE, "it was changed after it was listed", path)
        yield descriptor
    finally:
        os.close(descriptor)


def read_at(descriptor: int, offset: int, size: int) -> bytes:
    """Return up to ``size`` bytes from an offset on; fewer only where the file ends."""
    os.lseek(descriptor, offset, os.SEEK_SET)
    data = os.read(descriptor, size)
    if len(data) == size or not data:
        return data
    parts, missing = [data], size - len(data)
    while missing and (data := os.read(descriptor, missing)):
        parts.append(data)
        missing -= len(data)
    return b"".join(parts)


@dataclass(frozen=True, slots=True)
class PartReader:
    """Reads items whose bytes lie as they are in one file; their places are the offsets.

    Attributes:
        archive: the archive, for errors.
        data: the file with the bytes: the archive itself, or what was unpacked of it.
        stamp: that file's; None where nobody else changes it.
    """

    archive: str
    data: str
    stamp: Stamp | None = None

    def read(self, item: Item) -> bytes:
        """Return all bytes of an item."""
        if not isinstance(item.place, int):
            raise TypeError("an item of this reader has an offset")
        with opened(self.data, self.stamp) as descriptor:
            return read_at(descriptor, item.place, item.bytes)

    def describe(self, item: Item) -> str:
        """Return the archive's path and the member's."""
        return f"{self.archive}/{item.key}"
