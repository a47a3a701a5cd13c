"""The rows of a table of images in CSV, JSON Lines or Parquet."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from tfrtool.errors import SourceError, os_errors_as, printable
from tfrtool.sources.folders.listing import is_image_name
from tfrtool.sources.formats.text_rows import csv_rows, detect_delimiter, json_rows
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

_PARQUET = b"PAR1"
_JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
_CSV_SUFFIXES = (".csv", ".tsv")
_HEAD = 4096
"""Bytes that show the format of a table; blanks may come first."""

_FREE_ROWS = 100_000
"""Rows that a table may have however small it is. More need a byte each, because paths differ."""

_TEXT = (str, type(None))
"""A tuple, because a union would be built again for each row."""

_USUAL = SourceOptions()
_Cells = Mapping[str, object] | str
"""The cells of a row by column name, or why the row can't be used."""


def read_rows(
    table: Path, options: SourceOptions = _USUAL, columns: ValueColumns | None = None
) -> Iterator[FoundItem]:
    """Yield the rows of a table. Keys are paths as they are written, places are row numbers.

    Rows are counted from 1, with the header and empty lines. Labels have no blanks around them, and
    splits are in lower case. A group is the cell of the column that `SourceOptions.group_by` names.
    With ``columns`` that become features, the table needs no labels, unless ``options`` are about
    labels.

    Parquet is detected by its first bytes. Text is JSON Lines or CSV by its suffix, or by whether
    it starts with a brace. Memory is bounded by a row, in Parquet by a batch of rows.
    """
    group_by, label_column = options.group_by, options.label_column
    needs = _Needs(columns, options)
    with os_errors_as(SourceError, table), open_regular(table) as file:
        head, suffix = file.read(_HEAD), table.suffix.lower()
        braced = head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")
        read: Callable[..., Iterator[tuple[int, _Cells]]] = _read_csv
        if head.startswith(_PARQUET):
            read = _read_parquet
        elif suffix in _JSON_SUFFIXES or (braced and suffix not in _CSV_SUFFIXES):
            read = _read_json_lines
        typed, names, mine = read is not _read_csv, list[str](), list[str]()
        for number, cells in read(file, table, needs):
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
            group = cells.get(group_by) if group_by else None
            if isinstance(label, list):
                label = json.dumps(label) if label else None
            elif isinstance(label, int) and not isinstance(label, bool):
                label = str(label)
            if problem := _problem(path, label, split, group):
                yield FoundItem("", place=number, problem=problem)
                continue
            label, split = str(label or "").strip(), str(split or "").strip().lower()
            facts = (cells, split, group, mine, typed, others)
            yield FoundItem(str(path or ""), label, 0, number, None, *facts)


def _problem(path: object, label: object, split: object, group: object) -> str | None:
    """Return why the cells of a row can't be what their columns are for."""
    if not isinstance(label, _TEXT):
        return "label is not a string or an integer"
    if not isinstance(path, _TEXT):
        return "path is not a string"
    if not isinstance(split, _TEXT):
        return "split is not a string"
    return "group is not a string or a number" if isinstance(group, list | dict) else None


class _Needs(NamedTuple):
    """The columns that a table must have."""

    columns: ValueColumns | None
    options: SourceOptions

    @property
    def labels(self) -> bool:
        """Whether there must be labels."""
        return self.columns is None or self.options.about_labels

    def check(self, names: Sequence[str], table: Path) -> TableColumns:
        """Return the columns by role; `SourceError` if one is missing or duplicate."""
        check_column_count(len(names), table)
        columns, counts = self.columns, Counter(names)
        wanted = () if columns is None else columns.asked
        for name in names if columns is not None and columns.all else wanted:
            if name.strip() and counts[name] > 1:
                raise SourceError(f"duplicate column '{printable(name)}'", path=table)
        label = self.options.label_column
        return check_columns(names, table, labels=self.labels, wanted=wanted, label=label)


def _read_csv(file: BinaryIO, table: Path, needs: _Needs) -> Iterator[tuple[int, _Cells]]:
    """Yield the rows of a CSV table; the first one may be missing its header."""
    delimiter = detect_delimiter(file, table)
    names: Sequence[str] = ()
    for number, cells in enumerate(csv_rows(file, table, delimiter), start=1):
        if not any(cells):
            continue
        if not names:
            names = _names_without_header(cells, needs)
            if not names:
                names = cells
                needs.check(names, table)
                continue
        if any(cells[len(names) :]):
            yield number, f"{len(cells)} cells, but the table has {len(names)} columns"
        else:
            yield number, dict(zip(names, cells, strict=False))
    if not names:
        raise SourceError("empty file", path=table, expected="a table of paths and labels")


def _names_without_header(first: Sequence[str], needs: _Needs) -> Sequence[str]:
    """Return the names of the columns if the first row names an image and not the columns.

    AutoML puts the split before the path.
    """
    columns = find_columns(first, needs.options.label_column)
    if columns.path is None or (columns.label is None and needs.labels):
        if len(first) in (2, 3) and is_image_name(first[0]):
            return ("path", "label", "split")[: len(first)]
        if len(first) == 3 and is_image_name(first[1]):
            return ("split", "path", "label")
    return ()


def _read_json_lines(file: BinaryIO, table: Path, needs: _Needs) -> Iterator[tuple[int, _Cells]]:
    """Yield the rows of JSON Lines. The first must be an object, or the file is another format."""
    expected, first = "JSON Lines, one object per line", True
    for number, cells in json_rows(file, table):
        if first:
            if isinstance(cells, str):
                raise SourceError(f"line {number}: {cells}", path=table, expected=expected)
            needs.check(tuple(cells), table)
            first = False
        yield number, cells
    if first:
        raise SourceError("empty file", path=table, expected=expected)


def _read_parquet(file: BinaryIO, table: Path, needs: _Needs) -> Iterator[tuple[int, _Cells]]:
    """Yield the rows of a Parquet table, of which only the columns in use are read."""
    import pyarrow.types as types

    from tfrtool.sources.formats.parquet_reader import read_cells, read_facts

    facts = read_facts(table)
    names, group_by = facts.schema.names, needs.options.group_by
    roles, mine = needs.check(names, table), list[str]()
    if needs.columns is not None:
        roles, mine = needs.columns.of(names, roles)
    wanted = [name for name in dict.fromkeys((*roles, group_by)) if name and name in names]
    for name in wanted:  # others may hold images
        kind = facts.schema.field(name).type
        if types.is_list(kind) and name == roles.label:
            kind = kind.value_type  # several labels per image
        if not (types.is_string(kind) or types.is_large_string(kind) or types.is_integer(kind)):
            what = f"unsupported type of column '{name}'"
            expected = "strings, or integers for labels"
            raise SourceError(what, path=table, expected=expected, found=kind)
    rows, size = sum(rows for rows, _ in facts.groups), size_of_file(file)
    if rows > max(_FREE_ROWS, size):
        raise SourceError(f"{rows:,} rows in a file of only {size:,} bytes", path=table)
    wanted = [*dict.fromkeys((*wanted, *mine))]
    empty = dict[str, object].fromkeys(names)  # the first row names all columns
    for number, cells in enumerate(read_cells(table, wanted), start=1):
        if any(isinstance(one, str | bytes) and len(one) > MAX_ROW_BYTES for one in cells):
            yield number, f"a cell is longer than {MAX_ROW_BYTES:,} bytes"
        else:
            yield number, {**empty, **dict(zip(wanted, cells, strict=True))}
            empty = {}
