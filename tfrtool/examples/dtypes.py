"""The one set of rules for types: which type holds a value or a whole column of a table.

Features have int64, float32 and strings. Tables have doubles, texts and mixtures of all. A column
becomes int64 if all of its values are whole numbers, float32 if all are numbers, and else string.
"""

import math
import re
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from tfrtool.errors import printable
from tfrtool.examples.example import DType, Value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NUMBER = re.compile(
    r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?|nan|[+-]?inf(?:inity)?", re.IGNORECASE
)

LEADING_ZERO = re.compile(r"[+-]?0[0-9]")
"""What digits that are a code start with, and not a number."""

FLOAT32_END = 2.0**128 - 2.0**103
"""From this number on, rounding makes infinity of it."""

WIDENING = (DType.INT64, DType.FLOAT32, DType.STRING)
"""Each value of the first type can also be written as the next one."""

INT64 = range(-(2**63), 2**63)
_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")
_EXACT_FLOAT32, _EXACT_DOUBLE = 2**24, 2**53
"""Up to here, float32 and doubles hold every whole number."""

_LONGEST_NUMBER, _SHORT = 400, 18
_SHOWN_CHARACTERS = 40
_BATCH = 4096


def exact_number(text: str) -> int | float:
    """Return the number that a `NUMBER` says: a double, or a whole number that no double holds.

    Digits that are how a double is written stand for that double.
    """
    value = float(text)
    if _EXACT_DOUBLE <= abs(value) <= 2.0**63 and len(text) <= _LONGEST_NUMBER:
        exact = Decimal(text)
        doubles = Decimal(value), Decimal(repr(value))
        if exact not in doubles and exact == exact.to_integral_value():
            return int(exact)
    return value


def text_number(text: str) -> int | float | None:
    """Return the number that a text says; None if it is not a number.

    Digits that start with a zero, such as a postal code, are a text. So is what only an infinite
    double could stand for.
    """
    if LEADING_ZERO.match(text):
        return None
    if _WHOLE.fullmatch(text):
        return int(text)
    if NUMBER.fullmatch(text) is None:
        return None
    number = exact_number(text)
    return None if number in (math.inf, -math.inf) and "inf" not in text.lower() else number


def value_dtype(value: object) -> DType:
    """Return the type of feature that holds a value: a number, a truth value, or anything else.

    Whole numbers beyond int64, and numbers beyond float32, are only held as text.
    """
    if isinstance(value, int):
        return DType.INT64 if value in INT64 else DType.STRING
    if isinstance(value, float) and (not abs(value) >= FLOAT32_END or math.isinf(value)):
        return DType.FLOAT32
    return DType.STRING


def widest_dtype(dtypes: Iterable[DType]) -> DType | None:
    """Return the type that holds values of all these types; None without any."""
    return max(dtypes, key=WIDENING.index, default=None)


def as_dtype(value: Any, dtype: DType) -> Value:
    """Return a value of a table as a feature of some type has it; `ValueError` if that can't be.

    Only fractions are rounded, and whole numbers that become float32.
    """
    if dtype is DType.STRING:
        if isinstance(value, bytes):
            return value
        if not isinstance(value, str | int | float):
            raise ValueError(f"a {type(value).__name__}, which is not a valid string")
        return (str(value).lower() if isinstance(value, bool) else str(value)).encode()
    number = value
    is_short = dtype is DType.INT64 and isinstance(value, str) and len(value) <= _SHORT
    if is_short and value.isascii() and value.isdecimal():
        return int(value)  # the way of most
    if dtype is DType.FLOAT32 and isinstance(value, str) and NUMBER.fullmatch(value):
        number = float(value)  # the way of most
        if abs(number) < FLOAT32_END:
            return number
    if isinstance(value, str | bytes):
        text = value.strip() if isinstance(value, str) else value.decode("utf-8", "replace").strip()
        number = exact_number(text) if NUMBER.fullmatch(text) else None
        digits = text.lstrip("+-")
        if digits.isascii() and digits.isdecimal() and len(digits) <= _LONGEST_NUMBER:
            number = int(text)
    if isinstance(number, int | float):
        if dtype is DType.INT64:
            if isinstance(number, float) and number.is_integer():
                number = int(number)
            if isinstance(number, int) and number in INT64:
                return int(number)
        elif abs(number) < FLOAT32_END or number != number:
            return float(number)
        elif number in (math.inf, -math.inf) and (number is value or "inf" in text.lower()):
            return number
    shown = printable(repr(value[:_SHOWN_CHARACTERS] if isinstance(value, str | bytes) else value))
    raise ValueError(f"{shown[: _SHOWN_CHARACTERS + 4]}, which is not a valid {dtype.value}")


