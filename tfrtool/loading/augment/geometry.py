"""Flips, shifts and rotations of batches of images.

Beyond its edges an image goes on as its reflection, in which the pixel at the edge is repeated
(numpy's "symmetric", Keras' "reflect"). Rotated or not, that is what comes into view.
"""

from __future__ import annotations

import math

import tensorflow as tf

from tfrtool.loading.augment.augment_options import Augment
from tfrtool.loading.augment.colour import uniform, whole
from tfrtool.loading.pipeline.tensors import Tensor


def move(images: Tensor, seed: Tensor, augment: Augment) -> Tensor:
    """Flip, then shift, then rotate each image of a batch.

    Images are uint8 or float32 [n, h, w, 3], with h and w known. Without a rotation every pixel is
    one of the image's own. With one, all of it is one bilinear interpolation, in float32.
    """
    count, crop = tf.shape(images)[0], augment.crop
    flip, flip_vertical = (
        uniform(seed, name, count, 0.0, 1.0) < 0.5 if getattr(augment, name) else None
        for name in ("flip", "flip_vertical")
    )
    rows, columns = (
        whole(seed, name, count, 2 * crop + 1) - crop if crop else None
        for name in ("crop row", "crop column")
    )
    if augment.rotate:
        most = math.radians(augment.rotate)
        angle = uniform(seed, "rotate", count, -most, most)
        images = tf.cast(images, tf.float32)
        return _project(images, angle, (flip, flip_vertical), (columns, rows))
    if flip is not None or flip_vertical is not None or crop:
        images = _pick_rows(images, flip, flip_vertical, rows)
    return _shift_columns(images, columns, crop) if crop else images


def _pick_rows(images: Tensor, flip: Tensor, flip_vertical: Tensor, down: Tensor) -> Tensor:
    """Flip both ways, and shift up or down, by choosing whole rows: one copy of memory each."""
    count = tf.shape(images)[0]
    _, height, width, channels = images.shape
    source = tf.range(count)
    if flip is not None:
        # The kernel has a fast path for three dimensions with the channels last.
        lines = tf.reshape(images, [-1, width, channels])
        mirrored = tf.reshape(tf.reverse(lines, [1]), [-1, height, width, channels])
        images = tf.concat([images, mirrored], 0)
        source = tf.where(flip, source + count, source)
    rows = tf.range(height)[tf.newaxis]
    if down is not None:
        # One reflection is enough: a shift is less than the height.
        rows = rows + down[:, tf.newaxis]
        rows = tf.where(rows < 0, -1 - rows, rows)
        rows = tf.where(rows < height, rows, 2 * height - 1 - rows)
    if flip_vertical is not None:
        rows = tf.where(flip_vertical[:, tf.newaxis], height - 1 - rows, rows)
    lines = tf.reshape(images, [-1, width * channels])
    picked = tf.gather(lines, source[:, tf.newaxis] * height + rows)
    return tf.reshape(picked, [-1, height, width, channels])


def _shift_columns(images: Tensor, columns: Tensor, most: int) -> Tensor:
    """Shift images to the left by ``columns`` pixels, int32 [n], from -most to most."""
    _, height, width, channels = images.shape
    # tf.pad takes twelve times as long for this.
    left, right = images[:, :, :most], images[:, :, width - most :]
    padded = tf.concat([tf.reverse(left, [2]), images, tf.reverse(right, [2])], 2)

    # A gather of pixels takes three times as long as these slices.
    def cut(number_and_start: Tensor) -> Tensor:
        number, start = number_and_start
        return tf.slice(padded, [number, 0, start, 0], [1, height, width, channels])[0]

    return tf.map_fn(
        cut,
        (tf.range(tf.shape(images)[0]), columns + most),
        fn_output_signature=tf.TensorSpec([height, width, channels], images.dtype),
    )


def _project(
    images: Tensor, angle: Tensor, flips: tuple[Tensor, Tensor], shift: tuple[Tensor, Tensor]
) -> Tensor:
    """Do all of the moves as one projective transform of float32 images."""
    _, height, width, _ = images.shape
    x, y = (width - 1) / 2, (height - 1) / 2
    cosine, sine = tf.cos(angle), tf.sin(angle)
    zero = tf.zeros_like(cosine)
    across, down = (1.0 if flip is None else tf.where(flip, -1.0, 1.0) for flip in flips)
    columns, rows = (zero if by is None else tf.cast(by, tf.float32) for by in shift)
    # A pixel of the result, relative to the centre, is rotated, shifted and flipped to the place
    # that it is read from.
    a, b = across * cosine, -across * sine
    c, d = down * sine, down * cosine
    right = x - a * x - b * y + across * columns
    below = y - c * x - d * y + down * rows
    # Its uint8 kernel cuts fractions off, which darkens images by half a step, and is no faster.
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=images,
        transforms=tf.stack([a, b, right, c, d, below, zero, zero], 1),
        output_shape=[height, width],
        fill_value=0.0,
        interpolation="BILINEAR",
        fill_mode="REFLECT",
    )
