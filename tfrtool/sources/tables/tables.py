"""Tables of images in CSV, JSON Lines or Parquet: a path, a label and perhaps a split per row."""

import errno
import json
import os
import posixpath
import re
import stat
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple
from urllib.parse import unquote

from tfrtool.errors import SourceError, UsageError, os_errors_as, os_reason, printable
from tfrtool.records.shard_sets import check_split_name
from tfrtool.sources.folders.listing import SPLIT_NAMES, FolderReader, is_image_name
from tfrtool.sources.folders.store_listing import StoreFiles
from tfrtool.sources.formats.arrow_magic import is_arrow
from tfrtool.sources.formats.csv_rows import csv_rows, detect_delimiter
from tfrtool.sources.formats.json_rows import json_rows
from tfrtool.sources.formats.table_limits import check_column_count
from tfrtool.sources.formats.unpacked import open_unpacked, plain_suffix
from tfrtool.sources.item_rows import FoundItem, ItemRows
from tfrtool.sources.items import Source, UnfitError
from tfrtool.sources.source_options import SourceOptions
from tfrtool.sources.tables.table_columns import (
    TEXT_SHOWN,
    TableColumns,
    check_columns,
    find_columns,
)
from tfrtool.sources.tables.table_values import ValueColumns
from tfrtool.storage.limits import MAX_PATH_LENGTH, MAX_ROW_BYTES
from tfrtool.storage.opening import size_of_file
from tfrtool.storage.remote_path import AnyPath, RemotePath

_NO_SUCH_FILE = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP, errno.ENAMETOOLONG)
"""What the system says of a path that may be wrong; anything else means that a disk fails."""

_MOST_COLUMNS = 1000
_MOST_DROPPED, _MOST_SEARCHES = 16, 100
"""Leading folders of paths that may have to be dropped, and rows that are tried for that."""
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
_USUAL = SourceOptions()
_ALONE: Mapping[str, AnyPath] = {}


def read_table(
    table: AnyPath,
    root: AnyPath | None = None,
    scratch: Path | None = None,
    options: SourceOptions = _USUAL,
    tables: Mapping[str, AnyPath] = _ALONE,
) -> Source:
    """List the images of a table in CSV, JSON Lines or Parquet; SourceError if none can be used.

    The columns are found by their names. CSV of two or three columns needs no header if the first
    row names an image file: a path, a label and perhaps a split, or AutoML's split, path and label.

    Paths may be absolute, or ``file://`` URIs. Others are relative to the table's folder, or to
    ``root``. Keys are the paths as they are written. All files lie below the table's folder or
    below ``root``, wherever links lead.

    Where a table's folder has further folders with ``tables`` of their own, these are read instead,
    given by the folders' names, which are those of splits.
    """
    rows = ItemRows(table, options, scratch, tabular=True)
    if isinstance(table, RemotePath):
        if root is not None:
            what = "--root cannot be used with a table in an object store"
            raise UsageError(what, path=table)
        files: _Files | StoreFiles = StoreFiles(table)
    else:
        files = _Files(table, root)
    others: dict[str, None] = {}
    last: Sequence[str] | None = None
    for row in _read(tables or {"": table}, options, rows.columns):
        if row.others is not last and len(others) < _MOST_COLUMNS:
            others.update(dict.fromkeys(last := row.others))
        name = row.key[:MAX_PATH_LENGTH] or f"row {row.row}"
        try:
            if row.problem is not None:
                raise UnfitError(row.problem)
            name = _plain_path(row.key)
            key, size, locator = files.find(name, row.row)
            split = _split_name(row.split)
        except UnfitError as error:
            rows.refuse(name, str(error), row.row)
        else:
            rows.add(row._replace(key=key, bytes=size, locator=locator, split=split))
    return rows.source(files.reader, others=others)


