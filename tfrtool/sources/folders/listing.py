"""What a tree of files holds, before anything is said of its meaning, and how a file is read."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import NamedTuple

from tfrtool.sources.items import Item, ItemReader, LeftOut
from tfrtool.storage.limits import MAX_IMAGE_BYTES
from tfrtool.storage.opening import open_descriptor

IMAGE_SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff"}
    | {".avif", ".pgm", ".ppm"}
)
"""Names that promise an image, in lower case. What the bytes are is for the audit to tell."""

_CLUTTER = frozenset({"thumbs.db", "ehthumbs.db", "desktop.ini", "__macosx", "@eadir"})
"""What Windows, macOS and Synology's file servers leave in folders, in lower case."""

SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val"), "validation"),
    **{"dev": "dev", "eval": "eval"},
    **dict.fromkeys(("test", "testing"), "test"),
}
"""Names of splits in common use, in lower case, and TFDS' own for what means the same."""

SPLIT_ORDER = tuple(dict.fromkeys(SPLIT_NAMES.values()))
"""The order that splits are given in."""


class Entry(NamedTuple):
    """A file of a tree, a link to one, or what should have been one."""

    key: str  # its path below the tree's root, with "/" between folders
    bytes: int = 0
    place: int | None = 0  # where its bytes are, for the tree's reader; None if they are not kept
    problem: str | None = None  # why it can't be read


class Listing(NamedTuple):
    """All files of a tree but clutter, in no particular order.

    Keys of files without a problem are unique; what is left out isn't looked at any further.
    """

    entries: list[Entry | LeftOut]
    reader: ItemReader  # of those without a problem


@dataclass(frozen=True, slots=True)
class FolderReader:
    """Reads items whose keys are paths below a folder."""

    root: str
    dropped: str = ""  # folders that keys start with, with a slash, and that aren't there

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
        # It was changed, or comes from a file system that gives it out in pieces.
        found = bytearray(data)
        while max(size, len(found)) <= MAX_IMAGE_BYTES and (part := os.read(descriptor, 1 << 20)):
            found += part
        if max(size, len(found)) > MAX_IMAGE_BYTES:
            raise OSError(errno.EFBIG, f"it has more than {MAX_IMAGE_BYTES:,} bytes", path)
        return bytes(found)
    finally:
        os.close(descriptor)


def is_clutter(name: str) -> bool:
    """Return whether a file or folder of this name is hidden, or only the system's own."""
    return name.startswith(".") or name.lower() in _CLUTTER


def is_image_name(key: str) -> bool:
    """Return whether the name of a file promises an image."""
    dot = key.rfind(".")
    return dot >= 0 and key[dot:].lower() in IMAGE_SUFFIXES


def size_problem(size: int) -> str | None:
    """Return why a file of this size is read for no image; None where it can be one."""
    if size <= MAX_IMAGE_BYTES:
        return None
    return f"it has {size:,} bytes, and an image at most {MAX_IMAGE_BYTES:,}"
