"""What a tree of objects in a store holds, and how one is read."""

import errno
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice

from tfrtool.errors import SourceError, os_errors_as
from tfrtool.sources.folders.listing import Entry, Listing, is_clutter, size_problem
from tfrtool.sources.items import Item
from tfrtool.storage.limits import MAX_OBJECTS
from tfrtool.storage.remote_path import MAGIC, RemotePath, remote_path


@dataclass(frozen=True, slots=True)
class StoreReader:
    """Reads items whose keys are those of objects below a URL."""

    url: str

    def read(self, item: Item) -> bytes:
        """Return all bytes of an item's object."""
        path = remote_path(self.describe(item))
        data, status = path.store.get(path.key, 0, item.bytes + 1)
        if status.size != item.bytes:
            raise OSError(errno.ESTALE, "it was changed after it was listed", str(path))
        return data

    def describe(self, item: Item) -> str:
        """Return the URL of an item's object."""
        return f"{self.url}/{item.key}"


def list_store(url: str) -> Listing | None:
    """List the objects below a URL, or those that a pattern matches; None if it is an object."""
    path = remote_path(url)
    with os_errors_as(SourceError, url):
        if path.is_file():
            return None
        base, found = path, _below(path)
        if MAGIC.search(url):
            base = path.fixed()
            if len(path.parts) - len(base.parts) == 1 and "**" not in path.parts:
                base = base.parent  # whose name says the class
            matches = path.matching(below=True)
            found = ((str(one.relative_to(base)), one.known().size) for one in matches)
        entries = _entries(found, url)
        first = next(entries, None)
    if first is None:
        what = "no such object, and none is below it" if base is path else "no file matches"
        raise SourceError(what, path=url)
    return Listing(chain((first,), entries), StoreReader(str(base)))


def _entries(found: Iterator[tuple[str, int]], url: str) -> Iterator[Entry]:
    with os_errors_as(SourceError, url):
        for key, size in found:
            if not any(map(is_clutter, key.split("/"))):
                yield Entry(key, size, problem=size_problem(size))


def _below(path: RemotePath) -> Iterator[tuple[str, int]]:
    start = len(path.key) + 1 if path.key else 0
    return ((key[start:], one.size) for key, one in path.store.list(path.key) if key[start:])


class StoreFiles:
    """The files that a table in a store names: objects below the table's own folder."""

    def __init__(self, table: RemotePath) -> None:
        """List what is below the folder of a table when that is first asked for."""
        self._folder = table.parent
        self.reader = StoreReader(str(table.parent))

    def find(self, name: str, _row: int) -> tuple[str, int]:
        """Return the key of the object that a row names, and its size; else a `LookupError`."""
        for key in (name, posixpath.normpath(name.replace("\\", "/"))):
            if key in self._sizes:
                size = self._sizes[key]
                if problem := size_problem(size):
                    raise LookupError(problem)
                return key, size
        raise LookupError("no such file below the table's folder")

    @cached_property
    def _sizes(self) -> dict[str, int]:
        with os_errors_as(SourceError, self._folder):
            sizes = dict(islice(_below(self._folder), MAX_OBJECTS + 1))
        if len(sizes) > MAX_OBJECTS:
            what = f"more than {MAX_OBJECTS:,} objects are below it"
            raise SourceError(what, path=self._folder)
        return sizes
