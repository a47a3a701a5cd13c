"""Random changes of batches of images, as a function of a seed.

Flip, crop and cutout are done to a whole batch at once, by copies of rows and columns; rotation and
colors are done with tf.image's own kernels. Values run from 0 to 255.
"""

import math
from collections.abc import Callable

import tensorflow as tf

from tfrtool.errors import UsageError
from tfrtool.loading.options import Augment
from tfrtool.loading.tensors import Tensor

_GRAY = 128
"""The middle of the range: about 0 for a model whose input is centered, as after per-channel
normalization in the paper on cutout, and near the mean of photographs (ImageNet's: 124, 116, 104).
"""

_DRAWS = (
    *("flip", "flip_vertical", "rotate", "crop row", "crop column", "cutout row", "cutout column"),
    *("brightness", "contrast", "saturation", "hue"),
    *("method", "partner", "share", "other share", "mix row", "mix column"),
)
"""What is drawn. Each has a stream of random numbers of its own, by its place here."""


def augmenter(augment: Augment) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the function that changes a batch of images at random.

    It takes images, uint8 or float32 [n, h, w, channels] with values 0..255 and only n unknown, and
    a seed, int64 [2]. It returns images of the same dtype and shape. Each image is changed in its
    own way, and the same images and seed give the same result in any process. `UsageError` if the
    images are too small for a crop or a cutout, or gray and colors are to change.
    """

    def apply(images: Tensor, seed: Tensor) -> Tensor:
        shape, dtype = images.shape, images.dtype
        if shape[-1] == 1 and (augment.saturation or augment.hue):
            raise UsageError("--augment saturation and hue require --channels 3")
        for name, pixels in (("crop", augment.crop), ("cutout", augment.cutout)):
            if pixels >= min(shape[1:3]):
                raise UsageError(
                    f"--augment {name}={pixels} must be less than the image size, {min(shape[1:3])}"
                )
        images = _flip_and_crop(images, seed, augment)
        if augment.rotate:
            images = _rotate(tf.cast(images, tf.float32), seed, augment.rotate)
        images = _recolor(images, seed, augment)
        if images.dtype != dtype:
            images = tf.cast(images + 0.5, tf.uint8)
        if augment.cutout:
            images = _cut_out(images, seed, augment)
        return tf.ensure_shape(images, shape)

    return apply


def mixer(augment: Augment) -> Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return the function that mixes each image of a batch with another one, and their labels.

    It takes images as `augmenter` does, labels, float32 [n, classes], and a seed. The weight of an
    image is its share of the pixels. With both methods, each batch has one of them at random.

    H. Zhang et al., "mixup: Beyond Empirical Risk Minimization", 2018; S. Yun et al., "CutMix:
    Regularization Strategy to Train Strong Classifiers with Localizable Features", 2019.
    """

    def mixup(images: Tensor, others: Tensor, seed: Tensor) -> tuple[Tensor, Tensor]:
        share = _beta(seed, tf.shape(images)[0], augment.mixup)
        weight = share[:, None, None, None]
        mixed = tf.cast(images, tf.float32) * weight + tf.cast(others, tf.float32) * (1 - weight)
        return tf.cast(mixed + 0.5 if images.dtype == tf.uint8 else mixed, images.dtype), share

    def cutmix(images: Tensor, others: Tensor, seed: Tensor) -> tuple[Tensor, Tensor]:
        count = tf.shape(images)[0]
        part = tf.sqrt(1 - _beta(seed, count, augment.cutmix)) / 2

        def covered(draw: str, size: int) -> Tensor:
            center = _uniform(seed, draw, count, 0.0, 1.0)[:, None]
            place = (tf.range(size, dtype=tf.float32) + 0.5) / size
            return tf.abs(place - center) < part[:, None]

        rows, columns = (covered(f"mix {name}", size) for name, size in _sides(images))
        inside = rows[:, :, None, None] & columns[:, None, :, None]
        share = 1 - tf.reduce_mean(tf.cast(inside, tf.float32), [1, 2, 3])
        return tf.where(inside, others, images), share

    def apply(images: Tensor, labels: Tensor, seed: Tensor) -> tuple[Tensor, Tensor]:
        order = tf.argsort(_uniform(seed, "partner", tf.shape(images)[0], 0.0, 1.0), stable=True)
        made = images, tf.gather(images, order), seed
        if augment.mixup and augment.cutmix:
            first = _uniform(seed, "method", 1, 0.0, 1.0)[0] < 0.5
            mixed, share = tf.cond(first, lambda: mixup(*made), lambda: cutmix(*made))
        else:
            mixed, share = (mixup if augment.mixup else cutmix)(*made)
        weight = share[:, None]
        return mixed, labels * weight + tf.gather(labels, order) * (1 - weight)

    return apply


