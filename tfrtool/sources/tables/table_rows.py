"""The rows of a table in CSV, JSON Lines or Parquet, one by one.

CSV and JSON are the standard library's: pyarrow's readers tell neither the line nor the row of what
they can't read, take a quotation mark that isn't closed for text, and give up a whole table for one
bad line.
"""

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from tfrtool.errors import SourceError, os_errors_as, printable
from tfrtool.sources.folders.listing import is_image_name
from tfrtool.sources.item_rows import FoundItem
from tfrtool.sources.source_options import SourceOptions
from tfrtool.sources.tables.table_columns import (
    TableColumns,
    check_column_count,
    check_columns,
    find_columns,
)
from tfrtool.sources.tables.table_values import ValueColumns
from tfrtool.storage.limits import MAX_ROW_BYTES
from tfrtool.storage.opening import open_regular, size_of_file

PARQUET = b"PAR1"  # what a table in Parquet starts with
_JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
_CSV_SUFFIXES = (".csv", ".tsv")
_HEAD = 4096
"""Bytes that tell what a table of another name is; blanks may come first."""

DELIMITERS = ",;\t|"
_QUOTES = "check for an unclosed quotation mark"

_CSV_REASONS = {
    "unexpected end": "the file ends inside a quoted cell",
    "expected after": "text after a closing quotation mark",
    "field limit": "a cell is too long",
    "new-line character": "a carriage return inside a line",
}
"""What the messages of `csv` mean."""

_FREE_ROWS = 100_000
"""Rows that a table may have however small it is; more need a byte of it each, for paths differ."""

_TEXT = (str, type(None))
"""A tuple, for a union would be made anew for each row."""

_USUAL = SourceOptions()

_Cells = Mapping[str, object] | str
"""The cells of a row by the names of their columns; or why it is no row."""


def read_rows(
    table: Path, options: SourceOptions = _USUAL, columns: ValueColumns | None = None
) -> Iterator[FoundItem]:
    """Read a table, row by row: keys are paths as they are written, and places numbers of rows.

    Rows are counted from 1, with the header and empty lines. A group is the cell of a further
    column, if there is one of that name. Labels are without blanks around them, and splits in lower
    case. With columns that become features, it needs no labels unless ``options`` are about them.

    Parquet is told by its first bytes. The rest is text, whose name tells: JSON Lines for .jsonl,
    .ndjson and .json, CSV for .csv and .tsv; of another name, whether its first line starts with a
    brace. Memory is bounded by a row, in Parquet by a group of them.
    """
    group_by, label_column = options.group_by, options.label_column
    form = _Needs(columns, options)
    with os_errors_as(SourceError, table), open_regular(table) as file:
        head, suffix = file.read(_HEAD), table.suffix.lower()
        file.seek(0)
        braced = head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")
        read: Callable[..., Iterator[tuple[int, _Cells]]] = _read_csv
        if head.startswith(PARQUET):
            read = _read_parquet
        elif suffix in _JSON_SUFFIXES or (braced and suffix not in _CSV_SUFFIXES):
            read = _read_json_lines
        typed, names = read is not _read_csv, list[str]()
        mine: Sequence[str] = ()
        for number, cells in read(file, table, form):
            if isinstance(cells, str):
                yield FoundItem("", place=number, problem=cells)
                continue
            if names != list(cells):
                names = list(cells)
                roles = find_columns(names, label_column)
                if columns is not None:
                    roles, mine = columns.of(names, roles)
                others = [name for name in names if name not in (*roles, *mine, group_by)]
            path, label, split = (None if name is None else cells.get(name) for name in roles)
            if isinstance(label, list):
                label = json.dumps(label) if label else None
            if isinstance(label, int) and not isinstance(label, bool):
                label = str(label)
            if not isinstance(label, _TEXT):
                yield FoundItem("", place=number, problem="label is not a string or an integer")
            elif not isinstance(path, _TEXT) or not isinstance(split, _TEXT):
                role = "split" if isinstance(path, _TEXT) else "path"
                yield FoundItem("", place=number, problem=f"{role} is not a string")
            elif isinstance(group := cells.get(group_by) if group_by else None, (list, dict)):
                yield FoundItem("", place=number, problem="group is not a string or a number")
            else:
                label, split = (label or "").strip(), (split or "").strip().lower()
                path = path or ""
                told = cells, split, group, mine, typed, others
                yield FoundItem(path, label, 0, number, None, *told)


