"""COCO's annotations through `write`: boxes stay on what they are about, whatever is done to it."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

import tfrtool
from tests.annotated_sets import COLORS, SCENES, Scene, Thing, scenes, write_coco
from tests.more import more
from tfrtool.cli import main
from tfrtool.examples.example import decode_example
from tfrtool.images.masks import mask_bitmap, mask_text
from tfrtool.writing.write_report import WriteReport

pytestmark = pytest.mark.tf

_SIDES = ("xmin", "ymin", "xmax", "ymax")


def _write(tmp_path: Path, wanted: Sequence[Scene], **options: Any) -> list[dict[str, Any]]:
    path = tmp_path / "some.json"
    if not path.exists():
        write_coco(path, wanted)
    report = tfrtool.write(
        tmp_path / "images",
        tmp_path / "made" / "1.0.0",
        annotations=f"coco:{path}",
        existing="overwrite",
        shuffle=False,
        **options,
    )
    assert isinstance(report, WriteReport)
    assert not report.rejected
    shard = tmp_path / "made" / "1.0.0" / report.splits["train"].shards[0].path
    with tfrtool.open_records(shard) as records:
        features = [decode_example(record.payload) for record in records]
    return [{name: one.values for name, one in some.features.items()} for some in features]


def _pixels(record: dict[str, Any]) -> Any:
    size = record["image/height"][0], record["image/width"][0], 3
    if record["image/format"] == (b"raw",):
        return np.frombuffer(record["image/encoded"][0], np.uint8).reshape(size)
    with Image.open(io.BytesIO(record["image/encoded"][0])) as image:  # as it is stored
        pixels = np.asarray(image.convert("RGB"))
    assert pixels.shape == size
    return pixels


def _turned(scene: Scene, orientation: int) -> Scene:
    """Return a scene as it is seen, by Pillow alone."""
    things = []
    size = (0, 0)
    exif = Image.Exif()
    exif[0x0112] = orientation
    for thing in scene.things or (Thing("", 0, 0, 1, 1),):
        image = Image.new("L", (scene.width, scene.height))
        image.paste(255, thing[1:])
        data = io.BytesIO()
        image.save(data, "PNG", exif=exif)
        upright = ImageOps.exif_transpose(Image.open(data))
        size = upright.size
        things.append(Thing(thing.category, *(upright.getbbox() or ())))
    return Scene(scene.name, *size, tuple(things) if scene.things else ())


_ALL = [
    (orientation, encode, resize, orient)
    for orientation in range(1, 9)
    for encode in ("keep", "jpeg", "png", "raw")
    for resize in (None, 100, (90, 130))
    for orient in (True, False)
]
_SOME = [*range(0, 192, 29)]


@pytest.mark.parametrize(
    ("orientation", "encode", "resize", "orient"),
    [_ALL[at] if at in _SOME else more(*_ALL[at]) for at in range(len(_ALL))],
)
def test_boxes_stay_on_their_objects(
    tmp_path: Path, orientation: int, encode: str, resize: Any, orient: bool
) -> None:
    """Boxes, outlines and masks are where the image as written has the object's color."""
    wanted = scenes(tmp_path / "images", SCENES, orientation)
    records = _write(tmp_path, wanted, encode=encode, resize=resize, orient=orient)
    for scene, record in zip(wanted, records, strict=True):
        shown = _turned(scene, orientation) if orient else scene
        pixels = _pixels(record)
        high, wide, _ = pixels.shape
        assert isinstance(resize, int) or (wide, high) == (resize or (shown.width, shown.height))
        sides = [record.get(f"image/object/bbox/{side}", ()) for side in _SIDES]
        boxes = [*zip(*sides, strict=True)]
        assert len(boxes) == len(scene.things)
        numbers = dict(zip(COLORS, (1, 3, 7), strict=True))
        expected_numbers = [numbers[thing.category] for thing in scene.things]
        assert [*record.get("image/object/class/label", ())] == expected_numbers
        for at, (thing, box) in enumerate(zip(shown.things, boxes, strict=True)):
            expected = np.array(thing[1:]) / ([shown.width, shown.height] * 2) * ([wide, high] * 2)
            found = np.array(box) * ([wide, high] * 2)
            assert found == pytest.approx(expected, abs=0.01)
            area = record["image/object/area"][at]
            assert area == pytest.approx(np.prod(expected[2:] - expected[:2]), rel=1e-4)
            x, y = json.loads(record["image/object/segmentation"][at])[0][:2]
            assert min(abs(x - expected[[0, 2]])) + min(abs(y - expected[[1, 3]])) < 0.01
            x0, y0, x1, y1 = (found + np.array([3, 3, -3, -3])).astype(int)
            inside = pixels[y0:y1, x0:x1].reshape(-1, 3).astype(int)
            assert len(inside)
            assert abs(inside - COLORS[thing.category]).max() < 40


