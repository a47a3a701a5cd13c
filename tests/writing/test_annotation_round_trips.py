"""Annotations written and extracted again: nothing is lost, renumbered or moved."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import tfrtool
from tests.annotated_sets import Scene, scenes
from tfrtool.cli import main
from tfrtool.errors import SourceError
from tfrtool.writing.write_report import WriteReport

pytestmark = pytest.mark.tf

_CATEGORIES = [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}]


def _image(number: int, **more: Any) -> dict[str, Any]:
    return {"id": number, "file_name": f"{number}.jpg", "width": 96, "height": 80} | more


def _object(number: int | None, image: int, **more: Any) -> dict[str, Any]:
    box = {
        "image_id": image,
        "category_id": 1,
        "bbox": [8, 16, 24, 32],
        "area": 700.5,
        "iscrowd": 0,
    }
    return ({} if number is None else {"id": number}) | box | more


def _coco(path: Path, images: Sequence[Any], objects: Sequence[Any] = (), **more: Any) -> str:
    path.parent.mkdir(exist_ok=True)
    whole = {"images": images, "annotations": objects, "categories": _CATEGORIES} | more
    path.write_text(json.dumps(whole))
    return f"coco:{path}"


def _write(folder: Path, annotations: str | Sequence[str], **options: Any) -> WriteReport:
    """Write images; every object that was read is written or listed."""
    if not (folder / "images").exists():
        scenes(folder / "images", [Scene(f"{number}.jpg", 96, 80) for number in range(5)])
    report = tfrtool.write(
        folder / "images", folder / "made", annotations=annotations, existing="overwrite", **options
    )
    account = report.annotations
    assert account is not None
    assert account.read == account.written + len(account.rejected)
    return report


def _extracted(folder: Path, form: Any = "coco") -> Path:
    """Extract the objects of all records, and return the folder."""
    report = tfrtool.extract(folder / "made", folder / "out", annotations=form, overwrite=True)
    assert report.complete
    assert report.annotations is not None
    assert report.annotations.objects == report.annotations.written
    return folder / "out"


def test_ids_and_areas_of_zero_come_back(tmp_path: Path) -> None:
    """An id of 0 and an area of 0 are kept, and an object without an id takes no other's."""
    objects = [_object(None, 0), _object(0, 1), _object(1, 1, area=0), _object(7, 2, area=0.25)]
    report = _write(tmp_path, _coco(tmp_path / "a.json", [*map(_image, range(3))], objects))
    assert report.notices == ()
    whole = json.loads((_extracted(tmp_path) / "annotations.json").read_text())
    assert sorted(whole["images"], key=lambda one: one["id"]) == [*map(_image, range(3))]
    found = {one.pop("id"): one for one in whole["annotations"]}
    assert found == {8: objects[0]} | {
        one["id"]: {name: value for name, value in one.items() if name != "id"}
        for one in objects[1:]
    }


def test_ids_of_zero_are_counted_where_a_format_has_no_ids(tmp_path: Path) -> None:
    """VOC has no place for ids and areas: those of 0 count as lost, too."""
    _write(tmp_path, _coco(tmp_path / "a.json", [_image(0)], [_object(0, 0, area=0)]))
    report = tfrtool.extract(tmp_path / "made", tmp_path / "out", annotations="voc")
    assert report.annotations is not None
    assert report.annotations.lost == {"areas": 1, "ids": 1}


