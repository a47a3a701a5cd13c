"""A frozen base's outputs in the place of images."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from tfrtool.errors import DatasetError
from tfrtool.loading.options import LoadOptions
from tfrtool.loading.order import RowOrder
from tfrtool.loading.tensors import Batch
from tfrtool.storage.progress import OnProgress, Progress
from tfrtool.training.devices.devices import Devices
from tfrtool.training.features.frozen_base import FrozenBase
from tfrtool.training.run.trainer import EpochIterator
from tfrtool.training.run.training_data import TrainingData

_VALIDATED = 1024
"""Rows of features that are evaluated at a time."""


def batches_of_features(
    base: FrozenBase,
    images: Sequence[EpochIterator],
    data: TrainingData,
    devices: Devices,
    callbacks: Any,
    on_progress: OnProgress,
) -> list[EpochIterator]:
    """Run a base over the images to train on, and those to validate on if any.

    ``images`` are those of this worker. To the callbacks, each batch is a prediction. Returned are
    batches of features, with a part for each replica, in the order that the images would have.
    """
    total, done = sum(one.images for one in images), 0

    def on_images(count: int) -> None:
        nonlocal done
        done += count
        on_progress(Progress(what="features", done=done, total=total, unit="images"))

    trained, *validated = [extract_features(base, one, callbacks, on_images) for one in images]
    count, *others = data.images
    options, size = data.training, data.training.batch_size
    share, steps = devices.share(count, size), -(-count // size)
    part = replace(options, batch_size=size // devices.shares)
    ranges = devices.ranges(count)
    orders = [row_order(end - first, part, steps) for first, end in ranges]
    order = (
        np.concatenate([at + one for (at, _), one in zip(ranges, rows, strict=True)])
        for rows in zip(*orders, strict=True)
    )
    batches = (devices.part_out(trained[0][rows], trained[1][rows], share) for rows in order)
    made = [EpochIterator(batches, count, steps, at_once=True)]
    for (values, labels), count in zip(validated, others, strict=True):
        share, steps = devices.share(count, size), -(-count // (_VALIDATED * devices.workers))
        starts = range(0, steps * _VALIDATED, _VALIDATED)
        ends = [(at, at + _VALIDATED) for at in starts]
        parts = [devices.part_out(values[at:end], labels[at:end], share) for at, end in ends]
        made.append(EpochIterator(parts, count, steps, at_once=False))
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
        raise DatasetError(f"the split has {what} records than counted")
    return values, labels


def row_order(images: int, options: LoadOptions, steps: int | None = None) -> Iterator[Any]:
    """Yield the numbers of images, batch by batch, in the order of the loader's cache on disk.

    What is trained on a base's outputs in this order sees what it would see of the images. The
    numbers of a whole epoch come at once: to ask for those of each batch would take a fifth of the
    time that the head takes for it. Of the ``steps`` of an epoch, the last may have none.
    """
    order = RowOrder(
        images=images,
        batch_size=images,
        shuffled=options.training,
        block=options.shuffle_buffer,
        seed=options.seed,
        growing=False,
    )
    for epoch in range(options.first_epoch, options.first_epoch + options.epochs):
        rows = order.rows(*map(tf.constant, (epoch, 0), (tf.int64, tf.int64))).numpy()
        for step in range(steps or -(-images // options.batch_size)):
            yield rows[step * options.batch_size :][: options.batch_size]
