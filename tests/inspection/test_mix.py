"""Distances between mixes of labels, held against drawing at random."""

from __future__ import annotations

import itertools
import random
import statistics
from collections import Counter

import pytest

from tfrtool.inspection.dataset.label_mix import describe_balance, mix_distance


def test_distance() -> None:
    """The distance is the share of records that would need another label."""
    whole = Counter({0: 50, 1: 50})
    assert mix_distance(Counter({0: 5, 1: 5}), whole).mix_distance == 0
    assert mix_distance(Counter({0: 10}), whole).mix_distance == pytest.approx(0.5)
    assert mix_distance(Counter({0: 6, 1: 4}), whole).mix_distance == pytest.approx(0.1)
    assert mix_distance(Counter({2: 3}), Counter({0: 997, 2: 3})).mix_distance == pytest.approx(
        0.997
    )


def test_the_whole_is_not_off() -> None:
    """A part that is all there is, or that is empty, has no distance and chance gives none."""
    whole = Counter({0: 5, 1: 2})
    for part in (whole, Counter[int]()):
        found = mix_distance(part, whole)
        assert (found.mix_distance, found.mix_distance_by_chance, found.is_chance) == (0, 0, True)


@pytest.mark.parametrize(
    ("counts", "size"), [((3, 3), 2), ((5, 1), 3), ((2, 3, 2), 4), ((4, 4), 7), ((1, 1, 1, 5), 1)]
)
def test_chance_is_exact(counts: tuple[int, ...], size: int) -> None:
    """What chance gives on average is the mean over all draws."""
    labels = [code for code, count in enumerate(counts) for _ in range(count)]
    whole = Counter(labels)
    found = [mix_distance(Counter(draw), whole) for draw in itertools.combinations(labels, size)]
    mean = statistics.fmean(one.mix_distance for one in found)
    assert found[0].mix_distance_by_chance == pytest.approx(mean)


def test_limit_holds() -> None:
    """Random parts stay below the limit, one that is picked does not."""
    dice = random.Random(5)
    labels = [0] * 700 + [1] * 200 + [2] * 100
    whole = Counter(labels)
    for _ in range(300):
        found = mix_distance(Counter(dice.sample(labels, 100)), whole, parts=10)
        assert found.is_chance
        assert found.mix_distance_by_chance < found.mix_distance_limit < 1
    assert not mix_distance(Counter({1: 100}), whole, parts=10).is_chance


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({}, "no labels"),
        ({"cat": 0}, "no labels"),
        ({"cat": 5, "dog": 0}, "all are cat"),
        ({"cat": 100, "dog": 105}, "balanced"),
        ({"cat": 1, "dog": 2}, "balanced"),
        ({"cat": 100, "dog": 126}, "nearly balanced: dog is 1.26 times as frequent as cat"),
        ({"cat": 100, "dog": 320, "cow": 200}, "dog is 3.2 times as frequent as cat"),
        ({"cat": 1, "dog": 12_345}, "dog is 12,345 times as frequent as cat"),
    ],
)
def test_balance_in_words(counts: dict[str, int], words: str) -> None:
    """The most and the least frequent label are named, with the ratio between them."""
    assert describe_balance(counts) == words
