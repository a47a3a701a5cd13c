"""The types of the cells in a column of text or JSON."""

from dataclasses import dataclass, field
from typing import Any

from tfrtool.examples.content import is_plain_text
from tfrtool.examples.dtypes import NumberRange, text_number
from tfrtool.examples.example import DType
from tfrtool.storage.limits import MAX_DIMENSIONS

_SHORT = 18
"""Digits that are a number of 64 bits."""

JSON_DTYPES = {int: DType.INT64, bool: DType.INT64, float: DType.FLOAT32}
NULL_IN_LIST = "lists can't hold null"


def cell_number(text: str) -> int | float | None:
    """Return the number that a cell of CSV stands for; None if it is text."""
    if text.isdecimal() and text.isascii() and len(text) <= _SHORT:  # most are
        return int(text) if text[0] != "0" or len(text) == 1 else None
    return text_number(text)


def is_object(value: Any) -> bool:
    """Return whether a value of JSON is an object; one with bytes in base64 isn't."""
    return isinstance(value, dict) and list(value) != ["base64"]


@dataclass(slots=True)
class CellTypes:
    """A fold over the cells of a column."""

    dtypes: set[DType] = field(default_factory=set)  # of the values
    is_list: bool = False  # whether a cell is a list
    is_single: bool = False  # whether a cell of JSON is a single value
    cells: int = 0  # that are not missing
    numbers: NumberRange = field(default_factory=NumberRange)
    text: tuple[int, Any] | None = None  # the first, with its row
    is_text: bool = True  # whether all bytes are plain text
    is_bool: bool | None = None  # whether all values of JSON are booleans
    sizes: list[int] = field(default_factory=list)  # of the lists within lists, by level

    def add_cell(self, cell: Any, row: int) -> bool:
        """Add a cell of JSON; return whether it was, as it has neither objects nor ragged lists.

        Raises:
            ValueError: it is a list with null.
        """
        if not isinstance(cell, list):
            if is_object(cell):
                return False
            self.is_single, self.cells = True, self.cells + 1
            self.add_value(cell, row)
            return True
        values, sizes, kinds = cell, list[int](), {*map(type, cell)}
        while list in kinds:
            lengths = {len(one) for one in values} if len(kinds) == 1 else {0}
            if len(lengths) > 1 or 0 in lengths or len(sizes) >= MAX_DIMENSIONS - 1:
                return False
            sizes += lengths
            values = [value for one in values for value in one]
            kinds = {*map(type, values)}
        is_ragged = bool(values and self.dtypes and sizes != self.sizes)
        if is_ragged or (dict in kinds and any(map(is_object, values))):
            return False
        if type(None) in kinds:
            raise ValueError(NULL_IN_LIST)
        self.is_list, self.cells, self.sizes = True, self.cells + 1, sizes or self.sizes
        for value in values:
            self.add_value(value, row)
        return True

    def add_value(self, value: Any, row: int) -> None:
        """Add a single value of JSON."""
        kind = type(value)
        self.is_bool = kind is bool and self.is_bool is not False
        self.add(value, JSON_DTYPES.get(kind, DType.STRING), row)

    def add(self, value: Any, dtype: DType, row: int) -> None:
        """Add a value: a number if it has such a type, otherwise a text; rows ascend."""
        self.dtypes.add(dtype)
        if dtype is not DType.STRING:
            self.numbers.add(value, row)
            return
        self.text = self.text or (row, value)
        if isinstance(value, bytes | dict):  # an object has bytes in base64
            self.is_text = self.is_text and isinstance(value, bytes) and is_plain_text(value)