def relative_changes(values: "NDArray[np.float64]") -> "NDArray[np.float64]":
    """Return by how much float32 changes each double, relative to it; 0 where nothing changes."""
    import numpy as np

    with np.errstate(all="ignore"):
        changes = np.abs(values.astype(np.float32).astype(np.float64) - values) / np.abs(values)
    changes[(values == 0) | ~np.isfinite(values)] = 0
    return changes


def relative_change(value: float) -> float:
    """Return by how much float32 changes a double, relative to it."""
    import numpy as np

    return float(relative_changes(np.array([value]))[0])


@dataclass(slots=True)
class NumberRange:
    """What the numbers of a column are, as a fold; folds over parts can be merged.

    Attributes:
        doubles: whether some are floating-point numbers.
        all_integral: whether int64 holds all of them exactly: no fraction, NaN, or negative zero.
        change: the largest relative change of a number that becomes float32.
        wide: the first whole number that float32 can't hold, with its row.
    """

    seen: bool = False
    doubles: bool = False
    all_integral: bool = True
    change: float = 0.0
    wide: tuple[int, int | float] | None = None
    _values: "array[float]" = field(default_factory=lambda: array("d"))
    _rows: "array[int]" = field(default_factory=lambda: array("q"))

    def add(self, value: int | float, row: int) -> None:
        """Take in a number; rows ascend."""
        self.seen = True
        if isinstance(value, float):
            self._values.append(value)
            self._rows.append(row)
            if len(self._values) >= _BATCH:
                self.flush()
        elif not -_EXACT_FLOAT32 <= value <= _EXACT_FLOAT32:
            import numpy as np

            self.all_integral &= value in INT64
            single = float(np.float32(value)) if abs(value) < FLOAT32_END else math.inf
            if single != value:
                self.flush()  # of rows before
                self.wide = self.wide or (row, value)
                change = math.inf if math.isinf(single) else abs(int(single) - value) / abs(value)
                self.change = max(self.change, change)

    def flush(self) -> None:
        """Take in what was added one by one."""
        if self._values:
            import numpy as np

            values, rows = np.array(self._values), np.array(self._rows)
            self._values, self._rows = array("d"), array("q")
            self.add_doubles(values, rows)

    def add_doubles(self, values: "NDArray[np.float64]", rows: "NDArray[np.int64]") -> None:
        """Take in doubles with their rows."""
        import numpy as np

        self.doubles = True
        if not len(values):
            return
        self.seen = True
        integral = np.isfinite(values) & (values == np.trunc(values))
        fits_int64 = integral & (values >= -(2.0**63)) & (values < 2.0**63)
        fits_int64 &= (values != 0) | ~np.signbit(values)
        self.all_integral &= bool(fits_int64.all())
        changes = relative_changes(values)
        self.change = max(self.change, float(changes.max()))
        wide = np.flatnonzero(integral & (changes > 0))
        if self.wide is None and len(wide):
            self.wide = int(rows[wide[0]]), float(values[wide[0]])

    def column_dtype(self, dtype: DType | None) -> DType | None:
        """Return the type of a column whose values have ``dtype`` as their widest type.

        If float32 would change a whole number among doubles, they become int64 if all are whole,
        otherwise string.
        """
        self.flush()
        if dtype is not DType.FLOAT32 or self.wide is None:
            return dtype
        return DType.INT64 if self.all_integral else DType.STRING

    def merge(self, other: "NumberRange") -> None:
        """Take in what the fold over another file has seen, but for its ``wide``."""
        self.seen |= other.seen
        self.doubles |= other.doubles
        self.all_integral &= other.all_integral
        self.change = max(self.change, other.change)
