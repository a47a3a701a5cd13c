"""Random changes of batches of images, as a function of a seed.

Each does to one image what tf.image's function of its name does; here every image of a batch has a
number of its own, and values run from 0 to 255. Beyond its edges an image continues as its
reflection without the pixel at the edge, as `numpy.pad` does in mode "reflect".
"""

import math
from collections.abc import Callable

import tensorflow as tf

from tfrtool.errors import UsageError
from tfrtool.loading.options import Augment, LoadOptions
from tfrtool.loading.tensors import Batch, Tensor

_GREY = 128
"""The middle of the range: about 0 for a model whose input is centred, as after per-channel
normalisation in the paper on cutout, and near the mean of photographs (ImageNet's: 124, 116, 104).
"""

_DRAWS = (
    *("flip", "flip_vertical", "rotate", "crop row", "crop column", "cutout row", "cutout column"),
    *("brightness", "contrast", "saturation", "hue"),
)
"""What is drawn; each has a stream of its own, by its place here, and changes no other's."""


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
                    f"--augment {name}={pixels} must be less than the image size, {side}"
                )
        images = _recolour(_move(images, seed, augment), seed, augment)
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
    top = _whole(seed, "cutout row", count, height) - side // 2
    left = _whole(seed, "cutout column", count, width) - side // 2
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
    with tf.device("CPU:0"):  # where all of tf.data is
        return tf.Variable(options.first_epoch, dtype=tf.int64, trainable=False)


def epoch_augmenter(options: LoadOptions, pipeline: int = 0) -> Callable[..., Batch] | None:
    """Return a function that changes a batch, by the epoch's number and the batch's in it.

    Each of several pipelines, by its number from 0, makes other changes.
    """
    if options.augment is None or not options.training:
        return None
    change = augmenter(options.augment)
    first = tf.constant(options.seed + pipeline * 2**32, tf.int64)

    def apply(epoch: Tensor, number: Tensor, images: Tensor, labels: Tensor) -> Batch:
        seed = tf.stack([first, epoch * 2**32 + number])
        return change(images, seed), labels

    return apply


def _move(images: Tensor, seed: Tensor, augment: Augment) -> Tensor:
    """Flip, then shift, then rotate each image of a batch.

    Images are uint8 or float32 [n, h, w, 3], with h and w known. Without a rotation every pixel is
    one of the image's own. With one, the result is a bilinear interpolation of these, in float32.
    """
    count, crop = tf.shape(images)[0], augment.crop
    _, height, width, _ = images.shape
    flip, flip_vertical = (
        _uniform(seed, name, count, 0.0, 1.0) < 0.5 if getattr(augment, name) else None
        for name in ("flip", "flip_vertical")
    )
    rows, columns = (
        _whole(seed, name, count, 2 * crop + 1) - crop if crop else None
        for name in ("crop row", "crop column")
    )
    most = math.radians(augment.rotate)
    above, left = _reach(height, width, most), _reach(width, height, most)
    if flip is not None or flip_vertical is not None or crop or above:
        images = _pick_rows(images, flip, flip_vertical, rows, above)
    if crop or left:
        images = _pick_columns(images, columns, crop, left)
    if not most:
        return images
    angle = _uniform(seed, "rotate", count, -most, most)
    return _rotate(tf.cast(images, tf.float32), angle, height, width)


def _reach(side: int, other: int, most: float) -> int:
    """Return how many pixels beyond an edge a rotation by up to ``most`` radians reads."""
    if not most:
        return 0
    steepest = min(most, math.atan2(other - 1, side - 1))
    farthest = (side - 1) * math.cos(steepest) + (other - 1) * math.sin(steepest)
    return math.ceil((farthest - (side - 1)) / 2) + 1


def _reflected(places: Tensor, size: int) -> Tensor:
    """Return which of ``size`` pixels is at each place, as `numpy.pad` has it in mode "reflect"."""
    last = size - 1
    return last - tf.abs(last - tf.math.floormod(places, max(2 * last, 1)))


