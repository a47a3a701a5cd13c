"""The order in which a base's outputs are trained on."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfrtool.loading.options import LoadOptions
from tfrtool.loading.order import Order
from tfrtool.loading.reading import plain

__all__ = ["row_order"]

_AHEAD = 16
"""Steps whose rows are told ahead."""


def row_order(images: int, options: LoadOptions) -> Any:
    """Return the numbers of images, batch by batch, in the order of the loader's memory cache.

    What is trained on a base's outputs in this order sees what it would see of the images.

    Args:
        images: how many an epoch has.
        options: those that the images would be loaded with.

    Returns:
        A ``tf.data.Dataset`` of int64 [batch], for each step of ``options.epochs`` epochs.
    """
    order = Order(
        images=images,
        batch_size=options.batch_size,
        shuffled=options.training,
        block=options.shuffle_buffer,
        seed=options.seed,
    )
    first, end = options.first_epoch, options.first_epoch + options.epochs
    steps = tf.data.Dataset.range(first * order.steps, end * order.steps)
    rows = steps.map(plain(lambda step: order.rows(step // order.steps, step % order.steps)))
    chosen = tf.data.Options()
    chosen.autotune.enabled = False
    return rows.prefetch(_AHEAD).with_options(chosen)
