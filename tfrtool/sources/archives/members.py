"""The members of an archive: names made keys, links followed, repeats sorted out, parts read."""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tfrtool.errors import SourceError, printable
from tfrtool.sources.folders.listing import Entry, Listing, is_clutter, is_image_name, size_problem
from tfrtool.sources.items import Item, ItemReader, LeftOut
from tfrtool.storage.limits import unpacked_limit
from tfrtool.storage.opening import open_descriptor

UNPACK_HINT = "if you trust it, unpack it yourself, and write from the folder"

_MOST_LINKS = 40
"""Links that are followed to one file, as in Linux' path lookup."""

_LOST = "a link to no file in the archive (there, links to folders are not followed)"

Stamp = tuple[int, int]
"""Size and time of a file, which tell that it is still the one that was listed."""


def stamp_of(descriptor: int) -> Stamp:
    """Return the stamp of an open file."""
    status = os.fstat(descriptor)
    return status.st_size, status.st_mtime_ns


@contextmanager
def opened(path: str, stamp: Stamp | None = None) -> Iterator[int]:
    """Give a descriptor of a file: one for each use, so that threads share no position."""
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
    while len(data) < size and (more := os.read(descriptor, size - len(data))):
        data += more
    return data


@dataclass(frozen=True, slots=True)
class PartReader:
    """Reads items whose bytes lie as they are in one file; their places are the offsets."""

    archive: str  # for errors
    data: str  # the file with the bytes: the archive itself, or what was unpacked of it
    stamp: Stamp | None = None  # that file's, where somebody else may change it

    def read(self, item: Item) -> bytes:
        """Return all bytes of an item."""
        with opened(self.data, self.stamp) as descriptor:
            return read_at(descriptor, item.place, item.bytes)

    def describe(self, item: Item) -> str:
        """Return the archive's path and the member's."""
        return f"{self.archive}/{item.key}"


class Members:
    """Collects the members of an archive, in its order; the last of one name counts."""

    def __init__(self) -> None:
        """Start without members."""
        self._files: dict[str, Entry] = {}
        self._links: dict[str, str] = {}
        self._others: list[Entry | LeftOut] = []

    def add(self, name: str, size: int, place: int) -> None:
        """Add a file of ``size`` bytes, which its place tells a reader how to find."""
        if key := self._free_key(name):
            self._files[key] = Entry(key, size, place)

    def add_link(self, name: str, target: str, *, from_root: bool) -> None:
        """Add a link to a name in the archive, seen from its root or from the link's folder."""
        if key := self._free_key(name):
            folder = "" if from_root else posixpath.dirname(key)
            joined = posixpath.normpath(posixpath.join(folder, target))
            outside = joined.startswith(("/", "../")) and not from_root
            # An empty target is that of no file.
            self._links[key] = "" if outside else _key(joined) or ""

    def add_problem(self, name: str, problem: str) -> None:
        """Add a file that can't be read."""
        if key := self._free_key(name):
            self._reject(key, problem)

    @staticmethod
    def wants(name: str) -> bool:
        """Return whether a file of this name is neither hidden nor the system's own."""
        parts = [part for part in name.split("/") if part not in ("", ".", "..")]
        return bool(parts) and not any(map(is_clutter, parts))

    def listing(self, archive: str, size: int, reader: ItemReader) -> Listing:
        """Return all members of an archive of ``size`` bytes; a bomb is a SourceError."""
        resolved = [self._resolve(key) for key in self._links]
        files = [*self._files.values(), *resolved]
        images = [entry for entry in files if is_image_name(entry.key)]
        total = sum(entry.bytes for entry in images if not size_problem(entry.bytes))
        if total > unpacked_limit(size):
            largest = max(images, key=lambda entry: entry.bytes)
            raise SourceError(
                f"unpacks to images of {total:,} bytes, {printable(largest.key)} alone to "
                f"{largest.bytes:,}",
                path=archive,
                expected=f"at most {unpacked_limit(size):,} from {size:,} bytes",
                hint=UNPACK_HINT,
            )
        return Listing(entries=[*files, *self._others], reader=reader)

    def _free_key(self, name: str) -> str | None:
        """Return the key for a name; None for clutter and where there is nothing to add."""
        if not self.wants(name):
            return None
        key = _key(name)
        if key is None:
            self._reject(name, "its name leads out of the archive")
        elif key in self._files or key in self._links:
            self._files.pop(key, None)
            self._links.pop(key, None)
            reason = "replaced by a later member of the same name"
            self._others.append(LeftOut(key=key, reason=reason))
        return key

    def _reject(self, key: str, problem: str) -> None:
        self._others.append(Entry(key, problem=problem if is_image_name(key) else None))

    def _resolve(self, link: str) -> Entry:
        key = link
        for _ in range(_MOST_LINKS):
            key = self._links.get(key, "")
            if file := self._files.get(key):
                return file._replace(key=link)
        return Entry(link, problem=_LOST)


def _key(name: str) -> str | None:
    """Return a member's path from the archive's root; None if it leads out of it."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    return None if ".." in parts else "/".join(parts)
