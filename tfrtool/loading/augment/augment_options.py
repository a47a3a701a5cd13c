"""How images are changed at random while a model is trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tfrtool.errors import UsageError

__all__ = ["Augment", "parse_augment"]

# The default amounts are those of TF-Slim's inception_preprocessing.distort_color, which trained
# the Inception models: brightness 32/255, contrast and saturation 0.5 to 1.5, hue 0.2.
_BRIGHTNESS = 0.125
_CONTRAST = 0.5
_SATURATION = 0.5
_HUE = 0.2

_LARGEST_SIDE = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """What one augmentation takes.

    Attributes:
        field: the attribute of `Augment`.
        read: makes the number from its text; None for a switch, which takes none.
        most: the largest number; all are above 0.
        unit: what the number is called in a message.
        default: the number where none is given; None where one must be.
    """

    field: str
    read: Callable[[str], float] | None = None
    most: float = 0.0
    unit: str = ""
    default: float | None = None

    @property
    def range(self) -> str:
        """The numbers that are possible, in words."""
        whole = "a whole number, " if self.read is int else ""
        return f"{whole}above 0 and up to {self.most:,g}"


_KINDS = {
    "flip": _Kind(field="flip"),
    "flip-vertical": _Kind(field="flip_vertical"),
    "rotate": _Kind(field="rotate", read=float, most=180, unit="DEGREES"),
    "crop": _Kind(field="crop", read=int, most=_LARGEST_SIDE, unit="PIXELS"),
    "cutout": _Kind(field="cutout", read=int, most=_LARGEST_SIDE, unit="PIXELS"),
    "brightness": _Kind(field="brightness", read=float, most=1, unit="AMOUNT", default=_BRIGHTNESS),
    "contrast": _Kind(field="contrast", read=float, most=1, unit="AMOUNT", default=_CONTRAST),
    "saturation": _Kind(field="saturation", read=float, most=1, unit="AMOUNT", default=_SATURATION),
    "hue": _Kind(field="hue", read=float, most=0.5, unit="AMOUNT", default=_HUE),
}


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
        for name, kind in _KINDS.items():
            value = getattr(self, kind.field)
            if kind.read is not None and not 0 <= value <= kind.most:
                raise UsageError(
                    f"impossible {name} of images",
                    expected=f"0, or a number {kind.range}",
                    found=value,
                )
        if not any(getattr(self, kind.field) for kind in _KINDS.values()):
            raise UsageError("an augmentation that does nothing", expected=_choices())

    def __str__(self) -> str:
        """Return what `parse_augment` makes this from."""
        parts = []
        for name, kind in _KINDS.items():
            value = getattr(self, kind.field)
            if value:
                bare = kind.read is None or value == kind.default
                parts.append(name if bare else f"{name}={str(value).removesuffix('.0')}")
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
        kind = _KINDS.get(name)
        if kind is None:
            raise UsageError("no such augmentation", expected=_choices(), found=repr(name))
        if kind.field in values:
            raise UsageError("an augmentation is given twice", found=name)
        values[kind.field] = _number(name, kind, number if equals else None)
    return Augment(**values)  # type: ignore[arg-type]  # each field's own type, by its kind


def _number(name: str, kind: _Kind, text: str | None) -> float:
    if kind.read is None:
        if text is not None:
            raise UsageError(f"{name} takes no number", expected=name, found=f"{name}={text}")
        return True
    if text is None:
        if kind.default is None:
            raise UsageError(
                f"{name} needs a number", expected=f"{name}={kind.unit}, {kind.range}", found=name
            )
        return kind.default
    try:
        value = kind.read(text)
    except ValueError:
        value = 0
    if not 0 < value <= kind.most:
        raise UsageError(
            f"impossible number for {name}",
            expected=f"{name}={kind.unit}, {kind.range}",
            found=repr(text),
        )
    return value


def _choices() -> str:
    return ", ".join(
        f"{name}[={kind.unit}]"
        if kind.default is not None
        else (name if kind.read is None else f"{name}={kind.unit}")
        for name, kind in _KINDS.items()
    )
