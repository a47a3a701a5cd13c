"""Objects in records as YOLO's labels."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.inspection.objects_in_records import (
    CLASSES,
    HIGH,
    PHOTO,
    PLAIN,
    SHAPED,
    TURNED,
    WIDE,
    dataset,
    record,
    take,
)
from tests.sources.annotations.told import open_annotated
from tfrtool.examples.objects.annotation import ObjectAnnotation


def labels_of(out: Path, name: str) -> list[list[float]]:
    """Return the lines of a file of labels, as numbers."""
    text = (out / "labels" / f"{name}.txt").read_text()
    return [[*map(float, line.split())] for line in text.splitlines()]


def test_yolo(tmp_path: Path) -> None:
    """Boxes are shares of sides; in an image with an outline every object is a polygon."""
    payloads = [record(PLAIN), record(PLAIN, SHAPED, name="b.jpg"), record(name="c.jpg")]
    both = dataset(tmp_path / "ds", {"train": payloads, "validation": [record(name="d.jpg")]})
    report = take(both, tmp_path / "out", "yolo")
    assert report.complete
    assert yaml.safe_load((tmp_path / "out/data.yaml").read_text("utf-8")) == {
        "train": "images/train",
        "val": "images/val",
        "names": dict(enumerate(CLASSES)),
    }
    box = [0, 60.375 / WIDE, 120 / HIGH, 99.75 / WIDE, 200 / HIGH]
    assert labels_of(tmp_path / "out", "train/a") == [pytest.approx(box, abs=1e-7)]
    corners = [(10.5, 20), (110.25, 20), (110.25, 220), (10.5, 220)]
    shares = [[v for x, y in some for v in (x / WIDE, y / HIGH)] for some in (corners, corners[:2])]
    assert labels_of(tmp_path / "out", "train/b") == [
        pytest.approx([0, *shares[0]], abs=1e-7),
        pytest.approx([1, *shares[1], 60 / WIDE, 220 / HIGH], abs=1e-7),
    ]
    assert (tmp_path / "out/labels/train/c.txt").read_bytes() == b""
    assert (tmp_path / "out/images/val/d.jpg").read_bytes() == PHOTO


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_yolo_without_a_split_that_trainers_require(tmp_path: Path, split: str) -> None:
    """They take train and val from data.yaml; read again, images are in the split that they had."""
    ds = dataset(tmp_path / "ds", {split: [record(PLAIN)]})
    take(ds, tmp_path / "out", "yolo")
    config = yaml.safe_load((tmp_path / "out/data.yaml").read_text("utf-8"))
    assert {*config} == {"train", "val", "names", *([split] if split == "test" else [])}
    assert all((tmp_path / "out" / config[key]).is_dir() for key in ("train", "val"))
    source = open_annotated(tmp_path / "out", f"yolo:{tmp_path / 'out'}")
    assert source.splits == (split,)


def test_yolo_joins_the_parts_of_an_outline(tmp_path: Path) -> None:
    """Of an object in parts one polygon is made, which fills the pixels of all of them."""
    squares = [[(x, y), (x + 50, y), (x + 50, y + 50), (x, y + 50)] for x, y in ((9, 9), (99, 9))]
    squares.append([(200, 200), (260, 210), (220, 300)])
    text = json.dumps([[v for point in part for v in point] for part in squares])
    one = PLAIN._replace(segmentation=text)
    take(dataset(tmp_path / "ds", {"train": [record(one)]}), tmp_path / "out", "yolo")
    (line,) = labels_of(tmp_path / "out", "train/a")
    points = [(x * WIDE, y * HIGH) for x, y in zip(line[1::2], line[2::2], strict=True)]
    sides = zip(points, points[1:] + points[:1], strict=True)
    area = sum(x0 * y1 - x1 * y0 for (x0, y0), (x1, y1) in sides)
    assert area / 2 == pytest.approx(2 * 2500 + 2900, rel=1e-4)
    assert {(round(x), round(y)) for x, y in points} == {one for part in squares for one in part}


def test_yolo_key_points(tmp_path: Path) -> None:
    """Where objects have key points and no outlines, they are a pose."""
    one = PLAIN._replace(keypoints=(32.0, 42.7, 2.0, 0.0, 0.0, 0.0))
    ds = dataset(tmp_path / "ds", {"train": [record(name="0.jpg"), record(one, keypoints=2)]})
    assert take(ds, tmp_path / "out", "yolo").complete
    assert yaml.safe_load((tmp_path / "out/data.yaml").read_text("utf-8"))["kpt_shape"] == [2, 3]
    (line,) = labels_of(tmp_path / "out", "train/a")
    assert line[5:] == pytest.approx([0.05, 0.1, 2, 0, 0, 0], abs=1e-6)


def test_yolo_turns_labels_as_its_readers_turn_images(tmp_path: Path) -> None:
    """Labels are for the image as its EXIF data turn it: left top is then right top."""
    one = ObjectAnnotation(0, 0, 64, 42.7, 0)
    take(dataset(tmp_path / "ds", {"train": [record(one, data=TURNED)]}), tmp_path / "out", "yolo")
    (line,) = labels_of(tmp_path / "out", "train/a")
    assert line == pytest.approx([0, 0.95, 0.05, 0.1, 0.1], abs=1e-6)
