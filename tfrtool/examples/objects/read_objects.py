"""Objects, read back from records. No content of a record raises an error."""

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from tfrtool.examples.example import DType, Feature
from tfrtool.examples.objects.annotation import ImageAnnotation, ObjectAnnotation
from tfrtool.examples.objects.record_features import (
    FIELDS,
    OBJECTS,
    SIDES,
    TFDS_OBJECTS,
    UNKNOWN,
    ObjectField,
)

_SLACK = 1e-5
"""Shares of a side that a box may reach over its image by rounding."""

_SINGLE = struct.Struct("f")

_FAR = 1e6
"""Shares of a side beyond which nothing can be meant by a box."""

_BOXES = ("objects/bbox", "bbox")


class ReadObject(NamedTuple):
    """An object as a record has it."""

    box: tuple[float, float, float, float]  # xmin, ymin, xmax, ymax in shares of the sides; or NaN
    label: int | None  # the number of its class
    text: str  # the name of its class; "" where none is known
    more: Mapping[str, Any]  # further fields of `ObjectAnnotation`; key points in shares of sides
    problem: str | None  # what is wrong with its box

    @property
    def title(self) -> str:
        """What its class is called: its name, or else its number; "" where it has neither."""
        return self.text or ("" if self.label is None else str(self.label))

    @property
    def can_be_drawn(self) -> bool:
        """Whether its box is four numbers that are not far off, if not in the image or in order."""
        return all(abs(side) < _FAR for side in self.box)

    @property
    def is_inside(self) -> bool:
        """Whether its box is one, and at least a part of it is in the image."""
        x0, y0, x1, y1 = self.box
        in_order = x0 < x1 and y0 < y1  # false of NaN
        return in_order and x0 < 1 and y0 < 1 and x1 > 0 and y1 > 0 and self.can_be_drawn

    def in_pixels(self, width: int, height: int) -> ObjectAnnotation:
        """Return what is known of it in an image of that size, its box clipped to it.

        Coordinates have as few digits as give the same shares again, and so those that they were
        made of, if these were not too many. Its label is as recorded, `UNKNOWN` for none.
        """
        x0, y0, x1, y1 = (
            _pixels(min(max(share, 0.0), 1.0), side)
            for share, side in zip(self.box, (width, height) * 2, strict=True)
        )
        more = dict(self.more)
        if points := more.get("keypoints"):
            sides = (width, height, 0) * (len(points) // 3)
            more["keypoints"] = tuple(map(_pixels, points, sides))
        label = UNKNOWN if self.label is None else self.label
        return ObjectAnnotation(x0, y0, x1, y1, label, **more)


class RecordObjects(NamedTuple):
    """All objects of a record.

    Attributes:
        objects: in order; as many as the longest list of sides of boxes has.
        problems: what is wrong with the record's lists, a sentence each; boxes say it themselves.
        size: the width and height of the image, as the record says; None where it does not.
        masks: encoded images, one for each object where there are any.
    """

    objects: tuple[ReadObject, ...] = ()
    problems: tuple[str, ...] = ()
    size: tuple[int, int] | None = None
    masks: tuple[bytes, ...] = ()

    def in_pixels(self, width: int, height: int) -> ImageAnnotation:
        """Return the objects that are inside of an image of that size."""
        objects_inside = tuple(
            one.in_pixels(width, height) for one in self.objects if one.is_inside
        )
        return ImageAnnotation(width, height, objects_inside)


def read_objects(
    features: Mapping[str, Feature],
    names: Mapping[int, str] | None = None,
    most: int | None = None,
) -> RecordObjects:
    """Return the objects of a record, in the TF Object Detection API's features or in TFDS'.

    Boxes alone are enough. A list that has another length is a problem, and is not used.

    Args:
        features: of the record.
        names: class names by number, for objects whose class the record does not name.
        most: how many objects are read; None for all.
    """
    return _Lists(features, most).objects(names or {})


class _Lists:
    """The lists of one record."""

    def __init__(self, features: Mapping[str, Feature], most: int | None) -> None:
        self._features, self._most = features, most
        self._tfod = any(f"{OBJECTS}bbox/{side}" in features for side in SIDES)
        self._start = OBJECTS if self._tfod else TFDS_OBJECTS
        self._problems: list[str] = []
        self._count = 0

    def objects(self, names: Mapping[int, str]) -> RecordObjects:
        boxes, torn = self._boxes()
        columns: dict[str, Sequence[Any]] = {}
        for name, field in FIELDS.items():
            if found := self._column(field.tfod if self._tfod else field.tfds, field.dtype):
                columns[name] = [_field(value, field) for value in found]
        if texts := self._column("segmentation", DType.STRING):
            columns["segmentation"] = [_text(value) for value in texts]
        if points := self._points():
            columns["keypoints"] = points
        labels = self._column("class/label" if self._tfod else "label", DType.INT64)
        named = self._column("class/text", DType.STRING) if self._tfod else ()
        objects = []
        for at, box in enumerate(boxes):
            number = labels[at] if labels else None
            text = (_text(named[at]) if named else "") or names.get(number, "")  # type: ignore[arg-type]
            more = {field: some[at] for field, some in columns.items() if some[at] is not None}
            objects.append(ReadObject(box, number, text, more, torn or _box_problem(box)))
        masks = self._column("mask", DType.STRING)
        return RecordObjects(tuple(objects), tuple(self._problems), self._size(), tuple(masks))

    def _boxes(self) -> tuple[list[Any], str | None]:
        """Return the boxes, and why none of them can be relied on, if so."""
        if self._tfod:
            lists = [self._values(f"{OBJECTS}bbox/{side}", DType.FLOAT32) for side in SIDES]
            counts = [len(some) for some in lists]
            self._count, is_complete = max(counts), min(counts) == max(counts)
            sides = ", ".join(f"{side} {n}" for side, n in zip(SIDES, counts, strict=True))
            torn = f"box lists differ in length: {sides}"
            boxes = [*zip(*(self._cut(some, 1) for some in lists), strict=False)]
        else:
            name = next((name for name in _BOXES if name in self._features), _BOXES[0])
            flat = self._values(name, DType.FLOAT32)
            self._count, is_complete = -(-len(flat) // 4), not len(flat) % 4
            torn = f"{name!r} has {len(flat)} values, not a multiple of 4"
            y0, x0, y1, x1 = (self._cut(flat, 4)[at::4] for at in range(4))
            boxes = [*zip(x0, y0, x1, y1, strict=False)]
        if is_complete:
            return boxes, None
        self._problems.append(torn)
        count = self._count if self._most is None else min(self._count, self._most)
        return [(math.nan,) * 4] * count, torn

    def _points(self) -> list[tuple[float, ...]] | None:
        """Return the key points of each object."""
        lists = [self._values(f"{TFDS_OBJECTS}keypoints", DType.FLOAT32)]
        if self._tfod:
            lists = [self._values(f"{OBJECTS}keypoint/{side}", DType.FLOAT32) for side in "xy"]
            lists.append(self._values(f"{OBJECTS}keypoint/visibility", DType.INT64))
        counts, per_point = [len(some) for some in lists], 3 // len(lists)
        each, rest = divmod(counts[0], per_point * (self._count or 1))
        if rest or len(set(counts)) > 1:
            found = ", ".join(map(str, counts))
            what = f"{found} values of x, y and visibility for {self._count} objects"
            self._problems.append(f"key points have {what}")
            return None
        if not each or not self._count:
            return None
        cut = [self._cut(some, per_point * each) for some in lists]
        flat = [float(v) for values in zip(*cut, strict=False) for v in values]
        for at in range(0, len(flat), 3):
            if not all(abs(v) < _FAR for v in flat[at : at + 3]):
                flat[at : at + 3] = 0.0, 0.0, 0.0  # NaN says that it is not known where it is
        return [tuple(flat[at : at + 3 * each]) for at in range(0, len(flat), 3 * each)]

    def _column(self, name: str, dtype: DType) -> Sequence[Any]:
        """Return a value for each object; none where there are none, or not as many."""
        values = self._values(self._start + name, dtype)
        if len(values) not in (0, self._count):
            what = f"{self._start + name!r} has {len(values)} values for {self._count} boxes"
            self._problems.append(what)
            return ()
        return self._cut(values, 1)

    def _values(self, name: str, dtype: DType) -> Sequence[Any]:
        feature = self._features.get(name)
        if feature is None or feature.dtype is None:
            return ()
        if feature.dtype is not dtype:
            self._problems.append(f"{name!r} is {feature.dtype.value}, not {dtype.value}")
            return ()
        return feature.values

    def _cut(self, values: Sequence[Any], each: int) -> Sequence[Any]:
        try:
            return values[: None if self._most is None else self._most * each]
        except DecodeError:  # a long list is parsed only now
            return ()

    def _size(self) -> tuple[int, int] | None:
        found = [self._values(f"image/{side}", DType.INT64) for side in ("width", "height")]
        sides = [some[0] for some in found if len(some) == 1 and 0 < some[0] < 2**31]
        return (sides[0], sides[1]) if len(sides) == 2 else None


def _box_problem(box: Sequence[float]) -> str | None:
    """Return what is wrong with a box in shares of the sides of its image; None for nothing."""
    x0, y0, x1, y1 = box
    if not all(map(math.isfinite, box)):
        return "box is not four finite numbers"
    shown = ", ".join(f"{side:g}" for side in box)
    if x1 < x0 or y1 < y0:
        return f"box ({shown}) is inverted"
    if x1 == x0 or y1 == y0:
        return f"box ({shown}) is empty"
    if max(-x0, -y0, x1 - 1, y1 - 1) > _SLACK:
        outside = x0 >= 1 or y0 >= 1 or x1 <= 0 or y1 <= 0
        return f"box ({shown}) {'lies' if outside else 'extends'} outside the image (0 to 1)"
    return None


def _pixels(share: float, side: int) -> float:
    """Return a share of a side in pixels, with the fewest digits that give the same float32."""
    if not side:
        return share
    for digits in range(10):
        near = round(share * side, digits)
        if _SINGLE.unpack(_SINGLE.pack(near / side))[0] == share:
            return near
    return share * side


def _field(value: Any, field: ObjectField) -> Any:
    if field.dtype is DType.STRING:
        return _text(value)
    if field.missing != UNKNOWN:
        return bool(value)
    return value if value != UNKNOWN and math.isfinite(value) else None


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")
