"""What a tree of files holds, before anything is said of its meaning."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

from tfrtool.sources.items import ItemReader, LeftOut
from tfrtool.storage.limits import MAX_IMAGE_BYTES

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
    """A file of a tree, a link to one, or what should have been one.

    Attributes:
        key: its path below the tree's root, with ``/`` between folders.
        bytes: its size.
        place: where its bytes are, for the tree's reader; None where they are not kept.
        problem: why it can't be read; None where it can.
    """

    key: str
    bytes: int = 0
    place: int | None = 0
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """All files of a tree but clutter, in no particular order.

    Attributes:
        entries: the files, and what isn't looked at any further. Keys of files without a problem
            are unique.
        reader: reads those without a problem.
    """

    entries: list[Entry | LeftOut]
    reader: ItemReader


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


def common_start(one: list[str], other: list[str]) -> list[str]:
    """Return the folders that two paths start with."""
    pairs = zip(one, other, strict=False)
    return [first for first, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]
