"""COCO's annotation files: what is written of them, what is listed, and what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.annotated_sets import SCENES, scenes, write_coco
from tests.emulators import Bucket
from tfrtool.errors import SourceError
from tfrtool.examples.objects.annotation import ExtraFeatures, ObjectAnnotation
from tfrtool.sources.folders.name_pattern import LabelFrom
from tfrtool.sources.items import Source
from tfrtool.sources.open_source import open_source
from tfrtool.sources.source_options import SourceOptions

_A_CAT = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [16, 24, 64, 48]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of images."""
    folder = tmp_path_factory.mktemp("drawn")
    scenes(folder)
    return folder


Opening = Callable[..., Source]


@pytest.fixture
def opening(folder: Path, tmp_path: Path) -> Opening:
    """Return a function that opens the images with what COCO's JSON tells of them."""

    def open_it(content: Any = None, **more: Any) -> Source:
        path = tmp_path / "some.json"
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            write_coco(path, **(content or {}))
        options = SourceOptions(annotations=f"coco:{more.pop('path', path)}", **more)
        return open_source(str(folder), LabelFrom.FOLDER, tmp_path, options=options)

    return open_it


def _objects(source: Source, name: str = "a.jpg") -> tuple[ObjectAnnotation, ...]:
    at = [item.key for item in source.items].index(name)
    annotation = ExtraFeatures.unpack(source.items[at].extra).annotation
    assert annotation is not None
    return annotation.objects


def _reasons(source: Source) -> list[str]:
    assert source.annotations is not None
    listed = source.annotations.rejected
    written = sum(len(_objects(source, item.key)) for item in source.items)
    assert source.annotations.read == written + len(listed)
    return [f"{entry.key}: {entry.reason}" for entry in listed]


def test_one_name_in_two_folders_is_refused_with_both_files(tmp_path: Path) -> None:
    """The reason names both files, and both ways out of it read all images."""
    images, path = tmp_path / "images", tmp_path / "x.json"
    for split in ("train", "val"):
        scenes(images / split)
    content = write_coco(path)
    options = SourceOptions(annotations=f"coco:{path}")
    what = r"several images are named a\.jpg: train/a\.jpg and val/a\.jpg; name the folder"
    with pytest.raises(SourceError, match=what):
        open_source(str(images), LabelFrom.FOLDER, tmp_path, options=options)
    source = open_source(str(images / "train"), LabelFrom.FOLDER, tmp_path, options=options)
    assert len(source.items) == len(SCENES)
    for image in content["images"]:
        image["file_name"] = f"val/{image['file_name']}"
    path.write_text(json.dumps(content))
    source = open_source(str(images), LabelFrom.FOLDER, tmp_path, options=options)
    assert [item.key for item in source.items] == [f"val/{scene.name}" for scene in SCENES]


@pytest.mark.parametrize("first", ["images", "annotations", "categories"])
def test_all_that_is_told_is_there(opening: Opening, tmp_path: Path, first: str) -> None:
    """Each image has its objects, with all of their numbers, in whatever order arrays come."""
    whole = write_coco(tmp_path / "x.json")
    turned = {first: whole[first], **whole}
    source = opening(json.dumps(turned).encode())
    assert [item.key for item in source.items] == [one.name for one in SCENES]
    assert source.labels == ("cat", "dog", "traffic light")
    assert source.features.class_ids == (1, 3, 7)
    assert source.features.optional == ("id", "area", "crowd", "segmentation")
    assert _reasons(source) == []
    number = 0
    for scene in SCENES:
        objects = _objects(source, scene.name)
        for thing, one in zip(scene.things, objects, strict=True):
            number += 1
            assert one[:4] == thing[1:]
            assert (source.labels[one.label], one.area) == (thing.category, thing.area)
            assert (one.id, one.crowd) == (number, False)
            assert json.loads(one.segmentation) == [thing.polygon]
    assert "fields of the file not written: info" in source.notices
    assert "fields of categories not written: supercategory" in source.notices


def test_listed_classes_change_no_object(opening: Opening, tmp_path: Path) -> None:
    """Objects are the same whether classes are COCO's own, or those of a list."""
    (tmp_path / "labels.txt").write_text("cat\ndog\ntraffic light\n")
    own, listed = opening(), opening(labels=str(tmp_path / "labels.txt"))
    assert [*own.items] == [*listed.items]
    assert own.features.optional == listed.features.optional


