"""Tables of images: a path, a label and perhaps a split in each row."""

import contextlib
import errno
import os
import posixpath
import re
import stat
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import unquote

from tfrtool.errors import SourceError, UsageError, os_reason, printable
from tfrtool.records.shard_sets import check_split_name
from tfrtool.sources.folders.listing import SPLIT_NAMES, FolderReader
from tfrtool.sources.folders.store_listing import StoreFiles
from tfrtool.sources.item_rows import FoundItem, ItemRows
from tfrtool.sources.items import Source, UnfitError
from tfrtool.sources.source_options import SourceOptions
from tfrtool.sources.tables.table_columns import (
    TEXT_SHOWN,
)
from tfrtool.sources.tables.table_rows import read_rows
from tfrtool.sources.tables.table_values import ValueColumns
from tfrtool.storage.limits import MAX_PATH_LENGTH
from tfrtool.storage.remote_path import RemotePath

_NO_SUCH_FILE = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP, errno.ENAMETOOLONG)
"""What the system says of a path that may be wrong; anything else means that a disk fails."""

_MOST_COLUMNS = 1000
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
_MOST_FOLDERS = 32
"""Leading folders that are tried without; tables are moved with their images, not deep trees."""


_USUAL = SourceOptions()
_ALONE: Mapping[str, Path] = {}

_ReadRows = Callable[[], Iterator[FoundItem]]


def read_table(
    table: Path,
    root: Path | None = None,
    scratch: Path | None = None,
    options: SourceOptions = _USUAL,
    tables: Mapping[str, Path] = _ALONE,
) -> Source:
    """List the images of a table in CSV, JSON Lines or Parquet; SourceError if none can be used.

    The columns are found by their names. CSV of two or three columns needs no header if the first
    row names an image file: a path, a label and perhaps a split, or AutoML's split, path and label.

    Paths may be absolute, or ``file://`` URIs. Others are relative to the table's folder; if not
    one row's file is there, to ``root``; if not there either, to the table's folder
    without the folders that all paths start with, so that a table which was moved along with its
    images is read. Keys are the paths as they are written. All files lie below the table's folder
    or below ``root``, wherever links lead.

    Where a table's folder has further folders with ``tables`` of their own, these are read instead,
    given by the folders' names, which are those of splits.
    """
    rows = ItemRows(table, options, scratch, tabular=True)
    read = partial(_read, tables or {"": table}, options, rows.columns)
    if isinstance(table, RemotePath):
        if root is not None:
            what = "--root cannot be used with a table in an object store"
            raise UsageError(what, path=table)
        files: _Files | StoreFiles = StoreFiles(table)
    else:
        folder = os.path.abspath(table.parent)  # noqa: PTH100 - links stay
        other = None if root is None else os.path.abspath(root)  # noqa: PTH100
        files = _Files(table, folder, other, read)
    others: dict[str, None] = {}
    last: Sequence[str] | None = None
    for row in read():
        if row.others is not last and len(others) < _MOST_COLUMNS:
            others.update(dict.fromkeys(last := row.others))
        name = row.key[:MAX_PATH_LENGTH] or f"row {row.place}"
        try:
            if row.problem is not None:
                raise UnfitError(row.problem)
            name = _plain_path(row.key)
            key, size = files.find(name, row.place)
            split = _split_name(row.split)
        except UnfitError as error:
            rows.refuse(name, str(error), row.place)
        else:
            told = (row.cells, split, row.group, row.names, row.typed)
            rows.add(FoundItem(key, row.label, size, row.place, None, *told))
    return rows.source(files.reader, others=others)


