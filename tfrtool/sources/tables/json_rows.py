"""Reading tables in JSON Lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from tfrtool.errors import SourceError
from tfrtool.sources.tables.table_rows import (
    Row,
    check_no_boxes,
    find_columns,
    no_columns,
    other_columns,
)
from tfrtool.storage.limits import MAX_ROW_BYTES

__all__ = ["read_json_lines"]


_MOST_PIECES = 1024
"""Times `MAX_ROW_BYTES` that a line may have to be passed over: a sparse file has no end."""


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

    Args:
        file: the table, open at its start.
        table: its path, for errors.

    Raises:
        SourceError: its first line is no object, or names no path and no label.
        OSError: it can't be read.
    """
    first = True
    for number, line in _json_lines(file, table):
        where = f"line {number}"
        try:
            if line is None:
                raise ValueError(f"longer than {MAX_ROW_BYTES:,} bytes")
            row = _json_row(line, where, number, first=first, table=table)
        except (ValueError, RecursionError) as error:
            problem = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            if first:
                raise SourceError(
                    f"{where}: {problem}",
                    path=table,
                    expected="JSON Lines, an object on each line",
                ) from error
            row = Row(where=where, problem=problem)
        if row is not None:
            first = False
            yield row
    if first:
        raise SourceError("is empty", path=table, expected="an object on each line")


def _json_lines(file: BinaryIO, table: Path) -> Iterator[tuple[int, bytes | None]]:
    """Yield numbered lines; None for one that is too long."""
    number = 0
    while line := file.readline(MAX_ROW_BYTES + 1):
        number += 1
        if len(line) <= MAX_ROW_BYTES:
            yield number, line
            continue
        for _ in range(_MOST_PIECES):
            line = file.readline(MAX_ROW_BYTES)
            if not line or line.endswith(b"\n"):
                break
        else:
            most = _MOST_PIECES * MAX_ROW_BYTES
            raise SourceError(f"line {number}: longer than {most:,} bytes", path=table)
        yield number, None


def _json_row(line: bytes, where: str, number: int, *, first: bool, table: Path) -> Row | None:
    """Return the row that a line is; None for an empty line.

    Raises:
        ValueError: it is none; says why.
        RecursionError: it is nested too deeply.
        SourceError: it is the first, and names no column that is known.
    """
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
    except UnicodeDecodeError:
        raise ValueError("no text in UTF-8") from None
    if not text:
        return None
    try:
        # As text, integers stay as they are written, and ten thousand digits cost nothing.
        value = json.loads(text, object_pairs_hook=_Object, parse_int=_Number)
    except ValueError:
        raise ValueError("no JSON") from None
    if not isinstance(value, _Object):
        raise ValueError("no JSON object")
    names = [name for name, _ in value]
    path, label, split = places = find_columns(names)
    if first and (path is None or label is None):
        raise no_columns(names, table)
    if first:
        check_no_boxes(names, table)
    values: dict[str, object] = {
        role: value[position][1]
        for role, position in (("path", path), ("label", label), ("split", split))
        if position is not None and value[position][1] is not None
    }
    if isinstance(labels := values.get("label"), list):
        # Refused later, when all is known of the table.
        values["label"] = json.dumps(labels) if labels else ""
    for role, entry in values.items():
        if not isinstance(entry, str) or (isinstance(entry, _Number) and role != "label"):
            kinds = "a string or an integer" if role == "label" else "a string"
            raise ValueError(f"its {role} is not {kinds}")
    return Row(
        where=where,
        path=str(values.get("path", "")),
        label=str(values.get("label", "")).strip(),
        split=str(values.get("split", "")).strip().lower(),
        dropped=other_columns(names, places),
    )
