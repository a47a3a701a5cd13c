"""What is said of an order of labels, and the shuffle buffer that it needs: tried as tf.data does.

What the numbers are is held against their definitions, and against many random orders.
"""

from __future__ import annotations

import random
from array import array
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrtool.inspection.dataset.shuffle import (
    BATCH,
    TOLERANCE,
    Order,
    ShuffleQuality,
    measure_order,
)

Labels = list[int]


def measure(*shards: Sequence[int]) -> ShuffleQuality:
    """Measure shards of which there is something to tell."""
    found = measure_order([array("H", shard) for shard in shards])
    assert found is not None
    return found


def at_random(records: int, shares: Sequence[float] = (1, 1), seed: int = 0) -> Labels:
    """Return labels drawn at random with these weights."""
    return random.Random(seed).choices(range(len(shares)), weights=shares, k=records)


def cut(labels: Labels, parts: int) -> list[Labels]:
    """Cut labels into shards."""
    size = len(labels) // parts
    return [labels[number * size : (number + 1) * size] for number in range(parts)]


def blocks(records: int, size: int) -> Labels:
    """Return labels in blocks of one label each, of two labels at random."""
    return [label for label in at_random(-(-records // size)) for _ in range(size)][:records]


def shuffled(labels: Labels, buffer: int) -> Labels:
    """Return the labels as ``shuffle(buffer)`` of tf.data gives them out."""
    dice = random.Random(0)
    held: Labels = []
    out = []
    for label in labels:
        if len(held) < buffer:
            held.append(label)
            continue
        place = dice.randrange(buffer)
        out.append(held[place])
        held[place] = label
    dice.shuffle(held)
    return out + held


def spread(labels: Labels) -> float:
    """Return the variance of batches' mixes over that of random batches, by its definition."""
    n = len(labels)
    shares = {label: count / n for label, count in Counter(labels).items()}
    squares = [
        sum((labels[start : start + BATCH].count(k) / BATCH - p) ** 2 for k, p in shares.items())
        for start in range(0, n - BATCH + 1, BATCH)
    ]
    random_batch = sum(p * (1 - p) for p in shares.values()) / BATCH * (n - BATCH) / (n - 1)
    return sum(squares) / len(squares) / random_batch


@pytest.mark.parametrize("size", [1, 7, 333])
def test_spread_is_what_it_is_defined_as(size: int) -> None:
    """The ratio for batches in file order is that of the squared distances, batch by batch."""
    labels = blocks(3001, size)
    assert measure(labels).batch_spread == pytest.approx(spread(labels))


@pytest.mark.parametrize("records", [16, 42, 300, 3000])
@pytest.mark.parametrize("shares", [(1, 1), (1,) * 10, (4, 2, 1)])
def test_random_orders_are_shuffled(records: int, shares: Sequence[float]) -> None:
    """Nearly all random orders are called so, in small splits too; their spread is about 1."""
    found = [measure(*cut(at_random(records, shares, seed), 2)) for seed in range(40)]
    assert sum(one.order is not Order.SHUFFLED for one in found) <= 1
    assert sum(one.batch_spread for one in found) / 40 == pytest.approx(1, abs=0.15)
    assert {one.shuffle_buffer for one in found if one.order is Order.SHUFFLED} == {1}


@pytest.mark.parametrize("records", [16, 42, 300, 4000])
@pytest.mark.parametrize("shards", [1, 4])
def test_sorted(records: int, shards: int) -> None:
    """Sorted labels are called so, over shards too, and need a buffer of all records."""
    labels = sorted(at_random(records))
    found = measure(*cut(labels, shards))
    assert found.order is Order.SORTED
    assert found.shuffle.startswith("sorted by label; shuffle with a buffer of all")
    assert found.shuffle_buffer == len(labels) // shards * shards
    if records == 4000:
        assert found.batch_spread == pytest.approx(BATCH, rel=0.05)
        assert spread(shuffled(labels, 1000)) > 2
        assert spread(shuffled(labels, 4000)) < 1 + TOLERANCE


def test_an_order_that_chance_gives_is_not_called_sorted() -> None:
    """One of 100 stands at an end in 1 of 50 orders; two of them in 1 of 2475."""
    assert measure([0] + [1] * 99).order is Order.SHUFFLED
    assert measure([0] * 2 + [1] * 98).order is Order.SORTED


@pytest.mark.parametrize("size", [2, 10, 30])
def test_blocks_are_partly_sorted(size: int) -> None:
    """With the buffer batches are nearly random, with an eighth of it they are not."""
    labels = blocks(30_000, size)
    found = measure(labels)
    assert found.order is Order.PARTLY_SORTED
    assert found.longest_run % size == 0
    assert found.shuffle.startswith("partly sorted")
    assert f" {found.longest_run:,};" in found.shuffle
    assert f" {found.shuffle_buffer:,} records" in found.shuffle
    assert 1 < found.shuffle_buffer < len(labels)
    assert spread(shuffled(labels, found.shuffle_buffer)) < 1 + TOLERANCE
    assert spread(shuffled(labels, max(found.shuffle_buffer // 8, 1))) > 1 + TOLERANCE


def test_shuffle_is_that_of_tf_data(tf: Any) -> None:
    """The buffer serves with tf.data itself, and the shuffle of these tests is like its."""
    labels = blocks(10_000, 10)
    buffer = measure(labels).shuffle_buffer
    for size in (buffer, buffer // 8):
        data = tf.data.Dataset.from_tensor_slices(labels).shuffle(size, seed=1).batch(len(labels))
        theirs = spread(next(data.as_numpy_iterator()).tolist())
        assert theirs == pytest.approx(spread(shuffled(labels, size)), rel=0.2)
        assert (theirs < 1 + TOLERANCE) == (size == buffer)


def test_uneven_shards() -> None:
    """Shards that are shuffled within, but of different mixes, are told from sorted ones."""
    mixes = [(8, 2), (5, 5), (2, 8), (5, 5)]
    found = measure(*(at_random(2000, mix, seed) for seed, mix in enumerate(mixes)))
    assert found.order is Order.UNEVEN_SHARDS
    assert found.shuffle_buffer > 2000
    pure = measure([0] * 500, [1] * 500, [0] * 500, [1] * 500)
    assert pure.order is Order.UNEVEN_SHARDS


@pytest.mark.parametrize("shards", [[], [[], []], [[4] * 100], [[0, 0, 0, 1, 1, 1]], [[0], [1]]])
def test_nothing_to_tell(shards: list[Labels]) -> None:
    """No labels, one label, or few records have no order that could be bad."""
    assert measure_order(shards) is None


@given(st.lists(st.lists(st.integers(0, 4), max_size=40), max_size=5), st.permutations(range(5)))
def test_names_of_labels_do_not_matter(shards: list[Labels], names: list[int]) -> None:
    """Other numbers for the labels give the same."""
    found = measure_order(shards)
    other = measure_order([[names[label] for label in shard] for shard in shards])
    if found is None or other is None:
        assert found is other
        return
    assert found.batch_spread == pytest.approx(other.batch_spread)
    assert (found.shuffle, found.order) == (other.shuffle, other.order)
