"""The members of an archive: names made keys, links followed, repeats sorted out, parts read."""

import errno
import os
import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tfrtool.errors import SourceError
from tfrtool.sources.folders.listing import Entry, Listing, is_clutter, is_image_name, size_problem
from tfrtool.sources.items import Item, ItemReader
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

    def add(self, name: str, size: int = 0, place: int = 0, problem: str | None = None) -> str:
        """Add a file of ``size`` bytes, which its place tells a reader how to find.

        Returns its key; "" for what is hidden or the system's own.
        """
        parts = [part for part in name.split("/") if part not in ("", ".")]
        inside = [part for part in parts if part != ".."] if ".." in parts else parts
        if not inside or any(map(is_clutter, inside)):
            return ""
        key = "/".join(parts)
        if inside is not parts:
            key, problem = name, "its name leads out of the archive"
        self._files[key] = Entry(key, size, place, problem)
        self._links.pop(key, None)
        return key

    def add_link(self, name: str, target: str, *, from_root: bool) -> None:
        """Add a link to a name in the archive, seen from its root or from the link's folder."""
        if key := self.add(name):
            path = posixpath.join("" if from_root else posixpath.dirname(key), target)
            self._links[key] = posixpath.normpath(path.lstrip("/") if from_root else path)

    def listing(self, archive: str, size: int, reader: ItemReader) -> Listing:
        """Return all members of an archive of ``size`` bytes; a bomb is a SourceError."""
        entries = [
            file if file.problem is None and key not in self._links else self._resolve(key)
            for key, file in self._files.items()
        ]
        images = (entry for entry in entries if is_image_name(entry.key))
        total = sum(entry.bytes for entry in images if not size_problem(entry.bytes))
        if total > (most := unpacked_limit(size)):
            what = f"unpacks to images of {total:,} bytes"
            expected = f"at most {most:,} from {size:,} bytes"
            raise SourceError(what, path=archive, expected=expected, hint=UNPACK_HINT)
        return Listing(entries=entries, reader=reader)

    def _resolve(self, key: str) -> Entry:
        target = key
        for _ in range(_MOST_LINKS):
            if target not in self._links:
                break
            target = self._links[target]
        file = self._files.get(target)
        if file is None or target in self._links:
            return Entry(key, problem=_LOST)
        # What is no image by its name need not be read.
        return file._replace(key=key) if file.problem is None or is_image_name(key) else Entry(key)
