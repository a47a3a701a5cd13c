"""How images are changed at random while a model is trained."""

from dataclasses import dataclass

from tfrtool.errors import UsageError

_LARGEST_SIDE = 16_384

_KINDS: dict[str, tuple[type, float, str, float]] = {
    "flip": (bool, 1, "", 1),
    "flip-vertical": (bool, 1, "", 1),
    "rotate": (float, 180, "DEGREES", 0),
    "crop": (int, _LARGEST_SIDE, "PIXELS", 0),
    "cutout": (int, _LARGEST_SIDE, "PIXELS", 0),
    "brightness": (float, 1, "AMOUNT", 0.125),
    "contrast": (float, 1, "AMOUNT", 0.5),
    "saturation": (float, 1, "AMOUNT", 0.5),
    "hue": (float, 0.5, "AMOUNT", 0.2),
}
"""Of each augmentation the type of its number (bool for none), the largest one, what it is called
in messages, and the one where none is given (0 where one must be). The default amounts are those
of TF-Slim's inception_preprocessing.distort_color, which trained the Inception models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Augment:
    """How images are changed at random; each image of each epoch anew, and in this order.

    Every number is the most, and drawn evenly. 0 leaves an operation out. What comes into view
    from beyond an image's edges is its reflection.
    """

    flip: bool = False  # left becomes right in half of the images
    flip_vertical: bool = False
    crop: int = 0  # a shift by so many pixels both ways
    rotate: float = 0.0  # about the centre by so many degrees, left or right; bilinear
    brightness: float = 0.0  # this part of the full range is added or taken away
    contrast: float = 0.0  # distances from a channel's mean are multiplied by 1 plus or minus this
    saturation: float = 0.0  # (of hue, saturation and value) is multiplied in the same way
    hue: float = 0.0  # is turned by this part of the full circle, either way
    cutout: int = 0  # a grey square of so many pixels a side, which an edge may cut off

    def __str__(self) -> str:
        """Return what `parse_augment` makes this from."""
        parts = []
        for name, (_, _, _, default) in _KINDS.items():
            value = getattr(self, name.replace("-", "_"))
            if value:
                number = f"={str(value).removesuffix('.0')}"
                parts.append(name if value == default else name + number)
        return ",".join(parts)


def parse_augment(text: str) -> Augment:
    """Read names separated by commas, some with ``=NUMBER``, such as ``flip,rotate=40,hue``.

    The order has no meaning. It is a `UsageError` if a name is unknown or given twice, or a number
    is missing or impossible.
    """
    values: dict[str, float] = {}
    for notation in text.split(","):
        name, equals, number = (part.strip() for part in notation.partition("="))
        if name not in _KINDS:
            choices = ", ".join(map(_notation, _KINDS))
            raise UsageError(f"invalid --augment {name!r}", expected=choices)
        field = name.replace("-", "_")
        if field in values:
            raise UsageError(f"--augment has {name} twice")
        kind, most, _, value = _KINDS[name]
        if equals:
            try:
                value = 0 if kind is bool else kind(number)
            except ValueError:
                value = 0
        if not 0 < value <= most:
            expected = _notation(name)
            if kind is not bool:
                whole = "a whole number " if kind is int else ""
                expected += f", {whole}above 0 and up to {most:,g}"
            raise UsageError(f"invalid --augment {notation!r}", expected=expected)
        values[field] = kind(value)
    return Augment(**values)  # type: ignore[arg-type]  # each field's own type, by its kind


def _notation(name: str) -> str:
    kind, _, unit, default = _KINDS[name]
    if kind is bool:
        return name
    return f"{name}[={unit}]" if default else f"{name}={unit}"
