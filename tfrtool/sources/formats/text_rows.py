"""Rows of CSV, JSON Lines and JSON lists, one by one, and the types of their columns.

CSV is the standard library's: pyarrow's reader reports neither the line nor the row of an error,
takes an unclosed quotation mark for text, and gives up a whole table for one bad line.
"""

import csv
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, BinaryIO

import msgspec

from tfrtool.errors import SourceError, human_count, printable
from tfrtool.examples.content import is_plain_text
from tfrtool.examples.dtypes import NumberRange, exact_number, text_number
from tfrtool.examples.example import DType
from tfrtool.sources.formats.json_lists import JsonFile
from tfrtool.sources.formats.unpacked import plain_suffix
from tfrtool.storage.limits import MAX_COLUMNS, MAX_DIMENSIONS, MAX_ROW_BYTES, row_limit
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

_BOM = b"\xef\xbb\xbf"
_HEAD, _ROWS_LOOKED_AT = 65_536, 100
"""Bytes and rows in which the delimiter is detected."""

_UNSAFE_NUMBER = re.compile(
    rb"[\[:,\s]-?(?:[0-9]{16,}\.|(?:[0-9]+\.)?[0-9]{15,}[eE]|[0-9]+(?:\.[0-9]+)?[eE]\+?[0-9]{3})"
)
"""Numbers that may be whole and beyond what a double holds. `msgspec` rounds them."""

_LONGEST_INTEGER, _SHORT, _SHOWN = 1024, 18, 40

_decode = msgspec.json.Decoder().decode


class NumberError(ValueError):
    """A number that neither a double nor a bounded integer holds."""


def _raw_lines(
    file: BinaryIO, path: AnyPath, limit: int, start: int
) -> Iterator[tuple[int, bytes]]:
    file.seek(start)
    number = 0
    while line := file.readline(limit + 1):
        number += 1
        if len(line) > limit:
            raise SourceError(f"line {number} is longer than {limit:,} bytes", path=path)
        yield number, line if number > 1 or start else line.removeprefix(_BOM)


def _text_of(line: bytes, number: int, path: AnyPath) -> str:
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        what = f"line {number} is not valid UTF-8"
        raise SourceError(what, path=path, hint="save the table as UTF-8") from error
    if "\0" in text:
        what = f"line {number} contains a NUL character"
        raise SourceError(what, path=path, hint="save the table as UTF-8")
    return text


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
        for number, raw in _raw_lines(file, path, limit, start):
            line = _text_of(raw, number, path)
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


def json_rows(
    file: BinaryIO, path: AnyPath, *, limit: int = MAX_ROW_BYTES, start: int = 0
) -> Iterator[tuple[str, int, int, Mapping[str, Any] | str]]:
    """Yield the object of each line, or element of a list, or why it is not an object.

    With each come its place for messages, its number from 1, and the offset of its end, from which
    further rows can be read.
    Numbers are exact: a whole number that no double holds is an integer. Empty lines are skipped.
    """
    file.seek(0)
    if file.read(_HEAD).removeprefix(_BOM).lstrip().startswith(b"["):
        rows: Iterator[tuple[int, bytes]] = JsonFile(file, path).elements(start)
        numbered = ((f"element {at}", at, end, text) for at, (end, text) in enumerate(rows, 1))
    else:
        lines = _raw_lines(file, path, limit, start)
        numbered = ((f"line {at}", at, file.tell(), line) for at, line in lines)
    for location, number, end, line in numbered:
        if line.isspace():
            continue
        try:
            row = parse_json(line)
            yield location, number, end, row if isinstance(row, dict) else "not a JSON object"
        except NumberError as error:
            yield location, number, end, str(error)
        except RecursionError:
            yield location, number, end, "nested too deeply"
        except ValueError as error:
            if not _text_of(line, number, path).isspace():
                yield location, number, end, f"not valid JSON (column {getattr(error, 'colno', 1)})"


def parse_json(text: bytes) -> Any:
    """Return the value of a JSON text in UTF-8, with exact numbers.

    Raises:
        NumberError: a number is too large.
        ValueError: it is not valid JSON.
        RecursionError: it is nested too deeply.
    """
    if not _UNSAFE_NUMBER.search(text):
        try:
            return _decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError):  # NaN, lone surrogates, or damage
            pass
    return json.loads(text.rstrip(), parse_float=_parse_float, parse_int=_parse_int)


def _parse_float(digits: str) -> int | float:
    value = exact_number(digits)
    if math.isinf(value):  # what Python's own reader makes of it
        raise NumberError(f"the number {digits[:_SHOWN]} is too large")
    return value


def _parse_int(digits: str) -> int:
    if len(digits) > _LONGEST_INTEGER:
        what = f"the number {digits[:_SHOWN]}... is longer than {_LONGEST_INTEGER:,} characters"
        raise NumberError(what)
    return int(digits)


def cell_number(text: str) -> int | float | None:
    """Return the number that a cell of CSV stands for; None if it is text."""
    if text.isdecimal() and text.isascii() and len(text) <= _SHORT:  # most are
        return int(text) if text[0] != "0" or len(text) == 1 else None
    return text_number(text)


@dataclass(slots=True)
class CellTypes:
    """A fold over the cells of a column."""

    dtypes: set[DType] = field(default_factory=set)  # of the values
    is_list: bool = False  # whether a cell is a list
    cells: int = 0  # that are not missing
    numbers: NumberRange = field(default_factory=NumberRange)
    text: tuple[int, Any] | None = None  # the first, with its row
    is_text: bool = True  # whether all bytes are plain text
    sizes: list[int] = field(default_factory=list)  # of the lists within lists, by level

    def add_lists(self, values: list[Any]) -> list[Any]:
        """Add a list, and return its values; `ValueError` if lists in it have other lengths."""
        level = 0
        while any(isinstance(one, list) for one in values):
            sizes = {len(one) if isinstance(one, list) else -1 for one in values}
            if level == len(self.sizes) and not self.dtypes:
                self.sizes.append(max(sizes))
            if level == len(self.sizes) or sizes != {self.sizes[level]} or 0 in sizes:
                raise ValueError("lists of different lengths")
            values = [value for one in values for value in one]
            level += 1
            if level >= MAX_DIMENSIONS:
                raise ValueError(f"lists more than {MAX_DIMENSIONS} levels deep")
        if values and level < len(self.sizes):
            raise ValueError("lists of different lengths")
        return values

    def add(self, value: Any, dtype: DType, row: int) -> None:
        """Add a value: a number if it has such a type, otherwise a text; rows ascend."""
        self.dtypes.add(dtype)
        if dtype is not DType.STRING:
            self.numbers.add(value, row)
            return
        self.text = self.text or (row, value)
        if isinstance(value, bytes | dict):  # an object has bytes in base64
            self.is_text = self.is_text and isinstance(value, bytes) and is_plain_text(value)