class _Files:
    """The files that a table names; links don't lead out of its folder or the root either.

    A table comes with its images, and whoever wrote it may not know whose machine it is read on.
    """

    def __init__(self, table: Path, folder: str, root: str | None, read: _ReadRows) -> None:
        """Allow the table's own folder, and another one that the user gave; both are absolute."""
        self._table = table
        self.reader = _find_reader(read, folder, root)
        self._bounds = tuple(_real_folder(place) for place in (folder, root) if place is not None)
        self._outside: dict[str, bool] = {}  # by folder: there are fewer than files

    def find(self, name: str, row: int) -> tuple[str, int]:
        """Return the key of the file that a row names, and its size."""
        problem = "no such file"
        for key in _spellings(name, self.reader):
            path = self.reader.path_of(key)
            try:
                status = self._look(path, row)
            except OSError as error:
                if error.errno not in _NO_SUCH_FILE:
                    raise SourceError(f"can't be read: {os_reason(error)}", path=path) from error
                if error.errno != errno.ENOENT:
                    problem = os_reason(error)
            else:
                if stat.S_ISREG(status.st_mode):
                    return key, status.st_size
                problem = "not a regular file"
        raise UnfitError(problem)

    def _look(self, path: str, row: int) -> os.stat_result:
        """Return the status of a file; a SourceError if it is really out of bounds."""
        folder = path[: max(path.rfind("/"), path.rfind(os.sep)) + 1]
        if folder not in self._outside:
            self._outside[folder] = not _real_folder(folder).startswith(self._bounds)
        if not self._outside[folder]:
            status = os.lstat(path)  # a Path costs twice as much
            if not stat.S_ISLNK(status.st_mode):
                return status
            if os.path.realpath(path).startswith(self._bounds):
                return os.stat(path)  # noqa: PTH116
        raise SourceError(
            f"row {row} names a file outside the table's folder",
            path=self._table,
            found=printable(os.path.realpath(path)),
            hint="use --root DIR to allow files below DIR",
        )


def _real_folder(folder: str) -> str:
    return os.path.join(os.path.realpath(folder), "")  # noqa: PTH118 - with a slash at its end


def _read(
    tables: Mapping[str, Path], options: SourceOptions, columns: ValueColumns | None
) -> Iterator[FoundItem]:
    """Read the rows of tables; paths are below the folders that these are in."""
    for folder, table in tables.items():
        rows = read_rows(table, options, columns)
        if not folder:
            yield from rows
        for row in rows:
            split = row.split or folder.lower()
            yield row._replace(key=row.key and posixpath.join(folder, row.key), split=split)


def _find_reader(read: _ReadRows, folder: str, root: str | None) -> FolderReader:
    """Find out what the relative paths of a table are relative to: its folder, or else ``root``.

    If neither, it is the folder without the folders that all paths start with. The table is read
    from its start twice at most, and seldom to its end.
    """
    beside, other = FolderReader(folder), FolderReader(root or folder)
    from_root = False
    common: str | None = None
    for name in _relative_paths(read):
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
        reader for name in _relative_paths(read) for reader in moved if _is_there(name, reader)
    )
    return next(found, beside)


def _relative_paths(read: _ReadRows) -> Iterator[str]:
    for row in read():
        with contextlib.suppress(UnfitError):
            if not posixpath.isabs(name := _plain_path(row.key)):
                yield name


def _is_there(name: str, reader: FolderReader) -> bool:
    return any(os.path.isfile(reader.path_of(key)) for key in _spellings(name, reader))  # noqa: PTH113


def _spellings(name: str, reader: FolderReader) -> Iterator[str]:
    """Yield the keys that a path may mean."""
    if posixpath.isabs(name) and not reader.dropped:
        # The same file has the same key, however the table is written and wherever it lies.
        yield name.removeprefix(reader.root.rstrip("/") + "/")
        return
    yield name
    if "\\" in name and os.sep == "/":  # the table was made on Windows
        yield posixpath.normpath(name.replace("\\", "/"))


def _plain_path(path: str) -> str:
    """Return a path of a table in its simplest form; that of a local file may be a URI."""
    if not path:
        raise UnfitError("no path")
    if len(path) > MAX_PATH_LENGTH:
        raise UnfitError(f"path is longer than {MAX_PATH_LENGTH:,} characters")
    if match := _SCHEME.match(path):
        if (scheme := match[1].lower()) != "file":
            raise UnfitError(f"{scheme}:// paths are not supported; download the file first")
        host, slash, below = path[match.end() :].partition("/")
        if host not in ("", "localhost") or not slash:
            raise UnfitError("not the URI of a local file, such as file:///data/cat.jpg")
        path = "/" + unquote(below, errors="surrogateescape")
    if not path.isprintable() and any(unicodedata.category(c) in ("Cc", "Cs") for c in path):
        raise UnfitError("path contains unprintable characters")
    path = posixpath.normpath(path)
    return "/" + path.lstrip("/") if path.startswith("//") else path


def _split_name(split: str) -> str:
    """Return a split as it is called here; "" where there is none."""
    try:
        return check_split_name(SPLIT_NAMES.get(split, split)) if split else ""
    except UsageError:
        name = printable(split[:TEXT_SHOWN])
        raise UnfitError(f"invalid split name '{name}'") from None
