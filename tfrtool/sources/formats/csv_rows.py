"""Rows of CSV, one by one.

The reader is the standard library's. That of pyarrow reports neither the line nor the row of an
error, takes an unclosed quotation mark for text, and gives up a whole table for one bad line.
"""

import csv
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, BinaryIO

from tfrtool.errors import SourceError, human_count, printable
from tfrtool.sources.formats.table_limits import check_column_count, raw_lines, text_of
from tfrtool.sources.formats.unpacked import plain_suffix
from tfrtool.storage.limits import MAX_ROW_BYTES
from tfrtool.storage.remote_path import AnyPath

DELIMITERS = ",;\t|"

_QUOTES = "check for an unclosed quotation mark"
_CSV_REASONS = {
    "unexpected end": "the file ends inside a quoted cell",
    "expected after": "text after a closing quotation mark",
    "field limit": "a cell is too long",
    "new-line character": "a carriage return inside a line",
}
"""What the messages of `csv` mean."""

_HEAD, _ROWS_LOOKED_AT = 65_536, 100
"""Bytes and rows in which the delimiter is detected."""


def csv_rows(
    file: BinaryIO,
    path: AnyPath,
    delimiter: str,
    *,
    quote: str = '"',
    limit: int = MAX_ROW_BYTES,
    start: int = 0,
    nulls: bool = False,
) -> Iterator[list[Any]]:
    """Yield rows as cells, with at most ``limit`` bytes in memory; "" as ``quote`` is none.

    With ``nulls``, an empty cell is None, and "" only if it is in quotation marks.

    Raises:
        SourceError: a row is too long, not UTF-8, or not valid CSV; the error names the line.
    """
    csv.field_size_limit(limit)
    row_length = 0  # characters since the last complete row
    row_lines = list[str]()  # of the current row, if it is looked at again

    def lines() -> Iterator[str]:
        nonlocal row_length
        for number, raw in raw_lines(file, path, limit, start):
            line = text_of(raw, number, path)
            row_length += len(line)
            if row_length > limit:
                what = f"line {number}: the row is longer than {limit:,} bytes"
                raise SourceError(what, path=path, hint=_QUOTES)
            if nulls:
                row_lines.append(line)
            yield line

    # Without `strict`, an unclosed quotation mark would swallow rows in silence. A blank after the
    # delimiter belongs to no file name, and would hide a quotation mark.
    reader = csv.reader(lines(), **_dialect(delimiter, quote))
    try:
        for cells in reader:
            row_length = 0
            yield _with_nulls(cells, "".join(row_lines), delimiter, quote) if nulls else cells
            row_lines.clear()
    except csv.Error as error:
        reason = next((ours for text, ours in _CSV_REASONS.items() if text in str(error)), error)
        what = f"line {reader.line_num}: invalid CSV: {reason}"
        raise SourceError(what, path=path, hint=_QUOTES) from error


def _with_nulls(cells: list[str], row: str, delimiter: str, quote: str) -> list[str | None]:
    """Return the cells of a row; None for an empty one that isn't in quotation marks."""
    if "" not in cells:
        return [*cells]
    if not quote or quote * 2 not in row:
        return [cell or None for cell in cells]
    mark, end = re.escape(quote), rf"(?:{re.escape(delimiter)}|[\r\n]*\Z)"
    pattern = rf" *({mark}(?:[^{mark}]|{mark}{mark})*{mark}|[^{re.escape(delimiter)}\r\n]*){end}"
    texts = re.compile(pattern).findall(row)
    return [cell or ("" if text else None) for cell, text in zip(cells, texts, strict=False)]


def check_header(names: Sequence[str], path: AnyPath) -> None:
    """Raise a `SourceError` if two columns have the same name, or there are too many."""
    check_column_count(len(names), path)
    if len(set(names)) < len(names):
        duplicate = next(name for name in names if names.count(name) > 1)
        raise SourceError(f"two columns are named {printable(duplicate)!r}", path=path)


def check_width(
    cells: Sequence[object], names: Sequence[str], path: AnyPath, record: int | None
) -> None:
    """Raise a `SourceError` if a row has more or fewer cells than the table has columns."""
    if len(cells) != len(names):
        columns = human_count(len(names), "column")
        what = f"{human_count(len(cells), 'cell')} in a table of {columns}"
        raise SourceError(what, path=path, record=record)


def _dialect(delimiter: str, quote: str) -> dict[str, Any]:
    quoting = csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE
    return {
        "delimiter": delimiter,
        "quotechar": quote or None,
        "quoting": quoting,
        "skipinitialspace": True,
        "strict": True,
    }


def detect_delimiter(file: BinaryIO, path: AnyPath, quote: str = '"') -> str:
    """Return the delimiter that gives the most columns, the same number in each of the first rows.

    Files that end in .tsv have tabs.
    """
    file.seek(0)
    head = file.read(_HEAD).decode("utf-8-sig", "replace")
    lines = head.splitlines(keepends=True)
    lines = lines[:-1] if len(lines) > 1 and len(head) >= _HEAD else lines
    delimiters = "\t" if plain_suffix(path) == ".tsv" else DELIMITERS
    widths = {}
    for delimiter in delimiters:
        counts = set[int]()
        reader = csv.reader(lines, **_dialect(delimiter, quote))
        try:
            counts.update(len(cells) for cells in islice(reader, _ROWS_LOOKED_AT) if cells)
        except csv.Error as error:
            if "unexpected end" not in str(error):  # a row that goes on after the head
                continue
        widths[delimiter] = counts.pop() if len(counts) == 1 else 1
    best = max(widths, key=lambda delimiter: widths[delimiter], default=delimiters[0])
    return best if widths.get(best, 1) > 1 else delimiters[0]
