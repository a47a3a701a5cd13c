"""The rows of a table in CSV, JSON Lines or Parquet, and what their cells are."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, BinaryIO, NamedTuple

from tfrtool.errors import SourceError, os_errors_as, printable
from tfrtool.sources.folders.listing import is_image_name
from tfrtool.sources.formats.arrow_magic import is_arrow
from tfrtool.sources.formats.csv_rows import csv_rows, detect_delimiter
from tfrtool.sources.formats.json_rows import json_rows
from tfrtool.sources.formats.table_limits import check_column_count
from tfrtool.sources.formats.unpacked import open_unpacked, plain_suffix
from tfrtool.sources.item_rows import FoundItem
from tfrtool.sources.label_choice import SEVERAL
from tfrtool.sources.source_options import SourceOptions
from tfrtool.sources.tables.table_columns import (
    TEXT_SHOWN,
    TableColumns,
    check_columns,
    column_named,
    find_columns,
)
from tfrtool.sources.tables.table_values import ValueColumns
from tfrtool.storage.limits import MAX_ROW_BYTES
from tfrtool.storage.opening import size_of_file
from tfrtool.storage.remote_path import AnyPath

_USUAL = SourceOptions()
_PARQUET = b"PAR1"
_JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
_CSV_SUFFIXES = (".csv", ".tsv")
_OBJECT = re.compile(rb"\s*(?:\[\s*)?\{")
_HEAD = 4096
"""Bytes that show the format of a table; blanks may come first."""

_MOST_SAMPLED = 200
"""Columns of Parquet that a sample has."""

_FREE_ROWS = 100_000
"""Rows that a table may have however small it is. More need a byte each, because paths differ."""

_TEXT = (str, type(None))
"""A tuple, because a union would be built again for each row."""

_FLAGS = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True}

_Cells = Mapping[str, object] | str
"""The cells of a row by column name, or why the row can't be used."""

_Reader = Callable[[BinaryIO, AnyPath, "_Needs"], Iterator[tuple[int, _Cells]]]


def read_rows(
    table: AnyPath, options: SourceOptions = _USUAL, columns: ValueColumns | None = None
) -> Iterator[FoundItem]:
    """Yield the rows of a table. Keys are paths as they are written, places are row numbers.

    Rows are counted from 1, with the header and empty lines. Labels have no blanks around them, and
    splits are in lower case. A group is the cell of the column that `SourceOptions.group_by` names.
    With ``columns`` that become features, the table needs no labels, unless ``options`` are about
    labels.

    Parquet is detected by its first bytes. Text is JSON Lines or CSV by its suffix, or by whether
    it starts with a brace. Memory is bounded by a row, in Parquet by a batch of rows.
    """
    needs, layout = _Needs(columns, options), None
    with os_errors_as(SourceError, table), open_unpacked(table) as file:
        read = _reader_of(file, table)
        for number, cells in read(file, table, needs):
            if isinstance(cells, str):
                yield FoundItem("", row=number, problem=cells)
                continue
            if layout is None or layout.names != list(cells):
                layout = _CellLayout.of([*cells], columns, options, typed=read is not _read_csv)
            yield layout.item(cells, number)


def sample_rows(
    table: AnyPath, options: SourceOptions, most: int
) -> tuple[list[str], list[Mapping[str, object]]]:
    """Return the names of a table's columns and the cells of its first rows, whatever they are."""
    sampling = _Sampling(None, options)
    with os_errors_as(SourceError, table), open_unpacked(table) as file:
        rows = islice(_reader_of(file, table)(file, table, sampling), most)
        cells = [one for _, one in rows if not isinstance(one, str)]
    return [*(cells[0] if cells else ())], cells


def _reader_of(file: BinaryIO, table: AnyPath) -> _Reader:
    head, suffix = file.read(_HEAD), plain_suffix(table)
    braced = _OBJECT.match(head.removeprefix(b"\xef\xbb\xbf"))
    if head.startswith(_PARQUET) or is_arrow(head):
        return _read_parquet
    if suffix in _JSON_SUFFIXES or (braced and suffix not in _CSV_SUFFIXES):
        return _read_json_lines
    return _read_csv


