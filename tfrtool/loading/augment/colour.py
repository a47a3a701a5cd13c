"""Random numbers for images; brightness, contrast, saturation and hue of batches of them.

Each does what tf.image's function of its name does to one image. Here every image of a batch has a
number of its own, and values run from 0 to 255.
"""

from __future__ import annotations

import tensorflow as tf

from tfrtool.loading.augment.augment_options import Augment
from tfrtool.loading.pipeline.tensors import Tensor

_DRAWS = (
    *("flip", "flip_vertical", "rotate", "crop row", "crop column", "cutout row", "cutout column"),
    *("brightness", "contrast", "saturation", "hue"),
)
"""What is drawn; each has a stream of its own, by its place here, and changes no other's."""


def uniform(seed: Tensor, draw: str, count: Tensor, low: float, high: float) -> Tensor:
    """Return ``count`` numbers from ``low`` up to, and without, ``high``: float32 [count]."""
    # Adding the number of the draw to a seed could meet another batch's seed; folding it in can't.
    folded = tf.random.experimental.stateless_fold_in(seed, _DRAWS.index(draw))
    # The default algorithm depends on the device, and a seed must mean the same on all of them.
    return tf.random.stateless_uniform([count], folded, low, high, alg="philox")


def whole(seed: Tensor, draw: str, count: Tensor, choices: int) -> Tensor:
    """Return ``count`` whole numbers from 0 up to, and without, ``choices``: int32 [count]."""
    numbers = tf.cast(uniform(seed, draw, count, 0.0, float(choices)), tf.int32)
    # In float32, a product with a number just below 1 can round up to `choices`.
    return tf.minimum(numbers, choices - 1)


def recolour(images: Tensor, seed: Tensor, augment: Augment) -> Tensor:
    """Change brightness, contrast, saturation and hue of each image, in this order.

    Images are uint8 or float32 [n, h, w, 3], 0..255, with h and w known; they are float32 if
    anything was done. Values are clipped to 0..255 after the contrast, where saturation and hue
    need them to be; those two don't leave that range, but for float32's last digit.
    """

    def drawn(name: str, middle: float, scale: float = 1.0) -> Tensor:
        """Return a number for each image, float32 [n, 1, 1]; None where nothing is done."""
        most = getattr(augment, name) * scale
        if not most:
            return None
        numbers = uniform(seed, name, tf.shape(images)[0], middle - most, middle + most)
        return numbers[:, tf.newaxis, tf.newaxis]

    delta, factor = drawn("brightness", 0.0, 255), drawn("contrast", 1.0)
    saturation, hue = drawn("saturation", 1.0), drawn("hue", 0.0)
    if delta is not None or factor is not None:
        images = _stretch(tf.cast(images, tf.float32), delta, factor)
    if saturation is not None or hue is not None:
        images = _turn(tf.cast(images, tf.float32), saturation, hue)
    return images


def _stretch(images: Tensor, delta: Tensor, factor: Tensor) -> Tensor:
    """Add ``delta``, then multiply the distance from each channel's mean by ``factor``."""
    _, height, width, channels = images.shape
    # Rows as they lie in memory: broadcasting over a last dimension of 3 takes four times as long.
    rows = tf.reshape(images, [-1, height, width * channels])
    shift = 0.0 if delta is None else delta
    if factor is not None:
        columns = tf.reshape(tf.reduce_mean(rows, 1), [-1, width, channels])
        means = tf.tile(tf.reduce_mean(columns, 1), [1, width])[:, tf.newaxis]
        # With m the mean, (x + shift - (m + shift)) * factor + m + shift.
        rows = rows * factor
        shift = shift + means * (1.0 - factor)
    rows = tf.clip_by_value(rows + shift, 0.0, 255.0)
    return tf.reshape(rows, [-1, height, width, channels])


def _turn(images: Tensor, saturation: Tensor, hue: Tensor) -> Tensor:
    """Multiply the saturation, and turn the hue, without leaving red, green and blue.

    With v the largest of a pixel's three values and c its distance to the smallest, the saturation
    is c / v. Changing it at the same hue and v multiplies all three distances from v by the same
    number.
    """
    # One plane a channel: reducing over a last dimension of 3 is slow.
    red, green, blue = tf.unstack(images, axis=-1)
    value = tf.maximum(tf.maximum(red, green), blue)
    chroma = value - tf.minimum(tf.minimum(red, green), blue)
    # A saturation of 1 is the most.
    new_chroma = chroma if saturation is None else tf.minimum(chroma * saturation, value)
    if hue is None:
        ratio = tf.math.divide_no_nan(new_chroma, chroma)
        planes = [value - (value - plane) * ratio for plane in (red, green, blue)]
    else:
        # The hue in sixths of the circle, 0 of what is grey, by the formulae of A. R. Smith,
        # "Color Gamut Transform Pairs", SIGGRAPH 1978.
        from_blue = tf.where(value == green, 2 * chroma + (blue - red), 4 * chroma + (red - green))
        before = tf.where(value == red, green - blue, from_blue)
        turned = tf.math.floormod(tf.math.divide_no_nan(before, chroma) + 6 * hue, 6.0)
        parts = tf.abs(turned - 3) - 1, 2 - tf.abs(turned - 2), 2 - tf.abs(turned - 4)
        least = value - new_chroma
        planes = [least + new_chroma * tf.clip_by_value(part, 0.0, 1.0) for part in parts]
    # tf.stack on the last axis takes three times as long.
    return tf.transpose(tf.stack(planes, 1), [0, 2, 3, 1])
