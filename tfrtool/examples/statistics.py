"""What has been seen of one feature, and the spec that follows from it."""

import math
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from tfrtool.examples.content import PixelForm, describe_bytes, png_form
from tfrtool.examples.example import DTYPES, DType, Value, feature_name
from tfrtool.examples.schema import FeatureSpec

DISTINCT_VALUES = 100
"""Distinct values that are counted: more than the classes of most label features."""

DISTINCT_BYTES = 64
"""The longest string that is counted as a distinct value; class names are shorter."""

DESCRIBED = 64
"""Strings of one list that are looked into; a list of words or frames holds one sort of thing."""

_BATCH = 64 * 1024
"""Values of a list that are Python objects at a time."""

Place = tuple[str, int]
"""A source, such as a shard's path, and the index of a record in it."""


@dataclass(slots=True)
class ValueStatistics:
    """What has been seen of a feature's values of one type.

    All from ``minimum`` on is taken in only if that was asked for.
    """

    first: Place = ("", 0)  # the first record that has some
    present: int = 0  # records, or steps of a feature list, that have some
    low: int = sys.maxsize  # the fewest values in one of them
    high: int = -1  # the most
    content: Counter[str] = field(default_factory=Counter)  # strings by what `describe_bytes` says
    minimum: int | float | None = None  # of the numbers that are finite, or the fewest bytes
    maximum: int | float | None = None
    nan: int = 0
    infinite: int = 0
    distinct: Counter[Value] | None = None  # how often each comes; None if too many or too long
    pixels: set[PixelForm | None] = field(default_factory=set)  # of PNGs; None of other strings

    def stretch(self, low: int, high: int) -> None:
        """Take in numbers of values that are below ``low`` or above ``high``."""
        self.low, self.high = min(self.low, low), max(self.high, high)

    def describe(self, values: Iterable[bytes]) -> None:
        """Take in what the first strings of a list hold."""
        content = self.content
        for value in islice(values, DESCRIBED):
            name = describe_bytes(value)
            content[name] = content.get(name, 0) + 1

    def take(self, kind: str, values: Sequence[Any]) -> None:
        """Take in the values themselves: their range, and how often each comes."""
        if len(values) > _BATCH:  # millions, maybe: never all as objects of Python
            for start in range(0, len(values), _BATCH):
                self.take(kind, values[start : start + _BATCH])
            return
        held = measures = list(values)
        if kind == "bytes_list":
            self.pixels.update(map(png_form, held[:DESCRIBED]))
            measures = [len(value) for value in held]
        # Float32 values are too small for the sum of a list to overflow: it is finite if they are.
        elif kind == "float_list" and not math.isfinite(sum(held)):
            finite = [value for value in held if math.isfinite(value)]
            nan = sum(map(math.isnan, held))
            self.nan += nan
            self.infinite += len(held) - len(finite) - nan
            held = measures = finite
        if measures:
            self._widen(min(measures), max(measures))
        if kind == "bytes_list" and (self.maximum or 0) > DISTINCT_BYTES:
            self.distinct = None
        if self.distinct is not None:
            self.distinct.update(held)
            if len(self.distinct) > DISTINCT_VALUES:
                self.distinct = None

    def _widen(self, low: float | None, high: float | None) -> None:
        if low is not None and (self.minimum is None or low < self.minimum):
            self.minimum = low
        if high is not None and (self.maximum is None or high > self.maximum):
            self.maximum = high

    def merge(self, other: "ValueStatistics") -> None:
        """Take in what another fold has seen of the same type."""
        self.stretch(other.low, other.high)
        self.first = min(self.first, other.first)
        self._widen(other.minimum, other.maximum)
        self.present += other.present
        self.nan += other.nan
        self.infinite += other.infinite
        self.pixels |= other.pixels
        self.content.update(other.content)
        if self.distinct is not None and other.distinct is not None:
            self.distinct.update(other.distinct)
        if other.distinct is None or len(self.distinct or ()) > DISTINCT_VALUES:
            self.distinct = None


