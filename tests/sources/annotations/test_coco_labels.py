"""COCO's form of JSON with categories alone: the labels of images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.annotated_sets import scenes, write_coco
from tests.sources.annotations.told import open_annotated
from tfrtool.errors import SourceError
from tfrtool.sources.folders.name_pattern import LabelFrom
from tfrtool.sources.items import Source
from tfrtool.sources.open_source import open_source
from tfrtool.sources.source_options import SourceOptions

CATEGORIES = [{"id": 3, "name": "fox"}, {"id": 1, "name": "hare", "supercategory": "x"}]


def _write(path: Path, images: dict[str, str], labels: list[tuple[str, int]]) -> str:
    """Write such a file, and its images in a folder next to it."""
    for name in images.values():
        (path.parent / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "images" / name).write_bytes(b"x")
    entries = [{"id": key, "file_name": name, "place": name[:1]} for key, name in images.items()]
    found = [{"id": n, "image_id": one, "category_id": two} for n, (one, two) in enumerate(labels)]
    content = {"annotations": found, "images": entries, "categories": CATEGORIES}
    path.write_text(json.dumps(content))
    return f"coco:{path}"


def _open(tmp_path: Path, *annotations: str, **options: Any) -> Source:
    chosen = SourceOptions(annotations=annotations, **options)
    return open_source(str(tmp_path / "images"), LabelFrom.FOLDER, tmp_path, options=chosen)


def test_a_category_is_the_label(tmp_path: Path) -> None:
    """Labels are in the order of ids; what is left out is listed, and a member groups images."""
    images = {"a": "x/1.jpg", "b": "2.jpg", "c": "3.jpg"}
    file = _write(tmp_path / "set.json", images, [("a", 3), ("a", 3), ("b", 1), ("d", 1)])
    (tmp_path / "images" / "extra.jpg").write_bytes(b"x")
    source = _open(tmp_path, file, group_by="place")
    assert [(item.key, item.label) for item in source.items] == [
        ("2.jpg", "hare"),
        ("x/1.jpg", "fox"),
    ]
    assert source.labels == ("hare", "fox")
    assert source.grouped
    assert [entry.key for entry in source.rejected] == [
        "3.jpg",
        "image d of set.json",
        "extra.jpg",
    ]


def test_several_categories_and_files(tmp_path: Path) -> None:
    """Several categories of an image are several labels; several files are splits."""
    train = _write(tmp_path / "train2019.json", {"1": "1.jpg"}, [("1", 3), ("1", 1)])
    test = _write(tmp_path / "val2019.json", {"1": "2.jpg"}, [("1", 1)])
    source = _open(tmp_path, train, test, class_map=("hare=rabbit",))
    labels = [source.features.names(item.label) for item in source.items]
    assert [[*one] for one in labels] == [["fox", "rabbit"], ["rabbit"]]
    assert [item.split for item in source.items] == ["train", "validation"]


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"categories": []}, "has category 3, which is not in categories"),
        ({"images": [{"id": "a"}]}, r"images\[0\] has no file_name"),
        ({"annotations": [{"image_id": "a"}]}, r"annotations\[0\] has no category_id"),
        ({"categories": [{"id": 3}]}, r"categories\[0\] has no name"),
    ],
)
def test_what_is_missing(more: dict[str, Any], what: str, tmp_path: Path) -> None:
    """Elements without what is needed are errors that name them."""
    file = _write(tmp_path / "set.json", {"a": "1.jpg"}, [("a", 3)])
    content = json.loads((tmp_path / "set.json").read_text()) | more
    (tmp_path / "set.json").write_text(json.dumps(content))
    with pytest.raises(SourceError, match=what):
        _open(tmp_path, file)


def test_a_file_with_boxes_has_objects(tmp_path: Path) -> None:
    """If only some annotations have boxes, all are objects, as ever."""
    scenes(tmp_path / "images")
    write_coco(tmp_path / "set.json")
    content = json.loads((tmp_path / "set.json").read_text())
    del content["annotations"][0]["bbox"], content["annotations"][0]["segmentation"]
    (tmp_path / "set.json").write_text(json.dumps(content))
    assert open_annotated(tmp_path / "images", f"coco:{tmp_path / 'set.json'}").features.has_objects
