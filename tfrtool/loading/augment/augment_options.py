"""How images are changed at random while a model is trained."""

from __future__ import annotations

from dataclasses import dataclass, fields

from tfrtool.errors import UsageError

__all__ = ["Augment", "parse_augment"]

_LARGEST_SIDE = 16_384

_KINDS: dict[str, tuple[type, float, str, float | None]] = {
    "flip": (bool, 1, "", 1),
    "flip-vertical": (bool, 1, "", 1),
    "rotate": (float, 180, "DEGREES", None),
    "crop": (int, _LARGEST_SIDE, "PIXELS", None),
    "cutout": (int, _LARGEST_SIDE, "PIXELS", None),
    "brightness": (float, 1, "AMOUNT", 0.125),
    "contrast": (float, 1, "AMOUNT", 0.5),
    "saturation": (float, 1, "AMOUNT", 0.5),
    "hue": (float, 0.5, "AMOUNT", 0.2),
}
"""Of each augmentation the type of its number (bool for none), the largest one, what it is called
in messages, and the one where none is given (None where one must be). The default amounts are those
of TF-Slim's inception_preprocessing.distort_color, which trained the Inception models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Augment:
    """How images are changed at random; each image of each epoch anew, and in this order.

    Every number is drawn evenly from its range. 0 leaves an operation out; at least one is in.

    Attributes:
        flip: left becomes right in half of the images.
        flip_vertical: top becomes bottom in half of the images.
        crop: the image is shifted by up to this many pixels both ways, up to 16,384. What comes
            into view is its reflection: the image is padded so, and cut to its size again.
        rotate: the image is turned about its centre by up to this many degrees, left or right, up
            to 180, with bilinear interpolation; its corners are filled by its reflection.
        brightness: up to this part of the full range, 0 to 1, is added or taken away.
        contrast: distances from a channel's mean are multiplied by 1 plus or minus up to this,
            0 to 1.
        saturation: the saturation, of hue, saturation and value, is multiplied in the same way.
        hue: the hue is turned by up to this part of the full circle, 0 to 0.5, either way.
        cutout: a square of this many pixels a side becomes mid-grey, up to 16,384. Its centre is
            anywhere in the image, so that it may be cut off at an edge.
    """

    flip: bool = False
    flip_vertical: bool = False
    crop: int = 0
    rotate: float = 0.0
    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0
    cutout: int = 0

    def __post_init__(self) -> None:
        for name in _KINDS:
            value = getattr(self, name.replace("-", "_"))
            if not 0 <= value <= _KINDS[name][1]:
                expected = f"0, or a number {_range(name)}"
                raise UsageError(f"impossible {name} of images", expected=expected, found=value)
        if not any(getattr(self, field.name) for field in fields(self)):
            raise UsageError("an augmentation that does nothing", expected=_choices())

    def __str__(self) -> str:
        """Return what `parse_augment` makes this from."""
        parts = []
        for name, (_, _, _, default) in _KINDS.items():
            value = getattr(self, name.replace("-", "_"))
            if value:
                number = f"={str(value).removesuffix('.0')}"
                parts.append(name if value == default else name + number)
        return ",".join(parts)

    def check_size(self, pixels: int) -> None:
        """Check that images are large enough.

        Args:
            pixels: the length of their shorter side.

        Raises:
            UsageError: crop or cutout reaches from edge to edge.
        """
        for name, value in (("crop", self.crop), ("cutout", self.cutout)):
            if value >= pixels:
                raise UsageError(
                    f"{name} is too much for images of {pixels} pixels",
                    expected=f"less than {pixels}",
                    found=value,
                )


def parse_augment(text: str) -> Augment:
    """Read names separated by commas, some with ``=NUMBER``, such as ``flip,rotate=40,hue``.

    The order has no meaning.

    Raises:
        UsageError: a name is unknown or given twice, or a number is missing or impossible.
    """
    values: dict[str, float] = {}
    for notation in text.split(","):
        name, equals, number = (part.strip() for part in notation.partition("="))
        if name not in _KINDS:
            raise UsageError("no such augmentation", expected=_choices(), found=repr(name))
        field = name.replace("-", "_")
        if field in values:
            raise UsageError("an augmentation is given twice", found=name)
        values[field] = _number(name, number if equals else None)
    return Augment(**values)  # type: ignore[arg-type]  # each field's own type, by its kind


def _number(name: str, text: str | None) -> float:
    kind, most, unit, default = _KINDS[name]
    if text is None and default is not None:
        return kind(default)  # type: ignore[no-any-return]
    if kind is bool:
        raise UsageError(f"{name} takes no number", expected=name, found=f"{name}={text}")
    expected = f"{name}={unit}, {_range(name)}"
    if text is None:
        raise UsageError(f"{name} needs a number", expected=expected, found=name)
    try:
        value: float = kind(text)
    except ValueError:
        value = 0
    if not 0 < value <= most:
        raise UsageError(f"impossible number for {name}", expected=expected, found=repr(text))
    return value


def _range(name: str) -> str:
    kind, most, _, _ = _KINDS[name]
    return f"{'a whole number, ' if kind is int else ''}above 0 and up to {most:,g}"


def _choices() -> str:
    shown = []
    for name, (kind, _, unit, default) in _KINDS.items():
        optional = name if kind is bool else f"{name}[={unit}]"
        shown.append(f"{name}={unit}" if default is None else optional)
    return ", ".join(shown)
