"""Distances, against those of TFDV and some that are known."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon  # type: ignore[import-untyped]

from tests.inspection.stats.test_number_fold import Numbers, folded, numbers
from tfrtool.inspection.stats.distance import jensen_shannon, l_infinity

TFDV: dict[str, Any] = json.loads(Path(__file__).with_name("tfdv.json").read_text())


@pytest.mark.parametrize("which", [0, 3])
def test_divergence_is_tfdvs(which: int) -> None:
    """In the same bins on both sides, TFDV 1.16.1 has computed the same."""
    known = TFDV["divergences"][which]
    some, others = (
        folded(np.repeat(np.add(one["edges"][:-1], one["edges"][1:]) / 2, one["counts"]))
        for one in known["histograms"]
    )
    assert jensen_shannon(some, others) == pytest.approx(known["divergence"], abs=1e-12)
    assert jensen_shannon(others, some) == pytest.approx(known["divergence"], abs=1e-12)


@given(st.lists(st.integers(0, 500), min_size=1, max_size=10), st.data())
def test_divergence_of_few_values_is_exact(counts: list[int], data: st.DataObject) -> None:
    """Up to ten different values are never put together, however far apart they are."""
    apart = [-(2**60), -1, 0, 1, 2, 3, 7, 1000, 10**12, 2**62]
    sizes = st.lists(st.integers(0, 500), min_size=len(counts), max_size=len(counts))
    pair = [counts, data.draw(sizes)]
    assume(all(map(sum, pair)))
    found = jensen_shannon(*(folded(np.repeat(apart[: len(one)], one)) for one in pair))
    assert found == pytest.approx(jensenshannon(*pair, base=2) ** 2, abs=1e-9)


@pytest.mark.parametrize("room", [2**15, 1000])
@pytest.mark.parametrize("shift", [0.0, 0.1, 1.0, 3.0])
def test_divergence_of_densities(shift: float, room: int) -> None:
    """Numbers of two normal distributions, all held or a sample of them, and one outlier."""
    one, other = NormalDist(), NormalDist(mu=shift)
    some = np.array([1e9, *(one.inv_cdf((n + 0.5) / 20_000) for n in range(20_000))])
    others = np.array([other.inv_cdf((n + 0.5) / 10_000) for n in range(10_000)])
    x = np.linspace(-10, 13, 4001)
    p, q = (np.array([law.pdf(at) for at in x]) for law in (one, other))
    exact = jensenshannon(p, q, base=2) ** 2
    found = jensen_shannon(folded(some, room=room), folded(others, room=room))
    assert found == pytest.approx(exact, abs=0.015)


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


def test_l_infinity() -> None:
    """It is the greatest difference of shares, of values that one side lacks, too."""
    assert l_infinity({"a": 1, "b": 1}, {"a": 3, "c": 1}) == 0.5
    assert l_infinity({"a": 1}, {"a": 7}) == 0
    assert l_infinity({"a": 1}, {}) is None
