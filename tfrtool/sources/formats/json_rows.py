"""Rows of JSON Lines and JSON lists, one by one, with exact numbers."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import msgspec

from tfrtool.examples.dtypes import exact_number
from tfrtool.sources.formats.json_lists import JsonFile
from tfrtool.sources.formats.table_limits import BOM, raw_lines, text_of
from tfrtool.storage.limits import MAX_ROW_BYTES
from tfrtool.storage.remote_path import AnyPath

_HEAD = 65_536
"""Bytes in which a list starts."""

_UNSAFE_NUMBER = re.compile(
    rb"[\[:,\s]-?(?:[0-9]{16,}\.|(?:[0-9]+\.)?[0-9]{15,}[eE]|[0-9]+(?:\.[0-9]+)?[eE]\+?[0-9]{3})"
)
"""Numbers that may be whole and beyond what a double holds. `msgspec` rounds them."""

_LONGEST_INTEGER, _SHOWN = 1024, 40

_decode = msgspec.json.Decoder().decode


class NumberError(ValueError):
    """A number that neither a double nor a bounded integer holds."""


def json_rows(
    file: BinaryIO, path: AnyPath, *, limit: int = MAX_ROW_BYTES, start: int = 0
) -> Iterator[tuple[str, int, int, Mapping[str, Any] | str]]:
    """Yield the object of each line, or element of a list, or why it is not an object.

    With each come its place for messages, its number from 1, and the offset of its end, from which
    further rows can be read.
    Numbers are exact: a whole number that no double holds is an integer. Empty lines are skipped.
    """
    file.seek(0)
    if file.read(_HEAD).removeprefix(BOM).lstrip().startswith(b"["):
        rows: Iterator[tuple[int, bytes]] = JsonFile(file, path).elements(start)
        numbered = ((f"element {at}", at, end, text) for at, (end, text) in enumerate(rows, 1))
    else:
        lines = raw_lines(file, path, limit, start)
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
            if not text_of(line, number, path).isspace():
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