def _sides(images: Tensor) -> list[tuple[str, int]]:
    return list(zip(("row", "column"), images.shape[1:3], strict=True))


def _beta(seed: Tensor, count: Tensor, alpha: float) -> Tensor:
    """Return numbers from 0 to 1 with the distribution Beta(alpha, alpha): float32 [count]."""
    first, second = (
        tf.random.stateless_gamma(
            [count],
            tf.random.experimental.stateless_fold_in(seed, _DRAWS.index(name)),
            alpha,
            dtype=tf.float64,
        )
        for name in ("share", "other share")
    )
    return tf.cast(tf.math.divide_no_nan(first, first + second), tf.float32)


def _uniform(seed: Tensor, draw: str, count: Tensor, low: float, high: float) -> Tensor:
    """Return numbers from ``low`` up to, but not including, ``high``: float32 [count]."""
    # Adding the number of the draw to a seed could meet another batch's seed; folding it in can't.
    folded = tf.random.experimental.stateless_fold_in(seed, _DRAWS.index(draw))
    # The default algorithm depends on the device, and a seed must mean the same on all of them.
    return tf.random.stateless_uniform([count], folded, low, high, alg="philox")


def _whole(seed: Tensor, draw: str, count: Tensor, choices: int) -> Tensor:
    """Return whole numbers from 0 up to, but not including, ``choices``: int32 [count]."""
    numbers = tf.cast(_uniform(seed, draw, count, 0.0, float(choices)), tf.int32)
    return tf.minimum(numbers, choices - 1)  # in float32 a product can be rounded up to `choices`


def _flip_and_crop(images: Tensor, seed: Tensor, augment: Augment) -> Tensor:
    """Flip and shift each image; beyond its edges an image continues as its reflection."""
    count, crop = tf.shape(images)[0], augment.crop
    _, height, width, channels = images.shape
    source = tf.range(count)
    if augment.flip:
        # The kernel has a fast path for three dimensions with the channels last.
        lines = tf.reverse(tf.reshape(images, [-1, width, channels]), [1])
        images = tf.concat([images, tf.reshape(lines, [-1, height, width, channels])], 0)
        source += tf.where(_uniform(seed, "flip", count, 0.0, 1.0) < 0.5, count, 0)
    rows = tf.tile(tf.range(height)[None], [count, 1])
    if crop:
        shift = _whole(seed, "crop row", count, 2 * crop + 1) - crop
        rows = height - 1 - tf.abs(height - 1 - tf.abs(rows + shift[:, None]))
    if augment.flip_vertical:
        flipped = _uniform(seed, "flip_vertical", count, 0.0, 1.0) < 0.5
        rows = tf.where(flipped[:, None], height - 1 - rows, rows)
    if augment.flip or augment.flip_vertical or crop:  # a choice of whole rows, one copy each
        lines = tf.reshape(images, [-1, width * channels])
        picked = tf.gather(lines, source[:, None] * height + rows)
        images = tf.reshape(picked, [-1, height, width, channels])
    if not crop:
        return images
    left, right = images[:, :, 1 : crop + 1], images[:, :, -crop - 1 : -1]
    padded = tf.concat([tf.reverse(left, [2]), images, tf.reverse(right, [2])], 2)

    def cut(number_and_start: Tensor) -> Tensor:  # a gather of pixels takes three times as long
        number, start = number_and_start
        return tf.slice(padded, [number, 0, start, 0], [1, height, width, channels])[0]

    starts = _whole(seed, "crop column", count, 2 * crop + 1)
    spec = tf.TensorSpec([height, width, channels], images.dtype)
    return tf.map_fn(cut, (tf.range(count), starts), fn_output_signature=spec)


