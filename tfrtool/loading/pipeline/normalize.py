"""Pixel values as a model takes them, by fixed numbers or by what a dataset's pixels are like."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import tensorflow as tf

from tfrtool.errors import DatasetError
from tfrtool.loading.pipeline.load_options import Rescale
from tfrtool.loading.pipeline.tensors import Tensor, TfDataset

__all__ = ["channel_statistics", "rescaler", "standard_rescale"]

_WHITE = 255
_INT32_ROWS = (2**31 - 1) // _WHITE**2
"""So many squares of a uint8 add up in an int32 at most."""

_Three = tuple[float, float, float]


def rescaler(rescale: Rescale) -> Callable[[Tensor], Tensor]:
    """Return a function from pixels, uint8 or float32 [..., 3], to float32 of the same shape."""
    scale, offset = rescale.scale, rescale.offset

    def apply(images: Tensor) -> Tensor:
        if rescale.bgr:
            images = tf.reverse(images, [-1])
        if images.dtype == tf.uint8 and isinstance(scale, float) and isinstance(offset, float):
            # Dequantizing 0 to 255 to a range of float32 does it in one pass. Casting, multiplying
            # and adding would go through the float32 images three times, which are larger than the
            # caches of most processors.
            pixels = tf.bitcast(images, tf.quint8)
            end = offset + _WHITE * scale
            return tf.quantization.dequantize(pixels, offset, end, mode="MIN_COMBINED")
        return tf.cast(images, tf.float32) * tf.constant(scale) + tf.constant(offset)

    return apply


def standard_rescale(mean: _Three, std: _Three) -> Rescale:
    """Return ``(x - mean) / std`` for each channel.

    A channel that has one value everywhere has a deviation of 0. It is divided by 255, so that
    it becomes 0 here, and stays between -1 and 1 in an image in which it differs.
    """
    scale = _three(1 / (deviation or _WHITE) for deviation in std)
    offset = _three(-middle * factor for middle, factor in zip(mean, scale, strict=True))
    return Rescale(scale=scale, offset=offset)


def channel_statistics(images: TfDataset) -> tuple[_Three, _Three]:
    """Return the mean and the standard deviation of each channel, over all pixels of a dataset.

    Sums are whole numbers, so that the result is as exact as its last rounding, and does not
    depend on the order of the images.

    Args:
        images: a finite ``tf.data.Dataset`` of batches of images, uint8 [n, h, w, 3], and labels.

    Raises:
        DatasetError: it holds no pixels.
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
        raise DatasetError("there are no images to take the mean of")
    # The variance times the square of the count is a whole number: nothing is lost in a difference.
    deviations = (
        math.sqrt(pixels * square - total * total) / pixels
        for total, square in zip(sums, squares, strict=True)
    )
    return _three(total / pixels for total in sums), _three(deviations)


def _three(values: Iterable[float]) -> _Three:
    red, green, blue = values
    return red, green, blue


def _add_up(images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return a batch's pixels, and the sums of its values and of their squares: int64 [], [3]."""
    shape = tf.shape(images, tf.int64)
    height = images.shape[1]
    narrow = height is not None and height <= _INT32_ROWS
    values = tf.cast(images, tf.int32 if narrow else tf.int64)
    # Down the columns first, where int32 is wide enough, and twice as fast.
    sums, squares = (
        tf.reduce_sum(tf.cast(tf.reduce_sum(part, 1), tf.int64), [0, 1])
        for part in (values, values * values)
    )
    return shape[0] * shape[1] * shape[2], sums, squares
