"""What is known of an image apart from its pixels: its objects, and values of columns."""

import json
import marshal
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tfrtool.examples.example import Value
from tfrtool.storage.limits import MAX_ATTRIBUTES, MAX_CLASS_NAME, MAX_KEYPOINTS

_UPRIGHT = 1
_TURNED: Mapping[int, Callable[[float, float], tuple[float, float]]] = {
    _UPRIGHT: lambda x, y: (x, y),
    2: lambda x, y: (1 - x, y),
    3: lambda x, y: (1 - x, 1 - y),
    4: lambda x, y: (x, 1 - y),
    5: lambda x, y: (y, x),
    6: lambda x, y: (1 - y, x),
    7: lambda x, y: (1 - y, 1 - x),
    8: lambda x, y: (y, 1 - x),
}
"""Where a point of the stored image, in shares of its sides, is once the image is upright, by its
EXIF orientation (Exif 2.32, table 6)."""

NOT_FINITE = "9.87654321234568e307"
"""What readers of JSON make of NaN and infinity: no value that a file is likely to have."""

SIDEWAYS = 5
"""From this orientation on, width and height change places."""


class ObjectAnnotation(NamedTuple):
    """One object in an image; all lengths are in pixels of that image, from its left top."""

    xmin: float
    ymin: float
    xmax: float
    ymax: float
    label: int  # its class: a place among the class names
    id: int | None = None  # the annotation's own number
    area: float | None = None  # in square pixels
    crowd: bool = False
    difficult: bool = False
    truncated: bool = False
    pose: str = ""
    segmentation: str = ""  # COCO's, as JSON: a list of polygons [x, y, x, y ...], or an RLE object
    keypoints: tuple[float, ...] = ()  # x, y and visibility (0, 1 or 2) of each
    attributes: str = ""  # a JSON object of all else that its file has


def attributes_text(attributes: Mapping[str, Any]) -> str:
    """Return attributes as JSON, "" for none; `ValueError` if they can't be written."""
    from msgspec.json import encode

    text = encode(attributes).decode() if attributes else ""
    if len(text) > MAX_ATTRIBUTES:
        raise ValueError(f"attributes have more than {MAX_ATTRIBUTES:,} characters")
    if NOT_FINITE in text:
        raise ValueError("an attribute is not a finite number, or nested too deeply")
    return text


def parse_attributes(text: str) -> dict[str, Any] | None:
    """Return the attributes in JSON; None if it is not an object."""
    from msgspec.json import decode

    try:
        found = decode(text) if text else {}
        json.dumps(found)  # may be nested too deeply for this, too
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


class Skeleton(NamedTuple):
    """The names of a class's key points, and the lines between them, as COCO's categories have."""

    points: tuple[str, ...]
    lines: tuple[tuple[int, int], ...] = ()  # numbers of points, from 1

    @classmethod
    def parse(cls, category: Mapping[str, Any]) -> "Skeleton | None":
        """Return what a category has; None for nothing, or what makes no sense."""
        names, lines = category.get("keypoints"), category.get("skeleton")
        if not isinstance(names, list) or not 0 < len(names) <= MAX_KEYPOINTS:
            return None
        if not all(isinstance(name, str) and len(name) <= MAX_CLASS_NAME for name in names):
            return None
        known = range(1, len(names) + 1)
        edges = list[tuple[int, int]]()
        for line in lines if isinstance(lines, list) else ():
            if not isinstance(line, list) or len(line) != 2 or len(edges) == MAX_KEYPOINTS:
                return None
            if not all(type(end) is int and end in known for end in line):
                return None
            edges.append((line[0], line[1]))
        return cls(tuple(names), tuple(edges))

    def to_json(self) -> dict[str, Any]:
        """Return the members of a category."""
        return {"keypoints": [*self.points], "skeleton": [[*line] for line in self.lines]}


