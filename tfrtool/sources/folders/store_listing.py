"""What a tree of objects in a store holds, and how one is read."""

import errno
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, islice

from tfrtool.errors import SourceError, os_errors_as
from tfrtool.sources.folders.listing import Entry, Listing, Spread, is_clutter, size_problem
from tfrtool.sources.items import Item, UnfitError
from tfrtool.storage.limits import MAX_OBJECTS
from tfrtool.storage.remote_path import MAGIC, RemotePath, remote_path
from tfrtool.storage.stores import Store, store_of

_PAGE = 1000
"""Objects that a bucket names in an answer."""

_FOLDERS = 16
"""Folders from which on no more are looked for: they are listed at once."""

_TASKS = 256
_SENT = 50_000
"""Objects that a task names at most; what follows them is listed here."""

_Found = tuple[str, int | None]
"""A key below a bucket, and its size; None for a folder."""

_Begun = tuple[list[tuple[str, int]], bool]
"""The first objects of a folder, and whether these are all."""

_NOTHING = list[tuple[str, int]]()


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


def list_store(url: str, spread: Spread | None = None) -> Listing | None:
    """List the objects below a URL, or those that a pattern matches; None if it is an object.

    Folders of a bucket are listed in threads, or, with ``spread``, elsewhere.
    """
    path = remote_path(url)
    with os_errors_as(SourceError, url):
        if path.is_file():
            return None
        base, found = path, _below(path, spread)
        if MAGIC.search(url):
            base = path.fixed()
            if len(path.parts) - len(base.parts) == 1 and "**" not in path.parts:
                base = base.parent  # whose name says the class
            matches = path.matching(below=True)
            found = ((str(one.relative_to(base)), one.known().size) for one in matches)
        entries = _entries(found, url)
        first = next(entries, None)
    if first is None:
        what = "no such object or prefix" if base is path else "no objects match"
        raise SourceError(what, path=url)
    return Listing(chain((first,), entries), StoreReader(str(base)))


def _entries(found: Iterator[tuple[str, int]], url: str) -> Iterator[Entry]:
    with os_errors_as(SourceError, url):
        for key, size in found:
            if not any(map(is_clutter, key.split("/"))):
                yield Entry(key, size, problem=size_problem(size))


def _below(path: RemotePath, spread: Spread | None = None) -> Iterator[tuple[str, int]]:
    start = len(path.key) + 1 if path.key else 0
    for key, size in _listed(path.store, path.key, spread):
        if key[start:]:
            yield key[start:], size


def _listed(store: Store, top: str, spread: Spread | None) -> Iterator[tuple[str, int]]:
    """Yield all objects in a folder, in the order of their keys, from many listings at once."""
    found: list[_Found] = [(top, None)]
    looked_into, folders = set[str](), [top]
    while store.lists and store.writes and 0 < len(folders) < _FOLDERS:
        if not (new := [key for key in folders if key not in looked_into]):
            break
        looked_into.update(new)
        inside = dict(zip(new, store.ahead(partial(_inside, store), new), strict=True))
        found = [
            one
            for key, size in found
            for one in (inside[key] if size is None and key in inside else [(key, size)])
        ]
        folders = [key for key, size in found if size is None]
    lists: Iterator[_Begun] = iter(())
    if len(folders) > 1:
        step = 1 + len(folders) // _TASKS
        tasks = [folders[at : at + step] for at in range(0, len(folders), step)]
        map_in_order = store.ahead if spread is None else spread
        lists = chain.from_iterable(map_in_order(partial(_begun, store.url), tasks))
    for key, size in found:
        if size is not None:
            yield key, size
            continue
        begun, whole = next(lists, (_NOTHING, False))
        yield from begun
        if not whole:
            yield from _rest(store, key, begun[-1:])


def _rest(store: Store, folder: str, last: list[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    for key, one in store.list(folder, last[0][0] if last else None):
        if (key, one.size) not in last:  # the mark of a folder comes behind the folder's name
            yield key, one.size


def _inside(store: Store, folder: str) -> list[_Found]:
    """Return what is in a folder, sorted; the folder itself if it seems to be all objects."""
    start, page = len(folder) + 1 if folder else 0, [*islice(store.list(folder), _PAGE)]
    if len(page) < _PAGE:
        return [(key, one.size) for key, one in page]
    if not any("/" in key[start:] for key, _ in page):
        return [(folder, None)]
    try:
        files, folders = store.level(folder)
    except OSError as error:
        if error.errno != errno.EFBIG:
            raise
        return [(folder, None)]
    found: list[_Found] = [(key, one.size) for key, one in files]
    return sorted([*found, *((key, None) for key in folders)], key=_place)


def _place(found: _Found) -> str:
    return found[0] if found[1] is not None else f"{found[0]}/"


def _begun(url: str, folders: Sequence[str]) -> list[_Begun]:
    store, left, told = store_of(url), _SENT, list[_Begun]()
    for folder in folders:
        begun = [(key, one.size) for key, one in islice(store.list(folder), left + 1)]
        told.append((begun[:left], len(begun) <= left))
        left -= len(told[-1][0])
    return told


class StoreFiles:
    """The files that a table in a store names: objects below the table's own folder."""

    def __init__(self, table: RemotePath) -> None:
        """List what is below the folder of a table when that is first asked for."""
        self._folder = table.parent
        self.reader = StoreReader(str(table.parent))

    def find(self, name: str, _row: int) -> tuple[str, int]:
        """Return the key of the object that a row names, and its size; else an `UnfitError`."""
        for key in (name, posixpath.normpath(name.replace("\\", "/"))):
            if key in self._sizes:
                return key, self._sizes[key]
        raise UnfitError("no such file below the table's folder")

    @cached_property
    def _sizes(self) -> dict[str, int]:
        with os_errors_as(SourceError, self._folder):
            sizes = dict(islice(_below(self._folder), MAX_OBJECTS + 1))
        if len(sizes) > MAX_OBJECTS:
            what = f"more than {MAX_OBJECTS:,} objects are below it"
            raise SourceError(what, path=self._folder)
        return sizes
