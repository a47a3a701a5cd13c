"""The types of the cells in a column of text or JSON."""

from dataclasses import dataclass, field
from typing import Any

from tfrtool.examples.content import is_plain_text
from tfrtool.examples.dtypes import NumberRange, text_number
from tfrtool.examples.example import DType
from tfrtool.storage.limits import MAX_DIMENSIONS

_SHORT = 18
"""Digits that are a number of 64 bits."""


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
