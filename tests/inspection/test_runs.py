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

from tfrtool.inspection.runs import (
    chance_of_sorted,
    expected_longest_run,
    expected_runs,
    find_runs,
)


def labels_of(counts: Sequence[int]) -> list[int]:
    """Return so many of each label, sorted."""
    return [code for code, count in enumerate(counts) for _ in range(count)]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60))
def test_runs_are_those_of_groupby(labels: list[int]) -> None:
    """Number, longest and its label agree with the standard library's way of grouping."""
    groups = [(label, len(list(group))) for label, group in itertools.groupby(labels)]
    found = find_runs(array("H", labels))
    assert found.count == len(groups)
    assert found.longest == max(length for _, length in groups)
    assert found.label == next(label for label, length in groups if length == found.longest)


def test_nothing_has_no_runs() -> None:
    """A sequence without labels is refused."""
    with pytest.raises(ValueError, match="no runs"):
        find_runs([])


@pytest.mark.parametrize("counts", [(3, 3), (1, 5), (2, 2, 2), (4, 2, 1), (1, 1, 1), (5,), (1, 1)])
def test_expected_runs_are_exact(counts: tuple[int, ...]) -> None:
    """Mean and deviation are those over all orders, and so is the chance of a sorted order."""
    runs = [find_runs(order).count for order in itertools.permutations(labels_of(counts))]
    mean, deviation = expected_runs(counts)
    assert mean == pytest.approx(statistics.fmean(runs))
    assert deviation == pytest.approx(statistics.pstdev(runs))
    assert chance_of_sorted(counts) == pytest.approx(runs.count(len(counts)) / len(runs))


def test_labels_without_records_change_nothing() -> None:
    """A label that doesn't occur plays no part."""
    assert expected_runs([4, 0, 3]) == expected_runs([4, 3])
    assert expected_longest_run([4, 0, 3]) == expected_longest_run([4, 3])
    assert chance_of_sorted([4, 0, 3]) == chance_of_sorted([4, 3])


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
        found.append(find_runs(labels).longest)
    assert expected_longest_run(counts) == pytest.approx(statistics.fmean(found), rel=0.05)


@pytest.mark.parametrize(("counts", "longest"), [((), 0), ((7,), 7), ((1, 1), 1)])
def test_longest_run_where_it_is_certain(counts: tuple[int, ...], longest: int) -> None:
    """One label is one run; two records of two labels are two."""
    assert expected_longest_run(counts) == pytest.approx(longest)


@pytest.mark.parametrize("counts", [(10**7, 1), (10**9, 10**6, 3), range(1, 3000)])
def test_longest_run_of_many_records_takes_no_time(counts: Sequence[int]) -> None:
    """The sum is taken over few points, whatever the counts; the result stays in bounds."""
    assert 1 <= expected_longest_run(counts) <= max(counts)