@dataclass(slots=True)
class FeatureStatistics:
    """What has been seen of one feature."""

    key: bytes  # its name, as the bytes that the records hold
    is_list: bool = False  # whether it is a feature list of a SequenceExample
    counted: bool = False  # whether its distinct values are counted
    kinds: dict[str, ValueStatistics] = field(default_factory=dict)  # by the list in the message
    lists: ValueStatistics = field(default_factory=ValueStatistics)  # of a feature list, its steps
    unset: int = 0  # records, or steps of a feature list, that have it without a kind
    duplicates: int = 0  # records that have it more than once; the last one counts

    def start(self, kind: str, place: Place) -> ValueStatistics:
        """Begin with a kind that has not been seen before."""
        distinct = Counter[Value]() if self.counted else None
        held = self.kinds[kind] = ValueStatistics(first=place, distinct=distinct)
        return held

    def merge(self, other: "FeatureStatistics") -> None:
        """Take in what another fold has seen of the same feature."""
        for name, kind in other.kinds.items():
            held = self.kinds.get(name) or self.start(name, kind.first)
            held.merge(kind)
        self.lists.merge(other.lists)
        self.unset += other.unset
        self.duplicates += other.duplicates

    @property
    def name(self) -> str:
        """Its name as text; bytes that are no UTF-8 become lone surrogates."""
        return feature_name(self.key)

    @property
    def values(self) -> dict[DType, ValueStatistics]:
        """What the values of each type are."""
        return {dtype: self.kinds[name] for name, dtype in DTYPES.items() if name in self.kinds}

    @property
    def dtypes(self) -> dict[DType, int]:
        """How many records have values of each type."""
        return {dtype: kind.present for dtype, kind in self.values.items()}

    @property
    def dtype(self) -> DType | None:
        """The type of its values, the most common one where records disagree."""
        dtypes = self.dtypes
        return max(dtypes, key=lambda dtype: (dtypes[dtype], dtype.value), default=None)

    @property
    def present(self) -> int:
        """How many records have it with a kind set; for a feature list, have it at all."""
        return self.lists.present if self.is_list else sum(self.dtypes.values())

    @property
    def conflict(self) -> bool:
        """Whether records disagree on its type, so that no description fits all of them."""
        return len(self.kinds) > 1

    @property
    def lengths(self) -> tuple[int, int]:
        """The fewest and the most values in a record that has it; of a feature list, steps."""
        return (self.lists.low, self.lists.high) if self.is_list else self._span() or (0, 0)

    @property
    def steps(self) -> tuple[int, int] | None:
        """The fewest and the most values in a step of a feature list; None without a step."""
        if not self.is_list:
            return None
        # Steps without a kind have no values; they are steps all the same.
        return self._span(0) if self.unset else self._span()

    def _span(self, *others: int) -> tuple[int, int] | None:
        held = [*others, *(n for kind in self.kinds.values() for n in (kind.low, kind.high))]
        return (min(held), max(held)) if held else None

    @property
    def content(self) -> Counter[str]:
        """How many values hold what (`describe_bytes`), for string features."""
        kind = self.kinds.get("bytes_list")
        return Counter() if kind is None else kind.content

    @property
    def described_content(self) -> str | None:
        """What its bytes hold: one description, "mixed", or None where there are no bytes."""
        kinds = [kind for kind in self.content if kind != "empty"] or list(self.content)
        return None if not kinds else kinds[0] if len(kinds) == 1 else "mixed"

    @property
    def range(self) -> ValueStatistics:
        """What its values are, those of the most common type."""
        return self.values[self.dtype] if self.dtype else ValueStatistics()

    def size(self, records: int) -> int | None:
        """Return how many values each of ``records`` records (or each step) has; None if any."""
        span = self.steps if self.is_list else self.lengths
        if self.present != records or self.conflict or span is None or span[0] != span[1]:
            return None
        # Steps without values, or a kind, can't have a shape.
        return span[0] or (None if self.is_list else 0)

    def spec(self, records: int) -> FeatureSpec:
        """Return the narrowest spec that all ``records`` records fit, conflicts of type apart."""
        size = self.size(records)
        shape = None if size is None else () if size == 1 else (size,)
        dtype = self.dtype or DType.STRING
        return FeatureSpec(name=self.name, dtype=dtype, shape=shape, is_list=self.is_list)
