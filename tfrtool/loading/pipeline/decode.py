"""From serialized records to images of one size, and class numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tensorflow as tf

from tfrtool.examples.example import DType, feature_key, feature_name
from tfrtool.loading.dataset.dataset import Dataset
from tfrtool.loading.dataset.forms import ImageEncoding, ImageForm
from tfrtool.loading.pipeline.tensors import Batch, Decode, Tensor

__all__ = ["batch_parser", "decoder", "features_decoder", "float_decoder", "full_image", "parser"]

_RGB = 3


def decoder(dataset: Dataset, image_size: int) -> Decode:
    """Return a function from a record to an image and its class number.

    Args:
        dataset: tells the features, and what form they have.
        image_size: of the images, in pixels, both ways.

    Returns:
        A function of a serialized record, string [], that gives an image, uint8
        [image_size, image_size, 3], and a label, int64 []. What the record holds must be right:
        a wrong label, too, is an ``InvalidArgumentError`` when the graph runs.
    """
    parse, decode = parser(dataset), features_decoder(dataset, image_size)
    return lambda record: decode(parse(record))


def float_decoder(dataset: Dataset, image_size: int) -> Decode:
    """Return what `decoder` does, with images as float32, 0 to 255, that are not rounded.

    This is what published pipelines do, and costs four times the memory.
    """
    parse = parser(dataset)

    def decode(record: Tensor) -> Batch:
        features = parse(record)
        image = tf.image.resize(full_image(dataset, features), (image_size, image_size))
        return _colored(tf.cast(image, tf.float32)), _label(dataset, features)

    return decode


def batch_parser(dataset: Dataset) -> Callable[[Tensor], dict[str, Tensor]]:
    """Return a function that parses a batch of records at once.

    Returns:
        A function of serialized records, string [n], that gives what `features_decoder` takes of
        each, with n in front of all shapes: unbatch it before.
    """
    description = _description(dataset)
    return lambda records: _named_features(tf.io.parse_example(records, description))


def features_decoder(dataset: Dataset, image_size: int) -> Callable[[Mapping[str, Tensor]], Batch]:
    """Return the part of `decoder` that comes after parsing; it takes features by name."""

    def decode(features: Mapping[str, Tensor]) -> Batch:
        image = _fitted(full_image(dataset, features), image_size)
        return _colored(image), _label(dataset, features)

    return decode


def parser(dataset: Dataset) -> Callable[[Tensor], dict[str, Tensor]]:
    """Return the part of `decoder` before decoding: from a record to what is needed of it."""
    description = _description(dataset)
    return lambda record: _named_features(tf.io.parse_single_example(record, description))


def _named_features(parsed: Mapping[bytes, Tensor]) -> dict[str, Tensor]:
    return {feature_name(key): value for key, value in parsed.items()}


def _description(dataset: Dataset) -> dict[bytes, Tensor]:
    """Return the feature description of what is needed, and nothing else: parsing copies."""
    form = dataset.image_form
    types = {dataset.image_feature: tf.string}
    types |= {name: tf.int64 for name in (form.height_feature, form.width_feature) if name}
    types[dataset.label_feature] = tf.string if _named(dataset) else tf.int64
    # By bytes, for a name need not be text.
    return {feature_key(name): tf.io.FixedLenFeature([], dtype) for name, dtype in types.items()}


def _named(dataset: Dataset) -> bool:
    return dataset.label_dtype is DType.STRING


def full_image(dataset: Dataset, features: Mapping[str, Tensor]) -> Tensor:
    """Decode a record's image at the size that it has.

    Args:
        dataset: tells the form of its images.
        features: the record's features by name.

    Returns:
        uint8 [height, width, channels], with 3 channels for encoded images.
    """
    data, form = features[dataset.image_feature], dataset.image_form
    if form.encoding is ImageEncoding.ENCODED:
        # As fast as decode_jpeg for JPEGs, and it takes BMP, WebP and animated GIFs as well.
        image = tf.io.decode_image(data, channels=_RGB, expand_animations=False)
        image.set_shape([None, None, _RGB])
        return image
    if form.encoding is ImageEncoding.BASE64:
        data = tf.io.decode_base64(data)
    return tf.reshape(tf.io.decode_raw(data, tf.uint8), _shape(form, features))


def _shape(form: ImageForm, features: Mapping[str, Tensor]) -> Tensor:
    if form.height_feature is None or form.width_feature is None:
        return [form.height, form.width, form.channels]
    return [features[form.height_feature], features[form.width_feature], form.channels]


def _fitted(image: Tensor, size: int) -> Tensor:
    """Resize an image, uint8 [height, width, channels], to ``size`` both ways, as tf.image does.

    The kernel takes uint8, so that there is never a float copy of the full image; only the result
    is rounded, to within half a grey level. An image that is known to have the size is left alone,
    which changes no pixel of it; to ask each image while the graph runs costs more than it saves.
    """
    if image.shape[:2] == (size, size):
        return image
    resized = tf.image.resize(image, (size, size))
    # Rounds and casts in one pass. With this range a step is 1, and no value lies outside.
    rounded = tf.raw_ops.QuantizeV2(
        input=resized, min_range=0.0, max_range=255.0, T=tf.quint8, mode="MIN_FIRST"
    )
    return tf.bitcast(rounded.output, tf.uint8)


def _colored(image: Tensor) -> Tensor:
    """Return an image with 3 channels: grey is repeated, alpha left out."""
    channels = image.shape[-1]
    if channels <= 2:
        return tf.tile(image[..., :1], [1, 1, _RGB])
    return image if channels == _RGB else image[..., :_RGB]


def _label(dataset: Dataset, features: Mapping[str, Tensor]) -> Tensor:
    """Return the class number, int64 []; a graph that runs on a wrong one fails.

    A loss would not always tell: on some devices a number that is too high makes it NaN.
    """
    value, classes = features[dataset.label_feature], len(dataset.class_names)
    if _named(dataset):
        matches = tf.equal(tf.constant(dataset.class_names), value)
        known = tf.reduce_any(matches)
        value = tf.where(known, tf.argmax(tf.cast(matches, tf.uint8)), tf.constant(-1, tf.int64))
    # Taking the number from a list of all checks its range, in one operation. An assertion costs
    # five, which shows beside small images. tf.data runs on the CPU, where this does raise.
    return tf.gather(tf.range(classes, dtype=tf.int64), value)
