"""The random changes of images that ``--augment`` offers, each declared once in `AUGMENTATIONS`.

Parsing, errors, the help of ``--augment``, its table in the documentation and most tests follow
from the declarations. The functions import TensorFlow when they are called: the command line reads
this module for its help.
"""

import contextlib
import enum
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tfrtool.errors import UsageError
from tfrtool.images.recipe import LARGEST_SIDE
from tfrtool.loading.tensors import Tensor

Value = bool | int | float | tuple[float | str, ...]
"""True, a number, a range, or one of these and words."""

_PIXELS = "PIXELS"
DATASET_MEAN = "dataset-mean"
BEFORE_RESIZE = "before-resize"
_WHEN = (("after-resize", BEFORE_RESIZE),)

_GRAY = 128
"""The middle of the range: about 0 for a model whose input is centered, as after per-channel
normalization in the paper on cutout, and near the mean of photographs (ImageNet's: 124, 116, 104).
"""


class Stage(enum.Enum):
    """When an augmentation is applied, and what its function takes. Values run from 0 to 255."""

    MOVE = "move"
    """First: ``apply(images, number, draws, *words)`` returns the images of a batch, uint8 or
    float32 [n, h, w, channels] with only n unknown. It may return float32 for uint8."""
    LIGHT = "light"
    """``apply(image, number)`` returns an image, float32 [h, w, channels], whose values may leave
    the range. The number is drawn for each image. A word says whether it is already resized."""
    COLOR = "color"
    """As `LIGHT`, for RGB images whose values are within the range."""
    COVER = "cover"
    """As `MOVE`, once values are rounded, and without a change of the dtype. The function also
    takes ``mean``, the pixel that the model gets as 0, or None."""
    MIX = "mix"
    """Last: ``apply(images, others, number, draws)`` returns a batch mixed with other images, and
    the share of the first ones, float32 [n]. Each batch is mixed by one method."""


