"""Objects in records as files of COCO, VOC and YOLO: nothing lost but what is listed."""

from __future__ import annotations

import io
import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from pycocotools import mask as oracle

from tests.examples.strategies import float32, hostile_objects, int64, string
from tests.inspection.extracting import files_below, lines_beside, workshop, write_shard
from tests.inspection.objects_in_records import (
    CLASSES,
    HIGH,
    IDS,
    NAMES,
    PHOTO,
    PLAIN,
    SHAPED,
    SHARD,
    WIDE,
    dataset,
    drawn,
    record,
    take,
)
from tfrtool import extract
from tfrtool.errors import UsageError
from tfrtool.examples.example import DType, Feature, decode_example, encode_example
from tfrtool.examples.objects.annotation import ObjectAnnotation
from tfrtool.examples.objects.record_features import (
    Layout,
)
from tfrtool.inspection.extract.annotations import outline_of, unique_numbers
from tfrtool.sources.annotations.annotation_kinds import KINDS

EXPORTED = [kind.name for kind in KINDS.values() if kind.writer]

_CENTS = st.integers(0, 100 * HIGH).map(lambda v: v / 100)
_SIDES = st.lists(_CENTS, min_size=2, max_size=2, unique=True).map(sorted)
_OUTLINES = st.lists(st.lists(_CENTS, min_size=6, max_size=6), min_size=1, max_size=2)
_RUNS = st.builds(
    lambda runs: {"size": [HIGH, WIDE], "counts": runs},
    st.lists(st.integers(0, 99), min_size=1) | st.text(st.characters(codec="utf-8"), max_size=9),
)
_FOURS = ((0.1, 0.2), (0.1, 0.2), (0.5, 0.6), (0.5, 0.6))
_POINT = st.tuples(_CENTS, _CENTS, st.integers(0, 2).map(float))


@st.composite
def things(draw: st.DrawFn) -> ObjectAnnotation:
    """Draw an object as COCO has it, in hundredths of a pixel."""
    (x0, x1), (y0, y1) = draw(_SIDES), draw(_SIDES)
    return ObjectAnnotation(
        *(x0, y0, x1, y1, draw(st.integers(0, 2))),
        area=draw(st.floats(0, 1e6, width=32)),
        crowd=draw(st.booleans()),
        segmentation=json.dumps(draw(_OUTLINES | _RUNS)),
        keypoints=tuple(v for point in draw(st.tuples(_POINT, _POINT)) for v in point),
    )


