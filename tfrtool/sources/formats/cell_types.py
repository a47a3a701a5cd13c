"""Types of the columns of a table without a schema, from its cells."""

from dataclasses import dataclass, field
from typing import Any

from tfrtool.examples.dtypes import NumberRange, text_number
from tfrtool.examples.example import DType

_SHORT = 18


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

    def add(self, value: Any, dtype: DType, row: int) -> None:
        """Add a value: a number if it has such a type, otherwise a text; rows ascend."""
        self.dtypes.add(dtype)
        if dtype is not DType.STRING:
            self.numbers.add(value, row)
        elif self.text is None:
            self.text = row, value
