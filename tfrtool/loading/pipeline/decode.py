"""From serialized records to images of one size, and class numbers."""

from collections.abc import Callable, Mapping

import tensorflow as tf

from tfrtool.examples.example import DType, feature_key, feature_name
from tfrtool.loading.dataset.dataset import Dataset
from tfrtool.loading.dataset.forms import ImageEncoding
from tfrtool.loading.pipeline.tensors import Batch, Decode, Tensor

_RGB = 3


def decoder(dataset: Dataset, image_size: int, *, floats: bool = False) -> Decode:
    """Return a function from a serialized record, string [], to an image and its class number.

    The image is uint8 [image_size, image_size, 3], the label int64 []. What the record holds must
    be right: a wrong label, too, is an ``InvalidArgumentError`` when the graph runs.

    With ``floats`` images are float32, 0 to 255, and not rounded. This is what published pipelines
    do, and costs four times the memory.
    """
    parse, decode = parser(dataset), features_decoder(dataset, image_size, floats=floats)
    return lambda record: decode(parse(record))


def features_decoder(
    dataset: Dataset, image_size: int, *, floats: bool = False
) -> Callable[[Mapping[str, Tensor]], Batch]:
    """Return the part of `decoder` that comes after parsing; it takes features by name."""

    def decode(features: Mapping[str, Tensor]) -> Batch:
        image = full_image(dataset, features)
        if floats:
            image = tf.cast(tf.image.resize(image, (image_size, image_size)), tf.float32)
        else:
            image = _fitted(image, image_size)
        return _colored(image), _label(dataset, features)

    return decode


def parser(dataset: Dataset, *, batched: bool = False) -> Callable[[Tensor], dict[str, Tensor]]:
    """Return the part of `decoder` before decoding: from a record to what is needed of it.

    With ``batched`` it takes records, string [n], and what it gives is to be unbatched.
    """
    description, parse = _description(dataset), tf.io.parse_single_example
    if batched:
        parse = tf.io.parse_example
    return lambda record: {
        feature_name(key): value for key, value in parse(record, description).items()
    }


def _description(dataset: Dataset) -> dict[bytes, Tensor]:
    """Return the feature description of what is needed, and nothing else: parsing copies."""
    form = dataset.image_form
    types = {dataset.image_feature: tf.string}
    types |= {name: tf.int64 for name in (form.height_feature, form.width_feature) if name}
    types[dataset.label_feature] = tf.string if dataset.label_dtype is DType.STRING else tf.int64
    # By bytes, for a name need not be text.
    return {feature_key(name): tf.io.FixedLenFeature([], dtype) for name, dtype in types.items()}


def full_image(dataset: Dataset, features: Mapping[str, Tensor]) -> Tensor:
    """Decode a record's image at the size that it has: uint8 [height, width, channels].

    There are 3 channels for encoded images.
    """
    data, form = features[dataset.image_feature], dataset.image_form
    if form.encoding is ImageEncoding.ENCODED:
        # As fast as decode_jpeg for JPEGs, and it takes BMP, WebP and animated GIFs as well.
        image = tf.io.decode_image(data, channels=_RGB, expand_animations=False)
        image.set_shape([None, None, _RGB])
        return image
    if form.encoding is ImageEncoding.BASE64:
        data = tf.io.decode_base64(data)
    height, width = form.height, form.width
    if form.height_feature is not None and form.width_feature is not None:
        height, width = features[form.height_feature], features[form.width_feature]
    return tf.reshape(tf.io.decode_raw(data, tf.uint8), [height, width, form.channels])


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
    if dataset.label_dtype is DType.STRING:
        matches = tf.equal(tf.constant(dataset.class_names), value)
        known = tf.reduce_any(matches)
        value = tf.where(known, tf.argmax(tf.cast(matches, tf.uint8)), tf.constant(-1, tf.int64))
    # Taking the number from a list of all checks its range, in one operation. An assertion costs
    # five, which shows beside small images. tf.data runs on the CPU, where this does raise.
    return tf.gather(tf.range(classes, dtype=tf.int64), value)
