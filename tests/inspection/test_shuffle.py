"""What is said of an order of labels."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrtool.inspection.dataset.shuffle import Order, ShuffleQuality, measure_order

Labels = list[int]


def measure(*shards: Sequence[int]) -> ShuffleQuality:
    """Measure shards that do have labels."""
    found = measure_order(shards)
    assert found is not None
    return found


def at_random(records: int, shares: Sequence[float] = (1, 1), seed: int = 0) -> Labels:
    """Return labels drawn at random with these weights."""
    return random.Random(seed).choices(range(len(shares)), weights=shares, k=records)


def cut(labels: Labels, parts: int) -> list[Labels]:
    """Cut labels into shards."""
    size = len(labels) // parts
    return [labels[number * size : (number + 1) * size] for number in range(parts)]


@pytest.mark.parametrize("records", [16, 42, 300, 5000])
@pytest.mark.parametrize("labels", [2, 10])
def test_random_orders_are_shuffled(records: int, labels: int) -> None:
    """Nearly all random orders are called so, in small splits too."""
    found = [measure(at_random(records, [1] * labels, seed)).order for seed in range(60)]
    assert sum(order is not Order.SHUFFLED for order in found) <= 1


@pytest.mark.parametrize("records", [16, 42, 300, 5000])
@pytest.mark.parametrize("shards", [1, 4])
def test_sorted(records: int, shards: int) -> None:
    """Sorted labels are called so, over shards too, and need a buffer of all records."""
    labels = sorted(at_random(records))
    found = measure(*cut(labels, shards))
    assert found.order is Order.SORTED
    assert found.shuffle.startswith("sorted by label; shuffle with a buffer of all")
    assert found.shuffle_buffer == len(labels) // shards * shards
    assert found.runs == 2
    assert found.runs_z is not None
    assert found.runs_z < -3


def test_shards_of_one_label_each_are_mixed_by_reading_in_turn() -> None:
    """A shard a class is sorted, but needs no buffer if shards are read in turn."""
    found = measure([0] * 500, [1] * 500)
    assert (found.order, found.shuffle_buffer, found.interleaved_shuffle_buffer) == (
        Order.SORTED,
        1000,
        1,
    )
    assert not found.shards_are_alike


def test_blocks_are_partly_sorted() -> None:
    """Blocks of one label are told with their longest run and the buffer."""
    labels = [label for label in at_random(2000) for _ in range(8)]
    found = measure(labels)
    assert found.order is Order.PARTLY_SORTED
    assert found.longest_run % 8 == 0
    assert found.longest_run > 3 * found.expected_longest_run
    assert 8 < found.shuffle_buffer < len(labels)
    words = f"partly sorted: runs of up to {found.longest_run}; shuffle with a buffer of at least"
    assert found.shuffle == f"{words} {found.shuffle_buffer:,}"
    assert found.interleaved_shuffle_buffer is None


def test_each_shard_sorted() -> None:
    """Shards that are sorted each are partly sorted, and alike."""
    shards = [sorted(at_random(1000, seed=seed)) for seed in range(4)]
    found = measure(*shards)
    assert found.order is Order.PARTLY_SORTED
    assert found.shards_are_alike
    assert found.shuffle_buffer > 500


def test_few_records_in_pairs_are_partly_sorted() -> None:
    """Where few batches show little, the number of runs shows that it isn't chance."""
    found = measure([label for label in at_random(40) for _ in range(3)])
    assert found.runs_z is not None
    assert found.runs_z < -3
    assert found.batch_spread < 1 + 0.25 + 3 * found.batch_spread_noise
    assert found.order is Order.PARTLY_SORTED


def test_pure_shards_in_turn_are_not_called_shuffled_within() -> None:
    """Shards of one label each have nothing to be shuffled within them."""
    found = measure([0] * 500, [1] * 500, [0] * 500, [1] * 500)
    assert found.order is Order.PARTLY_SORTED


def test_uneven_shards() -> None:
    """Shards that are shuffled within, but of different mixes, are told from sorted ones."""
    mixes = [(8, 2), (5, 5), (2, 8), (5, 5)]
    shards = [at_random(2000, mix, seed) for seed, mix in enumerate(mixes)]
    found = measure(*shards)
    assert found.order is Order.UNEVEN_SHARDS
    assert not found.shards_are_alike
    assert found.shuffle_buffer > 2000
    assert found.interleaved_shuffle_buffer == 1


def test_alternating() -> None:
    """Labels that take turns are no random order, and good enough."""
    found = measure([0, 1] * 500)
    assert found.order is Order.REGULAR
    assert found.shuffle_buffer == 1
    assert found.runs_z is not None
    assert found.runs_z > 3


def test_short_blocks_in_turn_are_regular() -> None:
    """Blocks of 10 in turn give even batches, but are not called shuffled."""
    found = measure([number // 10 % 2 for number in range(10_000)])
    assert (found.order, found.shuffle_buffer) == (Order.REGULAR, 1)
    assert "runs of up to 10" in found.shuffle


@pytest.mark.parametrize(
    ("labels", "order"),
    [
        ([4] * 100, Order.ONE_LABEL),
        ([4], Order.ONE_LABEL),
        ([0, 0, 0, 1, 1, 1], Order.TOO_FEW),
        (list(range(100)), Order.SHUFFLED),
    ],
)
def test_nothing_to_tell(labels: Labels, order: Order) -> None:
    """One label, few records, or labels that all differ have no order that could be bad."""
    found = measure(labels)
    assert (found.order, found.shuffle_buffer, found.interleaved_shuffle_buffer) == (order, 1, None)


def test_no_labels() -> None:
    """Without labels there is nothing to measure."""
    assert measure_order([]) is None
    assert measure_order([[], []]) is None


def test_shard_spread_of_pure_shards() -> None:
    """Labels that a shard lacks count as well as those that it has: 500 * 0.5 * 2 over 0.5005."""
    assert measure([0] * 500, [1] * 500).shard_spread == pytest.approx(999)


def test_shard_spread_is_one_by_chance() -> None:
    """Shards that are dealt at random vary as much as chance says, on the average."""
    found = [measure(*cut(at_random(1000, (1, 2, 3), seed), 8)) for seed in range(80)]
    spreads = [one.shard_spread or 0 for one in found]
    assert sum(spreads) / 80 == pytest.approx(1, abs=0.12)
    assert all(one.shards_are_alike for one in found)


def test_shards_of_many_labels_that_differ() -> None:
    """Where each shard has labels of its own, it is seen however many labels there are."""
    shards = [[40 * shard + number % 40 for number in range(200)] for shard in range(50)]
    assert not measure(*shards).shards_are_alike


@given(
    st.lists(st.lists(st.integers(0, 4), max_size=40), max_size=5),
    st.permutations(range(5)),
)
def test_names_of_labels_do_not_matter(shards: list[Labels], names: list[int]) -> None:
    """Other numbers for the labels give the same, but for the number of the longest."""
    found = measure_order(shards)
    other = measure_order([[names[label] for label in shard] for shard in shards])
    if found is None or other is None:
        assert found is other
        return
    assert str(names[int(found.longest_run_label)]) == other.longest_run_label
    assert (found.order, found.shuffle_buffer) == (other.order, other.shuffle_buffer)
    assert (found.runs, found.longest_run) == (other.runs, other.longest_run)
    assert found.interleaved_shuffle_buffer == other.interleaved_shuffle_buffer
    assert found.batch_spread == pytest.approx(other.batch_spread)