@dataclass(frozen=True, slots=True)
class Draws:
    """Random numbers for the images of a batch. Each stream is independent of all others."""

    seed: Tensor  # int64 [2]
    streams: tuple[int, ...]
    count: Tensor

    def _seed(self, index: int) -> Tensor:
        import tensorflow as tf

        # Adding the stream to a seed could meet another batch's seed; folding it in can't.
        return tf.random.experimental.stateless_fold_in(self.seed, self.streams[index])

    def uniform(self, low: float, high: float, index: int = 0) -> Tensor:
        """Return numbers from ``low`` up to, but not including, ``high``: float32 [count]."""
        import tensorflow as tf

        # The default algorithm depends on the device, and a seed must mean the same on all of them.
        return tf.random.stateless_uniform([self.count], self._seed(index), low, high, alg="philox")

    def integers(self, choices: int, index: int = 0) -> Tensor:
        """Return integers from 0 up to, but not including, ``choices``: int32 [count]."""
        import tensorflow as tf

        numbers = tf.cast(self.uniform(0.0, float(choices), index), tf.int32)
        return tf.minimum(numbers, choices - 1)  # float32 can round a product up to `choices`

    def beta(self, alpha: float) -> Tensor:
        """Return numbers from 0 to 1 with the distribution Beta(alpha, alpha): float32 [count]."""
        import tensorflow as tf

        first, second = (
            tf.random.stateless_gamma([self.count], self._seed(index), alpha, dtype=tf.float64)
            for index in (0, 1)
        )
        return tf.cast(tf.math.divide_no_nan(first, first + second), tf.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class AugmentSpec:
    """Declaration of an augmentation: its notation, and the function that applies it."""

    name: str
    help: str
    stage: Stage
    streams: tuple[int, ...]
    """Numbers of its random streams, which no other augmentation has. They never change: the same
    seed must give the same images in every version."""
    apply: Callable[..., Any]
    kind: type = float
    """bool without a number, int or float."""
    most: float = 1
    """The largest number."""
    unit: str = ""
    """The number in messages. PIXELS must be fewer than those of the image's shorter side."""
    default: float = 0
    """The number where the list has only the name; 0 if it is required."""
    neutral: float = 0
    """What changes nothing. A number is the largest distance from it."""
    widest: tuple[float, float] | None = None
    """The widest range that LOW:HIGH may give. None if only a number is allowed."""
    words: tuple[tuple[str, ...], ...] = ()
    """Words that may follow the number and colons, one of each group. The first is the default."""

    @property
    def in_pixels(self) -> bool:
        """Whether the number must be less than the image's shorter side."""
        return self.unit == _PIXELS

    @property
    def notation(self) -> str:
        """How it is spelled in a list, such as ``hue[=AMOUNT|LOW:HIGH]``."""
        if self.kind is bool:
            return self.name
        number = f"={self.unit}" + ("|LOW:HIGH" if self.widest else "")
        number += "".join(f"[:{'|'.join(group)}]" for group in self.words)
        return f"{self.name}[{number}]" if self.default else f"{self.name}{number}"

    def parse(self, text: str | None) -> Value:
        """Return the value of the text after "=", or of None without one; or a `UsageError`."""
        numbers, chosen = [] if text is None else text.split(":"), dict[tuple[str, ...], str]()
        for word in reversed(numbers[1:]):
            group = next((group for group in self.words if word in group), None)
            if group is None or group in chosen:
                break
            chosen[group] = numbers.pop()
        parse = self._parse_range if len(numbers) > 1 else self._parse_number
        value: Any = parse(text, *numbers)
        words = tuple(chosen.get(group, group[0]) for group in self.words)
        if words != self._default_words:
            value = (*(value if isinstance(value, tuple) else (value,)), *words)
        found: Value = value
        return found

    def _parse_number(self, text: str | None, number: str | None = None) -> bool | int | float:
        value: Any = self.default
        if number is not None:
            try:
                value = 0 if self.kind is bool else self.kind(number)
            except ValueError:
                value = 0
        if not 0 < value <= self.most:
            expected = self.notation
            if self.kind is not bool:
                noun = "a whole number " if self.kind is int else ""
                expected += f", {noun}above 0 and up to {self.most:,g}"
            raise self._invalid(text, expected)
        found: float = self.kind(value)
        return found

    def _parse_range(self, text: str | None, *ends: str) -> tuple[float, float]:
        """Return a range that need not be symmetric, such as ``contrast=0.75:1.5``."""
        if self.widest is None:
            raise self._invalid(text, self.notation)
        least, most = self.widest
        with contextlib.suppress(ValueError):
            low, high = map(float, ends)
            if least <= low < high <= most:
                return low, high
        raise self._invalid(text, f"LOW:HIGH from {least:g} to {most:g}")

    @property
    def _default_words(self) -> tuple[str, ...]:
        return tuple(group[0] for group in self.words)

    def split(self, value: Any) -> tuple[Any, tuple[str, ...]]:
        """Return the number or the range of a value, and a word of each group."""
        if not isinstance(value, tuple):
            return value, self._default_words
        numbers = tuple(part for part in value if not isinstance(part, str))
        words = value[len(numbers) :] or self._default_words
        return numbers if len(numbers) > 1 else numbers[0], words

    def _invalid(self, text: str | None, expected: str) -> UsageError:
        part = self.name if text is None else f"{self.name}={text}"
        return UsageError(f"invalid --augment {part!r}", expected=expected)

    def to_text(self, value: Value) -> str:
        """Return the text that `parse` reads as this value, with the name."""
        number, words = self.split(value)
        words = tuple(word for word in words if word not in self._default_words)
        if number == self.default and not words:
            return self.name
        parts = (*(number if isinstance(number, tuple) else (number,)), *words)
        return f"{self.name}={':'.join(str(part).removesuffix('.0') for part in parts)}"

    def limits_of(self, value: Any) -> tuple[float, float]:
        """Return the range from which the number for each image is drawn."""
        number, _ = self.split(value)
        return (
            number if isinstance(number, tuple) else (self.neutral - number, self.neutral + number)
        )


def _flip(images: Tensor, _: Value, draws: Draws) -> Tensor:
    import tensorflow as tf

    # The kernel has a fast path for three dimensions with the channels last.
    height, width, channels = images.shape[1:]
    lines = tf.reverse(tf.reshape(images, [-1, width, channels]), [1])
    both = tf.concat([images, tf.reshape(lines, [-1, height, width, channels])], 0)
    flipped = draws.uniform(0.0, 1.0) < 0.5
    # To copy images takes a seventh of the time of a choice for each pixel.
    return tf.gather(both, tf.range(draws.count) + tf.where(flipped, draws.count, 0))


def _flip_vertical(images: Tensor, _: Value, draws: Draws) -> Tensor:
    import tensorflow as tf

    _, height, width, channels = images.shape
    flipped = draws.uniform(0.0, 1.0) < 0.5
    rows = tf.range(height)
    rows = tf.where(flipped[:, None], height - 1 - rows, rows)
    lines = tf.reshape(images, [-1, width * channels])  # each row of pixels is one copy
    lines = tf.gather(lines, tf.range(draws.count)[:, None] * height + rows)
    return tf.reshape(lines, [-1, height, width, channels])


def _crop(images: Tensor, crop: int, draws: Draws) -> Tensor:
    """Shift each image; beyond its edges an image continues as its reflection."""
    import tensorflow as tf

    _, height, width, channels = images.shape

    def shift(image_and_shifts: Tensor) -> Tensor:
        image, down, right = image_and_shifts
        rows = tf.range(height) + down - crop
        image = tf.gather(image, height - 1 - tf.abs(height - 1 - tf.abs(rows)))
        # A gather of columns takes three times as long.
        edges = image[:, 1 : crop + 1], image[:, -crop - 1 : -1]
        before, after = (tf.reverse(edge, [1]) for edge in edges)
        padded = tf.concat([before, image, after], 1)
        return tf.slice(padded, [0, right, 0], [height, width, channels])

    shifts = (draws.integers(2 * crop + 1, index) for index in (0, 1))
    spec = tf.TensorSpec([height, width, channels], images.dtype)
    return tf.map_fn(shift, (images, *shifts), fn_output_signature=spec)


_FILL_MODES = {"reflect": "REFLECT", "black": "CONSTANT", "edge": "NEAREST"}
_SAMPLING = (("bilinear", "nearest"), tuple(_FILL_MODES))
"""Words for how pixels between others are read, and what uncovered areas show."""


def _rotate(images: Tensor, degrees: float, draws: Draws, interpolation: str, fill: str) -> Tensor:
    """Rotate images about their centers."""
    import tensorflow as tf

    largest = math.radians(degrees)
    y, x = ((size - 1) / 2 for size in images.shape[1:3])
    angle = draws.uniform(-largest, largest)
    cosine, sine = tf.cos(angle), tf.sin(angle)
    start_x, start_y = x - cosine * x + sine * y, y - sine * x - cosine * y
    rows = [cosine, -sine, start_x, sine, cosine, start_y]
    return _transform(images, rows, interpolation, fill)


def _zoom(images: Tensor, amount: float, draws: Draws, interpolation: str, fill: str) -> Tensor:
    """Scale images about their centers, width and height each by its own factor."""
    import tensorflow as tf

    y, x = ((size - 1) / 2 for size in images.shape[1:3])
    down, across = (draws.uniform(1 - amount, 1 + amount, index) for index in (0, 1))
    zero = tf.zeros_like(down)
    rows = [across, zero, x - across * x, zero, down, y - down * y]
    return _transform(images, rows, interpolation, fill)


def _transform(images: Tensor, rows: list[Tensor], interpolation: str, fill: str) -> Tensor:
    """Return images whose pixels are read where two rows of a matrix say, for each image."""
    import tensorflow as tf

    zero = tf.zeros_like(rows[0])
    # Its uint8 kernel isn't faster, and cuts fractions off, which darkens images by half a step.
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=tf.cast(images, tf.float32),
        transforms=tf.stack([*rows, zero, zero], 1),
        output_shape=images.shape[1:3],
        fill_value=0.0,
        interpolation=interpolation.upper(),
        fill_mode=_FILL_MODES[fill],
    )


