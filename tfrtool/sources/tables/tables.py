"""Tables of images in CSV, JSON Lines or Parquet: a path, a label and perhaps a split per row."""

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from tfrtool.errors import UsageError, printable
from tfrtool.records.shard_sets import SPLIT_NAMES, check_split_name
from tfrtool.sources.folders.listing import Listing, is_image_name
from tfrtool.sources.folders.store_listing import StoreFiles
from tfrtool.sources.folders.unread_images import why_unread
from tfrtool.sources.item_rows import FoundItem, ItemRows
from tfrtool.sources.items import LeftOut, Source, UnfitError
from tfrtool.sources.source_options import SourceOptions
from tfrtool.sources.tables.chosen_columns import choose_columns, no_file
from tfrtool.sources.tables.table_columns import TEXT_SHOWN
from tfrtool.sources.tables.table_files import TableFiles, plain_path
from tfrtool.sources.tables.table_rows import read_rows
from tfrtool.sources.tables.table_values import ValueColumns
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.limits import MAX_LISTED, MAX_PATH_LENGTH
from tfrtool.storage.remote_path import AnyPath, RemotePath
from tfrtool.storage.sorted_rows import SortedRows

_MOST_COLUMNS = 1000
_LOOKED_FOR = 20
"""Files that are not there and looked for elsewhere, if none is there."""

_USUAL = SourceOptions()
_ALONE: Mapping[str, AnyPath] = {}


def read_table(
    table: AnyPath,
    root: AnyPath | None = None,
    scratch: Path | None = None,
    options: SourceOptions = _USUAL,
    tables: Mapping[str, AnyPath] = _ALONE,
    listed: Listing | None = None,
) -> Source:
    """List the images of a table in CSV, JSON Lines or Parquet; SourceError if none can be used.

    The columns are found by their names. CSV of two or three columns needs no header if the first
    row names an image file: a path, a label and perhaps a split, or AutoML's split, path and label.

    Paths may be absolute, or ``file://`` URIs. Others are relative to the table's folder, or to
    ``root``. Keys are the paths as they are written. All files lie below the table's folder or
    below ``root``, wherever links lead.

    Where a table's folder has further folders with ``tables`` of their own, these are read instead,
    given by the folders' paths, whose last names are those of splits. Images that are ``listed`` in
    the folder and not named by any row are left out, and listed as that.
    """
    if isinstance(table, RemotePath) and root is not None:
        what = "--root can't be used with a table in an object store"
        raise UsageError(what, path=table)
    tables = tables or {"": table}
    first = next(iter(tables.values()))
    options, notices = choose_columns(first, options, _files_of(first, root))
    rows, files = ItemRows(table, options, scratch, tabular=True), _files_of(table, root)
    others: dict[str, None] = {}
    last: Sequence[str] | None = None
    search = _FileSearch(files, scratch)
    for row in _read(tables, options, rows.columns):
        if row.others is not last and len(others) < _MOST_COLUMNS:
            others.update(dict.fromkeys(last := row.others))
        name = row.key[:MAX_PATH_LENGTH] or f"row {row.row}"
        try:
            if row.problem is not None:
                raise UnfitError(row.problem)
            name = plain_path(row.key)
            key, size, locator = search.find(name, row.row, is_noted=listed is not None)
            split = _split_name(row.split)
        except UnfitError as error:
            rows.refuse(name, str(error), row.row)
        else:
            rows.add(row._replace(key=key, bytes=size, locator=locator, split=split))
    if search.missing and not search.has_found:
        raise no_file(table, [*search.missing], search.reason, options, files)
    source = rows.source(files.reader, options.label_columns or None, others)
    if listed is not None:
        source = _with_unnamed(source, listed, search.named, first.name)
    return replace(source, notices=(*notices, *source.notices))


def _with_unnamed(
    source: Source, listed: Listing, named: SortedRows[tuple[str, int]], table: str
) -> Source:
    """Return a source that lists the images of its folder that no row names."""
    reasons = dict[str, str]()
    for entry in listed.entries:
        if is_image_name(entry.key):
            named.add((entry.key, 1))
        elif unread := why_unread(entry.key, listed.reader):
            reasons[entry.key] = unread
            named.add((entry.key, 1))
    rejected = CappedList[LeftOut](MAX_LISTED)
    for known in source.rejected:
        rejected.add(known)
    for key, rows in groupby(named, key=itemgetter(0)):
        if all(is_listed for _, is_listed in rows):
            reason = reasons.get(key, f"no row of {table} names it")
            rejected.add(LeftOut(key=key, reason=reason))
    more = rejected.more + source.more_rejected
    return replace(source, rejected=tuple(rejected.entries), more_rejected=more)


class _FileSearch:
    """Looks for the files of rows, and notes what it found and what it didn't.

    Attributes:
        has_found: whether any row names a file.
        missing: the first names that no file has.
        reason: why the first of these can't be used.
        named: paths of files below the table's folder, each with 0.
    """

    def __init__(self, files: TableFiles | StoreFiles, scratch: Path | None) -> None:
        self._files, self.has_found = files, False
        self.missing, self.reason = dict[str, None](), ""
        self.named = SortedRows[tuple[str, int]](scratch)

    def find(self, name: str, row: int, *, is_noted: bool) -> tuple[str, int, int]:
        """Return the key of the file that a row names, its size, and its place."""
        try:
            key, size, locator = self._files.find(name, row)
        except UnfitError as error:
            self.reason = self.reason or f"{printable(name)}: row {row}: {error}"
            if len(self.missing) < _LOOKED_FOR:
                self.missing[name] = None
            raise
        self.has_found = True
        if is_noted and isinstance(self._files, TableFiles):
            self.named.add((posixpath.normpath(self._files.below_folder(key, locator)), 0))
        return key, size, locator


def _files_of(table: AnyPath, root: AnyPath | None) -> TableFiles | StoreFiles:
    return StoreFiles(table) if isinstance(table, RemotePath) else TableFiles(table, root)


def _read(
    tables: Mapping[str, AnyPath], options: SourceOptions, columns: ValueColumns | None
) -> Iterator[FoundItem]:
    """Read the rows of tables; paths are below the folders that these are in."""
    for folder, table in tables.items():
        for row in read_rows(table, options, columns):
            key = posixpath.join(folder, row.key) if row.key else ""
            split = SPLIT_NAMES.get(folder.rpartition("/")[2].lower(), "")
            yield row._replace(key=key, split=row.split or split)


def _split_name(split: str) -> str:
    try:
        return check_split_name(SPLIT_NAMES.get(split, split)) if split else ""
    except UsageError:
        name = printable(split[:TEXT_SHOWN])
        raise UnfitError(f"invalid split name '{name}'") from None
