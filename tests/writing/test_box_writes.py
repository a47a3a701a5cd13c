"""VOC, YOLO and tables of boxes through `write`, as TensorFlow's own parser reads them back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.annotated_sets import (
    COLORS,
    SCENES,
    Scene,
    Thing,
    scenes,
    write_box_csv,
    write_voc,
    write_yolo,
)
from tests.more import more
from tfrtool.cli import main

pytestmark = pytest.mark.tf

SIDES = ("xmin", "ymin", "xmax", "ymax")
WRITERS: dict[str, Callable[[Path], Path]] = {
    "voc": write_voc,
    "yolo": write_yolo,
    "csv": lambda folder: write_box_csv(folder / "boxes.csv"),
}


def _parsed(shards: Path) -> dict[str, dict[str, Any]]:
    """Return the records of shards by the names of their images, parsed by TensorFlow."""
    import tensorflow as tf

    lists = {f"image/object/bbox/{side}": tf.io.VarLenFeature(tf.float32) for side in SIDES}
    description = {
        **lists,
        "image/object/class/text": tf.io.VarLenFeature(tf.string),
        "image/object/class/label": tf.io.VarLenFeature(tf.int64),
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/filename": tf.io.FixedLenFeature([], tf.string),
    }
    found = {}
    for payload in tf.data.TFRecordDataset([str(path) for path in shards.glob("*.tfrecord-*")]):
        record = tf.io.parse_single_example(payload, description)
        name = record["image/filename"].numpy().decode()
        pixels = tf.io.decode_image(record["image/encoded"]).numpy()
        values = {key: tf.sparse.to_dense(record[key]).numpy() for key in (*lists, *_NAMES)}
        found[name.removeprefix("images/train/")] = {**values, "pixels": pixels}
    return found


_NAMES = ("image/object/class/text", "image/object/class/label")


@pytest.mark.parametrize(
    ("kind", "resize"),
    [
        ("voc", None),
        ("yolo", (100, 90)),
        ("csv", None),
        *(more(*one) for one in (("voc", (100, 90)), ("yolo", None), ("csv", (100, 90)))),
    ],
)
def test_records_have_the_boxes(kind: str, resize: tuple[int, int] | None, tmp_path: Path) -> None:
    """Boxes are those of the files to a hundredth of a pixel, and lie on what they are about."""
    scenes(tmp_path / "images" / "train")
    place = WRITERS[kind](tmp_path)
    out = tmp_path.parent / f"{tmp_path.name}-out"
    report = tfrtool.write(tmp_path, out, annotations=f"{kind}:{place}", resize=resize)
    assert report.annotations is not None
    assert report.annotations.read == report.annotations.written == 7
    records = _parsed(out)
    assert len(records) == (4 if kind == "csv" else 6)
    for scene in SCENES:
        if scene.name not in records:
            assert not scene.things
            continue
        record = records[scene.name]
        names = [text.decode() for text in record["image/object/class/text"]]
        assert names == [thing.category for thing in scene.things]
        numbers = {name: number for number, name in enumerate(COLORS, start=1)}
        assert [*record["image/object/class/label"]] == [numbers[name] for name in names]
        for at, thing in enumerate(scene.things):
            box = [record[f"image/object/bbox/{side}"][at] for side in SIDES]
            sides = (scene.width, scene.height) * 2
            found = [share * side for share, side in zip(box, sides, strict=True)]
            assert found == pytest.approx(thing[1:], abs=0.01)
            height, width, _ = record["pixels"].shape
            middle = int((box[1] + box[3]) / 2 * height), int((box[0] + box[2]) / 2 * width)
            assert abs(record["pixels"][middle].astype(int) - COLORS[thing.category]).max() < 40


def test_what_is_skipped_makes_the_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A clipped and an impossible box are exit code 3, and are told in the report."""
    things = Thing("cat", 8, 8, 300, 40), Thing("dog", 40, 40, 40, 40), Thing("dog", 8, 8, 16, 16)
    scenes(tmp_path / "images", [Scene("a.jpg", 160, 120)])
    (tmp_path / "images" / "bad.jpg").write_bytes(b"no image")
    table = write_box_csv(tmp_path / "boxes.csv", [Scene("a.jpg", 160, 120, things)])
    out = str(tmp_path / "out")
    with table.open("a") as rows:
        rows.write("bad.jpg,160,120,cat,8,8,16,16\n")
    assert main(["write", str(tmp_path / "images"), out, "--annotations", f"csv:{table}"]) == 3
    told = [line.strip() for line in capsys.readouterr().out.splitlines()]
    at = told.index("objects: 4 read, 2 written")
    assert told[at + 1 : at + 6] == [
        "objects of skipped images: 1",
        "skipped objects: 1",
        "box is empty: a.jpg, row 3",
        "boxes clipped to their images: 1",
        "a.jpg, row 2: box 8, 8, 300, 40 is clipped to 160 x 120 pixels",
    ]
    report = json.loads(Path(out, "write_report.json").read_text())
    assert [one["key"] for one in report["rejected"]] == ["bad.jpg"]
    found = report["annotations"]
    assert [one["key"] for one in found.pop("rejected")] == ["a.jpg"]
    assert [one["key"] for one in found.pop("clipped")] == ["a.jpg"]
    counts = {"read": 4, "written": 2, "dropped": 0, "of_rejected_images": 1, "truncated": 0}
    assert found == counts