@pytest.mark.parametrize("orientation", [3, 6])
def test_annotations_may_be_for_the_image_as_it_is_shown(tmp_path: Path, orientation: int) -> None:
    """Their size says whether they are for the image as it is stored or as it is seen."""
    wanted = scenes(tmp_path / "images", SCENES[:1], orientation)
    (shown,) = (_turned(scene, orientation) for scene in wanted)
    write_coco(tmp_path / "some.json", [shown if orientation == 6 else wanted[0]])
    (record,) = _write(tmp_path, ())
    box = [record[f"image/object/bbox/{side}"][0] for side in _SIDES]
    sides = [shown.width, shown.height] * 2
    assert np.array(box) * sides == pytest.approx(shown.things[0][1:], abs=0.01)


@pytest.mark.parametrize("masks", ["png", "polygons"])
def test_run_lengths_move_with_their_image(tmp_path: Path, masks: str) -> None:
    """A crowd's mask is turned and scaled: its pixels are those of the box, and no others."""
    (scene,) = scenes(tmp_path / "images", SCENES[:1], 6)
    bitmap = np.zeros((scene.height, scene.width), np.uint8)
    bitmap[24:72, 16:80] = 1
    whole = write_coco(tmp_path / "some.json", [scene])
    whole["annotations"][0] |= {"segmentation": json.loads(mask_text(bitmap)), "iscrowd": 1}
    (tmp_path / "some.json").write_text(json.dumps(whole))
    (record,) = _write(tmp_path, (), masks=masks, resize=(60, 80))
    if masks == "png":
        with Image.open(io.BytesIO(record["image/object/mask"][0])) as image:
            found = np.asarray(image)
    else:
        found = mask_bitmap(record["image/object/segmentation"][0].decode(), 60, 80)
    assert found.shape == (80, 60)
    rows, columns = np.nonzero(found)
    box = [record[f"image/object/bbox/{side}"][0] for side in _SIDES] * np.array([60, 80, 60, 80])
    sides = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
    assert sides == pytest.approx(box, abs=0.01)
    assert found.sum() == (sides[2] - sides[0]) * (sides[3] - sides[1])
    assert record["image/object/is_crowd"] == (1,)


