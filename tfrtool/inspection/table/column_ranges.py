"""Ranges of the values of a column, such as a bar of a histogram, as text and in SQL."""

import math
import re
from enum import StrEnum
from typing import NamedTuple

import pyarrow as pa

from tfrtool.errors import UsageError
from tfrtool.examples.arrow.value_types import innermost_type

NAN, INFINITE = "nan", "infinite"
"""What stands for values that are in no histogram."""

_NUMBER = r"-?(?:\d{1,30}(?:\.\d{1,30})?(?:e[+-]?\d{1,3})?)"
_RANGE = re.compile(rf"\[({_NUMBER}),({_NUMBER})([\])])", re.ASCII)
LARGEST_EXACT = 2**53
"""Whole numbers up to here are the same as DOUBLE."""

_EXACT_DIGITS = 15
"""Digits of a decimal that SQL converts to the nearest DOUBLE."""


class ValueKind(StrEnum):
    """What the values of a column are, as far as ranges of them differ."""

    INTEGER = "integer"
    FLOAT = "float"
    BOOLEAN = "boolean"
    TEXT = "text"
    BYTES = "bytes"

    @property
    def is_number(self) -> bool:
        """Whether there are ranges of the values, not of their sizes."""
        return self in (ValueKind.INTEGER, ValueKind.FLOAT, ValueKind.BOOLEAN)


def value_kind(kind: pa.DataType) -> ValueKind | None:
    """Return what the values of a column are, or those in its lists; None for anything else."""
    types, item = pa.types, innermost_type(kind)
    for is_kind, found in (
        (types.is_integer, ValueKind.INTEGER),
        (types.is_floating, ValueKind.FLOAT),
        (types.is_boolean, ValueKind.BOOLEAN),
        (types.is_string, ValueKind.TEXT),
        (types.is_binary, ValueKind.BYTES),
    ):
        if is_kind(item):
            return found
    return None


class ColumnRange(NamedTuple):
    """A range of the values of a column, or of their lengths.

    Attributes:
        name: the column. Of a list, one of its values must be in the range.
        low: the smallest value.
        high: the largest value, or the bound that values are below.
        is_closed: whether ``high`` is in the range.
        in_bytes: whether the lengths of texts or other bytes are compared, in bytes.
        special: `NAN` or `INFINITE` for these values instead; "" for a range.
    """

    name: str
    low: float = 0
    high: float = 0
    is_closed: bool = True
    in_bytes: bool = False
    special: str = ""

    @classmethod
    def parse(cls, name: str, text: str, *, in_bytes: bool = False) -> "ColumnRange":
        """Read what `text` returns; `UsageError` for anything else."""
        if text in (NAN, INFINITE) and not in_bytes:
            return cls(name, special=text)
        found = _RANGE.fullmatch(text)
        if found is None:
            expected = "[LOW,HIGH] or [LOW,HIGH)"
            raise UsageError("invalid range in the address", expected=expected)
        low, high = (
            int(one) if one.lstrip("-").isdecimal() else float(one) for one in found.groups()[:2]
        )
        return cls(name, low, high, found[3] == "]", in_bytes)

    @property
    def text(self) -> str:
        """The range as an interval of mathematics: the same values give the same text."""
        if self.special:
            return self.special
        return f"[{self.low!r},{self.high!r}{']' if self.is_closed else ')'}"

    def contains(self, other: "ColumnRange") -> bool:
        """Return whether all values of another range are in this one."""
        if self.special or other.special:
            return self.special == other.special
        ends = other.high < self.high or (
            other.high == self.high and (self.is_closed or not other.is_closed)
        )
        return self.low <= other.low and ends

    def extended(self, other: "ColumnRange") -> "ColumnRange":
        """Return the smallest range with all values of this one and another one."""
        last = max(self, other, key=lambda values: (values.high, values.is_closed))
        return last._replace(low=min(self.low, other.low))

    def sql(self, column: str, kind: pa.DataType) -> str:
        """Return the condition in SQL, for a column of a type.

        Raises:
            UsageError: values of this type have no such range.
        """
        item = innermost_type(kind)
        if item == kind:
            return self._of_value(column, item)
        values, depth = column, kind
        while innermost_type(depth.value_type) != depth.value_type:
            values, depth = f"flatten({values})", depth.value_type
        return f"list_bool_or([{self._of_value('x', item)} for x in {values}])"

    def _of_value(self, value: str, item: pa.DataType) -> str:
        """Return the condition for a single value of a type that is not a list."""
        kind = value_kind(item)
        if self.in_bytes:
            if kind not in (ValueKind.TEXT, ValueKind.BYTES):
                raise UsageError(f"column {self.name!r} has no text or bytes")
            value = f"strlen({value})" if kind is ValueKind.TEXT else f"octet_length({value})"
        elif kind is None or not kind.is_number:
            raise UsageError(f"column {self.name!r} has no numbers")
        elif self.special:
            function = "isnan" if self.special == NAN else "isinf"
            return f"{function}({value})" if kind is ValueKind.FLOAT else "false"
        elif kind is ValueKind.BOOLEAN:
            value = f"{value}::INT"
        elif not (self._is_whole if kind is ValueKind.INTEGER else pa.types.is_float64(item)):
            value = f"{value}::DOUBLE"
        if self.is_closed and self.low == self.high:
            return f"{value} = {_literal(self.low)}"
        sign = "<=" if self.is_closed else "<"
        return f"{value} >= {_literal(self.low)} AND {value} {sign} {_literal(self.high)}"

    @property
    def _is_whole(self) -> bool:
        """Whether integers can be compared with the bounds as they are."""
        bounds = (self.low, self.high)
        return all(isinstance(bound, int) and abs(bound) <= LARGEST_EXACT for bound in bounds)


def _literal(number: float) -> str:
    """Return a number in SQL: a DOUBLE if a decimal would be rounded differently."""
    text = repr(number)
    if not math.isfinite(number):
        return f"'{text}'::DOUBLE"
    if isinstance(number, int) or "e" in text or sum(map(str.isdigit, text)) <= _EXACT_DIGITS:
        return text
    return f"{text}e0"