def text_lines(
    file: BinaryIO, table: Path, *, start: int = 0, limit: int = MAX_ROW_BYTES
) -> Iterator[str]:
    """Yield the lines of a text from an offset on, none of them longer than a row may be."""
    file.seek(start)
    number = 0
    while line := file.readline(limit + 1):
        number += 1
        if len(line) > limit:
            raise SourceError(f"line {number} is longer than {limit:,} bytes", path=table)
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            what = f"line {number} is not valid UTF-8"
            raise SourceError(what, path=table, hint="save the table as UTF-8") from error
        if "\0" in text:
            what = f"line {number} contains a NUL character"
            raise SourceError(what, path=table, hint="save the table as UTF-8")
        yield text


class _Needs(NamedTuple):
    """Which columns a table must have."""

    columns: ValueColumns | None
    options: SourceOptions

    @property
    def labelled(self) -> bool:
        """Whether it must have labels."""
        return self.columns is None or self.options.about_labels

    def check(self, names: Sequence[str], table: Path) -> TableColumns:
        """Return the columns that count; a SourceError if one lacks or is there twice."""
        check_column_count(len(names), table)
        columns, counts = self.columns, Counter(names)
        wanted = () if columns is None else columns.asked
        for name in names if columns is not None and columns.all else wanted:
            if name.strip() and counts[name] > 1:
                raise SourceError(f"duplicate column '{printable(name)}'", path=table)
        label = self.options.label_column
        return check_columns(names, table, labels=self.labelled, wanted=wanted, label=label)


def _read_csv(file: BinaryIO, table: Path, form: _Needs) -> Iterator[tuple[int, _Cells]]:
    """Yield the rows of a table, separated by commas, semicolons, tabs or bars."""
    delimiter, names, header = _layout(file, table, form)
    for number, cells in enumerate(csv_rows(file, table, delimiter), start=1):
        if not any(cells):
            continue
        if header:
            header = False
        elif any(cells[len(names) :]):
            yield number, f"{len(cells)} cells, but the table has {len(names)} columns"
        else:
            yield number, dict(zip(names, cells, strict=False))


def csv_rows(
    file: BinaryIO, table: Path, delimiter: str, *, start: int = 0, limit: int = MAX_ROW_BYTES
) -> Iterator[list[str]]:
    """Yield rows as cells, with no more of the file in memory than a row can have."""
    taken = 0  # characters, since the last row was whole

    def lines() -> Iterator[str]:
        nonlocal taken
        read = text_lines(file, table, start=start, limit=limit)
        for number, line in enumerate(read, start=1):
            taken += len(line)
            if taken > limit:
                raise SourceError(
                    f"line {number}: the row is longer than {limit:,} bytes",
                    path=table,
                    hint=_QUOTES,
                )
            yield line

    # Without `strict` a quotation mark that isn't closed would swallow rows in silence. A blank
    # behind the separator is nobody's file name, and would hide a quotation mark.
    reader = csv.reader(lines(), delimiter=delimiter, skipinitialspace=True, strict=True)
    try:
        for cells in reader:
            taken = 0
            yield cells
    except csv.Error as error:
        reason = next((ours for text, ours in _CSV_REASONS.items() if text in str(error)), error)
        what = f"line {reader.line_num}: invalid CSV: {reason}"
        raise SourceError(what, path=table, hint=_QUOTES) from error


