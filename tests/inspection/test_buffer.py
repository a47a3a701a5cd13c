"""The shuffle buffer that an order needs: tried with what tf.data does."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from tfrtool.inspection.dataset.shuffle import (
    BATCH,
    TOLERANCE,
    ShuffleQuality,
    interleave,
    measure_order,
)


def blocks(records: int, size: int, seed: int = 0) -> list[int]:
    """Return labels in blocks of one label each, of two labels at random."""
    dice = random.Random(seed)
    labels: list[int] = []
    while len(labels) < records:
        labels += [dice.randrange(2)] * size
    return labels[:records]


def measured(labels: Sequence[int]) -> ShuffleQuality:
    """Return what is said of the order of these labels in one shard."""
    found = measure_order([labels])
    assert found is not None
    return found


def shuffled(labels: Sequence[int], buffer: int, seed: int = 0) -> list[int]:
    """Return the labels as ``shuffle(buffer)`` of tf.data gives them out."""
    dice = random.Random(seed)
    held: list[int] = []
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


def spread(labels: Sequence[int], batch: int = BATCH) -> float:
    """Return the variance of batches' mixes over that of random batches, by its definition."""
    n = len(labels)
    shares = {label: count / n for label, count in Counter(labels).items()}
    squares = [
        sum((labels[start : start + batch].count(k) / batch - p) ** 2 for k, p in shares.items())
        for start in range(0, n - batch + 1, batch)
    ]
    random_batch = sum(p * (1 - p) for p in shares.values()) / batch * (n - batch) / (n - 1)
    return sum(squares) / len(squares) / random_batch


@pytest.mark.parametrize("size", [1, 2, 7, 50, 333])
def test_spread_is_what_it_is_defined_as(size: int) -> None:
    """The ratio for batches in file order is that of the squared distances, batch by batch."""
    labels = blocks(3001, size)
    assert measured(labels).batch_spread == pytest.approx(spread(labels))


def test_random_order_needs_none() -> None:
    """For random orders the spread is 1 on the average, and no buffer is needed."""
    dice = random.Random(1)
    found = [measured(dice.choices(range(5), k=2000)) for _ in range(50)]
    assert sum(need.batch_spread for need in found) / 50 == pytest.approx(1, abs=0.03)
    deviation = (sum((need.batch_spread - 1) ** 2 for need in found) / 50) ** 0.5
    assert deviation == pytest.approx(found[0].batch_spread_noise, rel=0.3)
    assert {need.shuffle_buffer for need in found} == {1}


def test_noise_of_uneven_labels() -> None:
    """The noise that is told is the spread's deviation for uneven shares too."""
    dice = random.Random(2)
    found = [measured(dice.choices(range(3), (16, 2, 1), k=1500)) for _ in range(300)]
    mean = sum(need.batch_spread for need in found) / 300
    deviation = (sum((need.batch_spread - mean) ** 2 for need in found) / 300) ** 0.5
    noise = sum(need.batch_spread_noise for need in found) / 300
    assert deviation == pytest.approx(noise, rel=0.15)


@pytest.mark.parametrize("size", [2, 4, 10, 30])
def test_blocks_need_a_buffer_that_serves(size: int) -> None:
    """With the buffer batches are nearly random, with an eighth of it they are not."""
    labels = blocks(60_000, size)
    buffer = measured(labels).shuffle_buffer
    assert 1 < buffer < len(labels)
    assert spread(shuffled(labels, buffer)) < 1 + TOLERANCE
    assert spread(shuffled(labels, max(buffer // 8, 1))) > 1 + TOLERANCE


def test_sorted_labels_need_all() -> None:
    """What is sorted needs a buffer of all records, and nothing less serves."""
    labels = sorted(blocks(4000, 1))
    need = measured(labels)
    assert need.shuffle_buffer == 4000
    assert need.batch_spread == pytest.approx(BATCH, rel=0.05)
    assert spread(shuffled(labels, 1000)) > 2
    assert spread(shuffled(labels, 4000)) < 1 + TOLERANCE


def test_alternating_labels_need_none() -> None:
    """Labels that take turns are mixed more evenly than at random."""
    need = measured([0, 1] * 500)
    assert (need.batch_spread, need.shuffle_buffer) == (0, 1)


def test_longer_periods_need_longer_buffers() -> None:
    """Labels that take turns in long blocks need a buffer of a few blocks, not of all."""
    labels = [number // 500 % 2 for number in range(50_000)]
    assert 500 < measured(labels).shuffle_buffer <= 4096


def test_one_label_and_few_records() -> None:
    """There is nothing to mix in one label; the smallest sequences don't fail."""
    assert measured([3] * 100).shuffle_buffer == 1
    for labels in ([0], [0, 1], [0, 1, 1], list(range(20))):
        assert measured(labels).shuffle_buffer <= len(labels)


def test_shuffle_is_that_of_tf_data(tf: Any) -> None:
    """The buffer serves with tf.data itself, and the shuffle of these tests is like its."""
    labels = blocks(20_000, 10)
    buffer = measured(labels).shuffle_buffer
    for size in (buffer, buffer // 8):
        data = tf.data.Dataset.from_tensor_slices(labels).shuffle(size, seed=1)
        theirs = spread([int(label) for label in data.as_numpy_iterator()])
        assert theirs == pytest.approx(spread(shuffled(labels, size)), rel=0.2)
        assert (theirs < 1 + TOLERANCE) == (size == buffer)


@pytest.mark.parametrize("cycle", [1, 2, 3, 8])
def test_interleave_is_that_of_tf_data(tf: Any, cycle: int) -> None:
    """Shards of different lengths are read in the order of tf.data's interleave."""
    shards = [[10 * shard + place for place in range(shard * 3 % 7)] for shard in range(7)]
    lengths = [len(shard) for shard in shards]
    data = tf.data.Dataset.from_tensor_slices((range(7), lengths)).interleave(
        lambda shard, length: tf.data.Dataset.range(tf.cast(length, tf.int64)).map(
            lambda place: place + 10 * tf.cast(shard, tf.int64)
        ),
        cycle_length=cycle,
        block_length=1,
    )
    theirs = [int(label) for label in data.as_numpy_iterator()]
    assert list(interleave(shards, cycle)) == theirs