class _Files:
    """The files that a table names; links don't lead out of its folder or the root either.

    A table comes with its images, and whoever wrote it may not know whose machine it is read on.
    """

    def __init__(self, table: Path, root: AnyPath | None) -> None:
        """Allow the table's own folder, and another one that the user gave."""
        self._table = table
        folders = (table.parent, *([] if root is None else [root]))
        self._folders = tuple(map(os.path.abspath, folders))
        self._bounds = tuple(map(_real_folder, self._folders))
        self._dropped, self._searches, self._as_written = 0, 0, False
        self._outside: dict[str, bool] = {}  # by folder: there are fewer than files

    @property
    def reader(self) -> FolderReader:
        """The reader of the files that were found."""
        return FolderReader(self._folders, self._dropped)

    def find(self, name: str, row: int) -> tuple[str, int, int]:
        """Return the key of the file that a row names, its size, and its place."""
        problem = "no such file"
        for number, folder in enumerate(self._folders):
            for key in _spellings(name, folder):
                size, reason = self._size(folder, key, row)
                if size is not None:
                    self._as_written = True
                    if self._dropped:
                        what = f"row {row} names a file as it is, and rows before it don't"
                        hint = "leave the leading folders that no longer exist out of the table"
                        raise SourceError(what, path=self._table, hint=hint)
                    return key, size, number
                problem = reason or problem
        for dropped in self._drops(name):  # the table was moved with its images
            for number, folder in enumerate(self._folders):
                size, _ = self._size(folder, name.split("/", dropped)[-1], row)
                if size is not None:
                    self._dropped = dropped
                    return name, size, len(self._folders) + number
        raise UnfitError(problem)

    def _drops(self, name: str) -> Iterable[int]:
        """Return how many leading folders to drop; the first file found decides it for all rows."""
        if self._as_written or posixpath.isabs(name):
            return ()
        if self._dropped:
            return (self._dropped,)
        self._searches += 1
        most = min(name.count("/"), _MOST_DROPPED) if self._searches <= _MOST_SEARCHES else 0
        return range(1, most + 1)

    def _size(self, folder: str, key: str, row: int) -> tuple[int | None, str]:
        """Return the size of a file, or None and what is wrong with it, or ""."""
        path = os.path.join(folder, key)  # noqa: PTH118 - a Path is slow
        try:
            status = self._look(path, row)
        except OSError as error:
            if error.errno not in _NO_SUCH_FILE:
                raise SourceError(f"can't be read: {os_reason(error)}", path=path) from error
            return None, "" if error.errno == errno.ENOENT else os_reason(error)
        return (
            (status.st_size, "") if stat.S_ISREG(status.st_mode) else (None, "not a regular file")
        )

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
    tables: Mapping[str, AnyPath], options: SourceOptions, columns: ValueColumns | None
) -> Iterator[FoundItem]:
    """Read the rows of tables; paths are below the folders that these are in."""
    for folder, table in tables.items():
        for row in read_rows(table, options, columns):
            key = posixpath.join(folder, row.key) if row.key else ""
            yield row._replace(key=key, split=row.split or folder.lower())


def _spellings(name: str, folder: str) -> Iterator[str]:
    if posixpath.isabs(name):
        # The same file has the same key, however the table is written and wherever it lies.
        yield name.removeprefix(folder.rstrip("/") + "/")
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
    try:
        return check_split_name(SPLIT_NAMES.get(split, split)) if split else ""
    except UsageError:
        name = printable(split[:TEXT_SHOWN])
        raise UnfitError(f"invalid split name '{name}'") from None


_PARQUET = b"PAR1"
_JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
_CSV_SUFFIXES = (".csv", ".tsv")
_OBJECT = re.compile(rb"\s*(?:\[\s*)?\{")
_HEAD = 4096
"""Bytes that show the format of a table; blanks may come first."""

_FREE_ROWS = 100_000
"""Rows that a table may have however small it is. More need a byte each, because paths differ."""

_TEXT = (str, type(None))
"""A tuple, because a union would be built again for each row."""

_Cells = Mapping[str, object] | str
"""The cells of a row by column name, or why the row can't be used."""


def read_rows(
    table: AnyPath, options: SourceOptions = _USUAL, columns: ValueColumns | None = None
) -> Iterator[FoundItem]:
    """Yield the rows of a table. Keys are paths as they are written, places are row numbers.

    Rows are counted from 1, with the header and empty lines. Labels have no blanks around them, and
    splits are in lower case. A group is the cell of the column that `SourceOptions.group_by` names.
    With ``columns`` that become features, the table needs no labels, unless ``options`` are about
    labels.

    Parquet is detected by its first bytes. Text is JSON Lines or CSV by its suffix, or by whether
    it starts with a brace. Memory is bounded by a row, in Parquet by a batch of rows.
    """
    group_by, label_column = options.group_by, options.label_column
    needs = _Needs(columns, options)
    with os_errors_as(SourceError, table), open_unpacked(table) as file:
        head, suffix = file.read(_HEAD), plain_suffix(table)
        braced = _OBJECT.match(head.removeprefix(b"\xef\xbb\xbf"))
        read: Callable[..., Iterator[tuple[int, _Cells]]] = _read_csv
        if head.startswith(_PARQUET) or is_arrow(head):
            read = _read_parquet
        elif suffix in _JSON_SUFFIXES or (braced and suffix not in _CSV_SUFFIXES):
            read = _read_json_lines
        typed, names, mine = read is not _read_csv, list[str](), list[str]()
        for number, cells in read(file, table, needs):
            if isinstance(cells, str):
                yield FoundItem("", row=number, problem=cells)
                continue
            if names != list(cells):
                names = list(cells)
                roles = find_columns(names, label_column)
                if columns is not None:
                    roles, mine = columns.of(names, roles)
                others = [name for name in names if name not in (*roles, *mine, group_by)]
            path, label, split = (None if name is None else cells.get(name) for name in roles)
            group = cells.get(group_by) if group_by else None
            if isinstance(label, list):
                label = json.dumps(label) if label else None
            elif isinstance(label, int) and not isinstance(label, bool):
                label = str(label)
            if problem := _problem(path, label, split, group):
                yield FoundItem("", row=number, problem=problem)
                continue
            label, split = str(label or "").strip(), str(split or "").strip().lower()
            yield FoundItem(
                str(path or ""),
                label,
                cells=cells,
                split=split,
                group=group,
                names=mine,
                typed=typed,
                row=number,
                others=others,
            )


