"""Reading tables in CSV, whatever separates the cells."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tfrtool.errors import SourceError
from tfrtool.sources.folders.listing import is_image_name
from tfrtool.sources.tables.table_rows import (
    Row,
    check_no_boxes,
    find_columns,
    no_columns,
    other_columns,
)
from tfrtool.storage.limits import MAX_ROW_BYTES

__all__ = ["read_csv"]

_DELIMITERS = ",;\t"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """Where in a row of CSV things are.

    Attributes:
        width: how many columns there are.
        path: the position of the path.
        label: the position of the label.
        split: the position of the split; None where there is none.
        header: whether the first row names the columns, and is no row itself.
        dropped: the names of the other columns.
    """

    width: int
    path: int
    label: int
    split: int | None
    header: bool
    dropped: tuple[str, ...] = ()


class _Lines:
    """The lines of a file as text, and no more of them for one row than a row can have."""

    def __init__(self, file: BinaryIO, table: Path) -> None:
        file.seek(0)
        self.table = table
        self.number = 0
        self.taken = 0  # bytes, since the last row was whole
        self._file = file

    def __iter__(self) -> Iterator[str]:
        while line := self._file.readline(MAX_ROW_BYTES + 1):
            self.number += 1
            self.taken += len(line)
            if self.taken > MAX_ROW_BYTES:
                raise SourceError(
                    f"line {self.number}: the row is too long",
                    path=self.table,
                    expected=f"at most {MAX_ROW_BYTES:,} bytes",
                    hint="perhaps a quotation mark lacks the one that ends it",
                )
            yield _decoded(line, self.number, self.table)


def _decoded(line: bytes, number: int, table: Path) -> str:
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise SourceError(
            f"line {number} is no text in UTF-8", path=table, hint="save the table as UTF-8"
        )
    return text


def read_csv(file: BinaryIO, table: Path) -> Iterator[Row]:
    """Yield the rows of a table, separated by commas, semicolons or tabs.

    Args:
        file: the table, open at any position.
        table: its path, for errors.

    Raises:
        SourceError: it is no CSV, or no columns of paths and labels are found in it.
        OSError: it can't be read.
    """
    delimiter, columns = _layout(file, table)
    lines = _Lines(file, table)
    header = columns.header
    for number, cells in enumerate(_cells(lines, delimiter), start=1):
        lines.taken = 0
        if not any(cells):
            continue
        if header:
            header = False
            continue
        where = f"row {number}"
        if any(cells[columns.width :]):
            problem = f"{len(cells)} cells, where the table has {columns.width} columns"
            yield Row(where=where, path=_cell(cells, columns.path), problem=problem)
            continue
        yield Row(
            where=where,
            path=_cell(cells, columns.path),
            label=_cell(cells, columns.label).strip(),
            split=_cell(cells, columns.split).strip().lower(),
            dropped=columns.dropped,
        )


def _cells(lines: _Lines, delimiter: str) -> Iterator[list[str]]:
    # Without `strict` a quotation mark that isn't closed would swallow rows in silence.
    # A blank behind the separator is nobody's file name, and would hide a quotation mark.
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
    try:
        yield from reader
    except csv.Error as error:
        raise SourceError(
            f"line {lines.number}: no CSV",
            path=lines.table,
            found=error,
            hint="perhaps a quotation mark lacks the one that ends it",
        ) from error


def _cell(cells: Sequence[str], position: int | None) -> str:
    return "" if position is None or position >= len(cells) else cells[position]


def _layout(file: BinaryIO, table: Path) -> tuple[str, _Columns]:
    """Return the separator of a CSV table, and where its columns are.

    The separator is the one that makes known columns of the first row, so that commas in the name
    of a column, or in a path, don't count.
    """
    firsts: list[list[str]] = []
    failure: SourceError | None = None
    for delimiter in _DELIMITERS:
        rows = _cells(_Lines(file, table), delimiter)
        try:
            first = next((cells for cells in rows if any(cells)), None)
        except SourceError as error:
            failure = failure or error
            continue
        if first is None:
            raise SourceError("is empty", path=table, expected="a table of paths and labels")
        firsts.append(first)
        columns = _named(first, table) or _nameless(first)
        if columns is not None:
            return delimiter, columns
    if not firsts:
        raise failure or SourceError("no CSV", path=table)
    raise no_columns(max(firsts, key=len), table)


def _named(first: Sequence[str], table: Path) -> _Columns | None:
    """Return the columns that a header names; None if it is none, or lacks one of them."""
    try:
        places = find_columns(first)
    except ValueError as error:
        raise SourceError(f"its column {error}", path=table) from error
    path, label, split = places
    if path is None or label is None:
        return None
    check_no_boxes(first, table)
    return _Columns(
        width=len(first),
        path=path,
        label=label,
        split=split,
        header=True,
        dropped=other_columns(first, places),
    )


def _nameless(first: Sequence[str]) -> _Columns | None:
    """Return the columns of a table without a header, whose first row must name an image."""
    width = len(first)
    if width in (2, 3) and is_image_name(first[0]):
        split = 2 if width == 3 else None
        return _Columns(width=width, path=0, label=1, split=split, header=False)
    if width == 3 and is_image_name(first[1]):  # as AutoML has it
        return _Columns(width=width, path=1, label=2, split=0, header=False)
    return None
