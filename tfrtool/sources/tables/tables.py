"""Tables of images in CSV, JSON Lines or Parquet: a path, a label and perhaps a split per row."""

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tfrtool.errors import UsageError, printable
from tfrtool.records.shard_sets import check_split_name
from tfrtool.sources.folders.listing import SPLIT_NAMES
from tfrtool.sources.folders.store_listing import StoreFiles
from tfrtool.sources.item_rows import FoundItem, ItemRows
from tfrtool.sources.items import Source, UnfitError
from tfrtool.sources.source_options import SourceOptions
from tfrtool.sources.tables.chosen_columns import choose_columns, no_file
from tfrtool.sources.tables.table_columns import TEXT_SHOWN
from tfrtool.sources.tables.table_files import TableFiles, plain_path
from tfrtool.sources.tables.table_rows import read_rows
from tfrtool.sources.tables.table_values import ValueColumns
from tfrtool.storage.limits import MAX_PATH_LENGTH
from tfrtool.storage.remote_path import AnyPath, RemotePath

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
    if isinstance(table, RemotePath) and root is not None:
        what = "--root cannot be used with a table in an object store"
        raise UsageError(what, path=table)
    tables = tables or {"": table}
    first = next(iter(tables.values()))
    options, notices = choose_columns(first, options, _files_of(first, root))
    rows, files = ItemRows(table, options, scratch, tabular=True), _files_of(table, root)
    others: dict[str, None] = {}
    last: Sequence[str] | None = None
    missing, has_found = list[tuple[str, str]](), False
    for row in _read(tables, options, rows.columns):
        if row.others is not last and len(others) < _MOST_COLUMNS:
            others.update(dict.fromkeys(last := row.others))
        name = row.key[:MAX_PATH_LENGTH] or f"row {row.row}"
        try:
            if row.problem is not None:
                raise UnfitError(row.problem)
            name = plain_path(row.key)
            key, size, locator = _find(files, name, row.row)
            has_found = True
            split = _split_name(row.split)
        except UnfitError as error:
            rows.refuse(name, str(error), row.row)
            if isinstance(error, _MissingError) and len(missing) < _LOOKED_FOR:
                missing.append((name, f"{printable(name)}: row {row.row}: {error}"))
        else:
            rows.add(row._replace(key=key, bytes=size, locator=locator, split=split))
    if missing and not has_found:
        names = [name for name, _ in missing]
        raise no_file(table, names, missing[0][1], options, files)
    source = rows.source(files.reader, options.label_columns or None, others)
    return replace(source, notices=(*notices, *source.notices))


class _MissingError(UnfitError):
    """No file has the name that a row gives."""


def _files_of(table: AnyPath, root: AnyPath | None) -> TableFiles | StoreFiles:
    return StoreFiles(table) if isinstance(table, RemotePath) else TableFiles(table, root)


def _find(files: TableFiles | StoreFiles, name: str, row: int) -> tuple[str, int, int]:
    try:
        return files.find(name, row)
    except UnfitError as error:
        raise _MissingError(str(error)) from None


def _read(
    tables: Mapping[str, AnyPath], options: SourceOptions, columns: ValueColumns | None
) -> Iterator[FoundItem]:
    """Read the rows of tables; paths are below the folders that these are in."""
    for folder, table in tables.items():
        for row in read_rows(table, options, columns):
            key = posixpath.join(folder, row.key) if row.key else ""
            yield row._replace(key=key, split=row.split or folder.lower())


def _split_name(split: str) -> str:
    try:
        return check_split_name(SPLIT_NAMES.get(split, split)) if split else ""
    except UsageError:
        name = printable(split[:TEXT_SHOWN])
        raise UnfitError(f"invalid split name '{name}'") from None
