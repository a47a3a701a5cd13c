"""Objects in records, read back: both layouts, records of others, and what is wrong as data."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples.strategies import hostile_objects
from tfrtool.examples.example import DType, Feature, decode_example, encode_example
from tfrtool.examples.objects.annotation import ExtraFeatures, ImageAnnotation, ObjectAnnotation
from tfrtool.examples.objects.read_objects import read_objects
from tfrtool.examples.objects.record_features import (
    FIELDS,
    LabelKind,
    Layout,
    RecordFeatures,
    WrittenImage,
)

CLASSES = ("cat", "dog", "traffic light")
_POINTS = st.tuples(st.integers(0, 6300), st.integers(0, 4700), st.integers(0, 2))
"""Coordinates are in hundredths of a pixel, as COCO has them."""


@st.composite
def _objects(draw: st.DrawFn) -> ObjectAnnotation:
    x0, x1 = sorted(draw(st.lists(st.integers(0, 6400), min_size=2, max_size=2, unique=True)))
    y0, y1 = sorted(draw(st.lists(st.integers(0, 4800), min_size=2, max_size=2, unique=True)))
    points = [draw(_POINTS) for _ in range(2)]
    return ObjectAnnotation(
        *(x0 / 100, y0 / 100, x1 / 100, y1 / 100, draw(st.integers(0, 2))),
        id=draw(st.none() | st.integers(0, 2**40)),
        area=draw(st.none() | st.floats(0, 1e6, width=32)),
        crowd=draw(st.booleans()),
        difficult=draw(st.booleans()),
        truncated=draw(st.booleans()),
        pose=draw(st.sampled_from(["", "Frontal"])),
        segmentation=draw(st.sampled_from(["", "[[1,2,3,4,5,6.5]]"])),
        keypoints=tuple(v for x, y, seen in points for v in (x / 100, y / 100, float(seen))),
    )


def _record(layout: Layout, *objects: ObjectAnnotation) -> dict[str, Feature]:
    features = RecordFeatures(
        layout=layout,
        label=LabelKind.NONE,
        has_objects=True,
        classes=CLASSES,
        optional=(*FIELDS, "segmentation", "keypoints"),
        keypoints=2,
        class_ids=(1, 3, 90),
    )
    beside = ExtraFeatures(annotation=ImageAnnotation(64, 48, objects))
    values = features.values(WrittenImage(b"", "png", 48, 64), "a.png", "", {}, beside)
    return dict(decode_example(encode_example(values)).features)


@pytest.mark.parametrize("layout", Layout)
@settings(max_examples=settings().max_examples // 2)
@given(objects=st.lists(_objects(), max_size=4))
def test_what_is_written_is_read(layout: Layout, objects: list[ObjectAnnotation]) -> None:
    """Every field comes back, of both layouts; coordinates with few digits are the same numbers."""
    found = read_objects(_record(layout, *objects), dict(enumerate(CLASSES)))
    assert found.problems == ()
    assert found.size == ((64, 48) if layout is Layout.TFOD else None)
    assert [one.text for one in found.objects] == [CLASSES[one.label] for one in objects]
    for made, one in zip(found.in_pixels(64, 48).objects, objects, strict=True):
        label = (1, 3, 90)[one.label] if layout is Layout.TFOD else one.label
        assert made.label == label
        assert made[5:12] == one[5:12]
        assert made[:4] == one[:4]
        assert made.keypoints == one.keypoints


def _floats(*values: float) -> Feature:
    return Feature(dtype=DType.FLOAT32, values=values)


def _boxes(*boxes: tuple[float, ...]) -> dict[str, Feature]:
    sides = ("xmin", "ymin", "xmax", "ymax")
    return {
        f"image/object/bbox/{side}": _floats(*some)
        for side, some in zip(sides, zip(*boxes, strict=True), strict=True)
    }


BOX = (0.1, 0.2, 0.5, 0.6)


def test_boxes_alone_and_text_alone() -> None:
    """Records of others: no label, no size; a class by its text, its number, or by neither."""
    assert read_objects({}).objects == ()
    (bare,) = read_objects(_boxes(BOX)).objects
    assert (bare.box, bare.title, bare.label, bare.problem) == (BOX, "", None, None)
    text = Feature(dtype=DType.STRING, values=(b"cat",))
    (named,) = read_objects(_boxes(BOX) | {"image/object/class/text": text}, {1: "dog"}).objects
    assert (named.title, named.label) == ("cat", None)
    label = {"image/object/class/label": Feature(dtype=DType.INT64, values=(1,))}
    assert [one.title for one in read_objects(_boxes(BOX) | label, {1: "dog"}).objects] == ["dog"]
    assert [one.title for one in read_objects(_boxes(BOX) | label).objects] == ["1"]


def test_tfds_boxes_of_others() -> None:
    """`bbox` by itself is a box, and its order is TFDS'."""
    (one,) = read_objects({"bbox": _floats(0.2, 0.1, 0.6, 0.5)}).objects
    assert one.box == BOX