def _brightness(image: Tensor, delta: Tensor) -> Tensor:
    return image + delta * 255


def _contrast(image: Tensor, factor: Tensor) -> Tensor:
    import tensorflow as tf

    return tf.image.adjust_contrast(image, factor)


def _saturation(image: Tensor, factor: Tensor) -> Tensor:
    import tensorflow as tf

    return tf.image.adjust_saturation(image, factor)


def _hue(image: Tensor, turn: Tensor) -> Tensor:
    import tensorflow as tf

    return tf.image.adjust_hue(image, turn)


def _cutout(
    images: Tensor,
    side: int,
    draws: Draws,
    fill: str,
    position: str,
    *,
    mean: tuple[float, ...] | None,
) -> Tensor:
    """Cover a square of each image.

    By default its center is anywhere in the image, as in the paper: T. DeVries and G. W. Taylor,
    "Improved Regularization of Convolutional Neural Networks with Cutout", 2017.
    """
    import tensorflow as tf

    _, height, width, channels = images.shape
    color = tf.cast(_GRAY if fill == "gray" else 0, images.dtype)
    if fill == "mean":
        means = tf.reduce_mean(tf.cast(images, tf.float32), [1, 2])
        means = tf.round(means) if images.dtype == tf.uint8 else means
        color = tf.tile(tf.cast(means, images.dtype), [1, width])[:, None]
    if fill == DATASET_MEAN:
        color = tf.tile(tf.broadcast_to(tf.constant(mean, tf.float32), [channels]), [width])
    if position == "inside":
        top, left = draws.integers(height - side + 1), draws.integers(width - side + 1, 1)
    else:
        top, left = draws.integers(height) - side // 2, draws.integers(width, 1) - side // 2
    # Only the rows of the square are read and written. Where an edge cuts it off, the row at the
    # edge stands in for those outside: it is written again, with the same pixels.
    rows = tf.clip_by_value(top[:, None] + tf.range(side), 0, height - 1)
    rows += tf.range(draws.count)[:, None] * height
    columns = tf.repeat(tf.range(width), channels) - left[:, None]
    covered = tf.logical_and(columns >= 0, columns < side)
    table = tf.reshape(images, [-1, width * channels])
    changed = tf.where(covered[:, None], color, tf.gather(table, rows))
    table = tf.tensor_scatter_nd_update(table, rows[..., None], changed)
    return tf.reshape(table, [-1, height, width, channels])


