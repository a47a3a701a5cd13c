"""Batches for one epoch after another."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tfrtool.errors import DatasetError
from tfrtool.training.run.trainer import EpochIterator

pytestmark = pytest.mark.tf


def _numbers(tf: Any, count: int, slow: float = 0.0) -> Any:
    def pair(number: Any) -> Any:
        if slow:
            tf.py_function(lambda: time.sleep(slow), [], [])
        return number, number

    return tf.data.Dataset.range(count).map(pair).prefetch(1)


def _epoch(iterator: EpochIterator) -> list[int]:
    return [int(number) for number, _ in iterator.epoch()]


def test_all_epochs_come_from_one_iterator(tf: Any) -> None:
    """Where the batches are those of all epochs, each epoch has its part."""
    iterator = EpochIterator(_numbers(tf, 6), 3, 3, at_once=True, ahead=True)
    assert [_epoch(iterator), _epoch(iterator)] == [[0, 1, 2], [3, 4, 5]]


def test_each_epoch_has_an_iterator_of_its_own(tf: Any) -> None:
    """Where they are those of one epoch, they begin anew, and a cache is read to its end."""
    cached = _numbers(tf, 3).cache()
    iterator = EpochIterator(cached, 3, 3, at_once=False)
    assert [_epoch(iterator), _epoch(iterator)] == [[0, 1, 2], [0, 1, 2]]


@pytest.mark.parametrize("at_once", [True, False])
def test_too_few_are_told(tf: Any, at_once: bool) -> None:
    """Records that were counted and don't come are an error, and no shorter epoch."""
    with pytest.raises(DatasetError):
        _epoch(EpochIterator(_numbers(tf, 2), 3, 3, at_once=at_once))


def test_too_many_are_told(tf: Any) -> None:
    """More records than were counted are an error."""
    with pytest.raises(DatasetError):
        _epoch(EpochIterator(_numbers(tf, 4), 3, 3, at_once=False))


def test_waiting_is_measured(tf: Any) -> None:
    """The time that a batch was waited for counts, and that of working on it doesn't."""
    slow, quick = (EpochIterator(_numbers(tf, 4, s), 4, 4, at_once=True) for s in (0.05, 0.0))
    _epoch(slow)
    for _ in quick.epoch():
        time.sleep(0.05)
    assert slow.waited > 0.15
    assert quick.waited < 0.1


def test_started_iterators_work_ahead(tf: Any) -> None:
    """What is started makes its first batch before anybody asks for it."""
    iterator = EpochIterator(_numbers(tf, 2, 0.3), 2, 2, at_once=True, ahead=True)
    time.sleep(0.6)
    before = time.perf_counter()
    next(iterator.epoch())
    assert time.perf_counter() - before < 0.15
