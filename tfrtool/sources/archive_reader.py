"""Reading a part of a file, for items that lie one behind the other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tfrtool.errors import SourceError
from tfrtool.sources.items import Item
from tfrtool.storage.opening import open_descriptor

__all__ = ["PartReader", "opened", "read_at"]


@contextmanager
def opened(path: str) -> Iterator[int]:
    """Give a descriptor of a file: one for each use, so that threads share no position."""
    descriptor = open_descriptor(path)
    try:
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
    """

    archive: str
    data: str

    def read(self, item: Item) -> bytes:
        """Return all bytes of an item."""
        if not isinstance(item.place, int):
            raise TypeError("an item of this reader has an offset")
        with opened(self.data) as descriptor:
            data = read_at(descriptor, item.place, item.bytes)
        if len(data) != item.bytes:
            raise SourceError("the archive was changed while it was read", path=self.describe(item))
        return data

    def describe(self, item: Item) -> str:
        """Return the archive's path and the member's."""
        return f"{self.archive}/{item.key}"
