"""Labels and pixels that are no plain number and no file, from the values of a parsed record.

What is wrong with a value is an ``InvalidArgumentError`` when the graph runs: a place is taken from
a tensor that has none of that number, in one operation. An assertion costs five, which shows beside
small images. tf.data runs on the CPU, where this does raise.
"""

from typing import Any

import tensorflow as tf

from tfrtool.examples.example import DType
from tfrtool.loading.dataset.dataset import Dataset
from tfrtool.loading.dataset.forms import ImageEncoding, ImageForm, range_of
from tfrtool.loading.dataset.label_form import LabelEncoding, LabelForm
from tfrtool.loading.pipeline.tensors import Tensor

_NONE = -1
"""The place of what is no class, or no good value."""


def label_spec(form: LabelForm, classes: int) -> Any:
    """Return how the label is parsed, as a value of ``tf.io``'s features."""
    dtype = getattr(tf, form.dtype.value)
    if form.encoding is LabelEncoding.LIST:
        return tf.io.RaggedFeature(dtype)
    return tf.io.FixedLenFeature([classes] if form.is_vector else [], dtype)


def image_spec(form: ImageForm) -> Any:
    """Return how the image is parsed, as a value of ``tf.io``'s features."""
    if form.encoding is ImageEncoding.VALUES:
        return tf.io.RaggedFeature(getattr(tf, form.element))
    return tf.io.FixedLenFeature([], tf.string)


def label_tensor(dataset: Dataset, values: Tensor) -> Tensor:
    """Return a record's class, int64 []; or float32 [classes] of 0 and 1 where it may be several.

    They come as `label_spec` has them parsed.
    """
    form, names = dataset.label_form, dataset.class_names
    every = tf.range(len(names), dtype=tf.int64)
    if form.is_vector:
        ones = tf.equal(values, tf.ones([], values.dtype))
        good = tf.reduce_all(ones | tf.equal(values, tf.zeros([], values.dtype)))
        if form.encoding is LabelEncoding.MULTI_HOT:
            return tf.gather(tf.cast(ones, tf.float32)[None], _place(good))
        good &= tf.equal(tf.math.count_nonzero(ones), 1)
        place = tf.argmax(tf.cast(ones, tf.uint8))
        return tf.gather(every, tf.where(good, place, tf.constant(_NONE, tf.int64)))
    if form.encoding is LabelEncoding.CLASS:
        return tf.gather(every, _classes(form, names, values[None])[0] if _moves(form) else values)
    places = _classes(form, names, values)[:, None]
    # A class that comes twice is there once.
    return tf.tensor_scatter_nd_update(
        tf.zeros([len(names)]), places, tf.ones_like(places[:, 0], tf.float32)
    )


def _moves(form: LabelForm) -> bool:
    return form.dtype is DType.STRING or bool(form.numbers)


def _classes(form: LabelForm, names: tuple[str, ...], values: Tensor) -> Tensor:
    """Return the classes of numbers or names, int64 [n]; of what is none, a number that is none."""
    if form.dtype is DType.STRING:
        matches = tf.equal(tf.constant(names), values[:, None])
        places = tf.argmax(tf.cast(matches, tf.uint8), axis=1)
        return tf.where(tf.reduce_any(matches, axis=1), places, tf.constant(_NONE, tf.int64))
    if not form.numbers:
        return values
    first, last = form.numbers[0], form.numbers[-1]
    if last - first == len(form.numbers) - 1:
        return values - first
    numbers = tf.constant(form.numbers, tf.int64)
    places = tf.searchsorted(numbers, values, out_type=tf.int64)
    there = tf.equal(tf.gather(numbers, tf.minimum(places, len(form.numbers) - 1)), values)
    return tf.where(there, places, tf.constant(_NONE, tf.int64))


def _place(good: Tensor) -> Tensor:
    return tf.where(good, 0, _NONE)


def pixels(form: ImageForm, data: Tensor, height: Tensor, width: Tensor) -> Tensor:
    """Return the pixels of a serialized tensor, or of numbers: uint8 [height, width, channels].

    The shape of a tensor is its own. Floats are rounded to the 256 levels that files have.
    """
    if form.encoding is ImageEncoding.VALUES:
        values = tf.reshape(data, [height, width, form.channels])
    else:
        values = tf.io.parse_tensor(data, getattr(tf, form.element))
        values = tf.ensure_shape(
            values, [None, None] if form.is_flat else [None, None, form.channels]
        )
        values = values[..., None] if form.is_flat else values
    if form.element == "uint8":
        return values
    low, high = range_of(form)
    floats = tf.cast(values, tf.float32)
    good = tf.reduce_all((floats >= low) & (floats <= high))
    scale = tf.gather([255 / (form.white - form.black)], _place(good))
    return tf.cast(tf.clip_by_value(tf.round((floats - form.black) * scale), 0, 255), tf.uint8)
