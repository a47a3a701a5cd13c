"""From serialized records to images of one size, and labels."""

from collections.abc import Callable, Mapping

import tensorflow as tf

from tfrtool.examples.example import feature_key, feature_name
from tfrtool.loading.dataset.dataset import Dataset
from tfrtool.loading.dataset.forms import ImageEncoding
from tfrtool.loading.pipeline.parsed_values import image_spec, label_spec, label_tensor, pixels
from tfrtool.loading.pipeline.tensors import Batch, Tensor

_RGB = 3


def parser(dataset: Dataset, *, batched: bool = False) -> Callable[[Tensor], dict[str, Tensor]]:
    """Return a function from a serialized record, string [], to what is needed of its features.

    With ``batched`` it takes records, string [n], and what it gives is to be unbatched.
    """
    form = dataset.image_form
    sides = filter(None, (form.height_feature, form.width_feature))
    # What is needed and nothing else, for parsing copies; by bytes, for a name need not be text.
    keys = {feature_key(name): tf.io.FixedLenFeature([], tf.int64) for name in sides}
    keys[feature_key(dataset.image_feature)] = image_spec(form)
    label = label_spec(dataset.label_form, len(dataset.class_names))
    keys[feature_key(dataset.label_feature)] = label
    parse = tf.io.parse_example if batched else tf.io.parse_single_example
    return lambda record: {feature_name(key): value for key, value in parse(record, keys).items()}


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
    if form.encoding in (ImageEncoding.TENSOR, ImageEncoding.VALUES):
        return pixels(form, data, height, width)
    return tf.reshape(tf.io.decode_raw(data, tf.uint8), [height, width, form.channels])


def decoder(
    dataset: Dataset, image_size: int, *, floats: bool = False, parsed: bool = False
) -> Callable[[Tensor], Batch]:
    """Return a function from a serialized record, string [], to an image and its label.

    The image is uint8 [image_size, image_size, 3], the label int64 [], or float32 [classes] of 0
    and 1 where an image may be of several classes. What the record holds must be right: a wrong
    label, too, is an ``InvalidArgumentError`` when the graph runs. A loss would not always tell: on
    some devices a number that is too high makes it NaN.

    With ``floats`` images are float32, 0 to 255, and not rounded. This is what published pipelines
    do, and costs four times the memory. With ``parsed`` the function takes what a `parser` gives.
    """
    parse = None if parsed else parser(dataset)
    size = (image_size, image_size)

    def decode(record: Tensor) -> Batch:
        features = record if parse is None else parse(record)
        image = full_image(dataset, features)
        fits = image.shape[:2] == size
        if floats:
            image = tf.cast(tf.image.resize(image, size), tf.float32)
        elif not fits:
            # An image that is known to have the size is left alone, which changes no pixel of it;
            # to ask each image while the graph runs costs more than it saves. The kernel takes
            # uint8, so that there is never a float copy of the full image; only the result is
            # rounded, to within half a grey level.
            resized = tf.image.resize(image, size)
            # Rounds and casts in one pass. With this range a step is 1, and no value lies outside.
            rounded = tf.raw_ops.QuantizeV2(
                input=resized, min_range=0.0, max_range=255.0, T=tf.quint8, mode="MIN_FIRST"
            )
            image = tf.bitcast(rounded.output, tf.uint8)
        if image.shape[-1] <= 2:  # grey is repeated
            image = tf.tile(image[..., :1], [1, 1, _RGB])
        elif image.shape[-1] > _RGB:  # alpha is left out
            image = image[..., :_RGB]
        return image, label_tensor(dataset, features[dataset.label_feature])

    return decode
