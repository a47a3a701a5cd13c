"""Ranges, distinct values and lengths of one feature."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples.strategies import UNSET, features, float32, int64, raw_example, string
from tfrtool.examples.example import Feature, encode_example
from tfrtool.examples.schema_fold import (
    DESCRIBED,
    DISTINCT_BYTES,
    DISTINCT_VALUES,
    FeatureStatistics,
    SchemaFold,
)


def seen(*held: Feature) -> FeatureStatistics:
    """Return what is seen of a feature, one record each."""
    fold = SchemaFold(values=True)
    for feature in held:
        assert fold.add_payload(encode_example({"x": feature}))
    (statistics,) = fold.features()
    return statistics


def test_floats() -> None:
    """NaN and infinities are counted apart, and are in neither range nor histogram."""
    found = seen(float32(0.5, *[math.nan] * 3, math.inf), float32(-math.inf, 2.0)).range
    assert (found.minimum, found.maximum, found.nan, found.infinite) == (0.5, 2.0, 3, 2)
    assert found.distinct == {0.5: 1, 2.0: 1}
    found = seen(float32(math.nan)).range
    assert (found.minimum, found.maximum, found.nan, found.distinct) == (None, None, 1, {})


def test_distinct_values_are_bounded() -> None:
    """Up to the limit they are counted, beyond it and for long strings they are not."""
    held = [int64(number) for number in range(DISTINCT_VALUES)]
    assert len(seen(*held).range.distinct or ()) == DISTINCT_VALUES
    assert seen(*held, int64(DISTINCT_VALUES)).range.distinct is None
    assert seen(int64(*range(1000))).range.distinct is None
    assert seen(string(b"a" * DISTINCT_BYTES)).range.distinct is not None
    assert seen(string(b"a" * (DISTINCT_BYTES + 1)), string(b"b")).range.distinct is None


def test_long_lists_are_described_by_their_start() -> None:
    """Of a long list of strings, the first ones tell what it holds; ranges are of all."""
    found = seen(string(*[b"word"] * DESCRIBED, b"\xff" * 9))
    assert found.content == {"text": DESCRIBED}
    assert found.range.maximum == 9


@given(steps=st.lists(st.lists(features, max_size=3), min_size=1, max_size=3))
def test_lists(steps: list[list[Feature]]) -> None:
    """Steps and their lengths are those of all records together."""
    fold = SchemaFold()
    for item in steps:
        fold.add_payload(raw_example([], {b"x": item}))
    (found,) = fold.features()
    lengths = [len(step.values) for item in steps for step in item]
    assert found.lengths == (min(map(len, steps)), max(map(len, steps)))
    assert found.steps == ((min(lengths), max(lengths)) if lengths else None)
    assert found.present == len(steps)
    assert found.unset == sum(step.dtype is None for item in steps for step in item)


@pytest.mark.parametrize(
    ("held", "size"),
    [
        ([int64(1), int64(2)], 1),
        ([int64(1, 2), int64(2, 3)], 2),
        ([int64(1), int64(2, 3)], None),
        ([int64(1), UNSET], None),
        ([int64(), int64()], 0),
        ([int64(1), float32(1.0)], None),
    ],
)
def test_size(held: list[Feature], size: int | None) -> None:
    """A size is what all records have, and none where they disagree in number or type."""
    assert seen(*held).size(len(held)) == size