@pytest.mark.parametrize("masks", ["polygons", "none"])
def test_boxes_come_from_polygons(opening: Opening, masks: str) -> None:
    """Where there is no box, that around the polygons is taken."""
    outline = [SCENES[0].things[0].polygon]
    bare = {"id": 1, "image_id": 1, "category_id": 1, "segmentation": outline}
    source = opening({"annotations": [bare]}, masks=masks)
    (one,) = _objects(source)
    assert one[:4] == (16, 24, 80, 72)
    assert (
        (json.loads(one.segmentation) == outline) if masks == "polygons" else not one.segmentation
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "offset 0: invalid JSON: expected an object"),
        (b"[]", "offset 0: invalid JSON: expected an object: found '[]'"),
        (b'{"images": [], "images": []}', "duplicate"),
        (b'{"images": []} x', "offset 15: "),
        (b'{"images": {}}', "'images'"),
        (b'{"images": [7]}', "images[0]"),
        (b'{"images": [{"id": ' + b"9" * 10_000 + b"}]}", "no image has annotations"),
        (b'{"images": ' + b"[" * 100_000, "invalid JSON: input data was truncated"),
        (
            b'{"images": [{"a":{"b":' + b"[" * 100_000 + b"]" * 100_000 + b"}}]}",
            "invalid JSON: nested",
        ),
        (b'{"images": [' + b'{"a":"},{"},' * 100_000 + b'{"id":1 2}]}', "offset 1200020: "),
        (b'{"images": [' + b"{}," * 99_000 + b"7]}", "images[99000]"),
        (b'{"images": [' + b"1," * 9_000_000 + b"7]}", "not an object"),
        (b'{"images": ["\xff"]}', "offset 13: "),
        (b'{"images": [], "categories": [{"id": 1}]}', "no id or name"),
        (
            b'{"images": [], "categories": [{"id": 1, "name": "%s"}]}' % (b"a" * 2**20),
            "category name 'aaaa",
        ),
        (
            b'{"images": [], "categories": [{"id": 1, "name": "\\u0007"}]}',
            "category name '\\x07'",
        ),
        (
            b'{"images": [], "categories": [{"id":1,"name":"a"},{"id":1,"name":"b"}]}',
            "category 1 is 'b', but 'a' in ",
        ),
        (b'{"images": [], "annotations": [{"segments_info": []}]}', "panoptic segments"),
        (b'{"annotations": [{"caption": "a cat"}], "images": []}', "captions"),
        (b'{"a": 1}', "'images'"),
        (
            b'{"images": [' + b" " * 3_000_000 + b"x]}",
            "offset 3000012: invalid JSON: invalid character",
        ),
    ],
)
def test_files_that_are_no_annotations_are_refused(
    opening: Opening, content: bytes, reason: str
) -> None:
    """What can't be read at all is an error that names the file, the place and the reason."""
    with pytest.raises(SourceError, match=re.escape(reason)) as caught:
        opening(content)
    assert caught.value.path is not None


def test_a_file_cut_anywhere_is_an_error(opening: Opening, tmp_path: Path) -> None:
    """Wherever the JSON ends early, that is said; never is a part taken for the whole."""
    path = tmp_path / "x.json"
    write_coco(path, SCENES[:1])
    content = path.read_bytes()
    for end in {*range(0, len(content), 11), *range(len(content) - 5, len(content))}:
        with pytest.raises(SourceError, match="invalid JSON"):
            opening(content[:end])


def test_ids_that_are_no_label_map_s(opening: Opening) -> None:
    """Categories are numbered anew, in their order, where one has an id that is none there."""
    source = opening({"ids": {"cat": 0, "dog": 5, "traffic light": 2}})
    assert source.labels == ("cat", "dog", "traffic light")
    assert source.features.class_ids == (1, 2, 3)
    assert any("numbered 1, 2" in notice for notice in source.notices)


def test_ids_of_objects_that_repeat(opening: Opening) -> None:
    """Objects of one id are all kept, without it, and that is said."""
    other = {**_A_CAT, "image_id": 6, "bbox": [1, 2, 3, 4]}
    source = opening({"annotations": [_A_CAT, other, {**other, "id": 5}]})
    assert [one.id for one in _objects(source)] == [None]
    assert [one.id for one in _objects(source, "z.jpg")] == [None, 5]
    assert any(": 1" in notice for notice in source.notices)


def test_a_folder_of_files_has_splits(opening: Opening, tmp_path: Path) -> None:
    """Names of files, and Roboflow's folders, say splits; captions beside them are no part."""
    several = tmp_path / "annotations"
    write_coco(several / "instances_train2017.json", SCENES[:2])
    write_coco(several / "valid" / "_annotations.coco.json", SCENES[2:])
    captions = [{"image_id": 1, "id": 1, "caption": "rectangles"}]
    write_coco(several / "captions_train2017.json", SCENES, annotations=captions)
    source = opening(path=several)
    assert source.splits == ("train", "validation")
    assert [item.split for item in source.items] == ["train"] * 2 + ["validation"] * 4
    assert any("captions" in entry.reason for entry in source.ignored)
    assert _reasons(source) == []
    assert len(_objects(source, "z.jpg")) == 1