@settings(max_examples=settings().max_examples // 3)
@given(
    st.lists(st.lists(things(), max_size=3), min_size=1, max_size=3),
    st.sets(st.integers(0, 2**53 - 1), min_size=12, max_size=12),
)
def test_coco_has_every_number(images: list[list[ObjectAnnotation]], ids: set[int]) -> None:
    """Ids, flags, outlines and points are what they were; so are boxes with two digits."""
    free = iter(ids)
    made = [(next(free), [one._replace(id=next(free)) for one in some]) for some in images]
    payloads = [record(*some, source_id=str(number), keypoints=2) for number, some in made]
    with workshop() as folder:
        report = take(dataset(folder / "ds", {"train": payloads}), folder / "out", "coco")
        whole = json.loads((folder / "out" / "annotations.json").read_text("utf-8"))
        for image in whole["images"]:
            assert (folder / "out" / image["file_name"]).read_bytes() == PHOTO
    assert report.complete
    assert [one["id"] for one in whole["images"]] == [number for number, _ in made]
    assert {(one["width"], one["height"]) for one in whole["images"]} == {(WIDE, HIGH)}
    expected = [(number, one) for number, some in made for one in some]
    for (number, one), told in zip(expected, whole["annotations"], strict=True):
        assert told["id"] == one.id
        assert told["image_id"] == number
        assert told["category_id"] == IDS[one.label]
        assert told["iscrowd"] == one.crowd
        assert told["segmentation"] == json.loads(one.segmentation)
        assert told["keypoints"] == [*one.keypoints]
        assert told["num_keypoints"] == sum(v > 0 for v in one.keypoints[2::3])
        assert told["area"] == pytest.approx(one.area, rel=1e-7)
        x, y, wide, high = told["bbox"]
        assert [x, y] == [one.xmin, one.ymin]
        assert [x + wide, y + high] == pytest.approx([one.xmax, one.ymax], abs=1e-5)
    assert [(one["id"], one["name"]) for one in whole["categories"]] == [*NAMES.items()]


def test_numbers_that_are_there_twice_are_given_anew(tmp_path: Path) -> None:
    """Every image and object of a file has a number of its own, and the report counts the new."""
    payloads = [record(PLAIN._replace(id=5), source_id=text) for text in ("7", "7", "08", "x")]
    report = take(dataset(tmp_path / "ds", {"train": payloads}), tmp_path / "out", "coco")
    whole = json.loads((tmp_path / "out" / "annotations.json").read_text())
    assert [one["id"] for one in whole["images"]] == [7, 8, 9, 10]
    assert [one["id"] for one in whole["annotations"]] == [5, 6, 7, 8]
    assert report.annotations is not None
    assert report.annotations.renumbered == 4


@given(st.lists(st.none() | st.integers(-5, 5) | st.integers(2**53 - 9, 2**53)))
def test_no_number_is_given_twice(wanted: list[int | None]) -> None:
    """The first that wants a free number has it, wherever others come; no two have the same."""
    final = unique_numbers(wanted)
    assert len({*final}) == len(final)
    for one in {one for one in wanted if one is not None and 0 <= one < 2**53}:
        assert final[wanted.index(one)] == one


def test_classes_with_one_number(tmp_path: Path) -> None:
    """Where records give two classes one number, COCO's categories have one each all the same."""
    text = {"image/object/class/text": string(b"cat", b"lamp")}
    both = {"image/object/class/label": int64(1, 1)} | text
    features = dict(decode_example(record(PLAIN, PLAIN)).features) | both
    shard = write_shard(tmp_path / SHARD, [encode_example(features)])
    take(shard, tmp_path / "out", "coco")
    whole = json.loads((tmp_path / "out" / "annotations.json").read_text())
    assert [one["name"] for one in whole["categories"]] == ["cat", "lamp"]
    assert len({one["id"] for one in whole["categories"]}) == 2


def test_voc(tmp_path: Path) -> None:
    """An XML file an image, a list a split; what VOC has no place for is counted."""
    full = SHAPED._replace(difficult=True, truncated=True, pose="Left", label=2)
    payloads = [record(PLAIN, full, name="x/a.jpg"), record(PLAIN._replace(crowd=True))]
    both = dataset(tmp_path / "ds", {"train": payloads, "validation": [record(name="c.png")]})
    report = take(both, tmp_path / "out", "voc")
    assert {*files_below(tmp_path / "out")} == {
        *(f"JPEGImages/{name}" for name in ("a.jpg", "a_2.jpg", "c.png")),
        *(f"Annotations/{name}.xml" for name in ("a", "a_2", "c")),
        *("ImageSets/Main/train.txt", "ImageSets/Main/val.txt"),
    }
    assert (tmp_path / "out/ImageSets/Main/train.txt").read_text() == "a\na_2\n"
    tree = ET.parse(tmp_path / "out/Annotations/a.xml").getroot()
    assert tree.findtext("filename") == "a.jpg"
    assert [tree.findtext(f"size/{side}") for side in ("width", "height")] == ["640", "427"]
    said = [
        [
            [leaf.text for leaf in one.iter() if (leaf.text or "").strip()]
            for one in tree.iter("object")
        ]
    ]
    assert said == [
        [
            ["cat", "Unspecified", "0", "0", "10.5", "20", "110.25", "220"],
            ["лев & <b>", "Left", "1", "1", "10.5", "20", "110.25", "220"],
        ]
    ]
    assert not [*ET.parse(tmp_path / "out/Annotations/a_2.xml").iter("object")]
    objects = report.annotations
    assert objects is not None
    assert objects.lost == {"outlines": 1}
    assert objects.listed == (f"{SHARD}:1, object 0: voc does not support crowd regions",)
    assert not report.complete
    assert lines_beside(tmp_path / "out")[0]["file"] == [
        "JPEGImages/a.jpg",
        "Annotations/a.xml",
    ]


@pytest.mark.parametrize("kind", ["voc", "yolo"])
def test_names_that_differ_in_the_suffix(tmp_path: Path, kind: str) -> None:
    """Images that would share an annotation file get numbers, and keep their own."""
    names = ["a.jpg", "a.png", "x/a.jpg", "n" * 255, "b 50%.jpg", "../up.jpg"]
    take(dataset(tmp_path / "ds", {"train": [record(name=n) for n in names]}), tmp_path / "o", kind)
    found = {path.rpartition("/")[2] for path in files_below(tmp_path / "o")}
    pictures = {name for name in found if name.endswith((".jpg", ".png"))}
    others = {name.rpartition(".")[0] for name in found if name.endswith((".xml", ".txt"))}
    assert {name.rpartition(".")[0] for name in pictures} == others - {"train"}
    assert {"a.jpg", "a_2.png", "a_3.jpg", "b 50%.jpg", "up.jpg"} <= pictures
    assert len(pictures) == len(names)


@pytest.mark.parametrize("kind", EXPORTED)
def test_what_is_wrong_is_listed(tmp_path: Path, kind: str) -> None:
    """Boxes of no use, outlines that are none, unlike sizes and unknown ones: all is told."""
    bad = [PLAIN._replace(xmax=5), PLAIN._replace(xmin=700, xmax=800)]
    over, odd = PLAIN._replace(xmax=700), PLAIN._replace(segmentation="[[1, NaN]]")
    payloads = [record(*bad, over, odd), record(PLAIN, data=drawn(size=(64, 43)))]
    sides = {f"image/object/bbox/{side}": [0.1] for side in ("xmin", "ymin")}
    sides |= {f"image/object/bbox/{side}": [0.2] for side in ("xmax", "ymax")}
    floats = {name: Feature(dtype=DType.FLOAT32, values=some) for name, some in sides.items()}
    payloads.append(encode_example({"image/encoded": string(b"\xff\xd8\xffnone"), **floats}))
    payloads.append(encode_example({"image/height": int64(1), **floats}))
    report = take(dataset(tmp_path / "ds", {"train": payloads}), tmp_path / "out", kind)
    objects = report.annotations
    assert objects is not None
    assert objects.written == 3
    said = [line.partition(f"{SHARD}:")[2] for line in objects.listed]
    starts = ["0, object 0: box", "0, object 1: box", "2, object 0: image size"]
    for line, start in zip(said, [*starts, "3, object 0: no feature"], strict=True):
        assert line.startswith(start)
    told = [line.partition(f"{SHARD}:")[2] for line in objects.problems]
    for line, start in zip(
        told,
        [
            "0, object 2: box (0.0164062, 0.0468384, 1.09375, 0.515222) extends outside",
            "0, object 3: invalid outline",
            "1: recorded size is 640 x 427, but the image is 64 x 43",
            "2: image size is unknown",
        ],
        strict=True,
    ):
        assert line.startswith(start)


def test_objects_without_a_class_are_objects(tmp_path: Path) -> None:
    """Boxes alone are a class; numbers without a name are called by them."""
    sides = {f"image/object/bbox/{side}": (0.1,) for side in ("xmin", "ymin")}
    sides |= {f"image/object/bbox/{side}": (0.2,) for side in ("xmax", "ymax")}
    bare = {name: Feature(dtype=DType.FLOAT32, values=some) for name, some in sides.items()}
    bare |= {"image/encoded": string(PHOTO)}
    payloads = [bare, bare | {"image/object/class/label": int64(17)}]
    shard = write_shard(tmp_path / "other.tfrecord", map(encode_example, payloads))
    assert take(shard, tmp_path / "out", "coco").complete
    whole = json.loads((tmp_path / "out" / "annotations.json").read_text())
    assert whole["categories"] == [{"id": 1, "name": "object"}, {"id": 17, "name": "17"}]
    assert [one["bbox"] for one in whole["annotations"]] == [[64, 42.7, 64, 42.7]] * 2


def test_masks_are_run_lengths(tmp_path: Path) -> None:
    """A mask that is an image has the same pixels as COCO's; one of another size is told."""
    mask, kept = np.zeros((HIGH, WIDE), np.uint8), io.BytesIO()
    mask[20:220, 10:110] = 255
    Image.fromarray(mask).save(kept, "PNG")
    features = decode_example(record(PLAIN, PLAIN, optional=())).features
    pngs = string(kept.getvalue(), drawn("PNG", (8, 8)))
    payload = encode_example({**features, "image/object/mask": pngs})
    folder = dataset(tmp_path / "ds", {"train": [payload]})
    objects = take(folder, tmp_path / "out", "coco").annotations
    first, second = json.loads((tmp_path / "out/annotations.json").read_text())["annotations"]
    assert (oracle.decode(first["segmentation"]) * 255 == mask).all()
    assert "segmentation" not in second
    assert objects is not None
    assert objects.problems == (
        f"{SHARD}:0, object 1: mask can't be used: its size is 8 x 8, not 640 x 427",
    )
    other = take(folder, tmp_path / "voc", "voc").annotations
    assert other is not None
    assert other.lost == {"masks": 2}


def test_tfds_layout(tmp_path: Path) -> None:
    """Labels from 0 are COCO's ids from 1."""
    folder = tmp_path / "ds"
    write_shard(folder / SHARD, [record(PLAIN._replace(label=2), layout=Layout.TFDS)])
    (folder / "objects-label.labels.txt").write_text("".join(f"{n}\n" for n in CLASSES), "utf-8")
    assert take(folder, tmp_path / "out", "coco").complete
    whole = json.loads((tmp_path / "out" / "annotations.json").read_text("utf-8"))
    assert [one["category_id"] for one in whole["annotations"]] == [3]
    assert whole["categories"][2] == {"id": 3, "name": CLASSES[2]}


@pytest.mark.parametrize("kind", EXPORTED)
def test_overwrite_and_options(tmp_path: Path, kind: Any) -> None:
    """The same extract can be run again over itself; folders by a feature exclude it."""
    ds = dataset(tmp_path / "ds", {"train": [record(PLAIN), record(name="b.jpg")]})
    take(ds, tmp_path / "out", kind)
    before = files_below(tmp_path / "out")
    take(ds, tmp_path / "out", kind, overwrite=True)
    assert files_below(tmp_path / "out") == before
    take(ds, tmp_path / "one", kind, limit=1)
    assert len(files_below(tmp_path / "one")) < len(before)
    with pytest.raises(UsageError, match="can't be used together"):
        extract([ds], tmp_path / "x", annotations=kind, by="image/format")


@settings(max_examples=settings().max_examples // 4)
@given(
    st.sampled_from(EXPORTED),
    st.lists(st.tuples(hostile_objects, st.integers(0, 2)), min_size=1, max_size=3),
)
def test_whatever_records_hold_all_objects_are_accounted_for(
    kind: str, records: list[tuple[dict[str, Feature], int]]
) -> None:
    """Lists of any types and lengths make files that are read, and nothing is lost unsaid."""
    sides = ("xmin", "ymin", "xmax", "ymax")
    whole = {
        f"image/object/bbox/{n}": float32(*some) for n, some in zip(sides, _FOURS, strict=True)
    }
    with workshop() as folder:
        payloads = [
            encode_example({"image": string(PHOTO), **(whole if has_boxes else {}), **features})
            for features, has_boxes in records
        ]
        take(write_shard(folder / SHARD, payloads), folder / "out", kind)
        for path in folder.rglob("out/*.json"):
            json.loads(path.read_text(), parse_constant=pytest.fail)
        for path in folder.rglob("out/Annotations/*"):
            ET.parse(path)
        for path in folder.rglob("out/*.yaml"):
            yaml.safe_load(path.read_text("utf-8"))


@settings(max_examples=settings().max_examples // 2)
@given(st.text(max_size=30) | st.recursive(st.floats() | st.text(), st.lists).map(json.dumps))
def test_outlines_are_numbers_or_none(text: str) -> None:
    """Whatever a text holds, what is taken for polygons is lists of pairs of finite numbers."""
    found = outline_of(text)
    assert found is None or all(len(line) % 2 == 0 for line in found)
    json.dumps(found, allow_nan=False)
