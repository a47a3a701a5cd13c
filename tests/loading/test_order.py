"""The order of images that can be had at random."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tfrtool.loading.order import RowOrder

pytestmark = pytest.mark.tf


def _rows(order: RowOrder, epoch: int) -> list[Any]:
    """Return the rows of each step of an epoch."""
    return [_step(order, epoch, number) for number in range(order.steps)]


@functools.cache
def _compiled(order: RowOrder) -> Any:
    return tf.function(order.rows)


def _step(order: RowOrder, epoch: int, number: int) -> Any:
    """Return the rows of a step; compiled where there are many of them."""
    rows = _compiled(order) if order.steps > 20 else order.rows
    return rows(tf.constant(epoch, tf.int64), tf.constant(number, tf.int64)).numpy()


def _order(images: int, **changes: Any) -> RowOrder:
    settings_ = {"batch_size": 4, "shuffled": True, "block": None, "seed": 0, **changes}
    return RowOrder(images=images, **settings_)


@settings(max_examples=8, deadline=None)
@given(
    images=st.integers(1, 700),
    batch_size=st.integers(1, 50),
    block=st.none() | st.integers(1, 800),
    epoch=st.integers(0, 3),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_row_once(
    images: int, batch_size: int, block: int | None, epoch: int, seed: int
) -> None:
    """An epoch is a permutation, in steps of one size."""
    order = _order(images, batch_size=batch_size, block=block, seed=seed)
    steps = _rows(order, epoch)
    assert sorted(np.concatenate(steps)) == list(range(images))
    assert [len(rows) for rows in steps[:-1]] == [batch_size] * (order.steps - 1)


def test_epochs_and_seeds_differ() -> None:
    """Another epoch or another seed is another order; the same of both is the same."""
    orders = [
        tuple(np.concatenate(_rows(_order(300, seed=seed), epoch)))
        for seed in (0, 1)
        for epoch in (1, 2)
    ]
    assert len(set(orders)) == 4
    many = {tuple(_step(_order(300), epoch, 0)) for epoch in range(1, 200)}
    assert len(many) == 199
    assert tuple(np.concatenate(_rows(_order(300, seed=1), 2))) == orders[3]


@pytest.mark.parametrize(
    ("seed", "epoch", "rows"),
    [
        (0, 0, [6, 4, 11, 1, 0, 5, 3, 7, 9, 2, 10, 8]),
        (0, 1, [0, 11, 10, 5, 9, 8, 6, 3, 4, 2, 1, 7]),
        (7, 1, [10, 8, 0, 6, 11, 7, 3, 4, 5, 2, 9, 1]),
    ],
)
def test_a_seed_stays_the_order_that_it_was(seed: int, epoch: int, rows: list[int]) -> None:
    """What a seed gives is a promise: a run can be repeated with a later release."""
    order = _order(12, batch_size=12, seed=seed, growing=False)
    assert _step(order, epoch, 0).tolist() == rows


def test_the_first_epoch_takes_rows_as_they_come() -> None:
    """Rows that grow are mixed when they come; later epochs mix all."""
    order = _order(10_000)
    assert _step(order, 0, 7).tolist() == [28, 29, 30, 31]
    assert max(_step(order, 1, number).max() for number in range(25)) > 5_000


def test_blocks_are_shuffled_each_in_its_own_way() -> None:
    """With a buffer, images stay in blocks of its size; no two blocks have the same order."""
    rows = np.concatenate(_rows(_order(64, block=16), 1)).reshape(4, 16)
    assert [sorted(block) for block in rows] == np.arange(64).reshape(4, 16).tolist()
    assert len({tuple(block % 16) for block in rows}) == 4


def test_a_buffer_of_one_changes_nothing() -> None:
    """A buffer of one image, or no shuffling at all, leaves the order."""
    for order in (_order(50, block=1), _order(50, shuffled=False)):
        assert np.concatenate(_rows(order, 3)).tolist() == list(range(50))


@pytest.mark.parametrize("block", [None, 300])
def test_places_are_even(block: int | None) -> None:
    """Over many epochs, a row is as often in the first half as in the second."""
    order = _order(300, batch_size=300, block=block)
    rows, step = _compiled(order), tf.constant(0, tf.int64)
    first_half = [
        set(rows(tf.constant(epoch, tf.int64), step).numpy()[:150]) for epoch in range(1, 201)
    ]
    counts = [sum(row in half for half in first_half) for row in (0, 7, 150, 299)]
    assert all(60 < count < 140 for count in counts)