def _problem(path: object, label: object, split: object, group: object) -> str | None:
    if not isinstance(label, _TEXT):
        return "label is not a string or an integer"
    if not isinstance(path, _TEXT):
        return "path is not a string"
    if not isinstance(split, _TEXT):
        return "split is not a string"
    return "group is not a string or a number" if isinstance(group, list | dict) else None


class _Needs(NamedTuple):
    columns: ValueColumns | None
    options: SourceOptions

    @property
    def labels(self) -> bool:
        """Whether there must be labels."""
        return self.columns is None or self.options.about_labels

    def check(self, names: Sequence[str], table: Path) -> TableColumns:
        """Return the columns by role; `SourceError` if one is missing or duplicate."""
        check_column_count(len(names), table)
        columns, counts = self.columns, Counter(names)
        wanted = () if columns is None else columns.asked
        for name in names if columns is not None and columns.all else wanted:
            if name.strip() and counts[name] > 1:
                raise SourceError(f"duplicate column '{printable(name)}'", path=table)
        label = self.options.label_column
        return check_columns(names, table, labels=self.labels, wanted=wanted, label=label)


def _read_csv(file: BinaryIO, table: Path, needs: _Needs) -> Iterator[tuple[int, _Cells]]:
    """Yield the rows of a CSV table; the first one may be missing its header."""
    delimiter = detect_delimiter(file, table)
    names: Sequence[str] = ()
    for number, cells in enumerate(csv_rows(file, table, delimiter), start=1):
        if not any(cells):
            continue
        if not names:
            names = _names_without_header(cells, needs)
            if not names:
                names = cells
                needs.check(names, table)
                continue
        if any(cells[len(names) :]):
            yield number, f"{len(cells)} cells, but the table has {len(names)} columns"
        else:
            yield number, dict(zip(names, cells, strict=False))
    if not names:
        raise SourceError("empty file", path=table, expected="a table of paths and labels")


def _names_without_header(first: Sequence[str], needs: _Needs) -> Sequence[str]:
    """Return the names of the columns if the first row names an image and not the columns.

    AutoML puts the split before the path.
    """
    columns = find_columns(first, needs.options.label_column)
    if columns.path is None or (columns.label is None and needs.labels):
        if len(first) in (2, 3) and is_image_name(first[0]):
            return ("path", "label", "split")[: len(first)]
        if len(first) == 3 and is_image_name(first[1]):
            return ("split", "path", "label")
    return ()


def _read_json_lines(file: BinaryIO, table: Path, needs: _Needs) -> Iterator[tuple[int, _Cells]]:
    """Yield the rows of JSON Lines. The first must be an object, or the file is another format."""
    expected, first = "JSON Lines, one object per line", True
    for location, number, _, cells in json_rows(file, table):
        if first:
            if isinstance(cells, str):
                raise SourceError(f"{location}: {cells}", path=table, expected=expected)
            needs.check(tuple(cells), table)
            first = False
        yield number, cells
    if first:
        raise SourceError("empty file", path=table, expected=expected)


def _read_parquet(file: BinaryIO, table: Path, needs: _Needs) -> Iterator[tuple[int, _Cells]]:
    """Yield the rows of a Parquet table; only the columns in use are read."""
    import pyarrow.types as types

    from tfrtool.sources.formats.parquet_reader import read_cells, read_facts

    facts = read_facts(table)
    names, group_by = facts.schema.names, needs.options.group_by
    roles, mine = needs.check(names, table), list[str]()
    if needs.columns is not None:
        roles, mine = needs.columns.of(names, roles)
    wanted = [name for name in dict.fromkeys((*roles, group_by)) if name and name in names]
    for name in wanted:  # others may hold images
        kind = facts.schema.field(name).type
        if types.is_list(kind) and name == roles.label:
            kind = kind.value_type  # several labels per image
        if not (types.is_string(kind) or types.is_large_string(kind) or types.is_integer(kind)):
            what = f"unsupported type of column '{name}'"
            expected = "strings, or integers for labels"
            raise SourceError(what, path=table, expected=expected, found=kind)
    rows, size = sum(rows for rows, _ in facts.groups), size_of_file(file)
    if rows > max(_FREE_ROWS, size):
        raise SourceError(f"{rows:,} rows in a file of only {size:,} bytes", path=table)
    wanted = [*dict.fromkeys((*wanted, *mine))]
    empty = dict[str, object].fromkeys(names)  # the first row names all columns
    for number, cells in enumerate(read_cells(table, wanted), start=1):
        if any(isinstance(one, str | bytes) and len(one) > MAX_ROW_BYTES for one in cells):
            yield number, f"a cell is longer than {MAX_ROW_BYTES:,} bytes"
        else:
            yield number, {**empty, **dict(zip(wanted, cells, strict=True))}
            empty = {}
