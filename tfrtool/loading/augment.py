"""Lists of augmentations: parsed from ``--augment``, and applied to batches by a seed.

Each augmentation is declared in `augmentations.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tfrtool.errors import UsageError
from tfrtool.loading.augmentations import (
    AUGMENTATIONS,
    BEFORE_RESIZE,
    DATASET_MEAN,
    METHOD_STREAM,
    PARTNER_STREAM,
    AugmentSpec,
    Draws,
    Stage,
    Value,
)
from tfrtool.loading.tensors import Tensor

_SPECS = {spec.name: spec for spec in AUGMENTATIONS}

_Stages = tuple[list[tuple[AugmentSpec, Any]], ...]
"""The augmentations of some stages, with their values."""


@dataclass(frozen=True, slots=True)
class Augment:
    """Random changes of images, drawn for each image and epoch."""

    changes: tuple[tuple[str, Value], ...]
    """Names of augmentations and their values, in the order of `AUGMENTATIONS`."""

    @property
    def mixes(self) -> bool:
        """Whether images and labels of a batch are mixed."""
        return bool(self.at(Stage.MIX))

    def at(self, stage: Stage, *, before_resize: bool = False) -> list[tuple[AugmentSpec, Any]]:
        """Return the augmentations of a stage, with their values."""
        chosen = [(_SPECS[name], value) for name, value in self.changes]
        return [
            (spec, value)
            for spec, value in chosen
            if spec.stage is stage and (BEFORE_RESIZE in spec.split(value)[1]) == before_resize
        ]

    @property
    def needs_mean(self) -> bool:
        """Whether the mean of the dataset covers a part of the images."""
        return self._has_word(DATASET_MEAN)

    @property
    def is_before_resize(self) -> bool:
        """Whether something changes images before they are resized."""
        return self._has_word(BEFORE_RESIZE)

    def _has_word(self, word: str) -> bool:
        return any(word in _SPECS[name].split(value)[1] for name, value in self.changes)

    def __str__(self) -> str:
        """Return what `parse_augment` makes this from."""
        return ",".join(_SPECS[name].to_text(value) for name, value in self.changes)


def parse_augment(text: str) -> Augment:
    """Parse names separated by commas, some with ``=NUMBER``, such as ``flip,rotate=40,hue``.

    The order has no meaning. It is a `UsageError` if a name is unknown or repeated, or a number is
    missing or out of range.
    """
    values: dict[str, Value] = {}
    for part in text.split(","):
        name, equals, number = (word.strip() for word in part.partition("="))
        if name not in _SPECS:
            expected = ", ".join(spec.notation for spec in AUGMENTATIONS)
            raise UsageError(f"invalid --augment {name!r}", expected=expected)
        if name in values:
            raise UsageError(f"--augment has {name} twice")
        values[name] = _SPECS[name].parse(number if equals else None)
    return Augment(tuple((name, values[name]) for name in _SPECS if name in values))


def as_augment(augment: Augment | str | None) -> Augment | None:
    """Return an augmentation, parsed if it is text."""
    return parse_augment(augment) if isinstance(augment, str) else augment


def augment_help() -> str:
    """Return the help of ``--augment``."""
    *names, last = (
        spec.name if spec.default else f"{spec.name}={spec.unit}" for spec in AUGMENTATIONS
    )
    return (
        f"Random augmentation, such as flip,rotate=40. Choose from {', '.join(names)} and {last}."
    )


def augmenter(
    augment: Augment, mean: tuple[float, ...] | None = None
) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the function that changes a batch of images at random.

    It takes images, uint8 or float32 [n, h, w, channels] with values 0..255 and only n unknown, and
    a seed, int64 [2]. It returns images of the same dtype and shape; float32 if it uses ``mean``,
    the pixel that the model gets as 0. Each image is changed in its own way, and the same images
    and seed give the same result in any process. `UsageError` if the images are too small for a
    crop or a cutout, gray and colors are to change, or ``mean`` is missing.
    """
    import tensorflow as tf

    if augment.needs_mean and mean is None:
        raise UsageError(f"--augment cutout with {DATASET_MEAN} requires rescaled pixels")

    def apply(images: Tensor, seed: Tensor) -> Tensor:
        shape, dtype = images.shape, images.dtype
        _check_shape(augment, shape)
        images = _changed(augment.at(Stage.MOVE), images, seed)
        images = _recolor(augment, images, seed)
        if images.dtype != dtype:
            images = tf.cast(images + 0.5, tf.uint8)
        if augment.needs_mean:  # no whole number
            images = tf.cast(images, tf.float32)
        images = _changed(augment.at(Stage.COVER), images, seed, mean=mean)
        return tf.ensure_shape(images, shape)

    return apply


