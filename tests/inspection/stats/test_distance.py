"""Distances, against those of TFDV and some that are known."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from tests.inspection.stats.test_number_fold import Numbers, folded, numbers
from tfrtool.inspection.stats.distance import jensen_shannon, l_infinity
from tfrtool.inspection.stats.number_fold import NumberFold

TFDV: dict[str, Any] = json.loads(Path(__file__).with_name("tfdv.json").read_text())


class Given(NumberFold):
    """Numbers of which there is a histogram alone."""

    __slots__ = ("given",)

    def __init__(self, data: dict[str, list[Any]]) -> None:
        super().__init__(count=sum(data["counts"]))
        self.given = data

    def histogram(self) -> dict[str, list[Any]]:
        return self.given


@pytest.mark.parametrize("which", range(len(TFDV["divergences"])))
def test_divergence_is_tfdvs(which: int) -> None:
    """Of the same histograms, TFDV 1.16.1 has computed the same."""
    found = TFDV["divergences"][which]
    one, two = map(Given, found["histograms"])
    assert jensen_shannon(one, two) == pytest.approx(found["divergence"], abs=1e-12)
    assert jensen_shannon(two, one) == pytest.approx(found["divergence"], abs=1e-12)


@given(numbers, numbers)
def test_divergence_is_a_distance(one: Numbers, two: Numbers) -> None:
    """It is 0 of the same numbers, NaN and all, symmetric, and 0 to 1."""
    some, others = folded(one), folded(two)
    found = jensen_shannon(some, others)
    assert found == jensen_shannon(others, some)
    if not len(one) or not len(two):
        assert found is None
        return
    assert found is not None
    assert 0 <= found <= 1
    assert jensen_shannon(some, folded(one)) == 0


def test_nan_counts_as_a_value() -> None:
    """A half of NaN against none of it is the distance of two coins, one with a head only."""
    some = folded(np.array([1, 1, math.nan, math.nan], np.float32))
    others = folded(np.array([1.0], np.float32))
    expected = (math.log2(1 / 0.75) + 0.5 * math.log2(0.5 / 0.75) + 0.5 * math.log2(0.5 / 0.25)) / 2
    assert jensen_shannon(some, others) == pytest.approx(expected)


def test_l_infinity() -> None:
    """It is the greatest difference of shares, of values that one side lacks, too."""
    assert l_infinity({"a": 1, "b": 1}, {"a": 3, "c": 1}) == 0.5
    assert l_infinity({"a": 1}, {"a": 7}) == 0
    assert l_infinity({"a": 1}, {}) is None