@pytest.mark.parametrize(
    ("box", "said", "inside"),
    [
        (BOX, None, True),
        ((0.0, 0.0, 1.000001, 1.0), None, True),
        ((0.5, 0.2, 0.1, 0.6), "inverted", False),
        ((0.5, 0.2, 0.5, 0.6), "empty", False),
        ((math.nan, 0.2, 0.5, 0.6), "not four finite numbers", False),
        ((0.1, 0.2, math.inf, 0.6), "not four finite numbers", False),
        ((-0.1, 0.2, 0.5, 0.6), "extends outside", True),
        ((1.1, 0.2, 1.5, 0.6), "lies outside", False),
        ((10.0, 20.0, 50.0, 60.0), "lies outside", False),
    ],
)
def test_wrong_boxes_are_told(box: tuple[float, ...], said: str | None, inside: bool) -> None:
    """Each kind of wrong box has a problem; only what has a part in the image gets pixels."""
    found = read_objects(_boxes(box))
    (one,) = found.objects
    assert one.is_inside is inside
    assert len(found.in_pixels(10, 10).objects) == inside
    assert found.problems == ()
    if said is None:
        assert one.problem is None
    else:
        assert said in str(one.problem)
    assert all(0 <= side <= 10 for made in found.in_pixels(10, 10).objects for side in made[:4])


def test_lists_of_unequal_length() -> None:
    """Sides that are too few make no box of the record sure; another list is not used."""
    sides = _boxes(BOX, BOX)
    torn = read_objects(sides | {"image/object/bbox/ymax": _floats(0.6)})
    assert len(torn.objects) == 2
    assert all("xmax 2, ymax 1" in str(one.problem) for one in torn.objects)
    assert torn.problems == (torn.objects[0].problem,)
    text = Feature(dtype=DType.STRING, values=(b"cat",) * 3)
    named = read_objects(sides | {"image/object/class/text": text})
    assert [one.text for one in named.objects] == ["", ""]
    assert named.problems == ("'image/object/class/text' has 3 values for 2 boxes",)
    odd = read_objects({"objects/bbox": _floats(*BOX, 0.5)})
    assert len(odd.objects) == 2
    assert "5 values" in str(odd.objects[1].problem)


def test_most_bounds_what_is_read() -> None:
    """Of many objects only the first are read, of either layout."""
    many = _boxes(*[BOX] * 9)
    assert len(read_objects(many, most=4).objects) == 4
    assert len(read_objects({"objects/bbox": _floats(*BOX * 9)}, most=4).objects) == 4
    assert read_objects(many, most=4).problems == ()


@given(hostile_objects, st.none() | st.integers(0, 3))
def test_nothing_raises(features: dict[str, Any], most: int | None) -> None:
    """Whatever the lists hold, objects come out, and pixels of those that are inside are inside."""
    found = read_objects(features, {1: "cat"}, most)
    for one in found.in_pixels(7, 5).objects:
        assert 0 <= one.xmin < one.xmax <= 7
        assert 0 <= one.ymin < one.ymax <= 5