def test_the_object_detection_api_reads_them(tmp_path: Path, tf: Any) -> None:
    """Its keys and types, as in its ``tf_example_decoder``, are those of the records."""
    scenes(tmp_path / "images")
    whole = write_coco(tmp_path / "some.json")
    points = [*range(1, 52)]
    points[2::3] = [2] * 17
    whole["annotations"][0]["keypoints"] = points
    (tmp_path / "some.json").write_text(json.dumps(whole))
    _write(tmp_path, (), masks="png")
    one = tf.io.FixedLenFeature
    keys = {f"image/{name}": one((), tf.string) for name in ("encoded", "format", "source_id")}
    keys |= {f"image/{name}": one((), tf.int64) for name in ("height", "width")}
    floats = [*(f"bbox/{side}" for side in _SIDES), "area", "keypoint/x", "keypoint/y"]
    numbers = ["class/label", "is_crowd", "keypoint/visibility"]
    for names, dtype in ((floats, tf.float32), (numbers, tf.int64), (["mask"], tf.string)):
        keys |= {f"image/object/{name}": tf.io.VarLenFeature(dtype) for name in names}
    (shard,) = (tmp_path / "made" / "1.0.0").glob("*.tfrecord*")
    payload = next(iter(tf.data.TFRecordDataset(str(shard))))
    found = tf.io.parse_single_example(payload, keys)
    lists = {
        name.removeprefix("image/object/"): tf.sparse.to_dense(value).numpy().tolist()
        for name, value in found.items()
        if name.startswith("image/object/")
    }
    assert [lists[f"bbox/{side}"] for side in _SIDES] == [
        pytest.approx([share]) for share in (0.1, 0.2, 0.5, 0.6)
    ]
    assert (lists["class/label"], lists["is_crowd"], lists["area"]) == ([1], [0], [64 * 48])
    assert lists["keypoint/x"] == pytest.approx([x / 160 for x in points[::3]])
    assert lists["keypoint/y"] == pytest.approx([y / 120 for y in points[1::3]])
    assert lists["keypoint/visibility"] == [2] * 17
    image = tf.io.decode_jpeg(found["image/encoded"]).numpy()
    mask = tf.io.decode_png(lists["mask"][0]).numpy()[..., 0]
    assert mask.shape == image.shape[:2]
    assert mask[24:72, 16:80].all()
    assert mask.sum() == 64 * 48
    assert found["image/source_id"] == b"1"


def test_one_class_is_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Detectors may have one class; objects of others are listed under one reason."""
    scenes(tmp_path / "images")
    write_coco(tmp_path / "some.json")
    (tmp_path / "names.txt").write_text("dog\ncat\n")
    words = ["--annotations", f"coco:{tmp_path / 'some.json'}", "--labels"]
    write = ["write", str(tmp_path / "images"), str(tmp_path / "made"), *words]
    assert main([*write, str(tmp_path / "names.txt")]) == 3
    assert "'traffic light'" in capsys.readouterr().out
    (tmp_path / "names.txt").write_text("dog\n")
    assert main([*write, str(tmp_path / "names.txt"), "--overwrite"]) == 3
    assert "warning" not in capsys.readouterr().err


def test_tfds_reads_objects(tmp_path: Path) -> None:
    """With its own layout TFDS gives a sequence of boxes, classes and key points."""
    import tensorflow_datasets as tfds

    scenes(tmp_path / "images")
    whole = write_coco(tmp_path / "some.json")
    whole["annotations"][0]["keypoints"] = [16, 24, 2, 0, 0, 0]
    (tmp_path / "some.json").write_text(json.dumps(whole))
    _write(tmp_path, (), layout="tfds", masks="png")
    builder = tfds.builder_from_directory(tmp_path / "made" / "1.0.0")
    objects = builder.info.features["objects"]
    assert isinstance(objects.feature["bbox"], tfds.features.BBoxFeature)
    assert objects.feature["label"].names == [*COLORS]
    rows = [*builder.as_dataset(split="train", shuffle_files=False).as_numpy_iterator()]
    by_name = {row["image/filename"].decode(): row for row in rows}
    for scene in SCENES:
        row = by_name[scene.name]
        names = [objects.feature["label"].int2str(label) for label in row["objects"]["label"]]
        assert names == [thing.category for thing in scene.things]
        for thing, box in zip(scene.things, row["objects"]["bbox"], strict=True):
            sides = [scene.height, scene.width] * 2
            assert box * sides == pytest.approx(np.array(thing)[[2, 1, 4, 3]].astype(int))
        assert len(row["objects"]["mask"]) == len(scene.things)
    first = by_name["a.jpg"]["objects"]["keypoints"]
    assert first.tolist() == [pytest.approx([0.1, 0.2, 2, 0, 0, 0])]
