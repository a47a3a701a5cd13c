"""Whatever is wrong with annotations: every object is written as it was, or listed with its key."""

from __future__ import annotations

import io
import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import tfrtool

pytestmark = pytest.mark.tf

_CLASSES = ("cat", "dog", "traffic light", "horse")
_SIDES = ("xmin", "ymin", "xmax", "ymax")
_OBJECT = "image/object/"
_INTACT = "", ""


@dataclass
class _Thing:
    """An object: as it is, what is broken of it, and by what a report should call it."""

    category: str
    box: tuple[float, ...]  # in pixels
    reach: tuple[int, int] = (0, 0)  # the side that is moved out of the image, and how far
    more: dict[str, Any] = field(default_factory=dict)
    broken: tuple[Any, str] | None = None  # what stands there, and a word of the reason
    place: str = ""
    key: str | None = None  # where it belongs to no image

    @property
    def told(self) -> tuple[float, ...]:
        """The box as it is annotated."""
        side, far = self.reach
        return *self.box[:side], self.box[side] + (-far if side < 2 else far), *self.box[side + 1 :]


@dataclass
class _Picture:
    """An image: what is broken of it, and what should become of its objects."""

    number: int
    size: tuple[int, int]
    things: list[_Thing]
    broken: Any = None
    has_size: bool = True  # in the annotations
    fate: str = "written"  # or audited, skipped, stray, unread, twice, background, ignored
    key: str = ""


@dataclass
class _Set:
    """An annotated set, and how it is written."""

    pictures: list[_Picture]
    names: bool  # whether a file says that there are no horses
    masks: str
    points: bool  # whether objects of YOLO have key points
    random: Random


@cache
def _png(width: int, height: int) -> bytes:
    output = io.BytesIO()
    Image.new("RGB", (width, height), (width, height, 99)).save(output, "PNG")
    return output.getvalue()


def _draw_images(folder: Path, pictures: Sequence[_Picture], *, always_told: bool = True) -> None:
    """Write the images, and set the keys and fates of those that are damaged."""
    folder.mkdir(parents=True)
    for one in pictures:
        data, path = _png(*one.size), folder / f"{one.number}.png"
        if one.broken == "garbage":
            data = b"no image"
            one.fate = "audited" if always_told and one.has_size else "skipped"
        elif one.broken == "cut":
            data, one.fate = data[:45], "audited"
        elif one.broken == "size":
            one.fate = "audited"
        if one.broken == "missing":
            one.fate = "skipped"
        else:
            path.write_bytes(data)


def _size_told(one: _Picture) -> tuple[int, int] | None:
    width, height = one.size
    if one.broken == "size":
        return width + 1, height
    return one.size if one.has_size else None


# Each writer takes a folder and a set, writes the set there, tells each object its place and each
# image its key and fate, and returns the source and what is given as its annotations.

