"""Objects below a URL of a store."""

from collections.abc import Iterator
from functools import cached_property
from itertools import chain, islice

from tfrtool.errors import SourceError, os_errors_as
from tfrtool.sources.folders.listing import Entry, FolderReader, Listing, is_clutter, size_problem
from tfrtool.sources.items import UnfitError
from tfrtool.sources.tables.table_files import spellings
from tfrtool.storage.limits import MAX_OBJECTS
from tfrtool.storage.remote_path import MAGIC, RemotePath, remote_path

_MOST_IMAGES = 1000 * MAX_OBJECTS
"""Objects below one URL that `write` lists: they are kept on the disk, and take 14 hours."""


def list_store(url: str) -> Listing | None:
    """List the objects below a URL, or those that match a pattern; None if it is one object."""
    path = remote_path(url)
    with os_errors_as(SourceError, url):
        if path.is_file():
            return None
        base, objects = path, _list_below(path)
        if MAGIC.search(url):
            base = path.fixed()
            if len(path.parts) - len(base.parts) == 1 and "**" not in path.parts:
                base = base.parent  # whose name is the class
            matches = path.matching(below=True)
            objects = ((str(each.relative_to(base)), each.known().size) for each in matches)
        entries = _entries(objects, url)
        first = next(entries, None)
    if first is None:
        what = "no such object or prefix" if base is path else "no objects match"
        raise SourceError(what, path=url)
    return Listing(chain((first,), entries), FolderReader((str(base),)))


def _entries(objects: Iterator[tuple[str, int]], url: str) -> Iterator[Entry]:
    with os_errors_as(SourceError, url):
        for key, size in objects:
            if not any(map(is_clutter, key.split("/"))):
                yield Entry(key, size, problem=size_problem(size))


def _list_below(path: RemotePath) -> Iterator[tuple[str, int]]:
    """Yield the objects in a folder and in those below it: keys relative to it, and sizes."""
    start = len(path.key) + 1 if path.key else 0
    for key, status in path.store.list(path.key, most=_MOST_IMAGES):
        if key[start:]:
            yield key[start:], status.size


class StoreFiles:
    """The files that a table in a store names: objects below the table's own folder."""

    def __init__(self, table: RemotePath) -> None:
        """List what is below the folder of a table when that is first asked for."""
        self._folder = table.parent
        self.reader = FolderReader((str(table.parent),))

    def find(self, name: str, _row: int) -> tuple[str, int, int]:
        """Return the key of the object that a row names, its size and 0; else an `UnfitError`."""
        for key in spellings(name):
            if key in self._sizes:
                return key, self._sizes[key], 0
        raise UnfitError("no such file below the table's folder")

    @cached_property
    def _sizes(self) -> dict[str, int]:
        with os_errors_as(SourceError, self._folder):
            sizes = dict(islice(_list_below(self._folder), MAX_OBJECTS + 1))
        if len(sizes) > MAX_OBJECTS:
            what = f"more than {MAX_OBJECTS:,} objects are below it"
            raise SourceError(what, path=self._folder)
        return sizes
