"""Limits of tables: their columns, rows and lines."""

from collections.abc import Iterator
from typing import BinaryIO

from tfrtool.errors import SourceError
from tfrtool.storage.limits import MAX_COLUMNS, row_limit
from tfrtool.storage.remote_path import AnyPath

BOM = b"\xef\xbb\xbf"


def check_column_count(count: int, table: AnyPath) -> None:
    """Raise a `SourceError` for a table with too many columns."""
    if count > MAX_COLUMNS:
        most = f"at most {MAX_COLUMNS:,}"
        raise SourceError("too many columns", path=table, expected=most, found=f"{count:,}")


def check_row_count(rows: int, size: int, table: AnyPath) -> None:
    """Raise a `SourceError` for a table with more rows than a file of ``size`` bytes may have."""
    most = row_limit(size)
    if rows > most:
        what = f"more than {most:,} rows in a compressed file of {size:,} bytes"
        raise SourceError(what, path=table)


def raw_lines(file: BinaryIO, path: AnyPath, limit: int, start: int) -> Iterator[tuple[int, bytes]]:
    """Yield lines from an offset on with their numbers from 1, the first without its BOM."""
    file.seek(start)
    number = 0
    while line := file.readline(limit + 1):
        number += 1
        if len(line) > limit:
            raise SourceError(f"line {number} is longer than {limit:,} bytes", path=path)
        yield number, line if number > 1 or start else line.removeprefix(BOM)


def text_of(line: bytes, number: int, path: AnyPath) -> str:
    """Return a line as text; `SourceError` if it isn't UTF-8, or has a NUL character."""
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        what = f"line {number} is not valid UTF-8"
        raise SourceError(what, path=path, hint="save the table as UTF-8") from error
    if "\0" in text:
        what = f"line {number} contains a NUL character"
        raise SourceError(what, path=path, hint="save the table as UTF-8")
    return text
