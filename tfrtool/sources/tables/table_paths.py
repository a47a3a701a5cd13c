"""The paths of a table: what they are relative to, and which files they mean."""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
import stat
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import unquote

from tfrtool.sources.folders.listing import FolderReader
from tfrtool.sources.tables.table_rows import Row
from tfrtool.storage.limits import MAX_PATH_LENGTH

_SCHEME = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://", re.IGNORECASE)
_MOST_FOLDERS = 32
"""Leading folders that are tried without; tables are moved with their images, not deep trees."""


class RefusedRowError(Exception):
    """A row can't be an item; says why."""


class OutsideError(Exception):
    """A file is not where a table's files may be; says where it is."""


class Bounds:
    """The folders that a table may name files in; links don't lead out of them either.

    A table comes with its images, and whoever wrote it may not know whose machine it is read on.
    """

    def __init__(self, folder: str, root: str | None) -> None:
        """Allow the table's own folder, and another one that the user gave; both are absolute."""
        self._bounds = tuple(_real_folder(place) for place in (folder, root) if place is not None)
        self._outside: dict[str, bool] = {}  # by folder: there are fewer than files

    def look(self, path: str) -> os.stat_result:
        """Return the status of a file; an OutsideError if it is really out of bounds."""
        folder = path[: max(path.rfind("/"), path.rfind(os.sep)) + 1]
        outside = self._outside.get(folder)
        if outside is None:
            outside = not _real_folder(folder).startswith(self._bounds)
            self._outside[folder] = outside
        if outside:
            raise OutsideError(os.path.realpath(path))
        status = os.lstat(path)  # a Path costs twice as much
        if not stat.S_ISLNK(status.st_mode):
            return status
        if not (real := os.path.realpath(path)).startswith(self._bounds):
            raise OutsideError(real)
        return os.stat(path)  # noqa: PTH116


def _real_folder(folder: str) -> str:
    return os.path.join(os.path.realpath(folder), "")  # noqa: PTH118 - with a slash at its end


def find_reader(
    read: Callable[[], Iterable[Row]], folder: str, root: str | None = None
) -> FolderReader:
    """Find out what the relative paths of a table are relative to: its folder, or else ``root``.

    If neither, it is the folder without the folders that all paths start with. The table is read
    from its start twice at most, and seldom to its end.
    """
    beside, other = FolderReader(folder), FolderReader(root or folder)
    from_root = False
    common: str | None = None
    for name in _relative_paths(read()):
        if _is_there(name, beside):
            return beside
        from_root = from_root or _is_there(name, other)
        common = name if common is None else os.path.commonprefix([common, name])  # noqa: RUF071
    if from_root:
        return other
    common = common or ""
    ends = [end for end, character in enumerate(common, start=1) if character == "/"]
    moved = [FolderReader(folder, common[:end]) for end in ends[:_MOST_FOLDERS]]
    found = (
        reader for name in _relative_paths(read()) for reader in moved if _is_there(name, reader)
    )
    return next(found, beside)


def _relative_paths(rows: Iterable[Row]) -> Iterator[str]:
    for row in rows:
        with contextlib.suppress(RefusedRowError):
            if not posixpath.isabs(name := plain_path(row.path)):
                yield name


def _is_there(name: str, reader: FolderReader) -> bool:
    return any(os.path.isfile(reader.path_of(key)) for key in spellings(name, reader))  # noqa: PTH113


def spellings(name: str, reader: FolderReader) -> Iterator[str]:
    """Yield the keys that a path may mean."""
    if posixpath.isabs(name) and not reader.dropped:
        # The same file has the same key, however the table is written and wherever it lies.
        yield name.removeprefix(reader.root.rstrip("/") + "/")
        return
    yield name
    if "\\" in name and os.sep == "/":  # the table was made on Windows
        yield posixpath.normpath(name.replace("\\", "/"))


def plain_path(path: str) -> str:
    """Return a path of a table in its simplest form; that of a local file may be a URI."""
    if not path:
        raise RefusedRowError("no path")
    if len(path) > MAX_PATH_LENGTH:
        raise RefusedRowError(f"its path is longer than {MAX_PATH_LENGTH:,} characters")
    if match := _SCHEME.match(path):
        if (scheme := match["scheme"].lower()) != "file":
            raise RefusedRowError(f"{scheme}:// can't be read; download it first")
        host, slash, below = path[match.end() :].partition("/")
        if host not in ("", "localhost") or not slash:
            raise RefusedRowError("not the URI of a local file")
        path = "/" + unquote(below, errors="surrogateescape")
    if any(unicodedata.category(c) in ("Cc", "Cs") for c in path):
        raise RefusedRowError("its path can't be printed")
    path = posixpath.normpath(path)
    return "/" + path.lstrip("/") if path.startswith("//") else path