class _CellLayout(NamedTuple):
    """What the cells of a row are."""

    names: list[str]
    roles: TableColumns
    flags: dict[str, str]  # the columns of 0 and 1 that stand for labels, and these
    values: list[str]  # columns that become features
    others: list[str]  # columns that don't count
    group_by: str | None
    typed: bool

    @classmethod
    def of(
        cls,
        names: list[str],
        columns: ValueColumns | None,
        options: SourceOptions,
        *,
        typed: bool,
    ) -> "_CellLayout":
        """Return the layout of rows with these columns."""
        roles, values = roles_of(names, options), list[str]()
        flags = {column_named(one, names) or one: one.strip() for one in options.label_columns}
        if columns is not None:
            roles, values = columns.of([name for name in names if name not in flags], roles)
        used = {*roles, *flags, *values, options.group_by}
        others = [name for name in names if name not in used]
        return cls(names, roles, flags, values, others, options.group_by, typed)

    def item(self, cells: Mapping[str, object], number: int) -> FoundItem:
        """Return what a row says of an image."""
        path, label, split = (None if name is None else cells.get(name) for name in self.roles)
        group = cells.get(self.group_by) if self.group_by else None
        if isinstance(label, list):
            label = json.dumps(label) if label else None
        label, path = (
            str(one) if isinstance(one, int) and not isinstance(one, bool) else one
            for one in (label, path)
        )
        problem = _problem(path, label, split, group)
        if self.flags and problem is None:
            label, problem = _flagged(cells, self.flags)
        if problem:
            return FoundItem("", row=number, problem=problem)
        return FoundItem(
            str(path or ""),
            str(label or "").strip(),
            cells=cells,
            split=str(split or "").strip().lower(),
            group=group,
            names=self.values,
            typed=self.typed,
            row=number,
            others=self.others,
        )


def flag(value: object) -> bool | None:
    """Return whether a cell is 1 and not 0; None if it is neither."""
    if isinstance(value, str):
        return _FLAGS.get(value.strip().lower())
    return bool(value) if isinstance(value, int | float) and value in (0, 1) else None


def _flagged(cells: Mapping[str, object], flags: Mapping[str, str]) -> tuple[str, str | None]:
    """Return the labels whose columns have a 1, and why there are none in other rows."""
    labels = list[str]()
    for name, label in flags.items():
        if (is_set := flag(cells.get(name))) is None:
            value = cells.get(name)
            shown = "is empty" if value in (None, "") else "is neither 0 nor 1"
            return "", f"column '{printable(label[:TEXT_SHOWN])}' {shown}"
        labels += [label] * is_set
    return SEVERAL.join(labels), None


def roles_of(names: Sequence[str], options: SourceOptions) -> TableColumns:
    """Return the columns that count in a table, as far as it has them."""
    roles = find_columns(names, options.label_column, options.path_column)
    return roles._replace(label=None) if options.label_columns else roles


def _problem(path: object, label: object, split: object, group: object) -> str | None:
    if not isinstance(label, _TEXT):
        return "label is not a string or an integer"
    if not isinstance(path, _TEXT):
        return "path is not a string"
    if not isinstance(split, _TEXT):
        return "split is not a string"
    return "group is not a string or a number" if isinstance(group, list | dict) else None


