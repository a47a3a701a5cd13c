"""What a fold holds of one feature while it goes over the records."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from tfrtool.examples.content import describe_bytes
from tfrtool.examples.example import DType, Value
from tfrtool.examples.image_header import PixelForm, pixel_form
from tfrtool.examples.long_values import LongNumbers
from tfrtool.examples.statistics import FeatureStatistics, Place, ValueStatistics

__all__ = ["DESCRIBED", "DISTINCT_BYTES", "DISTINCT_VALUES", "Column"]

DISTINCT_VALUES = 100
"""Distinct values that are counted: more than the classes of most label features."""

DISTINCT_BYTES = 64
"""The longest string that is counted as a distinct value; class names are shorter."""

DESCRIBED = 64
"""Strings of one list that are looked into; a list of words or frames holds one sort of thing."""

_DTYPES = {
    "bytes_list": DType.STRING,
    "float_list": DType.FLOAT32,
    "int64_list": DType.INT64,
}


class Kind:
    """What is held of a feature's values of one type.

    The attributes are those that the fold's loop counts up by itself, for speed.

    Attributes:
        count: how many records or steps.
        low: the fewest values in one of them.
        high: the most.
        content: how many strings hold what.
    """

    __slots__ = ("_distinct", "_first", "_infinite", "_maximum", "_minimum", "_nan", "_pixels",
                 "_sum", "_values", "content", "count", "high", "low")  # fmt: skip

    def __init__(self, first: Place, *, counted: bool) -> None:
        self.count = 0
        self.low = 0
        self.high = -1  # so that the first length is outside
        self.content: dict[str, int] = {}
        self._first = first
        self._minimum: float = math.inf
        self._maximum: float = -math.inf
        self._values = 0
        self._sum = 0
        self._nan = 0
        self._infinite = 0
        self._distinct: dict[Value, int] | None = {} if counted else None
        self._pixels: dict[PixelForm, int] = {}

    @property
    def first(self) -> Place:
        """The first record that has values of this type."""
        return self._first

    def stretch(self, length: int) -> None:
        """Take in a number of values that is below ``low`` or above ``high``."""
        self.low = length if self.high < 0 else min(self.low, length)
        self.high = max(self.high, length)

    def describe(self, values: Iterable[bytes]) -> None:
        """Take in what the first strings of a list hold."""
        content = self.content
        for value in islice(values, DESCRIBED):
            name = describe_bytes(value)
            content[name] = content.get(name, 0) + 1

    def take(self, kind: str, values: Iterable[Any]) -> None:
        """Take in the values themselves: their range, and how often each comes."""
        if isinstance(values, LongNumbers):
            for part in values.parts():
                self.take(kind, part)
            return
        held: Sequence[Any] = list(values)
        self._values += len(held)
        if kind == "bytes_list":
            for value in held[:DESCRIBED]:
                form = pixel_form(value)
                if form is not None:
                    self._pixels[form] = self._pixels.get(form, 0) + 1
            measures: Sequence[float] = [len(value) for value in held]
        elif kind == "float_list":
            held = self._finite(held)
            measures = held
        else:
            measures = held
            self._sum += sum(held)
        if measures:
            self._minimum = min(self._minimum, min(measures))
            self._maximum = max(self._maximum, max(measures))
        distinct = self._distinct
        if distinct is None:
            return
        if kind == "bytes_list" and self._maximum > DISTINCT_BYTES:
            self._distinct = None
            return
        for value in held:
            distinct[value] = distinct.get(value, 0) + 1
            if len(distinct) > DISTINCT_VALUES:
                self._distinct = None
                return

    def _finite(self, values: Sequence[float]) -> Sequence[float]:
        # Float32 values are too small for the sum of a list to overflow: it is finite if they are.
        if math.isfinite(sum(values)):
            return values
        finite = [value for value in values if math.isfinite(value)]
        nan = sum(map(math.isnan, values))
        self._nan += nan
        self._infinite += len(values) - len(finite) - nan
        return finite

    def merge(self, other: Kind) -> None:
        """Take in what another fold has seen of the same type."""
        self.count += other.count
        if other.high >= 0:
            self.stretch(other.low)
            self.stretch(other.high)
        _add(self.content, other.content)
        self._first = min(self._first, other._first)
        self._minimum = min(self._minimum, other._minimum)
        self._maximum = max(self._maximum, other._maximum)
        self._values += other._values
        self._sum += other._sum
        self._nan += other._nan
        self._infinite += other._infinite
        _add(self._pixels, other._pixels)
        if self._distinct is None or other._distinct is None:
            self._distinct = None
        else:
            _add(self._distinct, other._distinct)
            if len(self._distinct) > DISTINCT_VALUES:
                self._distinct = None

    def statistics(self) -> ValueStatistics:
        """Return what has been seen of the values."""
        empty = self._minimum > self._maximum
        distinct = self._distinct
        return ValueStatistics(
            count=self._values,
            total=self._sum,
            minimum=None if empty else self._minimum,
            maximum=None if empty else self._maximum,
            nan=self._nan,
            infinite=self._infinite,
            # 0.0 and -0.0 are one value; adding 0.0 to either gives 0.0, and changes no other.
            distinct=None if distinct is None else {_unsigned(v): n for v, n in distinct.items()},
            pixels=dict(self._pixels),
        )


class Column:
    """What is held of one feature.

    Attributes:
        key: the feature's name.
        is_list: whether it is a feature list.
        counted: whether distinct values are counted.
        kinds: by the name of the kind in the message.
        lists: how many records have it as a feature list.
        low: the fewest steps of one.
        high: the most.
        unset: how often it has no kind.
        duplicates: how many records have it more than once.
    """

    __slots__ = (
        "counted",
        "duplicates",
        "high",
        "is_list",
        "key",
        "kinds",
        "lists",
        "low",
        "unset",
    )

    def __init__(self, key: bytes, *, is_list: bool = False, counted: bool = True) -> None:
        self.key = key
        self.counted = counted
        self.is_list = is_list
        self.kinds: dict[str, Kind] = {}
        self.lists = 0
        self.low = 0
        self.high = 0
        self.unset = 0
        self.duplicates = 0

    def start(self, kind: str, place: Place) -> Kind:
        """Begin with a kind that has not been seen before."""
        held = self.kinds[kind] = Kind(place, counted=self.counted)
        return held

    def add_steps(self, steps: int) -> None:
        """Take in the number of steps of a record's feature list."""
        self.low = min(self.low, steps) if self.lists else steps
        self.high = max(self.high, steps)
        self.lists += 1

    @property
    def occurrences(self) -> int:
        """How often it was there, in whatever form."""
        return self.lists + self.unset + sum(kind.count for kind in self.kinds.values())

    def merge(self, other: Column) -> None:
        """Take in what another fold has seen of the same feature."""
        for name, kind in other.kinds.items():
            held = self.kinds.get(name) or self.start(name, kind.first)
            held.merge(kind)
        if other.lists:
            self.low = min(self.low, other.low) if self.lists else other.low
            self.high = max(self.high, other.high)
        self.lists += other.lists
        self.unset += other.unset
        self.duplicates += other.duplicates

    def statistics(self, *, values: bool) -> FeatureStatistics:
        """Return what has been seen.

        Args:
            values: whether the values themselves were taken in.
        """
        kinds = {dtype: self.kinds[name] for name, dtype in _DTYPES.items() if name in self.kinds}
        present = sum(kind.count for kind in kinds.values())
        lengths = _span(kinds.values())
        # Steps without a kind have no values; they are steps all the same.
        steps = _span(kinds.values(), empty=self.unset > 0) if self.is_list else (None, None)
        return FeatureStatistics(
            key=self.key,
            is_list=self.is_list,
            dtypes={dtype: kind.count for dtype, kind in kinds.items()},
            first={dtype: kind.first for dtype, kind in kinds.items()},
            present=self.lists if self.is_list else present,
            unset=self.unset,
            duplicates=self.duplicates,
            min_length=self.low if self.is_list else lengths[0] or 0,
            max_length=self.high if self.is_list else lengths[1] or 0,
            min_step=steps[0],
            max_step=steps[1],
            content=dict(kinds[DType.STRING].content) if DType.STRING in kinds else {},
            values={dtype: kind.statistics() for dtype, kind in kinds.items()} if values else {},
        )


def _span(kinds: Iterable[Kind], *, empty: bool = False) -> tuple[int | None, int | None]:
    lengths = [length for kind in kinds for length in (kind.low, kind.high)] + [0] * empty
    return (min(lengths), max(lengths)) if lengths else (None, None)


def _add(counts: dict[Any, int], more: dict[Any, int]) -> None:
    for key, count in more.items():
        counts[key] = counts.get(key, 0) + count


def _unsigned(value: Value) -> Value:
    return value + 0.0 if isinstance(value, float) else value
