"""Brightness, contrast, saturation and hue of batches of images.

Each does what tf.image's function of its name does to one image. Here every image of a batch has a
number of its own, and values run from 0 to 255.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfrtool.loading.augment.augment_options import Augment
from tfrtool.loading.augment.draws import Draw, uniform

__all__ = ["recolour"]


def recolour(images: Any, seed: Any, augment: Augment) -> Any:
    """Change brightness, contrast, saturation and hue of each image, in this order.

    Values are clipped to 0..255 after the contrast, where saturation and hue need them to be; those
    two don't leave that range, but for float32's last digit.

    Args:
        images: uint8 or float32 [n, h, w, 3], 0..255, with h and w known.
        seed: int64 [2].
        augment: what to do.

    Returns:
        The images; float32 if anything was done, else as they were.
    """
    count = tf.shape(images)[0]
    delta = factor = saturation = hue = None
    if augment.brightness:
        most = 255 * augment.brightness
        delta = uniform(seed, Draw.BRIGHTNESS, count, -most, most)
    if augment.contrast:
        low, high = 1 - augment.contrast, 1 + augment.contrast
        factor = uniform(seed, Draw.CONTRAST, count, low, high)
    if augment.saturation:
        low, high = 1 - augment.saturation, 1 + augment.saturation
        saturation = uniform(seed, Draw.SATURATION, count, low, high)
    if augment.hue:
        hue = uniform(seed, Draw.HUE, count, -augment.hue, augment.hue)
    if delta is not None or factor is not None:
        images = _stretch(tf.cast(images, tf.float32), delta, factor)
    if saturation is not None or hue is not None:
        images = _turn(tf.cast(images, tf.float32), saturation, hue)
    return images


def _stretch(images: Any, delta: Any, factor: Any) -> Any:
    """Add ``delta``, then multiply the distance from each channel's mean by ``factor``."""
    _, height, width, channels = images.shape
    # Rows as they lie in memory: broadcasting over a last dimension of 3 takes four times as long.
    rows = tf.reshape(images, [-1, height, width * channels])
    shift = 0.0 if delta is None else delta[:, tf.newaxis, tf.newaxis]
    if factor is not None:
        factor = factor[:, tf.newaxis, tf.newaxis]
        columns = tf.reshape(tf.reduce_mean(rows, 1), [-1, width, channels])
        means = tf.tile(tf.reduce_mean(columns, 1), [1, width])[:, tf.newaxis]
        # With m the mean, (x + shift - (m + shift)) * factor + m + shift.
        rows = rows * factor
        shift = shift + means * (1.0 - factor)
    rows = tf.clip_by_value(rows + shift, 0.0, 255.0)
    return tf.reshape(rows, [-1, height, width, channels])


def _turn(images: Any, saturation: Any, hue: Any) -> Any:
    """Multiply the saturation, and turn the hue, without leaving red, green and blue.

    With v the largest of a pixel's three values and c its distance to the smallest, the saturation
    is c / v. Changing it at the same hue and v multiplies all three distances from v by the same
    number.
    """
    # One plane a channel: reducing over a last dimension of 3 is slow.
    red, green, blue = tf.unstack(images, axis=-1)
    value = tf.maximum(tf.maximum(red, green), blue)
    chroma = value - tf.minimum(tf.minimum(red, green), blue)
    if saturation is None:
        new_chroma = chroma
    else:
        # A saturation of 1 is the most.
        new_chroma = tf.minimum(chroma * saturation[:, tf.newaxis, tf.newaxis], value)
    if hue is None:
        ratio = tf.math.divide_no_nan(new_chroma, chroma)
        planes = [value - (value - plane) * ratio for plane in (red, green, blue)]
    else:
        turned = _hue(red, green, blue, value, chroma) + 6 * hue[:, tf.newaxis, tf.newaxis]
        planes = _planes(tf.math.floormod(turned, 6.0), value, new_chroma)
    # tf.stack on the last axis takes three times as long.
    return tf.transpose(tf.stack(planes, 1), [0, 2, 3, 1])


def _hue(red: Any, green: Any, blue: Any, value: Any, chroma: Any) -> Any:
    """Return the hue in sixths of the circle, from -1 to 5; 0 of what is grey.

    The formulae of A. R. Smith, "Color Gamut Transform Pairs", SIGGRAPH 1978.
    """
    from_blue = tf.where(value == green, 2 * chroma + (blue - red), 4 * chroma + (red - green))
    return tf.math.divide_no_nan(tf.where(value == red, green - blue, from_blue), chroma)


def _planes(hue: Any, value: Any, chroma: Any) -> list[Any]:
    """Return red, green and blue of a hue in sixths of the circle, 0 to 6."""
    least = value - chroma
    red = tf.abs(hue - 3) - 1
    green = 2 - tf.abs(hue - 2)
    blue = 2 - tf.abs(hue - 4)
    return [least + chroma * tf.clip_by_value(part, 0.0, 1.0) for part in (red, green, blue)]
