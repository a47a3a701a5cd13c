"""A frozen base's outputs in the place of images."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfrtool.errors import DatasetError
from tfrtool.loading.pipeline.load_options import LoadOptions
from tfrtool.loading.pipeline.order import RowOrder
from tfrtool.loading.pipeline.python_calls import plain
from tfrtool.loading.pipeline.tensors import Batch
from tfrtool.storage.progress import OnProgress, Progress
from tfrtool.training.features.frozen_base import FrozenBase
from tfrtool.training.run.trainer import EpochIterator

_VALIDATED = 1024
"""Rows of features that are evaluated at a time."""


def batches_of_features(
    base: FrozenBase,
    images: Sequence[EpochIterator],
    options: LoadOptions,
    callbacks: Any,
    on_progress: OnProgress,
) -> list[EpochIterator]:
    """Run a base over the images to train on, and those to validate on if any.

    To the callbacks, each batch is a prediction. Returned are batches of features, in the order
    that the images would have by the options.
    """
    total, done = sum(one.images for one in images), 0

    def on_images(count: int) -> None:
        nonlocal done
        done += count
        on_progress(Progress(what="features", done=done, total=total, unit="images"))

    trained, *validated = [extract_features(base, one, callbacks, on_images) for one in images]
    count = len(trained[1])
    batches: Any = ((trained[0][rows], trained[1][rows]) for rows in row_order(count, options))
    steps = -(-count // options.batch_size)
    made = [EpochIterator(batches, count, steps, at_once=True)]
    for values, labels in validated:
        starts = range(0, len(labels), _VALIDATED)
        batches = [(values[at : at + _VALIDATED], labels[at : at + _VALIDATED]) for at in starts]
        made.append(EpochIterator(batches, len(labels), len(batches), at_once=False))
    return made


def extract_features(
    base: FrozenBase,
    images: EpochIterator,
    callbacks: Any,
    on_images: Callable[[int], None] = lambda _: None,
) -> Batch:
    """Run a base over all images, uint8 [n, size, size, 3]; the order stays.

    Returns:
        Values, float32 [images, width], and labels, int64 [images] or float32 [images, classes].

    Raises:
        DatasetError: there are more images than were counted, or fewer.
    """
    values = np.empty((images.images, base.width), np.float32)
    labels, end = np.empty(0), 0
    for step, (pixels, numbers) in enumerate(images.epoch(callbacks.on_predict_batch_begin)):
        begin, end = end, end + len(numbers)
        if not begin:
            shape = images.images, *numbers.shape[1:]
            labels = np.empty(shape, np.asarray(numbers).dtype)
        if end > len(labels):
            break
        values[begin:end], labels[begin:end] = base(pixels), numbers
        callbacks.on_predict_batch_end(step)
        on_images(end - begin)
    if end != len(labels):
        what = "more" if end > len(labels) else "fewer"
        raise DatasetError(f"the split has {what} records than were counted")
    return values, labels


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