def test_a_second_annotations_option_is_merged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All files are written, each in the split of its name, and come out as two files."""
    scenes(tmp_path / "images", [Scene(f"{number}.jpg", 96, 80) for number in range(4)])
    train, val = [_object(0, 0), _object(1, 1, area=0)], [_object(0, 2), _object(1, 3)]
    first = _coco(tmp_path / "instances_train.json", [_image(0), _image(1)], train)
    second = _coco(tmp_path / "instances_val.json", [_image(2), _image(3)], val)
    words = ["write", str(tmp_path / "images"), str(tmp_path / "made"), "--json"]
    assert main([*words, "--annotations", first, "--annotations", second]) == 0
    account = json.loads(capsys.readouterr().out)["annotations"]
    assert (account["read"], account["written"]) == (4, 4)
    out = _extracted(tmp_path)
    for split, objects in (("train", train), ("validation", val)):
        whole = json.loads((out / f"instances_{split}.json").read_text())
        assert sorted(whole["annotations"], key=lambda one: one["id"]) == objects


def test_splits_are_in_all_names_or_in_none(tmp_path: Path) -> None:
    """Files without a split in any name are one set; one name without, among others, is refused."""
    first = _coco(tmp_path / "cats.json", [_image(0)], [_object(1, 0)])
    second = _coco(tmp_path / "more.json", [_image(1)], [_object(2, 1)])
    assert _write(tmp_path, [first, second]).splits.keys() == {"train"}
    third = _coco(tmp_path / "instances_val.json", [_image(2)], [_object(3, 2)])
    with pytest.raises(SourceError, match=r"cats\.json: .*no split"):
        _write(tmp_path, [first, third])


def test_files_of_one_split_are_merged(tmp_path: Path) -> None:
    """COCO's own files describe one object twice; it is one, with all that they say of it."""
    images, points = [*map(_image, range(3))], [8, 16, 2, 9, 17, 1]
    several = tmp_path / "annotations"
    _coco(several / "image_info_train2017.json", images)
    _coco(several / "instances_train2017.json", images[:2], [_object(5, 0), _object(6, 1)])
    person = [_object(6, 1, keypoints=points, num_keypoints=2)]
    _coco(several / "person_keypoints_train2017.json", images[:2], person)
    report = _write(tmp_path, f"coco:{several}")
    assert report.annotations is not None
    assert (report.annotations.read, report.splits["train"].records) == (2, 3)
    assert report.rejected == ()
    assert any("merged" in notice and "1 object" in notice for notice in report.notices)
    whole = json.loads((_extracted(tmp_path) / "annotations.json").read_text())
    found = {one["id"]: one.get("keypoints") for one in whole["annotations"]}
    assert found == {5: [0] * 6, 6: points}


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        ({"images": [_image(0, file_name="4.jpg")]}, "image 0 is 4.jpg, but 0.jpg in .*a.json"),
        ({"categories": [{"id": 1, "name": "cow"}]}, "category 1 is 'cow', but 'cat' in .*a.json"),
    ],
)
def test_files_that_contradict_each_other_are_refused(
    tmp_path: Path, second: dict[str, Any], reason: str
) -> None:
    """Nothing is written where an id has two images or two classes."""
    first = _coco(tmp_path / "a.json", [_image(0)], [_object(5, 0)])
    images = second.pop("images", [_image(0)])
    with pytest.raises(SourceError, match=rf"b\.json: {reason}"):
        _write(tmp_path, [first, _coco(tmp_path / "b.json", images, [], **second)])
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("more", "boxes", "notice"),
    [
        ({"area": 1}, 1, "merged from several files by id: 1 object"),
        ({"bbox": [8, 16, 24, 31]}, 2, "ids of different objects in several files not written"),
        ({"category_id": 2}, 2, "ids of different objects in several files not written"),
        ({"image_id": 1}, 2, "ids not written, shared by several objects: 5"),
    ],
)
def test_an_id_in_two_files(tmp_path: Path, more: Any, boxes: int, notice: str) -> None:
    """It is one object if class and box are the same; two objects are written without it."""
    images, one = [_image(0), _image(1)], _object(5, 0)
    coco = [
        _coco(tmp_path / name, images, [one | say])
        for name, say in (("a.json", {}), ("b.json", more))
    ]
    report = _write(tmp_path, coco)
    assert report.annotations is not None
    assert report.annotations.written == boxes
    assert any(notice in one for one in report.notices)
    whole = json.loads((_extracted(tmp_path) / "annotations.json").read_text())
    areas = [one["area"] for one in whole["annotations"]]
    assert len(areas) == boxes
    assert areas[0] == one["area"]


def test_tables_in_a_folder_or_a_pattern_are_merged(tmp_path: Path) -> None:
    """Each table has its own columns, and its split in its name; a table of others is listed."""
    (tmp_path / "tables").mkdir()
    table = "filename,class,xmin,ymin,xmax,ymax\n0.jpg,cat,8,16,32,48\n1.jpg,cat,8,16,32,48\n"
    (tmp_path / "tables" / "train_labels.csv").write_text(table)
    (tmp_path / "tables" / "val.csv").write_text("2.jpg,0.1,0.2,0.5,0.6,dog\n")
    (tmp_path / "tables" / "classes.csv").write_text("name\ncat\n")
    for place in (tmp_path / "tables", tmp_path / "tables" / "[tv]*.csv"):
        report = _write(tmp_path, f"csv:{place}")
        assert report.annotations is not None
        assert report.annotations.written == 3
        assert {name: split.records for name, split in report.splits.items()} == {
            "train": 2,
            "validation": 1,
        }
    whole = json.loads((_extracted(tmp_path) / "instances_validation.json").read_text())
    assert [one["bbox"] for one in whole["annotations"]] == [[9.6, 16, 38.4, 32]]


