"""Runs of one label, held against all orders, and against random ones."""

from __future__ import annotations

import itertools
import random
import statistics
from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrtool.inspection.dataset.shuffle import Order, ShuffleQuality, measure_order


def measured(labels: Sequence[int]) -> ShuffleQuality:
    """Return what is said of the order of these labels in one shard."""
    found = measure_order([labels])
    assert found is not None
    return found


def labels_of(counts: Sequence[int]) -> list[int]:
    """Return so many of each label, sorted."""
    return [code for code, count in enumerate(counts) for _ in range(count)]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60))
def test_runs_are_those_of_groupby(labels: list[int]) -> None:
    """Number, longest and its label agree with the standard library's way of grouping."""
    groups = [(label, len(list(group))) for label, group in itertools.groupby(labels)]
    found = measured(array("H", labels))
    longest = max(length for _, length in groups)
    assert (found.runs, found.longest_run) == (len(groups), longest)
    assert found.longest_run_label == next(
        str(label) for label, length in groups if length == longest
    )


@pytest.mark.parametrize("counts", [(3, 3), (1, 5), (2, 2, 2), (4, 2, 1), (1, 1, 1), (5,), (1, 1)])
def test_expected_runs_are_exact(counts: tuple[int, ...]) -> None:
    """Mean and deviation are those over all orders."""
    found = [measured(order) for order in itertools.permutations(labels_of(counts))]
    mean, deviation = found[0].expected_runs, statistics.pstdev(one.runs for one in found)
    assert mean == pytest.approx(statistics.fmean(one.runs for one in found))
    for one in found:
        assert (one.runs_z is None) == (deviation == 0)
        assert (one.runs_z or 0) * deviation == pytest.approx(one.runs - mean)


@pytest.mark.parametrize(("counts", "is_sorted"), [((1, 99), False), ((2, 98), True)])
def test_an_order_that_chance_gives_is_not_called_sorted(
    counts: tuple[int, int], is_sorted: bool
) -> None:
    """One of 100 stands at an end in 1 of 50 orders; two of them in 1 of 2475."""
    assert (measured(labels_of(counts)).order is Order.SORTED) == is_sorted


@pytest.mark.parametrize(
    "counts", [(10, 10), (100, 100), (500, 500), (40,) * 10, (270, 30), (3,) * 50, (200, 150, 3)]
)
def test_expected_longest_run(counts: tuple[int, ...]) -> None:
    """The formula is within 5 % of what shuffling gives."""
    dice = random.Random(3)
    labels = labels_of(counts)
    found = []
    for _ in range(600):
        dice.shuffle(labels)
        found.append(max(len(list(run)) for _, run in itertools.groupby(labels)))
    expected = measured(labels).expected_longest_run
    assert expected == pytest.approx(statistics.fmean(found), rel=0.05)


@pytest.mark.parametrize(("counts", "longest"), [((7,), 7), ((1, 1), 1)])
def test_longest_run_where_it_is_certain(counts: tuple[int, ...], longest: int) -> None:
    """One label is one run; two records of two labels are two."""
    assert measured(labels_of(counts)).expected_longest_run == pytest.approx(longest)


def test_longest_run_of_many_records() -> None:
    """Where one label has nearly all records, its runs are long by chance too."""
    found = measured(labels_of((3, 10**6)))
    assert found.expected_longest_run == pytest.approx(10**6 * 25 / 48, rel=0.2)