def _mixup(images: Tensor, others: Tensor, alpha: float, draws: Draws) -> tuple[Tensor, Tensor]:
    """Average images.

    H. Zhang et al., "mixup: Beyond Empirical Risk Minimization", 2018.
    """
    import tensorflow as tf

    share = draws.beta(alpha)
    weight = share[:, None, None, None]
    mixed = tf.cast(images, tf.float32) * weight + tf.cast(others, tf.float32) * (1 - weight)
    return tf.cast(mixed + 0.5 if images.dtype == tf.uint8 else mixed, images.dtype), share


def _cutmix(images: Tensor, others: Tensor, alpha: float, draws: Draws) -> tuple[Tensor, Tensor]:
    """Replace a rectangle of each image.

    S. Yun et al., "CutMix: Regularization Strategy to Train Strong Classifiers with Localizable
    Features", 2019.
    """
    import tensorflow as tf

    half = tf.sqrt(1 - draws.beta(alpha)) / 2

    def covered(size: int, stream: int) -> Tensor:
        center = draws.uniform(0.0, 1.0, stream)[:, None]
        position = (tf.range(size, dtype=tf.float32) + 0.5) / size
        return tf.abs(position - center) < half[:, None]

    _, height, width, _ = images.shape
    rows, columns = covered(height, 2), covered(width, 3)
    rectangle = rows[:, :, None, None] & columns[:, None, :, None]
    share = 1 - tf.reduce_mean(tf.cast(rectangle, tf.float32), [1, 2, 3])
    return tf.where(rectangle, others, images), share


METHOD_STREAM, PARTNER_STREAM = 11, 12
"""Random streams for the method by which a batch is mixed, and for each image's partner."""

