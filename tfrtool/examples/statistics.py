"""What has been seen of one feature, and the spec that follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tfrtool.examples.example import DType, Value, feature_name
from tfrtool.examples.image_header import PixelForm
from tfrtool.examples.schema import FeatureSpec

__all__ = ["FeatureStatistics", "Place", "ValueStatistics"]

Place = tuple[str, int]
"""A source, such as a shard's path, and the index of a record in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueStatistics:
    """What has been seen of a feature's values of one type.

    Attributes:
        count: how many values.
        total: the sum of the integers.
        minimum: the smallest number, NaN and infinities apart, or the fewest bytes of a string;
            None where there is none.
        maximum: the largest.
        nan: how many values are NaN.
        infinite: how many are positive or negative infinity.
        distinct: how often each value comes, NaN and infinities apart; None where there are too
            many of them or too long ones.
        pixels: how many JPEG and PNG images have pixels of each form.
    """

    count: int = 0
    total: int = 0
    minimum: int | float | None = None
    maximum: int | float | None = None
    nan: int = 0
    infinite: int = 0
    distinct: Mapping[Value, int] | None = None
    pixels: Mapping[PixelForm, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureStatistics:
    """What has been seen of one feature.

    Attributes:
        key: its name, as the bytes that the records hold.
        is_list: whether it is a feature list of a SequenceExample.
        dtypes: how many records have values of each type. A feature list counts by its steps.
        first: the first record that has values of each type.
        present: how many records have it with a kind set; for a feature list, have it at all.
        unset: how many records have it without a kind; for a feature list, how many steps.
        duplicates: how many records have it more than once; the last one counts, as for every
            protobuf map.
        min_length: the fewest values in a record that has it; for a feature list, the fewest steps.
        max_length: the most.
        min_step: for a feature list, the fewest values in a step; None where there was no step.
        max_step: the most.
        content: how many values hold what (`describe_bytes`), for string features.
        values: what the values of each type are; empty where that was not asked for.
    """

    key: bytes
    is_list: bool = False
    dtypes: Mapping[DType, int] = field(default_factory=dict)
    first: Mapping[DType, Place] = field(default_factory=dict)
    present: int = 0
    unset: int = 0
    duplicates: int = 0
    min_length: int = 0
    max_length: int = 0
    min_step: int | None = None
    max_step: int | None = None
    content: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[DType, ValueStatistics] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its name as text; bytes that are no UTF-8 become lone surrogates."""
        return feature_name(self.key)

    @property
    def dtype(self) -> DType | None:
        """The type of its values, the most common one where records disagree."""
        if not self.dtypes:
            return None
        return max(self.dtypes, key=lambda dtype: (self.dtypes[dtype], dtype.value))

    @property
    def conflict(self) -> bool:
        """Whether records disagree on its type, so that no description fits all of them."""
        return len(self.dtypes) > 1

    @property
    def described_content(self) -> str | None:
        """What its bytes hold: one description, "mixed", or None where there are no bytes."""
        kinds = [kind for kind in self.content if kind != "empty"] or list(self.content)
        if not kinds:
            return None
        return kinds[0] if len(kinds) == 1 else "mixed"

    @property
    def range(self) -> ValueStatistics:
        """What its values are, those of the most common type."""
        return self.values.get(self.dtype, _NOTHING) if self.dtype else _NOTHING

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


_NOTHING = ValueStatistics()
