"""Labels and pixels that are no plain number and no file, from the values of a parsed record.

What is wrong with a value is an ``InvalidArgumentError`` when the graph runs: a place is taken from
a tensor that has none of that number, in one operation. An assertion costs five, which shows beside
small images. tf.data runs on the CPU, where this does raise.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfrtool.examples.example import DType
from tfrtool.loading.dataset import Dataset
from tfrtool.loading.forms import ImageEncoding, ImageForm
from tfrtool.loading.labels import LabelEncoding, LabelForm
from tfrtool.loading.tensors import Tensor

_NONE = -1
"""The place of what is no class, or no good value."""


def feature_specs(dataset: Dataset) -> dict[str, Any]:
    """Return how the features are parsed that make up an image and its label, by their names."""
    image, label = dataset.image_form, dataset.label_form
    specs = {name: tf.io.FixedLenFeature([], tf.int64) for name in image.size_features}
    specs[dataset.image_feature] = tf.io.FixedLenFeature([], tf.string)
    if image.encoding is ImageEncoding.VALUES:
        specs[dataset.image_feature] = tf.io.RaggedFeature(getattr(tf, image.element))
    shape, dtype = [len(label.names)] if label.is_vector else [], getattr(tf, label.dtype.value)
    specs[dataset.label_feature] = tf.io.FixedLenFeature(shape, dtype)
    if label.encoding is LabelEncoding.LIST:
        specs[dataset.label_feature] = tf.io.RaggedFeature(dtype)
    return specs


def label_tensor(form: LabelForm, values: Tensor) -> Tensor:
    """Return a record's class, int64 []; or float32 [classes] of 0 and 1 where it may be several.

    They come as `feature_specs` has them parsed.
    """
    if form.is_vector:
        hot = tf.cast(values, tf.float32)
        good = tf.reduce_all(tf.equal(values, 0) | tf.equal(values, 1))
        if form.encoding is LabelEncoding.ONE_HOT:
            good &= tf.equal(tf.math.count_nonzero(hot), 1)
        hot = tf.gather(hot[None], _place(good))
        return hot if form.encoding is LabelEncoding.MULTI_HOT else tf.argmax(hot)
    classes = tf.gather(tf.range(len(form.names), dtype=tf.int64), _classes(form, values))
    if form.encoding is LabelEncoding.CLASS:
        return classes
    # A class that comes twice is there once.
    ones = tf.ones_like(classes, tf.float32)
    return tf.tensor_scatter_nd_update(tf.zeros([len(form.names)]), classes[:, None], ones)


def _classes(form: LabelForm, values: Tensor) -> Tensor:
    """Return the classes of numbers or names, int64; of what is none, a number that is none."""
    if form.dtype is DType.STRING:
        matches = tf.equal(tf.constant(form.names), values[..., None])
        places = tf.argmax(tf.cast(matches, tf.uint8), axis=-1)
        return tf.where(tf.reduce_any(matches, axis=-1), places, tf.constant(_NONE, tf.int64))
    if not form.numbers:
        return values
    first, last = form.numbers[0], form.numbers[-1]
    if last - first == len(form.numbers) - 1:
        return values - first
    numbers = tf.constant(form.numbers, tf.int64)
    places = tf.reshape(
        tf.searchsorted(numbers, tf.reshape(values, [-1]), out_type=tf.int64), tf.shape(values)
    )
    there = tf.equal(tf.gather(numbers, tf.minimum(places, len(form.numbers) - 1)), values)
    return tf.where(there, places, tf.constant(_NONE, tf.int64))


def _place(good: Tensor) -> Tensor:
    return tf.where(good, 0, _NONE)


def pixels(form: ImageForm, data: Tensor, size: Sequence[Tensor]) -> Tensor:
    """Return the pixels of a serialized tensor, or of numbers: uint8 [height, width, channels].

    The shape of a tensor is its own. Floats are rounded to the 256 levels that files have.
    """
    if form.encoding is ImageEncoding.VALUES:
        values = tf.reshape(data, [*size, form.channels])
    else:
        values = tf.io.parse_tensor(data, getattr(tf, form.element))
        values = tf.ensure_shape(
            values, [None, None] if form.is_flat else [None, None, form.channels]
        )
        values = values[..., None] if form.is_flat else values
    if form.element == "uint8":
        return values
    low, high = form.range
    floats = tf.cast(values, tf.float32)
    good = tf.reduce_all((floats >= low) & (floats <= high))
    scale = tf.gather([255 / (form.white - form.black)], _place(good))
    return tf.cast(tf.clip_by_value(tf.round((floats - form.black) * scale), 0, 255), tf.uint8)
