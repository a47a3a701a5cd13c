"""Classes of a dataset that are renamed, merged or left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.annotated_sets import scenes, write_coco
from tests.more import more
from tests.photos import write_class_folders
from tests.records.strategies import shard_of
from tfrtool.examples.example import Example, decode_example
from tfrtool.records.framing import Record


def _records(folder: Path) -> list[Example]:
    return [
        decode_example(item.payload)
        for shard in tfrtool.find_shards(folder)
        for item in tfrtool.read(shard)
        if isinstance(item, Record)
    ]


@pytest.mark.parametrize(
    ("layout", "masks"),
    [("tfod", "polygons"), ("tfds", "png"), more("tfod", "png"), more("tfds", "polygons")],
)
@pytest.mark.parametrize(
    "class_map",
    [["cat=Cat"], ["dog=cat"], ["cat=pet", "dog=pet"], ["dog="], ["cat=dog", "dog=cat"]],
)
def test_edit_gives_what_write_would(
    tmp_path: Path, layout: str, masks: str, class_map: list[str]
) -> None:
    """Records, class names and metadata are those of a write with the same class map."""
    scenes(tmp_path / "images")
    points = {"keypoints": ["nose"], "skeleton": []}
    whole = write_coco(tmp_path / "some.json")
    for category in whole["categories"]:
        category |= points
    for one in whole["annotations"]:
        one["keypoints"] = [one["bbox"][0], 1, 2]
        one["attributes"] = {"number": one["id"], "truncated": one["id"] % 2}
    (tmp_path / "some.json").write_text(json.dumps(whole))
    options: dict[str, Any] = {
        "annotations": f"coco:{tmp_path / 'some.json'}", "masks": masks, "layout": layout
    }  # fmt: skip
    images = tmp_path / "images"
    tfrtool.write(images, tmp_path / "all", name="x", **options)
    write = tfrtool.write(images, tmp_path / "wanted", name="x", class_map=class_map, **options)
    report = tfrtool.edit(tmp_path / "all", tmp_path / "edited", name="x", class_map=class_map)
    wanted, edited = _records(tmp_path / "wanted"), _records(tmp_path / "edited")
    assert [one.features for one in edited] == [one.features for one in wanted]
    assert write.annotations is not None
    assert report.dropped.get("objects", 0) == write.annotations.dropped
    label = "image/object/class/label" if layout == "tfod" else "objects/label"
    empty = [
        sum(not one.values(label) for one in some) for some in (edited, _records(tmp_path / "all"))
    ]
    assert report.dropped.get("images_without_objects", 0) == empty[0] - empty[1]
    for path in (tmp_path / "wanted").iterdir():
        if "report" not in path.name and "tfrecord" not in path.name:
            other = (tmp_path / "edited" / path.name).read_text()
            if path.name == "dataset_info.json":
                continue
            assert other == path.read_text(), path.name


def test_labels_of_images(tmp_path: Path) -> None:
    """Numbers and names of classes fit each other afterwards."""
    folder = write_class_folders(tmp_path / "s", ("bird", "cat", "dog"), 2)
    tfrtool.write(folder, tmp_path / "a", name="x")
    tfrtool.edit(tmp_path / "a", tmp_path / "b", name="x", class_map=["cat=bird"])
    names = (tmp_path / "b" / "label.labels.txt").read_text().split()
    assert names == ["bird", "dog"]
    labels = {
        str(one.values("image/filename")[0]): names[int(one.values("label")[0])]
        for one in _records(tmp_path / "b")
    }
    assert sorted(labels.values()) == ["bird"] * 4 + ["dog"] * 2
    assert all(("dog" in name) == (label == "dog") for name, label in labels.items())
    described = json.loads((tmp_path / "b" / "features.json").read_text())
    assert "'numClasses': '2'" in str(described)


@pytest.mark.parametrize(
    ("class_map", "what"),
    [
        (["dog="], "would lose their 'label'; use tfrtool filter"),
        (["dox=x"], "no class 'dox'; did you mean 'dog'"),
        (["{file}"], "none of these classes exist: expected 'cat', 'dog', found 'n01'"),
    ],
)
def test_what_is_refused(tmp_path: Path, class_map: list[str], what: str) -> None:
    """Records don't lose their only label, and classes must exist."""
    (tmp_path / "names.csv").write_text("n01,tench\n")
    class_map = [one.format(file=tmp_path / "names.csv") for one in class_map]
    tfrtool.write(write_class_folders(tmp_path / "s", count=1), tmp_path / "a", name="x")
    with pytest.raises(tfrtool.UsageError, match=what):
        tfrtool.edit(tmp_path / "a", tmp_path / "b", class_map=class_map)
    (tmp_path / "a" / "label.labels.txt").unlink()
    with pytest.raises(tfrtool.UsageError, match="classes have names"):
        tfrtool.edit(tmp_path / "a", tmp_path / "b", class_map=class_map)


def test_lists_that_dont_fit_the_objects(tmp_path: Path) -> None:
    """A record from another writer whose lists differ in length is an error, not changed."""
    start = "image/object/"
    (tmp_path / "a").mkdir()
    record = tfrtool.encode_example({
        f"{start}class/label": [1, 2], f"{start}class/text": ["a", "b"], f"{start}extra": [1, 2, 3],
    })  # fmt: skip
    (tmp_path / "a" / "x.tfrecord").write_bytes(shard_of([record]))
    label_map = 'item { id: 1 name: "a" }\nitem { id: 2 name: "b" }'
    (tmp_path / "a" / "label_map.pbtxt").write_text(label_map)
    with pytest.raises(
        tfrtool.DatasetError, match="'image/object/extra' has 3 values for 2 objects"
    ):
        tfrtool.edit(tmp_path / "a", tmp_path / "b", class_map=["b="])
