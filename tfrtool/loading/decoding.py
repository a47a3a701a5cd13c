"""From serialized records to images of one size, and labels."""

from collections.abc import Callable, Mapping
from functools import partial

import tensorflow as tf

from tfrtool.examples.example import feature_key, feature_name
from tfrtool.loading.dataset import Dataset
from tfrtool.loading.forms import ImageEncoding
from tfrtool.loading.parsed_values import feature_specs, label_tensor, pixels
from tfrtool.loading.tensors import Batch, Tensor

LARGE_RECORD = 40 * 2**10
"""Bytes, from which on resizing an image costs less than a float32 copy of it: at 224 pixels, the
copy took 25 % off the time of photographs of 11 kB, and added 4 % to those of 52 kB."""

_RGB = 3
_JPEG = b"\xff\xd8\xff"
_RATIOS = (2, 4, 8)
"""By which libjpeg decodes smaller images at once."""


def parser(dataset: Dataset, *, batched: bool = False) -> Callable[[Tensor], dict[str, Tensor]]:
    """Return a function from a serialized record, string [], to what is needed of its features.

    With ``batched`` it takes records, string [n], and what it gives is to be unbatched.
    """
    # What is needed and nothing else, for parsing copies; by bytes, for a name need not be text.
    keys = {feature_key(name): spec for name, spec in feature_specs(dataset).items()}
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
    size = [features[side] if isinstance(side, str) else side for side in form.size]
    if form.encoding in (ImageEncoding.TENSOR, ImageEncoding.VALUES):
        return pixels(form, data, size)
    return tf.reshape(tf.io.decode_raw(data, tf.uint8), [*size, form.channels])


def fast_image(
    dataset: Dataset,
    features: Mapping[str, Tensor],
    least: int,
    then: Callable[..., Tensor] = lambda image, **_: image,
) -> Tensor:
    """Do what `full_image` does, at a half, a quarter or an eighth of the size of a large JPEG.

    Both sides have ``least`` pixels or more then. What is to be done ``then`` with an image is
    told that it is ``small`` where it was large.
    """
    if dataset.image_form.encoding is not ImageEncoding.ENCODED:
        return full_image(dataset, features)
    data = features[dataset.image_feature]
    is_jpeg = tf.equal(tf.strings.substr(data, 0, len(_JPEG)), _JPEG)
    none = tf.zeros([2], tf.int32)
    shape = tf.cond(is_jpeg, lambda: tf.image.extract_jpeg_shape(data)[:2], lambda: none)
    # libjpeg rounds sides up, and its last pixels may be of a single one: images were stretched by
    # up to a pixel. By sides to the nearest, they are neither stretched nor cut in the mean.
    sides = [(shape + ratio // 2) // ratio for ratio in _RATIOS]

    def small(ratio: int, height: Tensor, width: Tensor) -> Callable[[], Tensor]:
        def decode() -> Tensor:
            image = tf.io.decode_jpeg(data, channels=_RGB, ratio=ratio)
            return then(image[:height, :width], small=True)

        return decode

    ways = [small(ratio, *tf.unstack(both)) for ratio, both in zip(_RATIOS, sides, strict=True)]
    enough = tf.reduce_min(sides, axis=1) >= least
    which = tf.reduce_sum(tf.cast(enough, tf.int32))
    return tf.switch_case(which, [lambda: then(full_image(dataset, features)), *ways])


def rounded(pixels: Tensor) -> Tensor:
    """Return pixels from 0 to 255, float32, as uint8; what is halfway between two goes up."""
    return tf.cast(pixels + 0.5, tf.uint8)


def decoder(
    dataset: Dataset,
    image_size: int,
    *,
    large: bool = False,
    fast: bool = False,
    floats: bool = False,
    first: Callable[[Tensor], Tensor] | None = None,
    parsed: bool = False,
) -> Callable[[Tensor], Batch]:
    """Return a function from a serialized record, string [], to an image and its label.

    The image is uint8 [image_size, image_size, 3], the label int64 [], or float32 [classes] of 0
    and 1 where an image may be of several classes. What the record holds must be right: a wrong
    label, too, is an ``InvalidArgumentError`` when the graph runs. A loss would not always tell: on
    some devices a number that is too high makes it NaN.

    With ``large`` images are expected to have many more pixels than are asked for; with ``fast``
    large JPEGs are decoded smaller. With ``floats`` images are float32, 0 to 255, and not rounded.
    This is what published pipelines do, and costs four times the memory; what is to be done
    ``first`` is done to the float32 pixels before they are resized. With ``parsed`` the function
    takes what a `parser` gives.
    """
    parse = None if parsed else parser(dataset)
    size = (image_size, image_size)

    def resized(image: Tensor, small: bool = not large) -> Tensor:
        # Of the kernels, that of float32 is faster by more than a float copy of a small image
        # takes; of a large one there is never such a copy. The result is the same, rounded to whole
        # grey levels.
        return rounded(tf.image.resize(tf.cast(image, tf.float32) if small else image, size))

    sized = partial(fast_image, least=image_size, then=resized) if fast else full_image

    def decode(record: Tensor) -> Batch:
        features = record if parse is None else parse(record)
        image = sized(dataset, features)
        fits = image.shape[:2] == size
        if first is not None:
            image = tf.image.resize(first(tf.cast(image, tf.float32)), size)
        elif floats:
            image = tf.cast(tf.image.resize(image, size), tf.float32)
        elif not fits:
            # An image that is known to have the size is left alone, which changes no pixel of it;
            # to ask each image while the graph runs costs more than it saves.
            image = resized(image)
        if image.shape[-1] <= 2:  # grey is repeated
            image = tf.tile(image[..., :1], [1, 1, _RGB])
        elif image.shape[-1] > _RGB:  # alpha is left out
            image = image[..., :_RGB]
        label = label_tensor(dataset.label_form, features[dataset.label_feature])
        return image, label

    return decode
