"""Tables of images: a path, a label and perhaps a split in each row."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path

from tfrtool.errors import SourceError, UsageError, os_reason, printable
from tfrtool.records.shard_sets import check_split_name
from tfrtool.sources.folders.listing import SPLIT_NAMES, SPLIT_ORDER, FolderReader, size_problem
from tfrtool.sources.items import Item, LeftOut, Source, label_problem
from tfrtool.sources.tables.table_columns import (
    TEXT_SHOWN,
    number_notice,
    quoted,
    refused_label,
    sort_labels,
)
from tfrtool.sources.tables.table_paths import (
    Bounds,
    OutsideError,
    RefusedRowError,
    find_reader,
    plain_path,
    spellings,
)
from tfrtool.sources.tables.table_rows import Row, read_rows
from tfrtool.storage.limits import MAX_PATH_LENGTH

_NO_SUCH_FILE = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP, errno.ENAMETOOLONG)
"""What the system says of a path that may be wrong; anything else means that a disk fails."""

_MOST_COLUMNS = 1000


def read_table(table: Path, root: Path | None = None) -> Source:
    """List the images of a table in CSV, JSON Lines or Parquet; SourceError if none can be used.

    The columns are found by their names. CSV of two or three columns needs no header if the first
    row names an image file: a path, a label and perhaps a split, or AutoML's split, path and label.

    Paths may be absolute, or ``file://`` URIs. Others are relative to the table's folder; if not
    one row's file is there, to ``root``; if not there either, to the table's folder
    without the folders that all paths start with, so that a table which was moved along with its
    images is read. Keys are the paths as they are written. All files lie below the table's folder
    or below ``root``, wherever links lead. Either every row has a split or none.
    """
    folder = os.path.abspath(table.parent)  # noqa: PTH100 - links stay
    other = None if root is None else os.path.abspath(root)  # noqa: PTH100
    reader, bounds = find_reader(partial(read_rows, table), folder, other), Bounds(folder, other)
    items: list[Item] = []
    rejected: list[LeftOut] = []
    columns: dict[str, None] = {}
    words: dict[str, str] = {}  # one text for each label and split
    unit = ""
    for row in read_rows(table):
        unit = row.unit
        if len(columns) < _MOST_COLUMNS:
            columns.update(dict.fromkeys(row.others))
        name = row.path[:MAX_PATH_LENGTH] or row.where
        try:
            if row.problem is not None:
                raise RefusedRowError(row.problem)
            name = plain_path(row.path)
            key, size = _file(name, row, table, reader, bounds)
            if not row.label:
                raise RefusedRowError("no label")
            if problem := label_problem(row.label):
                raise RefusedRowError(f"its label {problem}")
            label, split = row.label, _checked_split(row.split)
        except RefusedRowError as refused:
            rejected.append(LeftOut(key=name, reason=f"{row.where}: {refused}"))
            continue
        label, split = words.setdefault(label, label), words.setdefault(split, split)
        place = row.number  # for what is said of rows
        items.append(Item(key=key, label=label, bytes=size, place=place, split=split or None))
    _check_labels(items, unit, table)
    twice = list(_take_repeated(items, unit))
    if not items:
        first = next(iter(rejected), None)
        raise SourceError(
            "no row can be used",
            path=table,
            expected="rows with the path of an image and its label",
            found=first and f"{printable(first.key)}: {first.reason}",
        )
    labels = sort_labels({item.label for item in items})
    splits = {item.split for item in items if item.split is not None}
    unused = [name for name in columns if name.strip()]
    notices = (
        number_notice(labels),
        f"columns that are not written: {quoted(unused)}" if unused else None,
    )
    return Source(
        items=tuple(items),
        labels=labels,
        reader=reader,
        splits=tuple(sorted(splits, key=_split_rank)),
        rejected=tuple(sorted((*rejected, *twice), key=lambda entry: entry.key)),
        notices=tuple(filter(None, notices)),
    )


def _file(
    name: str, row: Row, table: Path, reader: FolderReader, bounds: Bounds
) -> tuple[str, int]:
    """Return the key of a file, and its size."""
    problem = "no such file"
    for key in spellings(name, reader):
        path = reader.path_of(key)
        try:
            status = bounds.look(path)
        except OutsideError as outside:
            raise SourceError(
                f"{row.where} names a file outside of the table's folder",
                path=table,
                found=printable(str(outside)),
                hint="--root DIR lets it name the files below DIR",
            ) from outside
        except OSError as error:
            if error.errno not in _NO_SUCH_FILE:
                raise SourceError(f"can't be read: {os_reason(error)}", path=path) from error
            if error.errno != errno.ENOENT:
                problem = os_reason(error)
        else:
            if too_large := size_problem(status.st_size):
                raise RefusedRowError(too_large)
            if stat.S_ISREG(status.st_mode):
                return key, status.st_size
            problem = "not a file"
    raise RefusedRowError(problem)


def _check_labels(items: Sequence[Item], unit: str, table: Path) -> None:
    refused = refused_label(dict.fromkeys(item.label for item in items))
    if refused is not None:
        label, what, hint = refused
        row = next(item.place for item in items if item.label == label)
        found = f"'{printable(label[:TEXT_SHOWN])}' in {unit} {row}"
        raise SourceError(what, path=table, found=found, hint=hint)


def _take_repeated(items: list[Item], unit: str) -> Iterator[LeftOut]:
    """Sort items by key, take those out that repeat or contradict others, and yield why."""
    has_splits = any(item.split for item in items)
    items.sort(key=lambda item: item.key)
    kept = []
    for key, group in groupby(items, key=lambda item: item.key):
        first, *more = group
        other = next((item for item in more if item.label != first.label), None)
        if other is not None:
            against = {True: other.place, False: first.place}
            refused = [
                (item, f"its label is contradicted by {unit} {against[item.label == first.label]}")
                for item in (first, *more)
            ]
        else:
            refused = [(item, f"listed before, in {unit} {first.place}") for item in more]
            if has_splits and first.split is None:
                refused = [(item, "no split, while others have one") for item in (first, *more)]
            else:
                kept.append(first)
        for item, why in refused:
            yield LeftOut(key=key, reason=f"{unit} {item.place}: {why}")
    items[:] = kept


def _checked_split(split: str) -> str:
    try:
        return check_split_name(SPLIT_NAMES.get(split, split)) if split else ""
    except UsageError:
        name = printable(split[:TEXT_SHOWN])
        raise RefusedRowError(f"no split can be called '{name}'") from None


def _split_rank(split: str) -> tuple[int, str]:
    usual = split in SPLIT_ORDER
    return SPLIT_ORDER.index(split) if usual else len(SPLIT_ORDER), split
