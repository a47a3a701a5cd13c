"""Batches for one epoch after another, and how long they were waited for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf

from tfrtool.errors import DatasetError
from tfrtool.loading.pipeline.tensors import Batch


class EpochIterator:
    """Gives an epoch's batches, again and again.

    Attributes:
        images: how many an epoch has.
        steps: how many batches an epoch has.
        waited: seconds that the last epoch's batches were waited for.
    """

    def __init__(self, batches: Iterable[Batch], images: int, steps: int, *, at_once: bool) -> None:
        """Get ready.

        Where ``batches`` hold all epochs, ``at_once``, one iterator goes through all, and the next
        epoch's first batches are made while the last one is validated.
        """
        self.images = images
        self.steps = steps
        self.waited = 0.0
        self._batches: Any = batches
        self._at_once = at_once
        self._iterator: Iterator[Batch] | None = None

    def start(self) -> None:
        """Begin to make the first batches, while something else is done."""
        if self._at_once:
            options = tf.data.Options()
            options.experimental_warm_start = True
            self._iterator = iter(self._batches.with_options(options))

    def epoch(self, on_begin: Callable[[int], None] = lambda _: None) -> Iterator[Batch]:
        """Yield an epoch's batches; ``on_begin`` is called before each is waited for."""
        self.waited = 0.0
        if self._iterator is None or not self._at_once:
            self._iterator = iter(self._batches)
        for step in range(self.steps):
            on_begin(step)
            before = time.perf_counter()
            batch = next(self._iterator, None)
            self.waited += time.perf_counter() - before
            if batch is None:
                raise DatasetError("the split has fewer records than were counted")
            yield batch
        # A cache has to be read to its end to be complete, and to be used in the next epoch.
        if not self._at_once and next(self._iterator, None) is not None:
            raise DatasetError("the split has more records than were counted")
