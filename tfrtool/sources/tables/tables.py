"""Tables of images: CSV or JSON Lines with a path, a label and perhaps a split in each row."""

from __future__ import annotations

import errno
import os
import stat
from array import array
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

from tfrtool.errors import SourceError, UsageError, os_errors_as, os_reason, printable
from tfrtool.records.names import check_split_name
from tfrtool.sources.folders.listing import size_problem
from tfrtool.sources.folders.split_names import SPLIT_NAMES, SPLIT_ORDER
from tfrtool.sources.items import Item, LeftOut, Source
from tfrtool.sources.tables.csv_rows import read_csv
from tfrtool.sources.tables.json_rows import read_json_lines
from tfrtool.sources.tables.table_labels import number_notice, refused_label, sort_labels
from tfrtool.sources.tables.table_paths import (
    Bounds,
    OutsideError,
    RefusedRowError,
    TableReader,
    find_reader,
    plain_path,
    spellings,
)
from tfrtool.sources.tables.table_rows import Row
from tfrtool.storage.limits import MAX_PATH_LENGTH
from tfrtool.storage.opening import open_regular

__all__ = ["read_table"]

_JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
_CSV_SUFFIXES = (".csv", ".tsv")

_HEAD = 4096
"""Bytes that tell what a table of another name is; blanks may come first."""

_NO_SUCH_FILE = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP, errno.ENAMETOOLONG)
"""What the system says of a path that may be wrong; anything else means that a disk fails."""

_COLUMNS_SHOWN = 10
_MOST_COLUMNS = 1000
_TEXT_SHOWN = 40


def read_table(path: Path, root: Path | None = None) -> Source:
    """List the images of a table.

    The columns are found by their names, whatever the case: ``path``, ``image_path``,
    ``filepath``, ``image_uri``, ``image``, ``filename`` and the like; ``label``, ``class``,
    ``class_name``, ``category`` or ``target``; ``split``, ``subset``, ``set`` or ``partition``.
    CSV of two or three columns needs no header if the first row names an image file: a path, a
    label and perhaps a split, or AutoML's split, path and label.

    Paths may be absolute, or ``file://`` URIs. Others are relative to the table's folder; if not
    one row's file is there, to ``root``; if not there either, to the table's folder
    without the folders that all paths start with, so that a table which was moved along with its
    images is read. Keys are the paths as they are written. All files lie below the table's folder
    or below ``root``, wherever links lead.

    Labels are text, without blanks around it. They are numbered in sorted order, by value if all
    are integers. Splits are in lower case, and ``val`` is ``validation``; either every row has one
    or none.

    Args:
        path: the table.
        root: a folder besides the table's own that its paths may lead to.

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
    gathering = _Gathering(path, reader, Bounds(folder, other))
    for row in _rows(path):
        gathering.add(row)
    return gathering.source()


class _Gathering:
    """The rows so far: items, and those that are none."""

    def __init__(self, table: Path, reader: TableReader, bounds: Bounds) -> None:
        self._table = table
        self._reader = reader
        self._bounds = bounds
        self._items: list[Item] = []
        self._rows = array("Q")  # the number of each item's row
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
        words = self._words
        self._items.append(
            Item(
                key=key,
                label=words.setdefault(label, label),
                bytes=size,
                split=words.setdefault(split, split) if split else None,
            )
        )
        self._unit, _, number = row.where.partition(" ")
        self._rows.append(int(number))

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
        return Source(
            items=tuple(items),
            labels=labels,
            reader=self._reader,
            splits=tuple(sorted(splits, key=_split_rank)),
            rejected=tuple(sorted(self._rejected, key=lambda entry: entry.key)),
            notices=tuple(filter(None, (number_notice(labels), self._dropped_notice()))),
        )

    def _check_labels(self) -> None:
        refused = refused_label(dict.fromkeys(item.label for item in self._items))
        if refused is not None:
            label, what, hint = refused
            row = next(
                n for n, item in zip(self._rows, self._items, strict=True) if item.label == label
            )
            found = f"'{printable(label[:_TEXT_SHOWN])}' in {self._unit} {row}"
            raise SourceError(what, path=self._table, found=found, hint=hint)

    def _dropped_notice(self) -> str | None:
        names = [f"'{printable(name[:_TEXT_SHOWN])}'" for name in self._dropped if name.strip()]
        if not names:
            return None
        more = f" and {len(names) - _COLUMNS_SHOWN:,} more" if len(names) > _COLUMNS_SHOWN else ""
        return f"columns that are not written: {', '.join(names[:_COLUMNS_SHOWN])}{more}"

    def _consistent(self) -> list[Item]:
        """Return the items sorted by key, each once."""
        items, self._items = self._items, []
        order = sorted(range(len(items)), key=lambda position: items[position].key)
        has_splits = any(item.split for item in items)
        kept: list[Item] = []
        start = 0
        while start < len(order):
            end = start + 1
            while end < len(order) and items[order[end]].key == items[order[start]].key:
                end += 1
            same = order[start:end]
            first = items[same[0]]
            if any(items[position].label != first.label for position in same):
                for position in same:
                    self._reject(items[position], position, "its label is contradicted by {}", same)
            elif has_splits and first.split is None:
                for position in same:
                    self._reject(items[position], position, "no split, while others have one", same)
            else:
                kept.append(first)
                for position in same[1:]:
                    self._reject(items[position], position, "listed before, in {}", same[:1])
            start = end
        return kept

    def _reject(self, item: Item, position: int, reason: str, others: Sequence[int]) -> None:
        other = next((number for number in others if number != position), position)
        reason = reason.format(f"{self._unit} {self._rows[other]}")
        where = f"{self._unit} {self._rows[position]}"
        self._rejected.append(LeftOut(key=item.key, reason=f"{where}: {reason}"))


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
        name = printable(split[:_TEXT_SHOWN])
        raise RefusedRowError(f"no split can be called '{name}'") from None


def _split_rank(split: str) -> tuple[int, str]:
    usual = split in SPLIT_ORDER
    return SPLIT_ORDER.index(split) if usual else len(SPLIT_ORDER), split


def _rows(table: Path) -> Iterator[Row]:
    """Read a table, row by row.

    What it is, its name tells: JSON Lines for .jsonl, .ndjson and .json, CSV for .csv and .tsv;
    of another name, whether its first line starts with a brace. CSV is separated by commas,
    semicolons or tabs. Memory is bounded by a row.

    Raises:
        SourceError: the table can't be read or isn't one, or no columns of paths and labels are
            found; the message lists those that are.
    """
    with os_errors_as(SourceError, table), open_regular(table) as file:
        suffix = table.suffix.lower()
        if suffix in _JSON_SUFFIXES or (suffix not in _CSV_SUFFIXES and _is_json(file)):
            yield from read_json_lines(file, table)
        else:
            yield from read_csv(file, table)


def _is_json(file: BinaryIO) -> bool:
    head = file.read(_HEAD).removeprefix(b"\xef\xbb\xbf").lstrip()
    file.seek(0)
    return head.startswith(b"{")