def _pick_rows(
    images: Tensor, flip: Tensor, flip_vertical: Tensor, down: Tensor, margin: int
) -> Tensor:
    """Flip both ways, shift up or down, and add ``margin`` rows at both edges.

    All of it is a choice of whole rows: one copy of memory each.
    """
    count = tf.shape(images)[0]
    _, height, width, channels = images.shape
    source = tf.range(count)
    if flip is not None:
        # The kernel has a fast path for three dimensions with the channels last.
        lines = tf.reshape(images, [-1, width, channels])
        mirrored = tf.reshape(tf.reverse(lines, [1]), [-1, height, width, channels])
        images = tf.concat([images, mirrored], 0)
        source = tf.where(flip, source + count, source)
    rows = tf.range(-margin, height + margin)[tf.newaxis]
    if down is not None:
        rows = rows + down[:, tf.newaxis]
    rows = _reflected(rows, height)
    if flip_vertical is not None:
        rows = tf.where(flip_vertical[:, tf.newaxis], height - 1 - rows, rows)
    lines = tf.reshape(images, [-1, width * channels])
    picked = tf.gather(lines, source[:, tf.newaxis] * height + rows)
    return tf.reshape(picked, [-1, height + 2 * margin, width, channels])


def _pick_columns(images: Tensor, columns: Tensor, most: int, margin: int) -> Tensor:
    """Shift images to the left by ``columns`` pixels, int32 [n], from -most to most.

    ``margin`` columns are added at both edges.
    """
    _, height, width, channels = images.shape
    beyond = most + margin
    if beyond < width:  # one reflection is enough; tf.pad takes twelve times as long for this
        left, right = images[:, :, 1 : beyond + 1], images[:, :, -beyond - 1 : -1]
        padded = tf.concat([tf.reverse(left, [2]), images, tf.reverse(right, [2])], 2)
    else:
        padded = tf.gather(images, _reflected(tf.range(-beyond, width + beyond), width), axis=2)
    if columns is None:
        return padded

    # A gather of pixels takes three times as long as these slices.
    def cut(number_and_start: Tensor) -> Tensor:
        number, start = number_and_start
        return tf.slice(padded, [number, 0, start, 0], [1, height, cut_width, channels])[0]

    cut_width = width + 2 * margin
    return tf.map_fn(
        cut,
        (tf.range(tf.shape(images)[0]), columns + most),
        fn_output_signature=tf.TensorSpec([height, cut_width, channels], images.dtype),
    )


def _rotate(images: Tensor, angle: Tensor, height: int, width: int) -> Tensor:
    """Rotate float32 images about their centres, and keep ``height`` x ``width`` pixels."""
    y, x = ((size - 1) / 2 for size in images.shape[1:3])
    below, right = (height - 1) / 2, (width - 1) / 2
    cosine, sine = tf.cos(angle), tf.sin(angle)
    zero = tf.zeros_like(cosine)
    # A pixel of the result, relative to the centre, is rotated to the place that it is read from.
    start_x = x - cosine * right + sine * below
    start_y = y - sine * right - cosine * below
    # Its uint8 kernel cuts fractions off, which darkens images by half a step, and is no faster.
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=images,
        transforms=tf.stack([cosine, -sine, start_x, sine, cosine, start_y, zero, zero], 1),
        output_shape=[height, width],
        fill_value=0.0,
        interpolation="BILINEAR",
        fill_mode="NEAREST",
    )


def _uniform(seed: Tensor, draw: str, count: Tensor, low: float, high: float) -> Tensor:
    """Return ``count`` numbers from ``low`` up to, and without, ``high``: float32 [count]."""
    # Adding the number of the draw to a seed could meet another batch's seed; folding it in can't.
    folded = tf.random.experimental.stateless_fold_in(seed, _DRAWS.index(draw))
    # The default algorithm depends on the device, and a seed must mean the same on all of them.
    return tf.random.stateless_uniform([count], folded, low, high, alg="philox")


def _whole(seed: Tensor, draw: str, count: Tensor, choices: int) -> Tensor:
    """Return ``count`` whole numbers from 0 up to, and without, ``choices``: int32 [count]."""
    numbers = tf.cast(_uniform(seed, draw, count, 0.0, float(choices)), tf.int32)
    # In float32, a product with a number just below 1 can round up to `choices`.
    return tf.minimum(numbers, choices - 1)


