"""Random numbers that are a function of a seed alone."""

from __future__ import annotations

import enum
from typing import Any

import tensorflow as tf

__all__ = ["Draw", "coin", "uniform", "whole"]


class Draw(enum.IntEnum):
    """What is drawn; each has a stream of its own, so that none changes another's."""

    FLIP = 0
    FLIP_VERTICAL = 1
    ROTATE = 2
    CROP_ROW = 3
    CROP_COLUMN = 4
    CUTOUT_ROW = 5
    CUTOUT_COLUMN = 6
    BRIGHTNESS = 7
    CONTRAST = 8
    SATURATION = 9
    HUE = 10


def uniform(seed: Any, draw: Draw, count: Any, low: float, high: float) -> Any:
    """Return ``count`` numbers from ``low`` up to, and without, ``high``: float32 [count]."""
    # Adding the number of the draw to a seed could meet another batch's seed; folding it in can't.
    folded = tf.random.experimental.stateless_fold_in(seed, int(draw))
    # The default algorithm depends on the device, and a seed must mean the same on all of them.
    return tf.random.stateless_uniform([count], folded, low, high, alg="philox")


def whole(seed: Any, draw: Draw, count: Any, choices: int) -> Any:
    """Return ``count`` whole numbers from 0 up to, and without, ``choices``: int32 [count]."""
    numbers = tf.cast(uniform(seed, draw, count, 0.0, float(choices)), tf.int32)
    # In float32, a product with a number just below 1 can round up to `choices`.
    return tf.minimum(numbers, choices - 1)


def coin(seed: Any, draw: Draw, count: Any) -> Any:
    """Return ``count`` times true or false, evenly: bool [count]."""
    return uniform(seed, draw, count, 0.0, 1.0) < 0.5
