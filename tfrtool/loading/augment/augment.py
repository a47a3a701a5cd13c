"""Random changes of batches of images, as a function of a seed."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from tfrtool.errors import UsageError
from tfrtool.loading.augment.augment_options import Augment
from tfrtool.loading.augment.colour import recolour, whole
from tfrtool.loading.augment.geometry import move
from tfrtool.loading.pipeline.load_options import LoadOptions
from tfrtool.loading.pipeline.tensors import Batch, Tensor

_GREY = 128
"""The middle of the range: about 0 for a model whose input is centred, as after per-channel
normalisation in the paper on cutout, and near the mean of photographs (ImageNet's: 124, 116, 104).
"""


def augmenter(augment: Augment) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the function that changes a batch of images at random.

    It takes images, uint8 or float32 [n, h, w, 3] with values 0..255 and h and w known, and a seed,
    int64 [2]; it returns images of the same dtype and shape, where uint8 is rounded. All of it
    is TensorFlow ops that keep no state: the same images and seed give the same result, in any
    process and with any number of threads. Each image of the batch is changed in its own way.
    It raises UsageError if the images are too small for what is to be done to them.
    """

    def apply(images: Tensor, seed: Tensor) -> Tensor:
        shape, dtype = images.shape, images.dtype
        side = min(shape[1:3])
        for name, pixels in (("crop", augment.crop), ("cutout", augment.cutout)):
            if pixels >= side:
                raise UsageError(
                    f"{name} is too much for images of {side} pixels",
                    expected=f"less than {side}",
                    found=pixels,
                )
        images = recolour(move(images, seed, augment), seed, augment)
        if images.dtype != dtype:
            # Nothing here leaves 0..255 by as much as half a step, so that this is rounding.
            images = tf.cast(images + 0.5, tf.uint8)
        if augment.cutout:
            images = _cut_out(images, seed, augment.cutout)
        return tf.ensure_shape(images, shape)

    return apply


def _cut_out(images: Tensor, seed: Tensor, side: int) -> Tensor:
    """Make a square of each image grey.

    Its centre is anywhere in the image, as in the paper: T. DeVries and G. W. Taylor, "Improved
    Regularization of Convolutional Neural Networks with Cutout", 2017.
    """
    count = tf.shape(images)[0]
    _, height, width, channels = images.shape
    top = whole(seed, "cutout row", count, height) - side // 2
    left = whole(seed, "cutout column", count, width) - side // 2
    # Only the rows that the square lies in are read and written. Where it is cut off at an edge,
    # the row at the edge stands in for those outside: it is written again, with the same pixels.
    rows = top[:, tf.newaxis] + tf.range(side)
    rows = tf.clip_by_value(rows, 0, height - 1) + tf.range(count)[:, tf.newaxis] * height
    columns = tf.repeat(tf.range(width), channels) - left[:, tf.newaxis]
    inside = tf.logical_and(columns >= 0, columns < side)
    table = tf.reshape(images, [-1, width * channels])
    touched = tf.gather(table, rows)
    touched = tf.where(inside[:, tf.newaxis], tf.cast(_GREY, images.dtype), touched)
    table = tf.tensor_scatter_nd_update(table, rows[..., tf.newaxis], touched)
    return tf.reshape(table, [-1, height, width, channels])


def epoch_counter(options: LoadOptions) -> Tensor:
    """Return a variable with the number of the next epoch.

    With it, a new iterator for each epoch, as Keras' ``fit`` makes them, gives what one over all
    of them gives.
    """
    return tf.Variable(options.first_epoch, dtype=tf.int64, trainable=False)


def epoch_augmenter(options: LoadOptions) -> Callable[..., Batch] | None:
    """Return a function that changes a batch, by the epoch's number and the batch's in it."""
    if options.augment is None or not options.training:
        return None
    change = augmenter(options.augment)

    def apply(epoch: Tensor, number: Tensor, images: Tensor, labels: Tensor) -> Batch:
        seed = tf.stack([tf.constant(options.seed, tf.int64), epoch * 2**32 + number])
        return change(images, seed), labels

    return apply
