"""Reading items that are files."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

from tfrtool.sources.items import Item
from tfrtool.storage.limits import MAX_IMAGE_BYTES
from tfrtool.storage.opening import open_descriptor


@dataclass(frozen=True, slots=True)
class FolderReader:
    """Reads items whose keys are paths below a folder.

    Attributes:
        root: the folder.
        dropped: whole folders, with a slash at their end, that keys start with and that aren't
            there below the root.
    """

    root: str
    dropped: str = ""

    def read(self, item: Item) -> bytes:
        """Return all bytes of an item's file."""
        return read_file(self.path_of(item.key), item.bytes)

    def describe(self, item: Item) -> str:
        """Return the path of an item's file."""
        return self.path_of(item.key)

    def path_of(self, key: str) -> str:
        """Return the path of the file that a key means."""
        # A Path costs as much as reading.
        return os.path.join(self.root, key.removeprefix(self.dropped))  # noqa: PTH118


def read_file(path: str, size: int) -> bytes:
    """Return all bytes of a file that is expected to have ``size`` of them.

    A tenth of what a buffered file object costs for a small file. An OSError, too, if it is no
    regular file, or larger than any image.
    """
    descriptor = open_descriptor(path)
    try:
        data = os.read(descriptor, size + 1) if size <= MAX_IMAGE_BYTES else b""
        if len(data) == size:
            return data
        parts = [data]  # it was changed, or comes from a file system that gives it out in pieces
        found = len(data) if size <= MAX_IMAGE_BYTES else size
        while found <= MAX_IMAGE_BYTES and (part := os.read(descriptor, 1024 * 1024)):
            parts.append(part)
            found += len(part)
        if found > MAX_IMAGE_BYTES:
            raise OSError(errno.EFBIG, f"it has more than {MAX_IMAGE_BYTES:,} bytes", path)
        return b"".join(parts)
    finally:
        os.close(descriptor)
