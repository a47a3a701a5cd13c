"""The members of an archive: names made keys, links followed, repeats sorted out, parts read."""

import errno
import os
import posixpath
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO

from tfrtool.errors import SourceError
from tfrtool.records.count import reader_at
from tfrtool.sources.folders.listing import Entry, Listing, is_clutter, is_image_name, size_problem
from tfrtool.sources.items import Item, ItemReader
from tfrtool.storage.limits import unpacked_limit
from tfrtool.storage.opening import open_descriptor, open_regular, stamp_of
from tfrtool.storage.remote_path import is_url
from tfrtool.storage.scratch.external_sort import ExternalSort

UNPACK_HINT = "if you trust it, unpack it yourself and pass the folder as SOURCE"

_MOST_LINKS = 40
"""Links that are followed to one file, as in Linux' path lookup."""

_LOST = "broken link (links to folders inside an archive are not followed)"

Stamp = tuple[int, int]
"""Size and time of a file, which tell that it is still the one that was listed."""


@contextmanager
def opened(path: str, stamp: Stamp | None = None) -> Iterator[int | BinaryIO]:
    """Give a descriptor of a file: one for each use, so that threads share no position.

    An object of a store is opened once for all, and read without a position.
    """
    if is_url(path):
        file = _open_object(path, os.getpid())
        if stamp is not None and stamp_of(file) != stamp:
            raise OSError(errno.ESTALE, "it was changed after it was listed", path)
        yield file
        return
    descriptor = open_descriptor(path)
    try:
        status = os.fstat(descriptor)
        if stamp is not None and (status.st_size, status.st_mtime_ns) != stamp:
            raise OSError(errno.ESTALE, "it was changed after it was listed", path)
        yield descriptor
    finally:
        os.close(descriptor)


@lru_cache(maxsize=8)
def _open_object(url: str, _process: int) -> BinaryIO:
    return open_regular(url)


def read_at(descriptor: int | BinaryIO, offset: int, size: int) -> bytes:
    """Return up to ``size`` bytes from an offset on; fewer only where the file ends."""
    if not isinstance(descriptor, int):
        return reader_at(descriptor)(size, offset)
    os.lseek(descriptor, offset, os.SEEK_SET)
    data = os.read(descriptor, size)
    while len(data) < size and (more := os.read(descriptor, size - len(data))):
        data += more
    return data


@dataclass(frozen=True, slots=True)
class PartReader:
    """Reads items whose bytes lie as they are in one file; their places are the offsets."""

    archive: str  # for errors
    data: str | Path  # the file with the bytes: the archive itself; or what was unpacked, a path
    stamp: Stamp | None = None  # that file's, where somebody else may change it

    def read(self, item: Item) -> bytes:
        """Return all bytes of an item."""
        with opened(str(self.data), self.stamp) as descriptor:
            return read_at(descriptor, item.place, item.bytes)

    def describe(self, item: Item) -> str:
        """Return the archive's path and the member's."""
        return f"{self.archive}/{item.key}"


class Members:
    """Collects the members of an archive, in its order; the last of one name counts."""

    def __init__(self, scratch: Path | None = None) -> None:
        """Start without members; many are kept in a scratch folder."""
        self._files = ExternalSort[tuple[str, int, int, int, str | None]](scratch)
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
            key, problem = name, "path leads outside the archive"
        self._files.add((key, len(self._files), size, place, problem))
        self._links.pop(key, None)
        return key

    def add_link(self, name: str, target: str, *, from_root: bool) -> None:
        """Add a link to a name in the archive, seen from its root or from the link's folder."""
        if key := self.add(name):
            path = posixpath.join("" if from_root else posixpath.dirname(key), target)
            self._links[key] = posixpath.normpath(path.lstrip("/") if from_root else path)

    def listing(self, archive: str, size: int, reader: ItemReader) -> Listing:
        """Return all members of an archive of ``size`` bytes; a bomb is a SourceError."""
        self._files.settle()
        targets = {key: self._target(key) for key in self._links}
        wanted = {target for target in targets.values() if target is not None}
        linked = {file.key: file for file in self._members() if file.key in wanted}
        found = {key: linked.get(target or "") for key, target in targets.items()}
        total, most = 0, unpacked_limit(size)
        for entry in self._entries(found):
            if is_image_name(entry.key) and not size_problem(entry.bytes):
                total += entry.bytes
        if total > most:
            what = f"unpacks to {total:,} bytes of images"
            expected = f"at most {most:,} for an archive of {size:,} bytes"
            raise SourceError(what, path=archive, expected=expected, hint=UNPACK_HINT)
        return Listing(entries=self._entries(found), reader=reader)

    def _members(self) -> Iterator[Entry]:
        """Yield the last member of each name."""
        for key, rows in groupby(self._files, key=itemgetter(0)):
            *_, (_, _, size, place, problem) = rows
            yield Entry(key, size, place, problem)

    def _entries(self, found: Mapping[str, Entry | None]) -> Iterator[Entry]:
        """Yield what is listed: for links the files that they lead to, if any."""
        for file in self._members():
            if (target := found.get(file.key, file)) is None:
                yield Entry(file.key, problem=_LOST)
            elif target.problem is None or is_image_name(file.key):
                yield target._replace(key=file.key)
            else:
                yield Entry(file.key)  # what is no image by its name need not be read

    def _target(self, key: str) -> str | None:
        """Return the name that a link leads to; None if there is no end to it."""
        for _ in range(_MOST_LINKS):
            if key not in self._links:
                return key
            key = self._links[key]
        return None if key in self._links else key
