"""Reading tables in CSV, whatever separates the cells.

The standard library's reader: pyarrow's takes a quotation mark that isn't closed for text, and
tells neither the line nor the row of what it can't read.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from tfrtool.errors import SourceError
from tfrtool.sources.folders.listing import is_image_name
from tfrtool.sources.tables.table_columns import (
    Places,
    Row,
    check_no_boxes,
    find_columns,
    no_columns,
)
from tfrtool.storage.limits import MAX_ROW_BYTES

_DELIMITERS = ",;\t"
_QUOTES = "perhaps a quotation mark lacks the one that ends it"


def read_csv(file: BinaryIO, table: Path) -> Iterator[Row]:
    """Yield the rows of a table, separated by commas, semicolons or tabs."""
    delimiter, first, places, named = _layout(file, table)
    dropped = places.others(first) if named else ()
    for number, cells in enumerate(_Cells(file, table, delimiter), start=1):
        if not any(cells):
            continue
        if named:
            named = False
            continue
        path, label, split = (
            "" if place is None or place >= len(cells) else cells[place] for place in places
        )
        problem = None
        if any(cells[len(first) :]):
            problem = f"{len(cells)} cells, where the table has {len(first)} columns"
        yield Row(f"row {number}", path, label.strip(), split.strip().lower(), problem, dropped)


class _Cells:
    """The rows of a file as cells, and no more of it in memory than a row can have."""

    def __init__(self, file: BinaryIO, table: Path, delimiter: str) -> None:
        self._file = file
        self._table = table
        self._delimiter = delimiter
        self._line = 0
        self._taken = 0  # bytes, since the last row was whole

    def __iter__(self) -> Iterator[list[str]]:
        # Without `strict` a quotation mark that isn't closed would swallow rows in silence.
        # A blank behind the separator is nobody's file name, and would hide a quotation mark.
        reader = csv.reader(
            self._lines(), delimiter=self._delimiter, skipinitialspace=True, strict=True
        )
        try:
            for cells in reader:
                self._taken = 0
                yield cells
        except csv.Error as error:
            raise SourceError(
                f"line {self._line}: no CSV", path=self._table, found=error, hint=_QUOTES
            ) from error

    def _lines(self) -> Iterator[str]:
        self._file.seek(0)
        while line := self._file.readline(MAX_ROW_BYTES + 1):
            self._line += 1
            self._taken += len(line)
            if self._taken > MAX_ROW_BYTES:
                raise SourceError(
                    f"line {self._line}: the row is too long",
                    path=self._table,
                    expected=f"at most {MAX_ROW_BYTES:,} bytes",
                    hint=_QUOTES,
                )
            try:
                text = line.decode("utf-8-sig" if self._line == 1 else "utf-8")
            except UnicodeDecodeError:
                text = "\0"
            if "\0" in text:
                raise SourceError(
                    f"line {self._line} is no text in UTF-8",
                    path=self._table,
                    hint="save the table as UTF-8",
                )
            yield text


def _layout(file: BinaryIO, table: Path) -> tuple[str, list[str], Places, bool]:
    """Return a table's separator, its first row, its columns, and whether that row names them.

    The separator is the one that makes known columns of the first row, so that commas in the name
    of a column, or in a path, don't count.
    """
    firsts: list[list[str]] = []
    failure: SourceError | None = None
    for delimiter in _DELIMITERS:
        try:
            first = next((cells for cells in _Cells(file, table, delimiter) if any(cells)), None)
        except SourceError as error:
            failure = failure or error
            continue
        if first is None:
            raise SourceError("is empty", path=table, expected="a table of paths and labels")
        firsts.append(first)
        try:
            places = find_columns(first)
        except ValueError as error:
            raise SourceError(f"its column {error}", path=table) from error
        if places.path is not None and places.label is not None:
            check_no_boxes(first, table)
            return delimiter, first, places, True
        if nameless := _nameless(first):
            return delimiter, first, nameless, False
    if not firsts:
        raise failure or SourceError("no CSV", path=table)
    raise no_columns(max(firsts, key=len), table)


def _nameless(first: Sequence[str]) -> Places | None:
    """Return the columns of a table without a header, whose first row must name an image."""
    width = len(first)
    if width in (2, 3) and is_image_name(first[0]):
        return Places(0, 1, 2 if width == 3 else None)
    if width == 3 and is_image_name(first[1]):  # as AutoML has it
        return Places(1, 2, 0)
    return None
