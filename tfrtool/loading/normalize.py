"""Pixel values as a model takes them, by fixed numbers or by what a dataset's pixels are like."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfrtool.errors import DatasetError
from tfrtool.loading.options import Rescale
from tfrtool.loading.tensors import Tensor, TfDataset

_WHITE = 255


def rescaler(rescale: Rescale) -> Callable[[Tensor], Tensor]:
    """Return a function from pixels, uint8 or float32 [..., 3], to float32 of the same shape."""
    factor, offset = rescale.scale, rescale.offset

    def apply(images: Tensor) -> Tensor:
        scale: Any = factor
        if rescale.bgr:
            images = tf.reverse(images, [-1])
        if isinstance(scale, float) and isinstance(offset, float):
            end = offset + _WHITE * scale
            if images.dtype == tf.uint8:
                # Dequantizing 0 to 255 to a range of float32 does it in one pass. Casting,
                # multiplying and adding would go through the float32 batch three times, which is
                # larger than the caches of most processors.
                pixels = tf.bitcast(images, tf.quint8)
                return tf.quantization.dequantize(pixels, offset, end, mode="MIN_COMBINED")
            scale = (np.float32(end) - np.float32(offset)) / np.float32(_WHITE)  # as that rounds
        scaled = tf.cast(images, tf.float32) * tf.constant(scale)
        return scaled + tf.constant(offset) if np.any(offset) else scaled

    return apply


def standard_rescale(images: TfDataset) -> Rescale:
    """Return ``(x - mean) / deviation`` for each channel, over all pixels of a dataset.

    A channel that has one value everywhere has a deviation of 0. It is divided by 255, so that
    it becomes 0 here, and stays between -1 and 1 in an image in which it differs. It is a
    `DatasetError` if there are no pixels.

    Sums are whole numbers, so that the result is as exact as its last rounding, and does not
    depend on the order of the images: batches of uint8 [n, h, w, 3], and labels.
    """
    options = tf.data.Options()
    # With it, the end of an iterator waits for the tuner's sleep, of up to 60 s.
    options.autotune.enabled = False
    pixels, sums, squares = 0, [0, 0, 0], [0, 0, 0]
    added = images.map(lambda batch, _labels: _add_up(batch))
    # Python's numbers have no largest one, and there is one round a batch.
    for count, batch_sums, batch_squares in added.with_options(options):
        pixels += int(count)
        for channel in range(3):
            sums[channel] += int(batch_sums[channel])
            squares[channel] += int(batch_squares[channel])
    if pixels == 0:
        raise DatasetError("no images to compute the mean of")
    scale, offset = [], []
    for total, square in zip(sums, squares, strict=True):
        # The variance times the square of the count is a whole number: a difference loses nothing.
        deviation = math.sqrt(pixels * square - total * total) / pixels
        scale.append(1 / (deviation or _WHITE))
        offset.append(-total / pixels * scale[-1])
    return Rescale(scale=(scale[0], scale[1], scale[2]), offset=(offset[0], offset[1], offset[2]))


def _add_up(images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return a batch's pixels, and the sums of its values and of their squares: int64 [], [3]."""
    shape, values = tf.shape(images, tf.int64), tf.cast(images, tf.int32)
    # Down the columns first, where int32 is wide enough (for 33,000 rows), and twice as fast.
    sums, squares = (
        tf.reduce_sum(tf.cast(tf.reduce_sum(part, 1), tf.int64), [0, 1])
        for part in (values, values * values)
    )
    return shape[0] * shape[1] * shape[2], sums, squares