_Writer = Callable[[Path, _Set], tuple[Path, str]]
_FULL = {"size": [120, 160], "counts": [0, 19200]}
_COCO_OBJECTS: Sequence[tuple[Mapping[str, Any], str]] = (
    ({"bbox": ["16", 24, 64, 48]}, "bbox"),
    ({"bbox": [float("nan"), 24, 64, 48]}, "bbox"),
    ({"bbox": [True, 24, 64, 48]}, "bbox"),
    ({"bbox": [16, 24, 64]}, "bbox"),
    ({"bbox": {"x": 1}}, "bbox"),
    ({"bbox": [16, 24, 1e300, 48]}, "bbox"),
    ({"bbox": None, "segmentation": None}, "no bbox"),
    ({"bbox": None, "segmentation": _FULL}, "no bbox"),
    ({"bbox": [16, 24, -64, 48]}, "inverted"),
    ({"bbox": [16, 24, 0, 48]}, "empty"),
    ({"bbox": [200, 24, 64, 48]}, "outside"),
    ({"category_id": 2}, "category_id 2"),
    ({"category_id": [1]}, "category_id None"),
    ({"category_id": True}, "category_id None"),
    ({"image_id": 99}, "no image"),
    ({"image_id": None}, "no image"),
    ({"area": "large"}, "area"),
    ({"area": -1}, "area"),
    ({"area": float("inf")}, "area"),
    ({"iscrowd": 7}, "iscrowd"),
    ({"iscrowd": [1]}, "iscrowd"),
    ({"segmentation": "x"}, "neither polygons nor run lengths"),
    ({"segmentation": [[1, 2, 3, "4"]]}, "list of polygons"),
    ({"segmentation": [[1, 2, 3, 4, float("inf"), 6]]}, "out of range"),
    ({"segmentation": {"size": [120, 160]}}, "no run lengths"),
    ({"segmentation": {"counts": [5]}}, "no size"),
    ({"segmentation": {"size": [120, 160], "counts": [5]}}, "don't fill 160 x 120 pixels"),
    ({"segmentation": {"size": [120, 160], "counts": "~~~"}}, "COCO text"),
    ({"segmentation": {"size": [120, 160], "counts": "o" * 99 + "0"}}, "too many digits"),
    ({"segmentation": {"size": [2, 2], "counts": [1, 3]}}, "2 x 2"),
    ({"segmentation": {"size": [10**6, 10**6], "counts": [0]}}, "89,478,485"),
    ({"keypoints": [1, 2]}, "keypoints"),
    ({"keypoints": [1, 2, 3]}, "keypoints"),
    ({"keypoints": [1.0] * 3003}, "keypoints"),
)
_COCO_IMAGES = (
    {"id": None},
    {"id": [1]},
    {"file_name": 5},
    {"file_name": "../../etc/passwd"},
    {"width": "160"},
    {"width": 160.5},
    {"height": float("nan")},
    {"height": -120},
    {"width": 0},
    "id",  # that of another image
    "twice",
)


def _write_coco(folder: Path, some: _Set) -> tuple[Path, str]:
    _draw_images(folder / "images", some.pictures)
    images, objects = list[dict[str, Any]](), list[tuple[_Picture, _Thing, dict[str, Any]]]()
    for one in [*some.pictures]:
        one.key = name = f"{one.number}.png"
        if one.broken == "ignored":
            one.fate, one.things = "ignored", []
            continue
        size = _size_told(one)
        sides = dict(zip(("width", "height"), size, strict=True)) if size else {}
        image = {"id": one.number, "file_name": name} | sides
        images.append(image)
        if isinstance(one.broken, dict):
            image |= one.broken
            one.key = str(one.broken.get("file_name", name))
            one.key = f"image {one.number}" if one.key == "5" else one.key
            one.fate = "stray" if "id" in one.broken else "skipped"
            if one.key != name:
                some.pictures.append(_Picture(-1, one.size, [], fate="ignored", key=name))
        elif one.broken == "id":
            one.fate = "skipped"
            (folder / "images" / f"twin {name}").write_bytes(_png(8, 8))
            images.append(image | {"file_name": f"twin {name}"})
            some.pictures.append(
                _Picture(one.number, (8, 8), [], fate="skipped", key=f"twin {name}")
            )
        elif one.broken == "twice":
            images.append(image | {"id": one.number + 1000})
            again = _Picture(one.number + 1000, one.size, one.things[::2], fate="twice", key=name)
            one.things = one.things[1::2]
            some.pictures.append(again)
    for one in some.pictures:
        for thing in one.things:
            x0, y0, x1, y1 = thing.told
            value = {"image_id": one.number, "bbox": [x0, y0, x1 - x0, y1 - y0], **thing.more}
            value["category_id"] = {"cat": 1, "dog": 3, "traffic light": 7, "horse": 9}[
                thing.category
            ]
            value["iscrowd"] = int(value.pop("is_crowd", 0))
            if points := value.pop("points", None):
                value["keypoints"] = points
            if value.pop("outline", None):
                value["segmentation"] = [[x0, y0, x1, y0, x1, y1]]
            if thing.broken:
                value |= thing.broken[0]
            if "image_id" in (thing.broken or _INTACT)[0]:
                thing.key = "image 99" if value["image_id"] else "image "
            elif one.fate == "stray":
                thing.key = f"image {one.number}"
            objects.append((one, thing, value))
    some.random.shuffle(objects)
    told = Counter(thing.more.get("id") for _, thing, _ in objects)
    for one in some.pictures:
        one.things = []
    for at, (one, thing, _) in enumerate(objects):
        number = thing.more.get("id")
        thing.place = f"annotations[{at}]" if number is None else f"annotation {number}"
        if number is not None and told[number] > 1:
            thing.more["id"] = -1
        one.things.append(thing)
    categories = [{"id": n, "name": c} for n, c in zip((1, 3, 7, 9), _CLASSES, strict=True)]
    content = {"images": images, "annotations": [value for *_, value in objects]}
    path = folder / "some.json"
    path.write_text(json.dumps(content | {"categories": categories}))
    return folder / "images", f"coco:{path}"