def test_links_in_a_folder_lead_nowhere_else(opening: Opening, tmp_path: Path) -> None:
    """A file outside is not read, and so nothing of it is shown; a link to one inside is."""
    several = tmp_path / "annotations"
    write_coco(several / "instances_train.json", SCENES[:2])
    (several / "again_train.json").symlink_to("instances_train.json")
    assert opening(path=several).splits == ("train",)
    (tmp_path / "secret").write_text('["hidden words"]')
    (several / "instances_val.json").symlink_to(tmp_path / "secret")
    with pytest.raises(SourceError, match=r"_val\.json: link leads outside") as caught:
        opening(path=several)
    assert "hidden" not in str(caught.value)


def test_an_outline_outside_is_told(opening: Opening) -> None:
    """An outline stays as it is where the box is cut to the image, and that is said."""
    line = [-8, 24, 80, 24, 80, 72]
    source = opening(
        {"annotations": [{**_A_CAT, "bbox": [-8, 24, 88, 48], "segmentation": [line]}]}
    )
    (one,) = _objects(source)
    assert (one.xmin, json.loads(one.segmentation)) == (0, [line])
    assert source.annotations is not None
    (clipped,) = source.annotations.clipped
    assert clipped.reason.endswith("160 x 120 pixels, the outline is kept as it is")
    masked = opening({"annotations": [{**_A_CAT, "bbox": [-8, 24, 88, 48]}]}, masks="png")
    assert masked.annotations is not None
    assert masked.annotations.clipped[0].reason.endswith("160 x 120 pixels")


def test_images_of_one_name_are_told_apart_by_folders(tmp_path: Path) -> None:
    """Files of Roboflow's name the images that lie beside them."""
    for split, number in (("train", 0), ("valid", 5)):
        scene = SCENES[number]._replace(name="1.jpg")
        scenes(tmp_path / "set" / split, [scene])
        write_coco(tmp_path / "set" / split / "_annotations.coco.json", [scene])
    options = SourceOptions(annotations=f"coco:{tmp_path / 'set'}")
    source = open_source(str(tmp_path / "set"), LabelFrom.FOLDER, tmp_path, options=options)
    assert [(item.key, item.split) for item in source.items] == [
        ("train/1.jpg", "train"),
        ("valid/1.jpg", "validation"),
    ]
    assert _reasons(source) == []


def test_the_folder_of_a_whole_dataset(tmp_path: Path) -> None:
    """COCO's own folder has its files in annotations, one level down; others are left alone."""
    for split, number in (("train", 0), ("val", 5)):
        scenes(tmp_path / "set" / f"{split}2017", SCENES[number : number + 1])
        path = tmp_path / "set" / "annotations" / f"instances_{split}2017.json"
        write_coco(path, SCENES[number : number + 1])
    (tmp_path / "set" / "logs").mkdir()
    (tmp_path / "set" / "logs" / "run.json").write_text("[")
    options = SourceOptions(annotations=f"coco:{tmp_path / 'set'}")
    source = open_source(str(tmp_path / "set"), LabelFrom.FOLDER, tmp_path, options=options)
    assert [(item.key, item.split) for item in source.items] == [
        ("train2017/a.jpg", "train"),
        ("val2017/z.jpg", "validation"),
    ]
    assert _reasons(source) == []


def test_two_files_that_tell_of_an_image(opening: Opening, tmp_path: Path) -> None:
    """An image counts once, in the split that tells of it first; what the other says is listed."""
    several = tmp_path / "annotations"
    write_coco(several / "test.json", SCENES[:1])
    write_coco(several / "train.json", SCENES)
    source = opening(path=several)
    assert [item.split for item in source.items] == ["test"] + ["train"] * 5
    assert _reasons(source) == ["a.jpg: annotation 1: image annotated twice"]


@pytest.mark.parametrize("place", ["train.json", ""])
def test_annotations_and_images_in_a_store(
    bucket: Bucket, folder: Path, tmp_path: Path, place: str
) -> None:
    """A bucket's files, one or a folder of them, are read as those of this machine are."""
    bucket.put_folder(folder, "images/")
    write_coco(tmp_path / "told" / "train.json")
    bucket.put_folder(tmp_path / "told", "told/")
    options = SourceOptions(annotations=f"coco:{bucket.url}/told/{place}")
    source = open_source(f"{bucket.url}/images", LabelFrom.FOLDER, tmp_path, options=options)
    assert [item.key for item in source.items] == [one.name for one in SCENES]
    assert _reasons(source) == []
    assert _objects(source)[0][:4] == (16, 24, 80, 72)
