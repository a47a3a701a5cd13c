"""Flips, shifts and rotations of batches of images.

Beyond its edges an image goes on as its reflection, in which the pixel at the edge is repeated
(numpy's "symmetric", Keras' "reflect"). Rotated or not, that is what comes into view.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfrtool.loading.augment.augment_options import Augment
from tfrtool.loading.augment.draws import Draw, coin, uniform, whole

__all__ = ["move"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moves:
    """What was drawn for each image of a batch; None where nothing is.

    Attributes:
        flip: whether left becomes right, bool [n].
        flip_vertical: whether top becomes bottom, bool [n].
        shift: how many rows and columns further on to read, int32 [n] each.
        angle: to rotate by, in radians, float32 [n].
    """

    flip: Any
    flip_vertical: Any
    shift: tuple[Any, Any] | None
    angle: Any


def move(images: Any, seed: Any, augment: Augment) -> Any:
    """Flip, then shift, then rotate each image of a batch.

    Without a rotation every pixel is one of the image's own. With one, all of it is one bilinear
    interpolation, in float32.

    Args:
        images: uint8 or float32 [n, h, w, 3], with h and w known.
        seed: int64 [2].
        augment: what to do; its crop is at most h and w.

    Returns:
        The images; float32 if they were rotated, else of the dtype that they had.
    """
    moves = _draw(seed, tf.shape(images)[0], augment)
    if moves.angle is not None:
        return _project(tf.cast(images, tf.float32), moves)
    if moves.flip is not None or moves.flip_vertical is not None or moves.shift is not None:
        images = _pick_rows(images, moves)
    if moves.shift is not None:
        images = _shift_columns(images, moves.shift[1], augment.crop)
    return images


def _draw(seed: Any, count: Any, augment: Augment) -> _Moves:
    shift = None
    if augment.crop:
        row, column = (
            whole(seed, draw, count, 2 * augment.crop + 1) - augment.crop
            for draw in (Draw.CROP_ROW, Draw.CROP_COLUMN)
        )
        shift = (row, column)
    most = math.radians(augment.rotate)
    return _Moves(
        flip=coin(seed, Draw.FLIP, count) if augment.flip else None,
        flip_vertical=coin(seed, Draw.FLIP_VERTICAL, count) if augment.flip_vertical else None,
        shift=shift,
        angle=uniform(seed, Draw.ROTATE, count, -most, most) if augment.rotate else None,
    )


def _pick_rows(images: Any, moves: _Moves) -> Any:
    """Flip both ways, and shift up or down, by choosing whole rows: one copy of memory each."""
    count = tf.shape(images)[0]
    _, height, width, channels = images.shape
    source = tf.range(count)
    if moves.flip is not None:
        # The kernel has a fast path for three dimensions with the channels last.
        lines = tf.reshape(images, [-1, width, channels])
        mirrored = tf.reshape(tf.reverse(lines, [1]), [-1, height, width, channels])
        images = tf.concat([images, mirrored], 0)
        source = tf.where(moves.flip, source + count, source)
    rows = tf.range(height)[tf.newaxis]
    if moves.shift is not None:
        # One reflection is enough: a shift is less than the height.
        rows = rows + moves.shift[0][:, tf.newaxis]
        rows = tf.where(rows < 0, -1 - rows, rows)
        rows = tf.where(rows < height, rows, 2 * height - 1 - rows)
    if moves.flip_vertical is not None:
        rows = tf.where(moves.flip_vertical[:, tf.newaxis], height - 1 - rows, rows)
    lines = tf.reshape(images, [-1, width * channels])
    picked = tf.gather(lines, source[:, tf.newaxis] * height + rows)
    return tf.reshape(picked, [-1, height, width, channels])


def _shift_columns(images: Any, columns: Any, most: int) -> Any:
    """Shift images to the left by ``columns`` pixels, int32 [n], from -most to most."""
    _, height, width, channels = images.shape
    # tf.pad takes twelve times as long for this.
    padded = tf.concat(
        [
            tf.reverse(images[:, :, :most], [2]),
            images,
            tf.reverse(images[:, :, width - most :], [2]),
        ],
        2,
    )

    # A gather of pixels takes three times as long as these slices.
    def cut(number_and_start: Any) -> Any:
        number, start = number_and_start
        return tf.slice(padded, [number, 0, start, 0], [1, height, width, channels])[0]

    return tf.map_fn(
        cut,
        (tf.range(tf.shape(images)[0]), columns + most),
        fn_output_signature=tf.TensorSpec([height, width, channels], images.dtype),
    )


def _project(images: Any, moves: _Moves) -> Any:
    """Do all of the moves as one projective transform of float32 images."""
    _, height, width, _ = images.shape
    x, y = (width - 1) / 2, (height - 1) / 2
    cosine, sine = tf.cos(moves.angle), tf.sin(moves.angle)
    zero = tf.zeros_like(cosine)
    across = 1.0 if moves.flip is None else tf.where(moves.flip, -1.0, 1.0)
    down = 1.0 if moves.flip_vertical is None else tf.where(moves.flip_vertical, -1.0, 1.0)
    rows, columns = (zero, zero) if moves.shift is None else moves.shift
    # A pixel of the result, relative to the centre, is rotated, shifted and flipped to the place
    # that it is read from.
    a, b = across * cosine, -across * sine
    c, d = down * sine, down * cosine
    right = x - a * x - b * y + across * tf.cast(columns, tf.float32)
    below = y - c * x - d * y + down * tf.cast(rows, tf.float32)
    # Its uint8 kernel cuts fractions off, which darkens images by half a step, and is no faster.
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=images,
        transforms=tf.stack([a, b, right, c, d, below, zero, zero], 1),
        output_shape=[height, width],
        fill_value=0.0,
        interpolation="BILINEAR",
        fill_mode="REFLECT",
    )
