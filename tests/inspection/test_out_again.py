"""Annotation files, written to records and taken out again: the same files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.inspection.extracting import files_below, workshop
from tests.inspection.objects_in_records import HIGH, WIDE, dataset, record, take
from tfrtool import write
from tfrtool.examples.objects.annotation import ObjectAnnotation

pytestmark = pytest.mark.tf

_CENTS = st.integers(0, 100 * HIGH).map(lambda v: v / 100)
_SIDES = st.lists(_CENTS, min_size=2, max_size=2, unique=True).map(sorted)
_RUNS = {"size": [HIGH, WIDE], "counts": [1000, 2000, WIDE * HIGH - 3000]}
_POINT = st.tuples(_CENTS, _CENTS, st.integers(1, 2).map(float))


_TEXT = st.text(
    st.characters(categories=("L", "N", "P", "S", "Zs"), include_characters="\n\r<"), max_size=3
)
_VALUES = st.floats(-1e6, 1e6) | st.lists(st.integers() | st.none(), max_size=2) | _TEXT
_ATTRIBUTES = st.dictionaries(_TEXT, _VALUES, max_size=2)


@st.composite
def things(draw: st.DrawFn) -> ObjectAnnotation:
    """Draw an object; its outline, if it has one, has its box."""
    (x0, x1), (y0, y1) = draw(_SIDES), draw(_SIDES)
    crowd = draw(st.booleans())
    lines = [[x0, y0, x1, y0, x1, y1], [x0, y0, x1, y1, x0, y1]]
    return ObjectAnnotation(
        *(x0, y0, x1, y1, draw(st.integers(0, 2))),
        area=draw(st.integers(1, 10**7).map(lambda v: v / 100)),
        crowd=crowd,
        difficult=draw(st.booleans()),
        truncated=draw(st.booleans()),
        pose=draw(st.sampled_from(["Left", "Frontal"])),
        segmentation=json.dumps(_RUNS if crowd else draw(st.sampled_from([lines, lines[:1]]))),
        keypoints=tuple(v for point in draw(st.tuples(_POINT, _POINT)) for v in point),
        attributes=draw(_ATTRIBUTES.map(lambda some: json.dumps(some) if some else "")),
    )


_IMAGES = st.lists(st.lists(things(), min_size=2, max_size=6), min_size=1, max_size=3).map(
    lambda some: [*some, []]
)
_FIELDS = ("id", "area", "crowd", "difficult", "truncated", "pose", "keypoints", "attributes")


def records(
    folder: Path, images: list[list[ObjectAnnotation]], *, outlines: bool, points: bool = True
) -> Path:
    """Write a dataset of a split, whose images and objects have numbers."""
    number, payloads = 900, []
    for at, some in enumerate(images):
        objects = []
        for one in some:
            number += 7
            objects.append(one._replace(id=number, crowd=one.crowd and outlines))
        fields = (*_FIELDS, "segmentation") if outlines else _FIELDS
        name = f"{at}.jpg"
        payloads.append(
            record(
                *objects, name=name, source_id=f"{at + 40}", keypoints=2 * points, optional=fields
            )
        )
    return dataset(folder, {"train": payloads})


def again(folder: Path, form: str, into: str) -> Path:
    """Write a dataset of annotation files, and take it out again."""
    place = folder / form / "annotations.json" if form == "coco" else folder / form
    made = folder / f"{into}-ds"
    report = write(
        folder / form, made, annotations=f"{form}:{place}", shuffle=False, workers=1, check="header"
    )
    account = report.annotations
    assert account is not None
    assert account.read == account.written
    take(made, folder / into, into if into != "two" else form)
    return folder / into


@pytest.mark.parametrize("form", ["coco", "voc"])
@settings(max_examples=3)
@given(images=_IMAGES)
def test_what_was_written_comes_out(form: str, images: list[list[ObjectAnnotation]]) -> None:
    """Every file is the same, to the byte, after the way through TFRecords."""
    with workshop() as folder:
        take(records(folder / "ds", images, outlines=form != "voc"), folder / form, form)
        assert files_below(again(folder, form, "two")) == files_below(folder / form)


@settings(max_examples=3)
@given(images=_IMAGES, shape=st.sampled_from(["box", "polygon", "points"]))
def test_yolo_keeps_boxes(images: list[list[ObjectAnnotation]], shape: str) -> None:
    """Boxes, polygons and key points come out to a hundredth of a pixel, of COCO's numbers, too."""
    images = [[one._replace(crowd=False) for one in some if not one.crowd] for some in images]
    if shape != "points":
        images = [[one._replace(keypoints=()) for one in some] for some in images]
    with workshop() as folder:
        shards = records(
            folder / "ds", images, outlines=shape == "polygon", points=shape == "points"
        )
        take(shards, folder / "yolo", "yolo")
        assert (folder / "yolo/images/train/0.jpg").is_file()
        again(folder, "yolo", "two")
        for name in sorted(files_below(folder / "yolo/labels")):
            lines = [(folder / way / "labels" / name).read_text() for way in ("yolo", "two")]
            before, after = (
                [[*map(float, v.split())] for v in some.splitlines()] for some in lines
            )
            assert [len(line) for line in before] == [len(line) for line in after]
            for was, now in zip(before, after, strict=True):
                assert was == pytest.approx(now, abs=0.01 / WIDE)
        again(folder, "yolo", "coco")
        whole = json.loads((folder / "coco" / "annotations.json").read_text())
    told = [one["bbox"] for one in whole["annotations"]]
    boxes = [(x0, y0, x1 - x0, y1 - y0) for some in images for x0, y0, x1, y1, *_ in some]
    for box, expected in zip(told, boxes, strict=True):
        assert box == pytest.approx(expected, abs=0.01)
