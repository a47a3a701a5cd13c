"""Columns of a table that become features: which there are, and what their cells hold."""

import datetime
import decimal
import marshal
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tfrtool.errors import SourceError, UsageError, nearest, printable
from tfrtool.examples.dtypes import as_dtype, exact_number, value_dtype, widest_dtype
from tfrtool.examples.example import DType, Value
from tfrtool.examples.objects.annotation import ExtraFeatures
from tfrtool.examples.objects.record_features import (
    OWN_NAMES,
    ColumnKind,
    LabelKind,
    RecordFeatures,
)
from tfrtool.sources.formats.cell_types import CellTypes, cell_number
from tfrtool.sources.items import UnfitError
from tfrtool.sources.source_options import SourceOptions
from tfrtool.sources.tables.table_columns import (
    TEXT_SHOWN,
    TableColumns,
    quoted,
)
from tfrtool.storage.limits import MAX_COLUMNS
from tfrtool.storage.remote_path import AnyPath

_LONGEST_NAME = 1024
_DTYPES = {dtype.value: dtype for dtype in DType}


class ValueColumns:
    """The columns that a user wants written, and their types.

    Of a column whose type isn't given, all values decide: int64 where all are integers, float32
    where all are numbers, string for everything else, which are numbers that neither can hold,
    too, and in a CSV numbers that start with zeros. If float32 would change a whole number among
    doubles, they become int64 where all are whole, else string. A truth value is 0 or 1.
    """

    def __init__(self, options: SourceOptions, table: str | AnyPath) -> None:
        """Start with the columns that the options name, each with its type if it has one."""
        self.all = options.all_columns
        self._requested: dict[str, DType | None] = {}
        for text in options.columns:
            name, _, dtype = text.rpartition(":")
            named = bool(name) and dtype in _DTYPES
            self._requested[name if named else text] = _DTYPES[dtype] if named else None
        self._reserved, self._table, self._rows = OWN_NAMES[options.names], table, 0
        self._seen: dict[str, None] = {}
        self._types: dict[str, CellTypes] = {}
        self.unfit = set[str]()  # columns of all that are not written

    def of(self, names: Sequence[str], roles: TableColumns) -> tuple[TableColumns, list[str]]:
        """Return what a table's columns are besides those that become features, and these."""
        if len(self._seen) < MAX_COLUMNS:
            self._seen.update(dict.fromkeys(names))
        elif self.all:
            raise SourceError(f"more than {MAX_COLUMNS:,} columns", path=self._table)
        if roles.label in self._requested:
            roles = roles._replace(label=None)
        labelled, mine = roles.label is not None, list[str]()
        for name in names:
            if name not in self._requested and (not self.all or not name.strip() or name in roles):
                continue
            problem = self._name_problem(name, labelled=labelled)
            if problem and name in self._requested:
                shown = printable(name[:TEXT_SHOWN])
                raise UsageError(f"column '{shown}' {problem}", path=self._table)
            if problem:
                self.unfit.add(name)
            elif name not in self.unfit:
                mine.append(name)
        return roles, mine

    @property
    def asked(self) -> Collection[str]:
        """The names of those that were asked for one by one."""
        return self._requested.keys()

    def _name_problem(self, name: str, *, labelled: bool) -> str | None:
        if name in self._reserved and (labelled or name != "label"):
            return "has the name of a feature that tfrtool writes"
        if len(name) > _LONGEST_NAME:
            return f"has a name longer than {_LONGEST_NAME:,} characters"
        return None if name.isprintable() else "has unprintable characters in its name"

    def add(self, cells: Mapping[str, object], names: Sequence[str], *, typed: bool) -> bytes:
        """Take note of the types of the cells of a row, and return these for `packed`.

        ``typed`` says whether a text is text; otherwise it may be a number, and an empty one is
        missing.

        Raises:
            UnfitError: a cell can't be stored, and its column was asked for.
        """
        row: dict[str, list[Any]] = {}
        for name in names:
            cell = cells.get(name)
            if cell is None or (not typed and isinstance(cell, str) and not cell.strip()):
                continue
            try:
                values = [*map(_scalar, cell if isinstance(cell, list) else (cell,))]
                if dtype := self._requested.get(name):
                    values = [_converted(value, dtype) for value in values]
            except UnfitError as error:
                if not self.all or name in self._requested:
                    raise UnfitError(f"column '{printable(name)}' holds {error}") from None
                self.unfit.add(name)
                continue
            row[name] = values
        for name, values in row.items():
            types = self._types.setdefault(name, CellTypes())
            types.cells += 1
            types.is_list |= isinstance(cells[name], list)
            for value in values if self._requested.get(name) is None else ():
                number = value
                if isinstance(value, str) and not typed:
                    number = cell_number(value.strip())
                dtype = value_dtype(number)
                types.add(value if dtype is DType.STRING else number, dtype, self._rows)
        self._rows += 1
        return marshal.dumps(row)

    def complete(self, features: RecordFeatures, *, labelled: bool) -> RecordFeatures:
        """Return features with these columns, once all rows are there.

        Raises:
            UsageError: no row has a column that was asked for.
        """
        for name in self._requested:
            if name not in self._seen:
                form = " (DTYPE is int64, float32 or string)" if ":" in name else ""
                what = f"no column '{printable(name)}' for --column{form}; columns include "
                raise UsageError(what + quoted(nearest(name, self._seen)), path=self._table)
        kinds = []
        names = dict.fromkeys((*self._requested, *self._types))
        for name in (one for one in names if one not in self.unfit):
            types = self._types.get(name, CellTypes())
            is_list = types.is_list or types.cells < self._rows
            kinds.append(ColumnKind(name, self._dtype(name), is_list))
        label = features.label if labelled else LabelKind.NONE
        return replace(features, label=label, columns=tuple(kinds))

    def _dtype(self, name: str) -> DType:
        """Return the type of a column: the given one, or what holds all of its values."""
        types = self._types.get(name)
        if dtype := self._requested.get(name):
            return dtype
        if types is None:
            return DType.STRING
        widest = widest_dtype(types.dtypes) or DType.INT64  # lists without values
        return types.numbers.column_dtype(widest) or widest

    def packed(self, cells: bytes, kinds: Sequence[ColumnKind]) -> bytes:
        """Return what is written of the cells that `add` gave, as a packed `ExtraFeatures`."""
        row = marshal.loads(cells)
        values = {
            name: tuple(_converted(one, dtype) for one in row.get(name, ()))
            for name, dtype, _ in kinds
        }
        return ExtraFeatures(values=values).pack()


def _scalar(value: object) -> object:
    if isinstance(value, decimal.Decimal):
        return exact_number(str(value))
    if isinstance(value, datetime.date | datetime.time | datetime.timedelta):
        return str(value)
    if isinstance(value, str):
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise UnfitError("text that is not valid UTF-8") from None
        return value
    if isinstance(value, bool | int | float | bytes):
        return value
    kinds = {list: "a nested list", dict: "an object", type(None): "a list with null values"}
    raise UnfitError(kinds.get(type(value), f"a {type(value).__name__}"))


def _converted(value: Any, dtype: DType) -> Value:
    try:
        return as_dtype(value, dtype)
    except ValueError as error:
        raise UnfitError(str(error)) from None