def _recolour(images: Tensor, seed: Tensor, augment: Augment) -> Tensor:
    """Change brightness, contrast, saturation and hue of each image, in this order.

    Images are uint8 or float32 [n, h, w, 3], 0..255, with h and w known; they are float32 if
    anything was done. Values are clipped to 0..255 after the contrast, where saturation and hue
    need them to be; those two don't leave that range, but for float32's last digit.
    """

    def drawn(name: str, middle: float, scale: float = 1.0) -> Tensor:
        """Return a number for each image, float32 [n, 1, 1]; None where nothing is done."""
        most = getattr(augment, name) * scale
        if not most:
            return None
        numbers = _uniform(seed, name, tf.shape(images)[0], middle - most, middle + most)
        return numbers[:, tf.newaxis, tf.newaxis]

    delta, factor = drawn("brightness", 0.0, 255), drawn("contrast", 1.0)
    saturation, hue = drawn("saturation", 1.0), drawn("hue", 0.0)
    if delta is not None or factor is not None:
        images = _stretch(tf.cast(images, tf.float32), delta, factor)
    if saturation is not None or hue is not None:
        images = _turn(tf.cast(images, tf.float32), saturation, hue)
    return images


def _stretch(images: Tensor, delta: Tensor, factor: Tensor) -> Tensor:
    """Add ``delta``, then multiply the distance from each channel's mean by ``factor``."""
    _, height, width, channels = images.shape
    # Rows as they lie in memory: broadcasting over a last dimension of 3 takes four times as long.
    rows = tf.reshape(images, [-1, height, width * channels])
    shift = 0.0 if delta is None else delta
    if factor is not None:
        columns = tf.reshape(tf.reduce_mean(rows, 1), [-1, width, channels])
        means = tf.tile(tf.reduce_mean(columns, 1), [1, width])[:, tf.newaxis]
        # With m the mean, (x + shift - (m + shift)) * factor + m + shift.
        rows = rows * factor
        shift = shift + means * (1.0 - factor)
    rows = tf.clip_by_value(rows + shift, 0.0, 255.0)
    return tf.reshape(rows, [-1, height, width, channels])


def _turn(images: Tensor, saturation: Tensor, hue: Tensor) -> Tensor:
    """Multiply the saturation, and turn the hue, without leaving red, green and blue.

    With v the largest of a pixel's three values and c its distance to the smallest, the saturation
    is c / v. Changing it at the same hue and v multiplies all three distances from v by the same
    number.
    """
    # One plane a channel: reducing over a last dimension of 3 is slow.
    red, green, blue = tf.unstack(images, axis=-1)
    value = tf.maximum(tf.maximum(red, green), blue)
    chroma = value - tf.minimum(tf.minimum(red, green), blue)
    # A saturation of 1 is the most.
    new_chroma = chroma if saturation is None else tf.minimum(chroma * saturation, value)
    if hue is None:
        ratio = tf.math.divide_no_nan(new_chroma, chroma)
        planes = [value - (value - plane) * ratio for plane in (red, green, blue)]
    else:
        # The hue in sixths of the circle, 0 of what is grey, by the formulae of A. R. Smith,
        # "Color Gamut Transform Pairs", SIGGRAPH 1978.
        from_blue = tf.where(value == green, 2 * chroma + (blue - red), 4 * chroma + (red - green))
        before = tf.where(value == red, green - blue, from_blue)
        turned = tf.math.floormod(tf.math.divide_no_nan(before, chroma) + 6 * hue, 6.0)
        parts = tf.abs(turned - 3) - 1, 2 - tf.abs(turned - 2), 2 - tf.abs(turned - 4)
        least = value - new_chroma
        planes = [least + new_chroma * tf.clip_by_value(part, 0.0, 1.0) for part in parts]
    # tf.stack on the last axis takes three times as long.
    return tf.transpose(tf.stack(planes, 1), [0, 2, 3, 1])
