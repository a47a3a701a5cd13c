"""What has been seen of one feature, and the spec that follows from it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from tfrtool.examples.content import PixelForm, describe_bytes, pixel_form
from tfrtool.examples.example import DTYPES, DType, Value, feature_name
from tfrtool.examples.long_values import LongNumbers
from tfrtool.examples.schema import FeatureSpec

DISTINCT_VALUES = 100
"""Distinct values that are counted: more than the classes of most label features."""

DISTINCT_BYTES = 64
"""The longest string that is counted as a distinct value; class names are shorter."""

DESCRIBED = 64
"""Strings of one list that are looked into; a list of words or frames holds one sort of thing."""

Place = tuple[str, int]
"""A source, such as a shard's path, and the index of a record in it."""


@dataclass(slots=True)
class ValueStatistics:
    """What has been seen of a feature's values of one type.

    Attributes:
        first: the first record that has some.
        present: how many records, or steps of a feature list, have some.
        low: the fewest values in one of them; -1 before there is any, as for `high`.
        high: the most.
        content: how many strings hold what (`describe_bytes`).
        count: how many values, of which all that follows tells only if that was asked for.
        total: the sum of the integers.
        minimum: the smallest number, NaN and infinities apart, or the fewest bytes of a string;
            None where there is none.
        maximum: the largest.
        nan: how many values are NaN.
        infinite: how many are positive or negative infinity.
        counts: how often each value comes, NaN and infinities apart; None where there are too
            many of them or too long ones.
        pixels: how many JPEG and PNG images have pixels of each form.
    """

    first: Place = ("", 0)
    present: int = 0
    low: int = -1
    high: int = -1
    content: dict[str, int] = field(default_factory=dict)
    count: int = 0
    total: int = 0
    minimum: int | float | None = None
    maximum: int | float | None = None
    nan: int = 0
    infinite: int = 0
    counts: dict[Value, int] | None = None
    pixels: dict[PixelForm, int] = field(default_factory=dict)

    @property
    def distinct(self) -> dict[Value, int] | None:
        """The counts, in which 0.0 and -0.0 are one value: 0.0 and either of them make 0.0."""
        if self.counts is None:
            return None
        return {v + 0.0 if isinstance(v, float) else v: n for v, n in self.counts.items()}

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
        held = measures = list(values)
        self.count += len(held)
        if kind == "bytes_list":
            for value in held[:DESCRIBED]:
                form = pixel_form(value)
                if form is not None:
                    _add(self.pixels, {form: 1})
            measures = [len(value) for value in held]
        elif kind == "float_list":
            held = measures = self._finite(held)
        else:
            self.total += sum(held)
        if measures:
            self._widen(min(measures), max(measures))
        if kind == "bytes_list" and (self.maximum or 0) > DISTINCT_BYTES:
            self.counts = None
        counts = self.counts
        if counts is None:
            return
        for value in held:
            counts[value] = counts.get(value, 0) + 1
            if len(counts) > DISTINCT_VALUES:
                self.counts = None
                return

    def _finite(self, values: list[float]) -> list[float]:
        # Float32 values are too small for the sum of a list to overflow: it is finite if they are.
        if math.isfinite(sum(values)):
            return values
        finite = [value for value in values if math.isfinite(value)]
        nan = sum(map(math.isnan, values))
        self.nan += nan
        self.infinite += len(values) - len(finite) - nan
        return finite

    def _widen(self, low: float | None, high: float | None) -> None:
        if low is not None and (self.minimum is None or low < self.minimum):
            self.minimum = low
        if high is not None and (self.maximum is None or high > self.maximum):
            self.maximum = high

    def merge(self, other: ValueStatistics) -> None:
        """Take in what another fold has seen of the same type."""
        if other.high >= 0:
            self.stretch(other.low)
            self.stretch(other.high)
        self.first = min(self.first, other.first)
        self._widen(other.minimum, other.maximum)
        for name in ("present", "count", "total", "nan", "infinite"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        _add(self.content, other.content)
        _add(self.pixels, other.pixels)
        if self.counts is None or other.counts is None:
            self.counts = None
        else:
            _add(self.counts, other.counts)
            if len(self.counts) > DISTINCT_VALUES:
                self.counts = None


@dataclass(slots=True)
class FeatureStatistics:
    """What has been seen of one feature.

    Attributes:
        key: its name, as the bytes that the records hold.
        is_list: whether it is a feature list of a SequenceExample.
        counted: whether its distinct values are counted.
        kinds: what its values are, by the name of their list in the message. A feature list
            counts by its steps.
        lists: how many records have it as a feature list.
        low: the fewest steps in one of these.
        high: the most.
        unset: how many records have it without a kind; for a feature list, how many steps.
        duplicates: how many records have it more than once; the last one counts, as for every
            protobuf map.
    """

    key: bytes
    is_list: bool = False
    counted: bool = False
    kinds: dict[str, ValueStatistics] = field(default_factory=dict)
    lists: int = 0
    low: int = 0
    high: int = 0
    unset: int = 0
    duplicates: int = 0

    def start(self, kind: str, place: Place) -> ValueStatistics:
        """Begin with a kind that has not been seen before."""
        counts: dict[Value, int] | None = {} if self.counted else None
        held = self.kinds[kind] = ValueStatistics(first=place, counts=counts)
        return held

    def add_lists(self, lists: int, low: int, high: int) -> None:
        """Take in some records' feature lists, and the fewest and the most steps of one."""
        if lists:
            self.low = min(self.low, low) if self.lists else low
            self.high = max(self.high, high)
            self.lists += lists

    def merge(self, other: FeatureStatistics) -> None:
        """Take in what another fold has seen of the same feature."""
        for name, kind in other.kinds.items():
            held = self.kinds.get(name) or self.start(name, kind.first)
            held.merge(kind)
        self.add_lists(other.lists, other.low, other.high)
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
        return self.lists if self.is_list else sum(self.dtypes.values())

    @property
    def occurrences(self) -> int:
        """How often it was there, in whatever form."""
        return self.lists + self.unset + sum(self.dtypes.values())

    @property
    def conflict(self) -> bool:
        """Whether records disagree on its type, so that no description fits all of them."""
        return len(self.kinds) > 1

    @property
    def min_length(self) -> int:
        """The fewest values in a record that has it; for a feature list, the fewest steps."""
        return self.low if self.is_list else min(self._lengths, default=0)

    @property
    def max_length(self) -> int:
        """The most."""
        return self.high if self.is_list else max(self._lengths, default=0)

    @property
    def min_step(self) -> int | None:
        """For a feature list, the fewest values in a step; None where there was no step."""
        return min(self._step_lengths, default=None)

    @property
    def max_step(self) -> int | None:
        """The most."""
        return max(self._step_lengths, default=None)

    @property
    def _lengths(self) -> Sequence[int]:
        return [length for kind in self.kinds.values() for length in (kind.low, kind.high)]

    @property
    def _step_lengths(self) -> Sequence[int]:
        # Steps without a kind have no values; they are steps all the same.
        return [*self._lengths, *([0] if self.unset else [])] if self.is_list else []

    @property
    def content(self) -> dict[str, int]:
        """How many values hold what (`describe_bytes`), for string features."""
        kind = self.kinds.get("bytes_list")
        return {} if kind is None else kind.content

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
        if self.present != records or self.conflict:
            return None
        if not self.is_list:
            return self.min_length if self.min_length == self.max_length else None
        if self.min_step != self.max_step:
            return None
        return self.min_step or None  # steps without values, or a kind, can't have a shape

    def spec(self, records: int) -> FeatureSpec:
        """Return the narrowest spec that all ``records`` records fit, conflicts of type apart."""
        size = self.size(records)
        shape = None if size is None else () if size == 1 else (size,)
        dtype = self.dtype or DType.STRING
        return FeatureSpec(name=self.name, dtype=dtype, shape=shape, is_list=self.is_list)


def _add(counts: dict[Any, int], more: dict[Any, int]) -> None:
    for key, count in more.items():
        counts[key] = counts.get(key, 0) + count
