"""The boxes and masks of the objects in an image, as records hold them; none of it is trusted."""

import math
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from tfrtool.examples.content import decode_text
from tfrtool.examples.example import DType, Feature, PayloadKind, decode_example
from tfrtool.images.looks import outlined
from tfrtool.images.pixels import Picture
from tfrtool.inspection.pictures.pictures import ImageRoles, pictures_of

MAX_OBJECTS = 1000
"""Objects that are told of one image."""

_SIDES = ("xmin", "ymin", "xmax", "ymax")
_TFOD = "image/object/bbox/"
_TEXTS = ("image/object/class/text", "image/object/class/label", "objects/label")
_TFDS = ("objects/bbox", "bbox")
_MASKS = "image/object/mask"


class Box(NamedTuple):
    """A box in shares of the image's width and height, from its left top, and what is in it."""

    xmin: float
    ymin: float
    xmax: float
    ymax: float
    text: str


def boxes_of(features: Mapping[str, Feature], names: Sequence[str] = ()) -> list[Box]:
    """Return the boxes of a record: TF Object Detection's four lists, or TFDS' list of fours.

    A box that is no box (NaN, or beyond what can be drawn) is left out; one outside its image is
    not. ``names`` are those of classes by their numbers.
    """
    lists = [_floats(features, _TFOD + side) for side in _SIDES]
    found = list(zip(*lists, strict=False)) if all(lists) else []
    for name in _TFDS if not found else ():
        flat = _floats(features, name)
        if flat and len(flat) % 4 == 0:  # ymin, xmin, ymax, xmax
            fours = (flat[n : n + 4] for n in range(0, len(flat), 4))
            found = [(x0, y0, x1, y1) for y0, x0, y1, x1 in fours]
            break
    texts = next((features[name].values for name in _TEXTS if name in features), ())
    made = []
    for number, sides in enumerate(found[:MAX_OBJECTS]):
        if all(math.isfinite(side) and abs(side) < 1e6 for side in sides):
            value = texts[number] if number < len(texts) else ""
            xmin, ymin, xmax, ymax = sides
            made.append(Box(xmin, ymin, xmax, ymax, _text(value, names)))
    return made


def thumbnail(payload: bytes, roles: ImageRoles, box: int, number: int = 0) -> Picture:
    """Return one of a record's images, at most ``box`` pixels wide and high, with its boxes."""
    found = islice(pictures_of(payload, roles, box), number, None)
    _, _, picture = next(found, ("", "", Picture(problem="no such image")))
    if picture.image is None or number:
        return picture
    features = decode_example(payload, PayloadKind.SEQUENCE_EXAMPLE).features
    return outlined(picture, [one[:4] for one in boxes_of(features)])


def masks_of(features: Mapping[str, Feature]) -> list[bytes]:
    """Return the masks of a record, encoded images of one channel."""
    values = features[_MASKS].values if _MASKS in features else ()
    return [value for value in values[:MAX_OBJECTS] if isinstance(value, bytes)]


def _floats(features: Mapping[str, Feature], name: str) -> list[float]:
    one = features.get(name)
    if one is None or one.dtype is not DType.FLOAT32:
        return []
    return [float(value) for value in one.values[: 4 * MAX_OBJECTS]]


def _text(value: object, names: Sequence[str]) -> str:
    if isinstance(value, bytes):
        return decode_text(value) or "?"
    if isinstance(value, int) and 0 <= value < len(names):
        return names[value]
    return str(value)
