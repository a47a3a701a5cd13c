"""A frozen base's outputs in the place of images."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfrtool.errors import DatasetError
from tfrtool.loading.pipeline.load_options import Cache, LoadOptions, Rescale
from tfrtool.loading.pipeline.order import RowOrder
from tfrtool.loading.pipeline.reading import plain
from tfrtool.loading.pipeline.tensors import Batch
from tfrtool.storage.progress import OnProgress, Progress
from tfrtool.training.features.frozen_base import FrozenBase, freeze
from tfrtool.training.features.precision import Precision
from tfrtool.training.run.epoch_iterator import EpochIterator
from tfrtool.training.run.trainer import Spent
from tfrtool.training.run.training_data import TrainingData

_BATCH = 32
"""Images decoded for the base at a time, a multiple of what it takes."""

_AHEAD = 8
"""Such batches that are decoded while the model is built: 39 MB at 224 pixels."""

_VALIDATED = 1024
"""Rows of features that are evaluated at a time."""


class Extraction:
    """Images on their way to a base, decoded while the model is still being built.

    Attributes:
        iterators: batches of images to train on, uint8, and of those to validate on, if any.
    """

    def __init__(self, data: TrainingData) -> None:
        """Begin to decode images."""
        self._data = data.changed(
            rescale=None,
            cache=Cache.NONE,
            training=False,
            augment=None,
            epochs=1,
            first_epoch=0,
            batch_size=_BATCH,
            prefetch=_AHEAD if data.training.prefetch is None else data.training.prefetch,
        )
        self._options = data.training
        self.iterators = self._data.iterators(lambda _: None)
        for iterator in self.iterators:  # or the base would wait when it comes to the second
            if iterator is not None:
                iterator.start()

    def run(
        self,
        base: Any,
        rescale: Rescale,
        precision: Precision,
        callbacks: Any,
        on_progress: OnProgress,
    ) -> tuple[tuple[EpochIterator, EpochIterator | None], Spent]:
        """Run the base over all images, each batch of which is a prediction to the callbacks.

        Returns:
            Batches of features, in the order that the images would have, and the time spent.
        """
        frozen = freeze(base, self._options.image_size, rescale, precision)
        total = sum(one.images for one in self.iterators if one is not None)
        start, done = time.perf_counter(), 0
        found: list[Batch] = []

        def on_images(count: int) -> None:
            nonlocal done
            done += count
            on_progress(Progress(what="features", done=done, total=total, unit="images"))

        for iterator in filter(None, self.iterators):
            with self._data.naming_damage():
                found.append(extract_features(frozen, iterator, callbacks, on_images))
        waited = sum(one.waited for one in filter(None, self.iterators))
        spent = Spent(seconds=time.perf_counter() - start, waited=waited)
        images = len(found[0][1])
        training = EpochIterator(
            feature_batches(found[0], row_order(images, self._options)),
            images,
            -(-images // self._options.batch_size),
            at_once=True,
        )
        if len(found) == 1:
            return (training, None), spent
        values, labels = found[1]
        starts = range(0, len(labels), _VALIDATED)
        batches = [(values[at : at + _VALIDATED], labels[at : at + _VALIDATED]) for at in starts]
        validation = EpochIterator(batches, len(labels), len(batches), at_once=False)
        return (training, validation), spent


def extract_features(
    base: FrozenBase,
    images: EpochIterator,
    callbacks: Any,
    on_images: Callable[[int], None] = lambda _: None,
) -> Batch:
    """Run a base over all images, uint8 [n, size, size, 3]; the order stays.

    Returns:
        Values, float32 [images, width], and labels, int64 [images].

    Raises:
        DatasetError: there are more images than were counted, or fewer.
    """
    values = np.empty((images.images, base.width), np.float32)
    labels = np.empty(images.images, np.int64)
    end = 0
    for step, (pixels, numbers) in enumerate(images.epoch(callbacks.on_predict_batch_begin)):
        begin, end = end, end + len(numbers)
        if end > len(labels):
            break
        values[begin:end], labels[begin:end] = base(pixels), numbers
        callbacks.on_predict_batch_end(step)
        on_images(end - begin)
    if end != len(labels):
        what = "more" if end > len(labels) else "fewer"
        raise DatasetError(f"the split has {what} records than were counted")
    return values, labels


def feature_batches(features: Batch, order: Iterator[Any]) -> Iterator[Batch]:
    """Yield values, float32 [n, width], and labels, int64 [n], of the images of each batch."""
    values, labels = features
    for rows in order:
        yield values[rows], labels[rows]


def row_order(images: int, options: LoadOptions) -> Iterator[Any]:
    """Yield the numbers of images, batch by batch, in the order of the loader's memory cache.

    What is trained on a base's outputs in this order sees what it would see of the images. The
    numbers of a whole epoch come at once: to ask for those of each batch would take a fifth of the
    time that the head takes for it.
    """
    order = RowOrder(
        images=images,
        batch_size=images,
        shuffled=options.training,
        block=options.shuffle_buffer,
        seed=options.seed,
    )
    chosen = tf.data.Options()
    chosen.autotune.enabled = False
    epochs = tf.data.Dataset.range(options.first_epoch, options.first_epoch + options.epochs)
    rows = epochs.map(plain(lambda epoch: order.rows(epoch, tf.constant(0, tf.int64))))
    for epoch in rows.prefetch(1).with_options(chosen):
        for start in range(0, images, options.batch_size):
            yield epoch.numpy()[start : start + options.batch_size]