def _rotate(images: Tensor, seed: Tensor, degrees: float) -> Tensor:
    """Rotate float32 images about their centers, by bilinear interpolation."""
    count, most = tf.shape(images)[0], math.radians(degrees)
    y, x = ((size - 1) / 2 for size in images.shape[1:3])
    angle = _uniform(seed, "rotate", count, -most, most)
    cosine, sine = tf.cos(angle), tf.sin(angle)
    zero = tf.zeros_like(cosine)
    start_x, start_y = x - cosine * x + sine * y, y - sine * x - cosine * y
    # Its uint8 kernel isn't faster, and cuts fractions off, which darkens images by half a step.
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=images,
        transforms=tf.stack([cosine, -sine, start_x, sine, cosine, start_y, zero, zero], 1),
        output_shape=images.shape[1:3],
        fill_value=0.0,
        interpolation="BILINEAR",
        fill_mode="REFLECT",
    )


def _recolor(images: Tensor, seed: Tensor, augment: Augment) -> Tensor:
    """Change brightness, contrast, saturation and hue of each image, as tf.image does."""
    count = tf.shape(images)[0]
    drawn = {}
    for name, middle in (("brightness", 0), ("contrast", 1), ("saturation", 1), ("hue", 0)):
        most = getattr(augment, name)
        if most:
            low, high = most if isinstance(most, tuple) else (middle - most, middle + most)
            drawn[name] = _uniform(seed, name, count, low, high)
    if not drawn:
        return images

    def change(image_and_numbers: Tensor) -> Tensor:
        image, numbers = image_and_numbers
        if "brightness" in numbers:
            image = image + numbers["brightness"] * 255
        if "contrast" in numbers:
            image = tf.image.adjust_contrast(image, numbers["contrast"])
        image = tf.clip_by_value(image, 0.0, 255.0)
        if "saturation" in numbers:
            image = tf.image.adjust_saturation(image, numbers["saturation"])
        if "hue" in numbers:
            image = tf.image.adjust_hue(image, numbers["hue"])
        return tf.clip_by_value(image, 0.0, 255.0)

    images = tf.cast(images, tf.float32)
    spec = tf.TensorSpec(images.shape[1:], tf.float32)
    return tf.map_fn(change, (images, drawn), fn_output_signature=spec)


def _cut_out(images: Tensor, seed: Tensor, augment: Augment) -> Tensor:
    """Cover a square of each image.

    Its center is anywhere in the image, as in the paper: T. DeVries and G. W. Taylor, "Improved
    Regularization of Convolutional Neural Networks with Cutout", 2017.
    """
    count, side = tf.shape(images)[0], augment.cutout
    _, height, width, channels = images.shape
    fill = tf.cast(_GRAY if augment.fill == "gray" else 0, images.dtype)
    if augment.fill == "mean":
        means = tf.reduce_mean(tf.cast(images, tf.float32), [1, 2])
        means = tf.round(means) if images.dtype == tf.uint8 else means
        fill = tf.tile(tf.cast(means, images.dtype), [1, width])[:, None]
    top = _whole(seed, "cutout row", count, height) - side // 2
    left = _whole(seed, "cutout column", count, width) - side // 2
    # Only the rows of the square are read and written. Where an edge cuts it off, the row at the
    # edge stands in for those outside: it is written again, with the same pixels.
    rows = tf.clip_by_value(top[:, None] + tf.range(side), 0, height - 1)
    rows += tf.range(count)[:, None] * height
    columns = tf.repeat(tf.range(width), channels) - left[:, None]
    inside = tf.logical_and(columns >= 0, columns < side)
    table = tf.reshape(images, [-1, width * channels])
    touched = tf.where(inside[:, None], fill, tf.gather(table, rows))
    table = tf.tensor_scatter_nd_update(table, rows[..., None], touched)
    return tf.reshape(table, [-1, height, width, channels])