AUGMENTATIONS = (
    AugmentSpec(
        name="flip",
        help="Mirror half of the images, left to right.",
        kind=bool,
        default=True,
        streams=(0,),
        stage=Stage.MOVE,
        apply=_flip,
    ),
    AugmentSpec(
        name="flip-vertical",
        help="Mirror half of the images, top to bottom.",
        kind=bool,
        default=True,
        streams=(1,),
        stage=Stage.MOVE,
        apply=_flip_vertical,
    ),
    AugmentSpec(
        name="crop",
        help="Shift by up to PIXELS in each direction. Uncovered areas show the reflected image.",
        kind=int,
        unit=_PIXELS,
        most=LARGEST_SIDE,
        streams=(3, 4),
        stage=Stage.MOVE,
        apply=_crop,
    ),
    AugmentSpec(
        name="rotate",
        help="Rotate by up to DEGREES, either way. Uncovered areas show the reflected image, "
        "black, or the pixels at the edge. nearest takes the nearest pixel instead of a weighted "
        "mean.",
        unit="DEGREES",
        most=180,
        words=_SAMPLING,
        streams=(2,),
        stage=Stage.MOVE,
        apply=_rotate,
    ),
    AugmentSpec(
        name="zoom",
        help="Show 1 plus or minus up to this of the width and of the height, each drawn by "
        "itself. The words are the same as for rotate.",
        unit="AMOUNT",
        most=0.9,
        words=_SAMPLING,
        streams=(17, 18),
        stage=Stage.MOVE,
        apply=_zoom,
    ),
    # The default amounts are those of TF-Slim's inception_preprocessing.distort_color, which
    # trained the Inception models.
    AugmentSpec(
        name="brightness",
        help="Add or subtract up to this fraction of the full range.",
        unit="AMOUNT",
        default=0.125,
        widest=(-1, 1),
        streams=(7,),
        stage=Stage.LIGHT,
        words=_WHEN,
        apply=_brightness,
    ),
    AugmentSpec(
        name="contrast",
        help="Multiply distances from the mean of a channel by 1 plus or minus up to this.",
        unit="AMOUNT",
        default=0.5,
        neutral=1,
        widest=(0, 10),
        streams=(8,),
        stage=Stage.LIGHT,
        words=_WHEN,
        apply=_contrast,
    ),
    AugmentSpec(
        name="saturation",
        help="Multiply the saturation by 1 plus or minus up to this.",
        unit="AMOUNT",
        default=0.5,
        neutral=1,
        widest=(0, 10),
        streams=(9,),
        stage=Stage.COLOR,
        words=_WHEN,
        apply=_saturation,
    ),
    AugmentSpec(
        name="hue",
        help="Turn the hue by up to this fraction of the color circle, either way.",
        unit="AMOUNT",
        most=0.5,
        default=0.2,
        widest=(-0.5, 0.5),
        streams=(10,),
        stage=Stage.COLOR,
        words=_WHEN,
        apply=_hue,
    ),
    AugmentSpec(
        name="cutout",
        help="Cover a square of this side with gray, with black (zero), or with the mean color of "
        "the image or of the dataset. An edge may cut it off, unless it is inside.",
        kind=int,
        unit=_PIXELS,
        most=LARGEST_SIDE,
        words=(("gray", "zero", "mean", DATASET_MEAN), ("anywhere", "inside")),
        streams=(5, 6),
        stage=Stage.COVER,
        apply=_cutout,
    ),
    AugmentSpec(
        name="mixup",
        help="Blend each image with another one of its batch, and their labels with the same "
        "weights.",
        unit="ALPHA",
        most=10,
        streams=(13, 14),
        stage=Stage.MIX,
        apply=_mixup,
    ),
    AugmentSpec(
        name="cutmix",
        help="Replace a rectangle by the same part of another image of the batch, and weight the "
        "labels by their areas.",
        unit="ALPHA",
        most=10,
        streams=(13, 14, 15, 16),
        stage=Stage.MIX,
        apply=_cutmix,
    ),
)
"""All augmentations, in the order in which they are applied within a stage."""