def _layout(file: BinaryIO, table: Path, form: _Needs) -> tuple[str, Sequence[str], bool]:
    """Return a table's separator, the names of its columns, and whether its first row has them.

    The separator is the one that makes known columns of the first row, so that commas in the name
    of a column, or in a path, don't count.
    """
    firsts: list[list[str]] = []
    failure: SourceError | None = None
    for delimiter in DELIMITERS:
        try:
            first = next((cells for cells in csv_rows(file, table, delimiter) if any(cells)), None)
        except SourceError as error:
            failure = failure or error
            continue
        if first is None:
            raise SourceError("empty file", path=table, expected="a table of paths and labels")
        columns = find_columns(first, form.options.label_column)
        if columns.path is not None and (columns.label is not None or not form.labelled):
            form.check(first, table)
            return delimiter, first, True
        # Two or three columns need no names if the first row names an image; AutoML has the split
        # in front.
        if len(first) in (2, 3) and is_image_name(first[0]):
            return delimiter, ("path", "label", "split")[: len(first)], False
        if len(first) == 3 and is_image_name(first[1]):
            return delimiter, ("split", "path", "label"), False
        firsts.append(first)
    if failure is not None and not firsts:
        raise failure
    widest = max(firsts, key=len)
    form.check(widest, table)
    return DELIMITERS[0], widest, True


def _read_json_lines(file: BinaryIO, table: Path, form: _Needs) -> Iterator[tuple[int, _Cells]]:
    """Yield the rows of a table, an object on each line; one that isn't costs no other.

    The first must be one, for else the file is something other than JSON Lines.
    """
    expected = "JSON Lines, one object per line"
    first, integer = True, str if form.columns is None else _integer
    for number, line in enumerate(text_lines(file, table), start=1):
        if not line.strip():
            continue
        try:
            # As text, integers stay as they are written, and ten thousand digits cost nothing.
            value = json.loads(line.rstrip(), parse_int=integer)
            cells = value if isinstance(value, dict) else "not a JSON object"
        except ValueError as error:
            cells = f"not valid JSON (column {getattr(error, 'colno', 1)})"
        except RecursionError:
            cells = "nested too deeply"
        if first:
            if isinstance(cells, str):
                raise SourceError(f"line {number}: {cells}", path=table, expected=expected)
            form.check(tuple(cells), table)
            first = False
        yield number, cells
    if first:
        raise SourceError("empty file", path=table, expected=expected)


def _integer(text: str) -> int | str:
    return int(text) if len(text) <= 20 else text  # no 64 bits have more


def _read_parquet(file: BinaryIO, table: Path, form: _Needs) -> Iterator[tuple[int, _Cells]]:
    """Yield the rows of a table, of which only the columns that count are read."""
    import pyarrow.types as types

    from tfrtool.examples.arrow.parquet_reader import read_facts

    facts = read_facts(table)
    schema = facts.schema
    roles, group_by = form.check(schema.names, table), form.options.group_by
    mine: Sequence[str] = ()
    if form.columns is not None:
        roles, mine = form.columns.of(schema.names, roles)
    wanted = [*dict.fromkeys((*roles, *(one for one in schema.names if one == group_by)))]
    wanted = [name for name in wanted if name is not None]
    for name in wanted:  # others may hold images
        kind = schema.field(name).type
        if types.is_list(kind) and name == roles.label:
            kind = kind.value_type  # several labels an image
        if not (types.is_string(kind) or types.is_large_string(kind) or types.is_integer(kind)):
            what = f"unsupported type of column '{name}'"
            expected = "strings, or integers for labels"
            raise SourceError(what, path=table, expected=expected, found=kind)
    rows, size = sum(rows for rows, _ in facts.groups), size_of_file(file)
    if rows > max(_FREE_ROWS, size):
        raise SourceError(f"{rows:,} rows in a file of only {size:,} bytes", path=table)
    others = dict[str, object].fromkeys(schema.names)
    wanted = [*dict.fromkeys((*wanted, *mine))]
    for number, cells in enumerate(rows_of_parquet(table, wanted), start=1):
        if any(isinstance(c, (str, bytes)) and len(c) > MAX_ROW_BYTES for c in cells):
            yield number, f"a cell is longer than {MAX_ROW_BYTES:,} bytes"
        else:
            yield number, {**others, **dict(zip(wanted, cells, strict=True))}
            others = {}  # to be named once


def rows_of_parquet(path: str | Path, columns: Sequence[str]) -> Iterator[list[object]]:
    """Yield the cells of each row of a Parquet file in these columns."""
    from tfrtool.examples.arrow.parquet_reader import read_batches

    for batch in read_batches(path, columns=columns):
        for values in zip(*map(batch.column, columns), strict=True):
            yield [value.as_py() for value in values]
