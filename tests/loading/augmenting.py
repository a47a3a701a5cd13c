"""Images to augment, and what becomes of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tfrtool.loading.augment import augmenter
from tfrtool.loading.options import parse_augment

__all__ = ["apply", "equal", "random_images"]


def random_images(count: int, height: int = 32, width: int = 40, seed: int = 0) -> Any:
    """Return noise, uint8 [count, height, width, 3]."""
    shape = (count, height, width, 3)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def apply(text: str, images: Any, *seed: int) -> Any:
    """Return images augmented as a text of the command line says, by a seed of two numbers.

    Of few, without a graph: tracing one takes longer. That both give the same is tested.
    """
    augment = augmenter(parse_augment(text))
    if len(images) > 300:
        augment = tf.function(augment, autograph=False)
    return augment(tf.constant(images), tf.constant(seed or (1, 2), tf.int64)).numpy()


def equal(first: Any, second: Any) -> bool:
    """Return whether two arrays are the same in every pixel."""
    return bool(np.array_equal(first, second))