@dataclass(frozen=True, slots=True)
class _Needs:
    """What a table must have."""

    columns: ValueColumns | None
    options: SourceOptions

    @property
    def labels(self) -> bool:
        """Whether there must be labels."""
        options = self.options
        return (self.columns is None or options.about_labels) and not options.label_columns

    def check(self, names: Sequence[str], table: AnyPath) -> TableColumns:
        """Return the columns by role; `SourceError` if one is missing or duplicate."""
        check_column_count(len(names), table)
        columns, counts = self.columns, Counter(names)
        wanted = () if columns is None else columns.asked
        for name in names if columns is not None and columns.all else wanted:
            if name.strip() and counts[name] > 1:
                raise SourceError(f"duplicate column '{printable(name)}'", path=table)
        return check_columns(names, table, self.options, labels=self.labels, wanted=wanted)

    def read(self, schema: Any, table: AnyPath) -> Sequence[str]:
        """Return the columns of a Parquet table that are read."""
        import pyarrow.types as types

        names, options = schema.names, self.options
        roles, mine = self.check(names, table), list[str]()
        if self.columns is not None:
            roles, mine = self.columns.of(names, roles)
        roles = roles._replace(label=None) if options.label_columns else roles
        wanted = [name for name in (*roles, options.group_by) if name and name in names]
        for name in dict.fromkeys(wanted):  # others may hold images
            kind = schema.field(name).type
            if types.is_list(kind) and name == roles.label:
                kind = kind.value_type  # several labels per image
            if not (types.is_string(kind) or types.is_large_string(kind) or types.is_integer(kind)):
                what = f"unsupported type of column '{name}'"
                expected = "strings, or integers for labels"
                raise SourceError(what, path=table, expected=expected, found=kind)
        flags = (column_named(one, names) for one in options.label_columns)
        return [*dict.fromkeys((*wanted, *filter(None, flags), *mine))]


class _Sampling(_Needs):
    """Accepts every table."""

    __slots__ = ()

    def check(self, names: Sequence[str], table: AnyPath) -> TableColumns:
        """Return the columns by role."""
        check_column_count(len(names), table)
        return roles_of(names, self.options)

    def read(self, schema: Any, table: AnyPath) -> Sequence[str]:
        """Return all columns of a Parquet table whose cells are small."""
        import pyarrow.types as types

        self.check(schema.names, table)
        small = (types.is_string, types.is_large_string, types.is_integer, types.is_floating)
        kinds = {
            name: schema.field(name).type for name in schema.names if schema.names.count(name) == 1
        }
        return [
            name
            for name, kind in kinds.items()
            if types.is_boolean(kind) or any(is_kind(kind) for is_kind in small)
        ][:_MOST_SAMPLED]


def _read_csv(file: BinaryIO, table: AnyPath, needs: _Needs) -> Iterator[tuple[int, _Cells]]:
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
    columns = roles_of(first, needs.options)
    if columns.path is None or (columns.label is None and needs.labels):
        if len(first) in (2, 3) and is_image_name(first[0]):
            return ("path", "label", "split")[: len(first)]
        if len(first) == 3 and is_image_name(first[1]):
            return ("split", "path", "label")
    return ()


def _read_json_lines(file: BinaryIO, table: AnyPath, needs: _Needs) -> Iterator[tuple[int, _Cells]]:
    """Yield the rows of JSON Lines. The first must be an object, or the file is another format."""
    expected, first = "JSON Lines, one object per line", True
    for location, number, _, cells in json_rows(file, table):
        if first:
            if isinstance(cells, str):
                raise SourceError(f"{location}: {cells}", path=table, expected=expected)
            needs.check(tuple(cells), table)
            first = False
        yield number, cells
    if first:
        raise SourceError("empty file", path=table, expected=expected)


def _read_parquet(file: BinaryIO, table: AnyPath, needs: _Needs) -> Iterator[tuple[int, _Cells]]:
    """Yield the rows of a Parquet table; only the columns in use are read."""
    from tfrtool.sources.formats.parquet_reader import read_cells, read_facts

    facts = read_facts(table)
    names, wanted = facts.schema.names, needs.read(facts.schema, table)
    rows, size = sum(rows for rows, _ in facts.groups), size_of_file(file)
    if rows > max(_FREE_ROWS, size):
        raise SourceError(f"{rows:,} rows in a file of only {size:,} bytes", path=table)
    empty = dict[str, object].fromkeys(names)  # the first row names all columns
    for number, cells in enumerate(read_cells(table, wanted), start=1):
        if any(isinstance(one, str | bytes) and len(one) > MAX_ROW_BYTES for one in cells):
            yield number, f"a cell is longer than {MAX_ROW_BYTES:,} bytes"
        else:
            yield number, {**empty, **dict(zip(wanted, cells, strict=True))}
            empty = {}
