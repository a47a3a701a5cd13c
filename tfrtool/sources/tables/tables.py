"""Tables of images: a path, a label and perhaps a split in each row."""

from __future__ import annotations

import errno
import os
import stat
from array import array
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path

from tfrtool.errors import SourceError, UsageError, os_errors_as, os_reason, printable
from tfrtool.records.shard_sets import check_split_name
from tfrtool.sources.folders.folder_reader import FolderReader
from tfrtool.sources.folders.listing import SPLIT_NAMES, SPLIT_ORDER, size_problem
from tfrtool.sources.items import Item, LeftOut, Source
from tfrtool.sources.tables.csv_rows import read_csv
from tfrtool.sources.tables.json_rows import read_json_lines
from tfrtool.sources.tables.table_columns import TEXT_SHOWN, Row, quoted
from tfrtool.sources.tables.table_labels import number_notice, refused_label, sort_labels
from tfrtool.sources.tables.table_paths import (
    Bounds,
    OutsideError,
    RefusedRowError,
    find_reader,
    plain_path,
    spellings,
)
from tfrtool.storage.limits import MAX_PATH_LENGTH
from tfrtool.storage.opening import open_regular

_PARQUET = b"PAR1"
"""What a table in Parquet starts with."""

_JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
_CSV_SUFFIXES = (".csv", ".tsv")

_HEAD = 4096
"""Bytes that tell what a table of another name is; blanks may come first."""

_NO_SUCH_FILE = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP, errno.ENAMETOOLONG)
"""What the system says of a path that may be wrong; anything else means that a disk fails."""

_MOST_COLUMNS = 1000


def read_table(path: Path, root: Path | None = None) -> Source:
    """List the images of a table in CSV, JSON Lines or Parquet.

    The columns are found by their names. CSV of two or three columns needs no header if the first
    row names an image file: a path, a label and perhaps a split, or AutoML's split, path and label.

    Paths may be absolute, or ``file://`` URIs. Others are relative to the table's folder; if not
    one row's file is there, to ``root``; if not there either, to the table's folder
    without the folders that all paths start with, so that a table which was moved along with its
    images is read. Keys are the paths as they are written. All files lie below the table's folder
    or below ``root``, wherever links lead. Either every row has a split or none.

    Raises:
        SourceError: the table can't be read or isn't one, a path leads elsewhere, or no row can be
            used.
    """
    if not path.is_file():
        missing = not path.exists()
        raise SourceError("no such file" if missing else "not a file", path=path)
    folder = os.path.abspath(path.parent)  # noqa: PTH100 - links stay
    other = None if root is None else os.path.abspath(root)  # noqa: PTH100
    reader = find_reader(partial(_rows, path), folder, other)
    rows = _TableRows(path, reader, Bounds(folder, other))
    for row in _rows(path):
        rows.add(row)
    return rows.source()


def _rows(table: Path) -> Iterator[Row]:
    """Read a table, row by row.

    Parquet is told by its first bytes. The rest is text, whose name tells: JSON Lines for .jsonl,
    .ndjson and .json, CSV for .csv and .tsv; of another name, whether its first line starts with a
    brace. Memory is bounded by a row, in Parquet by a group of them.
    """
    with os_errors_as(SourceError, table), open_regular(table) as file:
        head, suffix = file.read(_HEAD), table.suffix.lower()
        file.seek(0)
        braced = head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")
        if head.startswith(_PARQUET):
            from tfrtool.sources.tables.parquet_rows import read_parquet

            yield from read_parquet(file, table)
        elif suffix in _JSON_SUFFIXES or (braced and suffix not in _CSV_SUFFIXES):
            yield from read_json_lines(file, table)
        else:
            yield from read_csv(file, table)