def test_different_kinds_are_merged(tmp_path: Path) -> None:
    """COCO's annotations of some images and a table of others become one set of classes."""
    (tmp_path / "boxes.csv").write_text("3.jpg,8,16,32,48,cow\n0.jpg,1,2,3,4,cow\n")
    coco = _coco(tmp_path / "a.json", [_image(0)], [_object(5, 0)])
    report = _write(tmp_path, [coco, f"csv:{tmp_path / 'boxes.csv'}"])
    account = report.annotations
    assert account is not None
    assert (account.written, [entry.key for entry in account.rejected]) == (2, ["0.jpg"])
    assert [*report.splits["train"].labels] == ["cat", "dog", "cow"]


def _xml(path: Path, filename: str, left: int) -> None:
    sides = f"<xmin>{left}</xmin><ymin>1</ymin><xmax>30</xmax><ymax>40</ymax>"
    thing = f"<object><name>cat</name><bndbox>{sides}</bndbox></object>"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"<annotation><filename>{filename}</filename>{thing}</annotation>")


def test_a_stale_filename_of_voc_moves_no_boxes(tmp_path: Path) -> None:
    """The image named like the XML file has its boxes, and a note names the file that differs."""
    voc = tmp_path / "voc"
    scenes(voc / "JPEGImages", [Scene(f"{number}.jpg", 96, 80) for number in range(3)])
    for number, name in enumerate(("0.jpg", "2.jpg", "gone/2.jpg")):
        _xml(voc / "Annotations" / f"{number}.xml", name, left=10 + number)
    report = tfrtool.write(voc, tmp_path / "made", annotations=f"voc:{voc}")
    assert not report.rejected
    assert report.annotations is not None
    assert (report.annotations.read, report.annotations.written) == (3, 3)
    assert any(notice.endswith("Annotations/1.xml has 2.jpg") for notice in report.notices)
    out = _extracted(tmp_path, "voc")
    for number in range(3):
        text = (out / "Annotations" / f"{number}.xml").read_text()
        assert f"<filename>{number}.jpg</filename>" in text
        assert f"<xmin>{10 + number}</xmin>" in text


def test_label_maps_name_classes_of_objects_in_two_ways(tmp_path: Path) -> None:
    """Objects are of a class by its name or its displayed name in the label map."""
    label_map = tmp_path / "map.pbtxt"
    label_map.write_text(
        "item { id: 7 name: 'cat' display_name: 'Katze' }\n"
        "item { id: 8 name: 'x' display_name: 'dog' }"
    )
    objects = [_object(1, 0), _object(2, 0, category_id=2)]
    coco = _coco(tmp_path / "a.json", [_image(0)], objects)
    report = _write(tmp_path, coco, labels=label_map)
    assert report.splits["train"].labels == {"Katze": 1, "dog": 1}


def test_outer_spaces_of_class_names_are_removed_in_each_format(tmp_path: Path) -> None:
    """COCO's categories are read as VOC's names are."""
    categories = [{"id": 1, "name": " cat "}, {"id": 2, "name": "dog\n"}]
    coco = _coco(tmp_path / "a.json", [_image(0)], [_object(1, 0)], categories=categories)
    assert _write(tmp_path, coco).splits["train"].labels == {"cat": 1, "dog": 0}
    _xml(tmp_path / "voc" / "0.xml", "0.jpg", 1)
    text = (tmp_path / "voc" / "0.xml").read_text()
    (tmp_path / "voc" / "0.xml").write_text(text.replace("cat", " cat\n"))
    report = _write(tmp_path, f"voc:{tmp_path / 'voc'}")
    assert report.splits["train"].labels == {"cat": 1}


_POSE = {"keypoints": ["nose", "tail"], "skeleton": [[1, 2]]}