_BOX = "<xmin>1</xmin><ymin>2</ymin><xmax>3</xmax><ymax>4</ymax>"
_SIDE_TEXTS = ("NaN", "1e400", "-5", "wide", "9" * 5000, "\u0661\u0666\u0660", "160.5")


def _voc_object(name: str, box: str) -> str:
    return f"<object><name>{name}</name><bndbox>{box}</bndbox></object>"


_VOC_OBJECTS = (
    ("<object/>", "no class"),
    ("<object><name>a\nb</name></object>", "several lines"),
    (f"<object><name>{'a' * 1025}</name></object>", "longer than 1,024 characters"),
    ("<object><name>a&#x80;b</name></object>", "control character"),
    ("<object><name>cat</name></object>", "no bndbox"),
    *(
        (_voc_object("cat", _BOX.replace("3", wrong)), "not four numbers")
        for wrong in ("three", "1_0", "nan", "9" * 400, "")
    ),
    (_voc_object("cat", _BOX.replace("<xmax>3</xmax>", "")), "not four numbers"),
    (_voc_object("cat", _BOX.replace("3", "0")), "inverted"),
    (_voc_object("cat", _BOX.replace("3", "1")), "empty"),
    (_voc_object("cat", _BOX.replace("1", "101").replace("3", "103")), "outside"),
)
_VOC_IMAGES = (
    *(f"<size><width>{side}</width><height>120</height></size>" for side in _SIDE_TEXTS),
    *("<annotation><object>", "", "\xff\xfe<", "<a" * 10, "&lt;"),
)


def _write_voc(folder: Path, some: _Set) -> tuple[Path, str]:
    _draw_images(folder / "JPEGImages", some.pictures)
    (folder / "Annotations").mkdir()
    for one in some.pictures:
        one.key = f"JPEGImages/{one.number}.png"
        if one.broken == "ignored":
            one.fate, one.things = "ignored", []
            continue
        objects = ""
        for at, thing in enumerate(one.things, 1):
            thing.place = f"Annotations/{one.number}.xml, object {at}"
            sides = zip(_SIDES, thing.told, strict=True)
            more = "".join(f"<{k}>{int(v)}</{k}>" for k, v in thing.more.items())
            box = "".join(f"<{side}>{value!r}</{side}>" for side, value in sides)
            whole = _voc_object(thing.category, box).replace("</object>", f"{more}</object>")
            objects += thing.broken[0] if thing.broken else whole
        size = ""
        if told := _size_told(one):
            size = f"<size><width>{told[0]}</width><height>{told[1]}</height></size>"
        text = f"<annotation><filename>{one.number}.png</filename>{size}{objects}</annotation>"
        if one.broken in _VOC_IMAGES:
            one.fate = "skipped" if one.broken.startswith("<size>") else "unread"
            text = text.replace(size, one.broken) if one.fate == "skipped" else one.broken
        path = folder / "Annotations" / f"{one.number}.xml"
        path.write_text(text, "latin-1" if one.fate == "unread" else "utf-8")
    return folder, f"voc:{folder}"


_YOLO_OBJECTS = (
    ("4 0.5 0.5 0.1 0.1", "class 4"),
    ("-1 0.5 0.5 0.1 0.1", "class -1"),
    ("9" * 5000 + " 0.5 0.5 0.1 0.1", "class 9999"),
    ("0.5 0.5 0.5 0.1 0.1", "class 0.5"),
    ("cat 0.5 0.5 0.1 0.1", "class cat"),
    ("\x1b[31m 0.5", r"class \x1b[31m"),
    ("0 0.5 0.5 0.1", "4 columns"),
    ("0 0.5 0.5 0.1 0.1 0.9", "6 columns"),
    ("0", "1 columns"),
    ("0 nan 0.5 0.1 0.1", "coordinate"),
    ("0 0.5 0.5 1e400 0.1", "coordinate"),
    ("0 0.5 0.5 x 0.1", "coordinate"),
    ("0 .1 .1 inf .1 .2 .2", "coordinate"),
    ("0 0.5 0.5 -0.1 0.1", "inverted"),
    ("0 0.5 0.5 0 0.1", "empty"),
    ("0 3 3 0.1 0.1", "outside"),
)
_YOLO_POINTS = (*_YOLO_OBJECTS, ("0 .5 .5 .1 .1 .5 .5 7", "keypoint"))