class ImageAnnotation(NamedTuple):
    """All objects in an image."""

    width: int  # of the image that the annotations are for, in pixels
    height: int
    objects: tuple[ObjectAnnotation, ...] = ()
    source_id: str = ""  # what the annotations call the image
    upright: bool = False  # whether they are for the image as EXIF turns it, where that is in doubt

    def problem(self, width: int, height: int, orientation: int) -> str | None:
        """Return why these can't be annotations of a stored image of this size; None if they can.

        They may be for the image as it is stored or, with an EXIF orientation, as it is shown.
        """
        shown = (height, width) if orientation >= SIDEWAYS else (width, height)
        if (self.width, self.height) in ((width, height), shown):
            return None
        return (
            f"annotations are for {self.width} x {self.height} pixels, but the image is "
            f"{width} x {height}"
        )

    def is_upright(self, width: int, height: int, orientation: int) -> bool:
        """Return whether these are for a stored image of this size as its EXIF turns it."""
        if orientation == _UPRIGHT:
            return True
        if orientation >= SIDEWAYS and width != height:
            return (self.width, self.height) == (height, width)
        return self.upright

    def moved(self, turn: int, width: int, height: int) -> "ImageAnnotation":
        """Return the annotations of the image that turning and scaling make of this one.

        Masks that are run lengths stay as they are: `tfrtool.images.masks` moves those.

        Args:
            turn: the EXIF orientation that is undone; 1 for none.
            width: of the new image, in pixels.
            height: of the new image, in pixels.
        """
        if turn == _UPRIGHT and (width, height) == (self.width, self.height):
            return self
        turn_point = _TURNED.get(turn, _TURNED[_UPRIGHT])

        def move(x: float, y: float) -> tuple[float, float]:
            x, y = turn_point(x / self.width, y / self.height)
            return x * width, y * height

        scale = width * height / (self.width * self.height)
        objects = tuple(_moved(one, move, scale) for one in self.objects)
        return self._replace(width=width, height=height, objects=objects)


def _moved(
    annotation: ObjectAnnotation, move: Callable[[float, float], tuple[float, float]], scale: float
) -> ObjectAnnotation:
    x0, y0 = move(annotation.xmin, annotation.ymin)
    x1, y1 = move(annotation.xmax, annotation.ymax)
    points = [*annotation.keypoints]
    for at in range(0, len(points), 3):
        if any(points[at : at + 3]):  # all 0: a point that nobody has labeled
            points[at : at + 2] = move(points[at], points[at + 1])
    segmentation = annotation.segmentation
    if segmentation.startswith("["):
        polygons = json.loads(segmentation)
        pairs = [zip(line[::2], line[1::2], strict=True) for line in polygons]
        moved = [[side for x, y in line for side in move(x, y)] for line in pairs]
        segmentation = json.dumps(moved, separators=(",", ":"))
    return annotation._replace(
        xmin=min(x0, x1),
        ymin=min(y0, y1),
        xmax=max(x0, x1),
        ymax=max(y0, y1),
        area=None if annotation.area is None else annotation.area * scale,
        segmentation=segmentation,
        keypoints=tuple(points),
    )


_NO_REFERENCES = 2
"""The version of marshal whose bytes depend on values alone, and not on who else holds them."""


class ExtraFeatures(NamedTuple):
    """Features of an image apart from its bytes, its name and its label."""

    values: Mapping[str, tuple[Value, ...]] = {}  # of further features, by their names
    annotation: ImageAnnotation | None = None

    def pack(self) -> bytes:
        """Return bytes of it, for a scratch file."""
        values = {name: tuple(some) for name, some in self.values.items()}
        annotation = self.annotation and _plain(self.annotation)
        return marshal.dumps((values, annotation), _NO_REFERENCES)

    @classmethod
    def unpack(cls, packed: bytes) -> "ExtraFeatures":
        """Return what `pack` made bytes of, in this very process or one that it trusts."""
        values, annotation = marshal.loads(packed)
        if annotation is not None:
            width, height, objects, *rest = annotation
            unpacked = tuple(ObjectAnnotation(*one) for one in objects)
            annotation = ImageAnnotation(width, height, unpacked, *rest)
        return cls(values, annotation)


def _plain(annotation: ImageAnnotation) -> tuple[Any, ...]:
    width, height, objects, *rest = annotation
    return (width, height, tuple(tuple(one) for one in objects), *rest)
