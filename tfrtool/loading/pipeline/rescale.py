"""Pixel values as a model takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfrtool.loading.pipeline.load_options import Rescale

__all__ = ["rescaler"]

_WHITE = 255


def rescaler(rescale: Rescale) -> Callable[[Any], Any]:
    """Return a function from pixels, uint8 or float32 [..., 3], to float32 of the same shape."""
    scale, offset = rescale.scale, rescale.offset

    def apply(images: Any) -> Any:
        if rescale.bgr:
            images = tf.reverse(images, [-1])
        if images.dtype == tf.uint8 and isinstance(scale, float) and isinstance(offset, float):
            return _in_one_pass(images, scale, offset)
        return tf.cast(images, tf.float32) * tf.constant(scale) + tf.constant(offset)

    return apply


def _in_one_pass(images: Any, scale: float, offset: float) -> Any:
    """Return ``images * scale + offset``, reading each value once.

    It is what dequantizing 0 to 255 to a range of float32 does. Casting, multiplying and adding
    would go through the float32 images three times, which are larger than the caches of most
    processors.
    """
    return tf.quantization.dequantize(
        tf.bitcast(images, tf.quint8), offset, offset + _WHITE * scale, mode="MIN_COMBINED"
    )