def _write_yolo(folder: Path, some: _Set) -> tuple[Path, str]:
    _draw_images(folder / "images" / "train", some.pictures, always_told=False)
    (folder / "labels" / "train").mkdir(parents=True)
    for one in some.pictures:
        one.key = f"images/train/{one.number}.png"
        labels = f"labels/train/{one.number}.txt"
        lines = list[str]()
        for at, thing in enumerate(one.things, 1):
            thing.place = f"{labels}, line {2 * at}"
            x0, y0, x1, y1 = (v / s for v, s in zip(thing.told, one.size * 2, strict=True))
            values = [(x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0]
            if some.points:
                thing.more = {"points": [1, 2, one.number % 3]}
                values += [1 / one.size[0], 2 / one.size[1], one.number % 3]
            elif thing.more.get("outline"):
                values = [x0, y0, x1, y0, x1, y1]
            number = f"{_CLASSES.index(thing.category)}{'.0' * (at % 2)}"
            line = f"{number} {' '.join(map(repr, values))}"
            lines += ["", thing.broken[0] if thing.broken else line]
        (folder / labels).write_text("\r\n".join(lines))
        if one.broken == "missing":
            one.fate = "stray"
            for thing in one.things:
                thing.key = labels
        elif one.broken == "ignored":
            (folder / labels).unlink()
            one.fate, one.things = "background", []
    shape = "kpt_shape: [1, 3]\n" if some.points else ""
    (folder / "data.yaml").write_text(
        f"train: images/train\nnames: {json.dumps(_CLASSES)}\n{shape}"
    )
    return folder, f"yolo:{folder}"


_NAMELESS = "no image name"
_CSV_OBJECTS = (
    (",1,2,3,4", "no class"),
    ('"c\nat",1,2,3,4', "several lines"),
    *(
        (f"cat,1,2,{rest}", "not four numbers")
        for rest in ("3", ",4", "nan,4", "1e999,4", "1_0,4", "three,4", "3,\u0664")
    ),
    ("cat,,,,", "not four numbers"),
    ("cat,1,2,3,4,0,0,0,5", "12 cells"),
    ("cat,5,2,3,4", "inverted"),
    ("cat,5,2,5,4", "empty"),
    ("cat,500,2,600,4", "outside"),
    ("", _NAMELESS),
    ("x" * 5000, _NAMELESS),
)
_CSV_IMAGES = (*((side, "120") for side in _SIDE_TEXTS), ("0", "1" + "0" * 20), "disagree", "twice")


def _write_csv(folder: Path, some: _Set) -> tuple[Path, str]:
    _draw_images(folder / "images", some.pictures)
    rows = list[tuple[_Picture, _Thing | None, str]]()
    for one in [*some.pictures]:
        one.key = f"{one.number}.png"
        if one.broken == "ignored":
            one.fate, one.things = "ignored", []
            continue
        width, height = map(str, _size_told(one) or ("", ""))
        if isinstance(one.broken, tuple):
            (width, height), one.fate = one.broken, "skipped"
        nameless = [(t.broken or _INTACT)[1] == _NAMELESS for t in one.things]
        if all(nameless) or one.broken == "disagree":
            size = f"{width},{height}"
            if one.broken == "disagree":
                one.fate, size = "skipped", "7,9"
                rows.append((one, None, f"{one.key},9,7,,,,,"))
            rows.append((one, None, f"{one.key},{size},,,,,"))
        elif one.broken == "twice":
            again = _Picture(one.number, one.size, one.things[1:], fate="twice", key=one.key)
            one.things = one.things[:1]
            some.pictures.append(again)
            if all((t.broken or _INTACT)[1] == _NAMELESS for t in again.things):
                rows.append((again, None, f"sub/{one.key},,,,,,,"))
            rows += _rows(again, f"sub/{one.key},{width},{height}")
        rows += _rows(one, f"{one.key},{width},{height}")
    some.random.shuffle(rows)
    for one in some.pictures:
        one.things = []
    for at, (one, thing, _) in enumerate(rows, 2):
        if thing is not None:
            one.things.append(thing)
            thing.place = f"row {at}"
            thing.key = thing.place if thing.key else None
    header = ",".join(("filename,width,height,class", *_SIDES, "difficult,truncated,iscrowd"))
    path = folder / "boxes.csv"
    path.write_text("\n".join((header, *(text for *_, text in rows))))
    return folder / "images", f"csv:{path}"


def _rows(one: _Picture, start: str) -> Iterator[tuple[_Picture, _Thing, str]]:
    for thing in one.things:
        flags = [str(int(thing.more.get(name, 0))) for name in ("difficult", "truncated")]
        cells = [*map(repr, thing.told), *flags, str(int(thing.more.get("is_crowd", 0)))]
        text = f"{start},{','.join([thing.category, *cells])}"
        if thing.broken:
            wrong, reason = thing.broken
            text = f"{start},{wrong}"
            if reason == _NAMELESS:
                thing.key, text = "row", f"{wrong},,,cat,1,2,3,4"
        yield one, thing, text


_WRITERS: Mapping[str, tuple[_Writer, Sequence[Any], Sequence[Any]]] = {
    "coco": (_write_coco, _COCO_OBJECTS, _COCO_IMAGES),
    "voc": (_write_voc, _VOC_OBJECTS, _VOC_IMAGES),
    "yolo": (_write_yolo, _YOLO_OBJECTS, ()),
    "csv": (_write_csv, _CSV_OBJECTS, _CSV_IMAGES),
}
_MORE = {
    "coco": ("id", "area", "is_crowd", "outline", "points"),
    "voc": ("difficult", "truncated"),
    "yolo": ("outline",),
    "csv": ("difficult", "truncated", "is_crowd"),
}
_DAMAGE = ("missing", "garbage", "cut", "ignored")
_NUMBERS = st.integers(0, 2**20)


@st.composite
def _things(draw: st.DrawFn, kind: str, size: tuple[int, int], broken: Sequence[Any]) -> _Thing:
    """Draw an object whose sides are quarters of pixels."""
    random = Random(draw(_NUMBERS))
    starts = [random.randrange(4 * side - 8) for side in size]
    ends = [random.randint(max(at + 1, 8), 4 * s) for at, s in zip(starts, size, strict=True)]
    thing = _Thing(random.choice(_CLASSES), tuple(v / 4 for v in (*starts, *ends)))
    what = draw(st.sampled_from(["intact", "intact", "clipped", "broken"]))
    if what == "broken":
        thing.broken = random.choice(broken)
    elif what == "clipped":
        side = random.randrange(4)
        inside = (0, 0, *size)
        sides = [inside[at] if at == side else v for at, v in enumerate(thing.box)]
        thing.box, thing.reach = tuple(sides), (side, random.randint(1, 99))
    values: Mapping[str, Any] = {
        "id": random.randrange(100),  # some are alike
        "area": random.randrange(400) / 4,
        "points": [1, 2, random.randrange(3)],
    }
    for name in _MORE[kind]:
        if random.random() < 0.7:
            thing.more[name] = values.get(name, random.random() < 0.5)
    return thing


@st.composite
def _sets(draw: st.DrawFn, kind: str) -> _Set:
    """Draw a set of some images, of which the last and one object in it are intact."""
    _, broken_objects, broken_images = _WRITERS[kind]
    points = kind == "yolo" and draw(st.booleans())
    pictures = list[_Picture]()
    for number in range(draw(st.integers(0, 5))):
        size = draw(st.tuples(st.integers(5, 40), st.integers(5, 40)))
        objects = _things(kind, size, _YOLO_POINTS if points else broken_objects)
        one = _Picture(number, size, draw(st.lists(objects, max_size=6)))
        one.has_size = draw(st.booleans())
        what = draw(st.sampled_from(["intact", "damaged", "wrong"]))
        if what == "damaged":
            one.broken = draw(st.sampled_from(_DAMAGE if kind == "yolo" else (*_DAMAGE, "size")))
        elif what == "wrong" and broken_images:
            one.broken, one.has_size = draw(st.sampled_from(broken_images)), True
        pictures.append(one)
    pictures.append(_Picture(50, (16, 16), [_Thing("cat", (2, 2, 5, 9))]))
    masks = draw(st.sampled_from(["polygons", "none"]))
    return _Set(pictures, draw(st.booleans()), masks, points, Random(draw(_NUMBERS)))


def _why(one: _Picture) -> str:
    """Return a word of the reason for which an image is skipped."""
    if one.fate == "twice":
        return "already annotated in"
    if one.fate == "unread":
        return "invalid XML"
    if one.broken is None:
        return "several images share this id"
    reasons = {
        "missing": "no such image",
        "cut": "truncated",
        "size": f"{one.size[0] + 1} x {one.size[1]}",
        "id": "several images share this id",
        "disagree": "disagree on its size",
        "{'file_name': 5}": "no file_name",
        "{'file_name': '../../etc/passwd'}": "no such image",
        "{'height': -120}": f"invalid image size {one.size[0]} x -120",
        "{'width': 0}": f"invalid image size 0 x {one.size[1]}",
    }
    text = str(one.broken)
    others = {"{'id": "id is not a number or a short string", "g": ""}
    other = next((why for start, why in others.items() if text.startswith(start)), "whole numbers")
    return reasons.get(text, other)


_Listed = list[tuple[str, str, str]]
"""Keys, places and a word of the reasons."""


def _check_listed(found: Sequence[Any], expected: _Listed) -> None:
    """Check that the very objects are listed that should be, each for its reason."""
    places = [(one, *one.reason.partition(": ")[::2]) for one in found]
    # A class that is not in data.yaml is behind the place, so that the same reasons are one.
    reasons = [
        (one.key, place.partition(", class ")[0], f"{place}: {why}") for one, place, why in places
    ]
    assert Counter(one[:2] for one in reasons) == Counter(one[:2] for one in expected)
    for key, place, word in expected:
        why = [reason for *one, reason in reasons if one == [key, place]]
        assert any(word in one for one in why), (key, place, word, why)


def _list(record: Mapping[str, Any], name: str) -> list[Any]:
    found = record.get(name, [])
    return found if isinstance(found, list) else [found]


def _check_record(record: Mapping[str, Any], one: _Picture, things: Sequence[_Thing]) -> None:
    """Check that a record has these objects and no others, with all that was told of them."""

    def values(name: str) -> list[Any]:
        return _list(record, _OBJECT + name)

    boxes = [*zip(*(values(f"bbox/{side}") for side in _SIDES), strict=True)]
    expected = [[v / by for v, by in zip(t.box, one.size * 2, strict=True)] for t in things]
    assert boxes == [pytest.approx(box, abs=2**-22) for box in expected]  # that of float32
    assert [text.decode() for text in values("class/text")] == [t.category for t in things]
    for name in ("id", "area", "is_crowd", "difficult", "truncated"):
        for at, thing in enumerate(things):
            if thing.more.get(name, -1) != -1:
                assert values(name)[at] == thing.more[name]
    for at, thing in enumerate(things):
        outline = values("segmentation")
        if thing.more.get("outline") and outline:
            x0, y0, x1, y1 = thing.told
            (line,) = json.loads(outline[at])
            assert line == pytest.approx([x0, y0, x1, y0, x1, y1], abs=0.001)
        if points := thing.more.get("points"):
            assert values("keypoint/visibility")[at] == points[2]
            place = values("keypoint/x")[at] * one.size[0], values("keypoint/y")[at] * one.size[1]
            assert not points[2] or place == pytest.approx(points[:2], abs=1e-4)


def _check(folder: Path, some: _Set, write: _Writer) -> None:
    source, annotations = write(folder / "set", some)
    labels = folder / "names.txt"
    labels.write_text("".join(f"{name}\n" for name in _CLASSES[:3]))
    report = tfrtool.write(
        source,
        folder / "made",
        annotations=annotations,
        masks=some.masks,  # type: ignore[arg-type]
        labels=labels if some.names else None,
        shuffle=False,
        workers=1,
    )
    listed, clipped = _Listed(), _Listed()
    written = dict[str, tuple[_Picture, list[_Thing]]]()
    read = lost = 0
    for one in some.pictures:
        if one.fate in ("written", "background"):
            written[one.key] = one, []
        for thing in one.things if one.fate != "unread" else ():
            read += 1
            wrong = thing.broken[1] if thing.broken else ""
            if thing.key is not None:
                listed.append((thing.key, thing.place, wrong if one.fate != "stray" else ""))
            elif one.fate == "skipped":
                listed.append((one.key, thing.place, "image skipped"))
            elif thing.broken:
                listed.append((one.key, thing.place, wrong))
            elif one.fate == "twice":
                listed.append((one.key, thing.place, "twice"))
            elif some.names and thing.category == "horse":
                listed.append((one.key, thing.place, "unknown category 'horse'"))
            elif one.fate == "audited":
                lost += 1
            else:
                written[one.key][1].append(thing)
                if thing.reach[1]:
                    clipped.append((one.key, thing.place, "clipped"))
    account = report.annotations
    assert account is not None
    _check_listed(account.rejected, listed)
    _check_listed(account.clipped, clipped)
    kept = sum(len(things) for _, things in written.values())
    assert (account.read, account.written, account.of_rejected_images) == (read, kept, lost)
    assert account.read == kept + len(account.rejected) + lost
    away = [one for one in some.pictures if one.fate in ("skipped", "audited", "unread", "twice")]
    away += [one for one in some.pictures if one.fate == "stray" and "yolo" not in annotations]
    assert sorted(one.key for one in report.rejected) == sorted(one.key for one in away)
    for one in away:
        assert any(e.key == one.key and _why(one) in e.reason for e in report.rejected), one
    ignored = [one.key for one in some.pictures if one.fate == "ignored"]
    if "yolo" not in annotations:  # which has labels without an image there, too
        assert sorted(one.key for one in report.ignored) == sorted(ignored)
    told = json.loads((folder / "made" / "write_report.json").read_text())["annotations"]
    assert [len(told["rejected"]), len(told["clipped"])] == [len(listed), len(clipped)]
    assert (told["read"], told["written"], told["of_rejected_images"]) == (read, kept, lost)
    counts = Counter(thing.category for _, things in written.values() for thing in things)
    assert Counter(report.splits["train"].labels) == counts
    pairs = re.findall(
        r"id: (\d+)\s+name: ['\"](.+)['\"]", (folder / "made/label_map.pbtxt").read_text()
    )
    numbers = {name: int(number) for number, name in pairs}
    (shard,) = (folder / "made").glob("*.tfrecord*")
    rows = [tfrtool.parse_example(one.payload) for one in tfrtool.read_records(shard)]
    found = {row["image/filename"].decode(): row for row in rows}  # type: ignore[union-attr]
    assert len(rows) == len(found)
    assert {*found} == {*written}
    for key, (one, things) in written.items():
        _check_record(found[key], one, things)
        classes = [numbers[thing.category] for thing in things]
        assert _list(found[key], f"{_OBJECT}class/label") == classes


@pytest.mark.parametrize("kind", _WRITERS)
@given(data=st.data())
def test_every_object_is_written_or_listed(kind: str, data: st.DataObject) -> None:
    """What is read is written, listed, or of a skipped image; what is intact is in its record."""
    with tempfile.TemporaryDirectory() as folder:
        _check(Path(folder), data.draw(_sets(kind)), _WRITERS[kind][0])


@pytest.mark.parametrize("points", [False, True])
@pytest.mark.parametrize("kind", _WRITERS)
def test_all_that_can_be_broken_at_once(kind: str, points: bool, tmp_path: Path) -> None:
    """One set has every broken object and image that there is above; none costs another."""
    write, broken_objects, broken_images = _WRITERS[kind]

    def things(number: int) -> list[_Thing]:
        return [_Thing(_CLASSES[at], (1, 2, 4 + at, 6)) for at in range(number)]

    pictures = [_Picture(at, (9, 7), things(1 + at % 3)) for at in range(40)]
    damage = _DAMAGE if kind == "yolo" else (*_DAMAGE, "size", *broken_images)
    for one, broken in zip(pictures, damage, strict=False):
        one.broken = broken
    for broken in _YOLO_POINTS if kind == "yolo" and points else broken_objects:
        pictures[-1].things.append(_Thing("cat", (1, 2, 4, 6), broken=broken))
    _check(
        tmp_path, _Set(pictures, points, "polygons", points and kind == "yolo", Random(5)), write
    )
