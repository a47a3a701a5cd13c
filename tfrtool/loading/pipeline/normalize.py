"""The mean and the spread of a dataset's pixels, and the rescaling that takes them out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfrtool.errors import DatasetError, UsageError
from tfrtool.loading.pipeline.load_options import Rescale

__all__ = ["ChannelStatistics", "channel_statistics"]

_WHITE = 255
_INT32_ROWS = (2**31 - 1) // _WHITE**2
"""So many squares of a uint8 add up in an int32 at most."""

_Three = tuple[float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelStatistics:
    """What the values of each channel are like, over all pixels of all images.

    Attributes:
        mean: of red, green and blue, 0 to 255.
        std: the standard deviation of each, of these pixels and not of what they are a sample of:
            the mean square of the distance from the mean, and its root.
        pixels: how many were counted.
    """

    mean: _Three
    std: _Three
    pixels: int

    def __post_init__(self) -> None:
        fits = all(0 <= value <= _WHITE for value in (*self.mean, *self.std))
        if self.pixels < 1 or not fits:
            raise UsageError(
                "impossible statistics of pixels",
                expected=f"means and deviations from 0 to {_WHITE}, of 1 pixel at least",
                found=f"{self.mean} and {self.std} of {self.pixels}",
            )

    def rescale(self) -> Rescale:
        """Return ``(x - mean) / std`` for each channel.

        A channel that has one value everywhere has a deviation of 0. It is divided by 255, so that
        it becomes 0 here, and stays between -1 and 1 in an image in which it differs.
        """
        red, green, blue = (1 / (std or _WHITE) for std in self.std)
        scale = (red, green, blue)
        red, green, blue = (-mean * factor for mean, factor in zip(self.mean, scale, strict=True))
        return Rescale(scale=scale, offset=(red, green, blue))


def channel_statistics(images: Any) -> ChannelStatistics:
    """Count all pixels of a dataset, once.

    Sums are whole numbers, so that the result is as exact as its last rounding, and does not
    depend on the order of the images.

    Args:
        images: a finite ``tf.data.Dataset`` of batches, uint8 [n, h, w, 3], or of pairs of those
            and labels.

    Raises:
        UsageError: it holds something else.
        DatasetError: it holds no pixels.
    """
    spec = images.element_spec
    if isinstance(spec, tuple):
        spec = spec[0]
        images = images.map(lambda batch, *_: batch)
    is_tensor = isinstance(spec, tf.TensorSpec) and spec.shape.rank == 4
    if not is_tensor or spec.dtype != tf.uint8 or spec.shape[-1] != 3:
        raise UsageError(
            "no pixels to count", expected="uint8 images, [n, h, w, 3]", found=f"{spec}"
        )
    options = tf.data.Options()
    # With it, the end of an iterator waits for the tuner's sleep, of up to 60 s.
    options.autotune.enabled = False
    pixels, sums, squares = 0, [0, 0, 0], [0, 0, 0]
    # Python's numbers have no largest one, and there is one round a batch.
    for count, batch_sums, batch_squares in images.map(_add_up).with_options(options):
        pixels += int(count)
        for channel in range(3):
            sums[channel] += int(batch_sums[channel])
            squares[channel] += int(batch_squares[channel])
    if pixels == 0:
        raise DatasetError("there are no images to take the mean of")
    red, green, blue = (total / pixels for total in sums)
    # The variance times the square of the count is a whole number: nothing is lost in a difference.
    deviations = tuple(
        math.sqrt(pixels * square - total * total) / pixels
        for total, square in zip(sums, squares, strict=True)
    )
    return ChannelStatistics(mean=(red, green, blue), std=_three(deviations), pixels=pixels)


def _three(values: tuple[float, ...]) -> _Three:
    red, green, blue = values
    return red, green, blue


def _add_up(images: Any) -> tuple[Any, Any, Any]:
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
