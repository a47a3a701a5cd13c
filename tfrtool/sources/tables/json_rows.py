"""Reading tables in JSON Lines, line by line: one that can't be read costs no other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from tfrtool.errors import SourceError
from tfrtool.sources.tables.table_columns import Row, find_columns, needed_columns
from tfrtool.storage.limits import MAX_ROW_BYTES

_MOST_PIECES = 1024
"""Times `MAX_ROW_BYTES` that a line may have to be passed over: a sparse file has no end."""

_EXPECTED = "JSON Lines, an object on each line"


class _Number(str):
    """An integer of JSON as it is written, so that it can be told from a string."""

    __slots__ = ()


class _Object(tuple[tuple[str, object], ...]):
    """The pairs of a JSON object; a dict would keep the last of two alike without a word."""

    __slots__ = ()


def read_json_lines(file: BinaryIO, table: Path) -> Iterator[Row]:
    """Yield the rows of a table, an object on each line.

    A line that is none is a row with a problem; the first must be one, for else the file is
    something other than JSON Lines.
    """
    number, first = 0, True
    while line := file.readline(MAX_ROW_BYTES + 1):
        number += 1
        where = f"line {number}"
        try:
            if len(line) > MAX_ROW_BYTES:
                _pass_over(file, where, table)
                raise ValueError(f"longer than {MAX_ROW_BYTES:,} bytes")
            text = _decoded(line, number)
            row = _row(text, where, table if first else None) if text else None
        except (ValueError, RecursionError) as error:
            problem = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            if first:
                raise SourceError(f"{where}: {problem}", path=table, expected=_EXPECTED) from error
            row = Row(where, problem=problem)
        if row is not None:
            first = False
            yield row
    if first:
        raise SourceError("is empty", path=table, expected=_EXPECTED)


def _pass_over(file: BinaryIO, where: str, table: Path) -> None:
    """Read the rest of a line that is too long."""
    for _ in range(_MOST_PIECES):
        line = file.readline(MAX_ROW_BYTES)
        if not line or line.endswith(b"\n"):
            return
    most = _MOST_PIECES * MAX_ROW_BYTES
    raise SourceError(f"{where}: longer than {most:,} bytes", path=table)


def _decoded(line: bytes, number: int) -> str:
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
    except UnicodeDecodeError:
        raise ValueError("no text in UTF-8") from None


def _row(text: str, where: str, needed_of: Path | None) -> Row:
    """Return the row that a line is; a ValueError says why it is none.

    The first one must have the columns that are needed of a table.
    """
    try:
        # As text, integers stay as they are written, and ten thousand digits cost nothing.
        value = json.loads(text, object_pairs_hook=_Object, parse_int=_Number)
    except ValueError:
        raise ValueError("no JSON") from None
    if not isinstance(value, _Object):
        raise ValueError("no JSON object")
    names = [name for name, _ in value]
    places = find_columns(names) if needed_of is None else needed_columns(names, needed_of)
    entries = {"path": "", "label": "", "split": ""}
    for role, place in places._asdict().items():
        entry = None if place is None else value[place][1]
        if role == "label" and isinstance(entry, list):
            # Refused later, when all is known of the table.
            entry = json.dumps(entry) if entry else None
        if entry is None:
            continue
        if not isinstance(entry, str) or (isinstance(entry, _Number) and role != "label"):
            kinds = "a string or an integer" if role == "label" else "a string"
            raise ValueError(f"its {role} is not {kinds}")
        entries[role] = str(entry)
    return Row(
        where,
        entries["path"],
        entries["label"].strip(),
        entries["split"].strip().lower(),
        dropped=places.others(names),
    )