class _TableRows:
    """The rows so far: items, and those that are none."""

    def __init__(self, table: Path, reader: FolderReader, bounds: Bounds) -> None:
        self._table = table
        self._reader = reader
        self._bounds = bounds
        self._items: list[Item] = []
        self._numbers = array("Q")  # of each item's row
        self._unit = ""
        self._rejected: list[LeftOut] = []
        self._words: dict[str, str] = {}  # one string for each label and split
        self._dropped: dict[str, None] = {}

    def add(self, row: Row) -> None:
        """Make an item of a row, or say why it can't be one."""
        if len(self._dropped) < _MOST_COLUMNS:
            self._dropped.update(dict.fromkeys(row.dropped))
        name = row.path[:MAX_PATH_LENGTH] or row.where
        try:
            if row.problem is not None:
                raise RefusedRowError(row.problem)
            name = plain_path(row.path)
            key, size = self._file(name, row.where)
            label, split = _checked_label(row.label), _checked_split(row.split)
        except RefusedRowError as refused:
            self._rejected.append(LeftOut(key=name, reason=f"{row.where}: {refused}"))
            return
        label = self._words.setdefault(label, label)
        split = self._words.setdefault(split, split)
        self._items.append(Item(key=key, label=label, bytes=size, split=split or None))
        self._unit, _, number = row.where.partition(" ")
        self._numbers.append(int(number))

    def _file(self, name: str, where: str) -> tuple[str, int]:
        """Return the key of a file, and its size."""
        problem = "no such file"
        for key in spellings(name, self._reader):
            path = self._reader.path_of(key)
            try:
                status = self._bounds.look(path)
            except OutsideError as outside:
                raise SourceError(
                    f"{where} names a file outside of the table's folder",
                    path=self._table,
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

    def source(self) -> Source:
        """Return what was found, without the rows that contradict each other."""
        self._check_labels()
        items = self._consistent()
        if not items:
            first = self._rejected[0] if self._rejected else None
            raise SourceError(
                "no row can be used",
                path=self._table,
                expected="rows with the path of an image and its label",
                found=first and f"{printable(first.key)}: {first.reason}",
            )
        labels = sort_labels({item.label for item in items})
        splits = {item.split for item in items if item.split is not None}
        dropped = [name for name in self._dropped if name.strip()]
        notices = (
            number_notice(labels),
            f"columns that are not written: {quoted(dropped)}" if dropped else None,
        )
        return Source(
            items=tuple(items),
            labels=labels,
            reader=self._reader,
            splits=tuple(sorted(splits, key=_split_rank)),
            rejected=tuple(sorted(self._rejected, key=lambda entry: entry.key)),
            notices=tuple(filter(None, notices)),
        )

    def _check_labels(self) -> None:
        refused = refused_label(dict.fromkeys(item.label for item in self._items))
        if refused is not None:
            label, what, hint = refused
            at = next(place for place, item in enumerate(self._items) if item.label == label)
            found = f"'{printable(label[:TEXT_SHOWN])}' in {self._row(at)}"
            raise SourceError(what, path=self._table, found=found, hint=hint)

    def _consistent(self) -> list[Item]:
        """Return the items sorted by key, each once."""
        items, self._items = self._items, []
        has_splits = any(item.split for item in items)
        kept: list[Item] = []
        order = sorted(range(len(items)), key=lambda place: items[place].key)
        for _, group in groupby(order, key=lambda place: items[place].key):
            same = list(group)
            first = items[same[0]]
            if any(items[place].label != first.label for place in same):
                self._reject(first.key, same, "its label is contradicted by {}", same)
            elif has_splits and first.split is None:
                self._reject(first.key, same, "no split, while others have one", same)
            else:
                kept.append(first)
                self._reject(first.key, same[1:], "listed before, in {}", same)
        return kept

    def _reject(self, key: str, places: Sequence[int], reason: str, same: Sequence[int]) -> None:
        """Reject rows of one key; the first other one is named."""
        for place in places:
            other = next((number for number in same if number != place), place)
            text = f"{self._row(place)}: {reason.format(self._row(other))}"
            self._rejected.append(LeftOut(key=key, reason=text))

    def _row(self, place: int) -> str:
        return f"{self._unit} {self._numbers[place]}"


def _checked_label(label: str) -> str:
    """Return a label that a line of UTF-8 text can hold."""
    if not label:
        raise RefusedRowError("no label")
    try:
        label.encode("utf-8")
    except UnicodeEncodeError:
        raise RefusedRowError("its label is no UTF-8") from None
    if len(label.splitlines()) != 1:
        raise RefusedRowError("its label can't stand on a line of its own")
    return label


def _checked_split(split: str) -> str:
    try:
        return check_split_name(SPLIT_NAMES.get(split, split)) if split else ""
    except UsageError:
        name = printable(split[:TEXT_SHOWN])
        raise RefusedRowError(f"no split can be called '{name}'") from None


def _split_rank(split: str) -> tuple[int, str]:
    usual = split in SPLIT_ORDER
    return SPLIT_ORDER.index(split) if usual else len(SPLIT_ORDER), split
