"""The order in which a base's outputs are trained on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfrtool.loading.pipeline.load_options import LoadOptions
from tfrtool.loading.pipeline.order import RowOrder
from tfrtool.loading.pipeline.reading import plain

__all__ = ["row_order"]

_AHEAD = 1
"""Epochs whose rows are told ahead."""


def row_order(images: int, options: LoadOptions) -> Iterator[Any]:
    """Return the numbers of images, batch by batch, in the order of the loader's memory cache.

    What is trained on a base's outputs in this order sees what it would see of the images. The
    first numbers are found out while something else is done. Those of a whole epoch come at once:
    to ask for those of each batch would take a fifth of the time that the head takes for it.

    Args:
        images: how many an epoch has.
        options: those that the images would be loaded with.

    Returns:
        An array, int64 [batch], for each step of ``options.epochs`` epochs.
    """
    order = RowOrder(
        images=images,
        batch_size=images,
        shuffled=options.training,
        block=options.shuffle_buffer,
        seed=options.seed,
    )
    epochs = tf.data.Dataset.range(options.first_epoch, options.first_epoch + options.epochs)
    chosen = tf.data.Options()
    chosen.autotune.enabled = False
    chosen.experimental_warm_start = True
    rows = epochs.map(plain(lambda epoch: order.rows(epoch, tf.constant(0, tf.int64))))
    begun = iter(rows.prefetch(_AHEAD).with_options(chosen))
    return _steps(begun, options.batch_size)


def _steps(epochs: Iterator[Any], batch_size: int) -> Iterator[Any]:
    """Yield each epoch's rows in batches."""
    for epoch in epochs:
        rows = epoch.numpy()
        for start in range(0, len(rows), batch_size):
            yield rows[start : start + batch_size]