@pytest.mark.parametrize("layout", ["tfod", "tfds"])
def test_key_points_keep_names_and_skeleton(tmp_path: Path, layout: str) -> None:
    """They come back with their category, also after another command copied the records."""
    categories = [_CATEGORIES[0] | _POSE, _CATEGORIES[1]]
    objects = [_object(1, 0, keypoints=[8, 16, 2, 9, 17, 1])]
    coco = _coco(tmp_path / "a.json", [_image(0)], objects, categories=categories)
    report = _write(tmp_path, coco, layout=layout)
    assert not any("categories" in notice for notice in report.notices)
    tfrtool.reshard(tmp_path / "made", tmp_path / "copy", shards=1)
    for folder in ("made", "copy"):
        tfrtool.extract(tmp_path / folder, tmp_path / "out", annotations="coco", overwrite=True)
        whole = json.loads((tmp_path / "out" / "annotations.json").read_text())
        named = {one["name"]: one for one in whole["categories"]}
        assert named["cat"].items() >= _POSE.items()
        assert "keypoints" not in named["dog"]
        assert whole["annotations"][0]["keypoints"] == [8, 16, 2, 9, 17, 1]
    _write(tmp_path, _coco(tmp_path / "a.json", [_image(0)], [_object(1, 0)]))
    assert not (tmp_path / "made" / "keypoints.json").exists()


@pytest.mark.parametrize(
    "pose",
    [
        {"keypoints": "nose"},
        {"keypoints": ["nose", 1]},
        {"keypoints": ["nose"], "skeleton": [[1, 2]]},
        {"keypoints": ["nose", "tail"], "skeleton": [[1.0, 2]]},
        {"keypoints": ["nose", "tail"], "skeleton": [[1, 2, 1]]},
    ],
)
def test_key_points_that_make_no_sense_are_noted(tmp_path: Path, pose: dict[str, Any]) -> None:
    """Objects are written without the names, in a file beside the records they are ignored."""
    objects = [_object(1, 0, keypoints=[8, 16, 2, 9, 17, 1])]
    more = {"categories": [_CATEGORIES[0] | pose]}
    report = _write(tmp_path, _coco(tmp_path / "a.json", [_image(0)], objects, **more))
    assert "fields of categories not written: keypoints, skeleton" in report.notices
    (tmp_path / "made" / "keypoints.json").write_text(json.dumps({"cat": pose, "dog": 1}))
    whole = json.loads((_extracted(tmp_path) / "annotations.json").read_text())
    assert whole["categories"] == [_CATEGORIES[0]]


def test_voc_has_the_depth_of_images(tmp_path: Path) -> None:
    """It is how many values a pixel has: three, or one of a grey image."""
    scenes(tmp_path / "images", [Scene("0.jpg", 96, 80)])
    Image.new("L", (96, 80)).save(tmp_path / "images" / "1.jpg")
    _write(tmp_path, _coco(tmp_path / "a.json", [_image(0), _image(1)]))
    out = _extracted(tmp_path, "voc")
    for number, depth in ((0, 3), (1, 1)):
        text = (out / "Annotations" / f"{number}.xml").read_text()
        size = f"<width>96</width><height>80</height><depth>{depth}</depth>"
        assert f"<size>{size}</size>" in text


def test_hidden_key_points_move_with_the_image(tmp_path: Path) -> None:
    """A point of visibility 0 may have a place; three zeros are no point, and stay zeros."""
    root = tmp_path / "yolo"
    for folder in ("images", "labels"):
        (root / folder / "train").mkdir(parents=True)
    Image.new("RGB", (200, 100)).save(root / "images/train/a.png")
    (root / "labels/train/a.txt").write_text("0 .5 .5 .5 .5 .4 .6 0 0 0 0 .25 .75 2\n")
    config = "path: .\ntrain: images/train\nnames: [cat]\nkpt_shape: [3, 3]\n"
    (root / "data.yaml").write_text(config)
    for number, resize in enumerate((None, (50, 50))):
        out = tmp_path / str(number)
        tfrtool.write(root / "images", out, annotations=f"yolo:{root}", resize=resize)
        (shard,) = out.glob("*.tfrecord*")
        (record,) = tfrtool.read(shard)
        assert isinstance(record, tfrtool.Record)
        features: dict[str, Any] = dict(tfrtool.parse_example(record.payload))
        assert list(features["image/object/keypoint/x"]) == pytest.approx([0.4, 0, 0.25])
        assert list(features["image/object/keypoint/y"]) == pytest.approx([0.6, 0, 0.75])