def _changed(
    chosen: list[tuple[AugmentSpec, Any]], images: Tensor, seed: Tensor, **facts: Any
) -> Tensor:
    """Return a batch with some augmentations applied, one after the other."""
    import tensorflow as tf

    for spec, value in chosen:
        number, words = spec.split(value)
        draws = Draws(seed, spec.streams, tf.shape(images)[0])
        images = spec.apply(images, number, draws, *words, **facts)
    return images


def _check_shape(augment: Augment, shape: Any) -> None:
    height, width, channels = shape[1:]
    _check_channels(augment.at(Stage.COLOR), channels)
    for name, value in augment.changes:
        spec = _SPECS[name]
        pixels, _ = spec.split(value)
        if spec.in_pixels and pixels >= min(height, width):
            what = f"--augment {name}={pixels} must be less than the image size"
            raise UsageError(f"{what}, {min(height, width)}")


def _check_channels(colors: list[tuple[AugmentSpec, Any]], channels: int) -> None:
    if colors and channels == 1:
        raise UsageError(f"--augment {colors[0][0].name} requires --channels 3")


def _recolor(augment: Augment, images: Tensor, seed: Tensor) -> Tensor:
    """Change light and color of each image."""
    import tensorflow as tf

    stages = augment.at(Stage.LIGHT), augment.at(Stage.COLOR)
    if not any(stages):
        return images
    numbers = _drawn(stages, seed, tf.shape(images)[0])
    images = tf.cast(images, tf.float32)
    spec = tf.TensorSpec(images.shape[1:], tf.float32)
    return tf.map_fn(
        lambda item: _recolored(stages, *item), (images, numbers), fn_output_signature=spec
    )


def early_recolorer(augment: Augment) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the function that changes light and color of an image before it is resized.

    It takes an image, uint8 or float32 [h, w, channels], and a seed, int64 [2], that no other image
    has. It returns float32.
    """
    import tensorflow as tf

    light = augment.at(Stage.LIGHT, before_resize=True)
    stages = light, augment.at(Stage.COLOR, before_resize=True)

    def apply(image: Tensor, seed: Tensor) -> Tensor:
        _check_channels(stages[1], image.shape[-1])
        numbers = _drawn(stages, seed, tf.constant(1))
        first = {name: drawn[0] for name, drawn in numbers.items()}
        return _recolored(stages, tf.cast(image, tf.float32), first)

    return apply


def _drawn(stages: _Stages, seed: Tensor, count: Tensor) -> dict[str, Tensor]:
    """Return a number for each image and augmentation."""
    return {
        spec.name: Draws(seed, spec.streams, count).uniform(*spec.limits_of(value))
        for stage in stages
        for spec, value in stage
    }


def _recolored(stages: _Stages, image: Tensor, number_of: Mapping[str, Tensor]) -> Tensor:
    import tensorflow as tf

    for stage in stages:
        for spec, _ in stage:
            image = spec.apply(image, number_of[spec.name])
        image = tf.clip_by_value(image, 0.0, 255.0)
    return image


def mixer(augment: Augment) -> Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return the function that mixes each image of a batch with another one, and their labels.

    It takes images as `augmenter` does, labels, float32 [n, classes], and a seed. The weight of an
    image is its share of the pixels. With several methods, each batch has one of them at random.
    """
    import tensorflow as tf

    def apply(images: Tensor, labels: Tensor, seed: Tensor) -> tuple[Tensor, Tensor]:
        count = tf.shape(images)[0]
        order = tf.argsort(Draws(seed, (PARTNER_STREAM,), count).uniform(0.0, 1.0), stable=True)
        others = tf.gather(images, order)

        def method(spec: AugmentSpec, value: Any) -> Callable[[], tuple[Tensor, Tensor]]:
            return lambda: spec.apply(images, others, value, Draws(seed, spec.streams, count))

        methods = [method(spec, value) for spec, value in augment.at(Stage.MIX)]
        if len(methods) == 1:
            mixed, share = methods[0]()
        else:
            index = Draws(seed, (METHOD_STREAM,), 1).integers(len(methods))[0]
            mixed, share = tf.switch_case(index, methods)
        weight = share[:, None]
        return mixed, labels * weight + tf.gather(labels, order) * (1 - weight)

    return apply
