"""Datasets of objects through `edit` and `convert`: names of classes, and what is in pixels."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import tfrtool
from tests.datasets import write_foreign
from tests.objects_written import changed, name_classes, object_record
from tfrtool.errors import UsageError
from tfrtool.examples.objects.label_map import object_names
from tfrtool.examples.objects.record_features import Layout
from tfrtool.examples.parsing import parse_example
from tfrtool.records.framing import Record

NAMES = {Layout.TFOD: "label_map.pbtxt", Layout.TFDS: "objects-label.labels.txt"}


def _dataset(folder: Path, layout: Layout, **more: Any) -> Path:
    record = object_record([(16, 24, 80, 72, 1)], layout=layout, **more)
    source = write_foreign(folder / "objects", [[record]])
    name_classes(source, layout)
    return source


def _only(folder: Path) -> dict[str, Any]:
    (shard,) = tfrtool.find_shards(folder)
    (item,) = tfrtool.read(shard)
    assert isinstance(item, Record)
    return dict(parse_example(item.payload))


@pytest.mark.parametrize("layout", [*Layout])
@pytest.mark.parametrize("to", ["parquet", "jsonl", "webdataset"])
def test_names_of_classes_go_there_and_back(layout: Layout, to: str, tmp_path: Path) -> None:
    """Whatever the format between, the same file of names lies beside the shards again."""
    source = _dataset(tmp_path, layout)
    tfrtool.convert(source, tmp_path / "there", to=to)  # type: ignore[arg-type]
    tfrtool.convert(tmp_path / "there", tmp_path / "back", to="tfrecord")
    assert object_names(tmp_path / "back") == object_names(source) != {}
    name = NAMES[layout]
    assert (tmp_path / "back" / name).read_bytes() == (source / name).read_bytes()


def test_names_of_classes_are_edited_with_their_feature(tmp_path: Path) -> None:
    """They stay where the feature does, get its new name, and go where it goes."""
    source = _dataset(tmp_path, Layout.TFDS)
    tfrtool.edit(source, tmp_path / "0", drop=["image/filename"])
    tfrtool.edit(source, tmp_path / "1", rename={"objects/label": "objects/kind"})
    tfrtool.edit(source, tmp_path / "2", drop=["objects/label"])
    found = [[path.name for path in (tmp_path / name).glob("*.txt")] for name in "012"]
    assert found == [["objects-label.labels.txt"], ["objects-kind.labels.txt"], []]


@pytest.mark.parametrize("layout", [*Layout])
def test_what_is_in_pixels_does_not_outlive_a_resize(layout: Layout, tmp_path: Path) -> None:
    """Areas would be those of the images before; boxes are shares of the sides, and stay."""
    source = _dataset(tmp_path, layout, optional={"area": 3072.0})
    area = "image/object/area" if layout is Layout.TFOD else "objects/area"
    with pytest.raises(UsageError, match=f"{area} .*--drop {area}"):
        tfrtool.edit(source, tmp_path / "small", resize=32)
    tfrtool.edit(source, tmp_path / "small", resize=32, drop=[area])
    before, after = _only(source), _only(tmp_path / "small")
    boxes = [name for name in before if "/bbox" in name]
    assert boxes
    assert {name: before[name] for name in boxes} == {name: after[name] for name in boxes}


def test_images_of_objects_are_not_turned(tmp_path: Path) -> None:
    """Boxes are for the pixels as they lie: a new encoding keeps the orientation in the file."""
    image, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (160, 120)).save(image, "JPEG", exif=exif)
    record = object_record([(16, 24, 80, 72, 1)])
    held = {"image__encoded": image.getvalue(), "image__format": "jpeg"}
    source = write_foreign(tmp_path / "objects", [[changed(record, **held)]])
    tfrtool.edit(source, tmp_path / "new", encode="jpeg")
    with Image.open(io.BytesIO(_only(tmp_path / "new")["image/encoded"])) as new:
        assert (new.size, new.getexif()[0x0112]) == ((160, 120), 6)
