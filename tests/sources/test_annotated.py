"""Trees and tables that hold annotations, and others that only look so."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.annotated_sets import Scene, scenes, write_coco, write_voc, write_yolo
from tests.sources.trees import WRITERS, open_tree, write_folder
from tfrtool.errors import SourceError
from tfrtool.sources.folders.class_layout import arrange
from tfrtool.sources.folders.listing import Entry, FolderReader, Listing
from tfrtool.sources.folders.name_pattern import LabelFrom
from tfrtool.sources.items import Source
from tfrtool.sources.open_source import open_source

NAME = LabelFrom.FILENAME


def _arrange(*keys: str, label_from: LabelFrom = LabelFrom.FOLDER) -> Source:
    listing = Listing(entries=[Entry(key, 1) for key in keys], reader=FolderReader(("/r",)))
    return arrange(listing, label_from, "photos")


VOC = ("VOC/VOC2012/JPEGImages/1.jpg", "VOC/VOC2012/SegmentationClass/1.png")
YOLO = ("train/images/1.jpg", "train/labels/1.txt", "valid/images/2.jpg", "valid/labels/2.txt")


@pytest.mark.parametrize(
    "keys",
    [
        VOC,
        ("SegmentationClass/1.png",),
        ("JPEGImages/1.jpg", "Annotations/1.xml", "ImageSets/Main/train.txt"),
        (
            "VOC2007/JPEGImages/1.jpg",
            "VOC2007/Annotations/1.xml",
            "VOC2012/JPEGImages/1.jpg",
            "VOC2012/Annotations/1.xml",
        ),
        ("train2017/1.jpg", "val2017/1.jpg", "annotations/instances_val2017.json"),
        ("images/train2014/1.jpg", "images/val2014/1.jpg"),
        ("coco/train2017/1.jpg", "coco/annotations/captions_train2017.json"),
        ("images/1.jpg", "labels/1.txt"),
        ("images/train/1.jpg", "labels/train/1.txt"),
        ("d/images/train/1.jpg", "d/images/val/2.jpg", "d/labels/train/1.txt"),
        YOLO,
        ("images/1.jpg", "masks/1.png"),
        ("Images/1.jpg", "Labels/1.png"),
        ("train/images/1.jpg", "train/masks/1.png", "test/images/2.jpg"),
        ("images/training/1.jpg", "annotations/training/1.png"),
        ("leftImg8bit/train/aachen/1.png", "gtFine/train/aachen/1.png"),
        ("train/1.jpg", "trainannot/1.png", "val/2.jpg", "valannot/2.png"),
        ("train_images/1.jpg", "train_masks/1.png", "test_images/1.jpg"),
        ("COVID/images/1.png", "COVID/masks/1.png", "Normal/images/2.png"),
    ],
)
def test_annotations_are_no_classes(keys: tuple[str, ...]) -> None:
    """The error says which folders tell so, and what can't be done."""
    with pytest.raises(SourceError, match="annotations or masks") as caught:
        _arrange(*keys)
    assert caught.value.path == "photos"
    assert caught.value.found
    assert "--annotations" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("keys", "labels"),
    [
        (("images/1.jpg", "masks/1.jpg", "cat/1.jpg"), ("cat", "images", "masks")),
        (tuple(f"{name}/1.jpg" for name in ("images", *"abcdefghij")), ("a", "images")),
        (("mask/1.jpg", "no_mask/1.jpg"), ("mask", "no_mask")),
        (("with_mask/1-with-mask.jpg", "without_mask/1.jpg"), ("with_mask", "without_mask")),
        (("labels/1.jpg", "boxes/1.jpg"), ("boxes", "labels")),
        (("images/cat/1.jpg", "images/dog/1.jpg"), ("cat", "dog")),
        (("JPEGImages/antelope/1.jpg", "JPEGImages/bat/1.jpg"), ("antelope", "bat")),
        (("Images/a/1.jpg", "Images/b/1.jpg", "Annotation/a/1", "Annotation/b/1"), ("a", "b")),
        (("cat/1.jpg", "dog/1.jpg", "annotations/instances.json"), ("cat", "dog")),
        (("cat/1.jpg", "cat/1.txt", "dog/1.jpg", "labels/1.txt"), ("cat", "dog")),
        (("train/a/images/1.jpg", "train/b/images/2.jpg"), ("a", "b")),
        (("2017/1.jpg", "2018/1.jpg"), ("2017", "2018")),
        (("train2017/1.jpg", "bus/1.jpg"), ("bus", "train2017")),
        (("train/1.jpg", "car/1.jpg", "test/1.jpg"), ("car", "test", "train")),
    ],
)
def test_classes_with_such_names_stay_classes(
    keys: tuple[str, ...], labels: tuple[str, ...]
) -> None:
    """Folders called images, masks or labels are classes among others that are."""
    assert set(labels) <= set(_arrange(*keys).labels)


def test_a_split_without_classes_is_an_error() -> None:
    """The images of val/images are not given a class 'images' beside the real ones."""
    with pytest.raises(SourceError) as caught:
        _arrange("train/n01/images/1.jpg", "train/n02/images/2.jpg", "val/images/3.jpg")
    assert "val/images/3.jpg" in str(caught.value.found)


def test_a_folder_of_images_alone_is_no_class() -> None:
    """Without annotations the error is that of flat files, with what their names tell."""
    keys = [f"images/{label}_{number}.jpg" for label in ("cat", "dog") for number in range(3)]
    with pytest.raises(SourceError) as caught:
        _arrange(*keys)
    assert "--label-from filename" in str(caught.value.hint)
    assert _arrange(*keys, label_from=NAME).labels == ("cat", "dog")


def test_masks_get_no_label_from_their_names() -> None:
    """Names that begin with a class don't make images of masks."""
    with pytest.raises(SourceError, match="annotations or masks"):
        _arrange("images/cat_1.jpg", "masks/cat_1.png", label_from=NAME)


@pytest.mark.parametrize("form", ["folder", "zip", "tar", "tar.gz"])
@pytest.mark.parametrize("keys", [VOC, YOLO])
def test_archives_of_such_trees_are_refused(
    form: str, keys: tuple[str, ...], tmp_path: Path
) -> None:
    """A packed dataset is recognised as the unpacked one is."""
    path = WRITERS[form](tmp_path / "source", dict.fromkeys(keys, b"x"))
    with pytest.raises(SourceError, match="looks like") as caught:
        open_tree(path)
    assert caught.value.path == str(path)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (("train/1.jpg", "train/1.xml", "valid/2.jpg", "valid/2.xml"), "voc:{}"),
        (("images/1.jpg", "labels/1.txt", "data.yaml"), "yolo:{}"),
        (("set/images/1.jpg", "set/labels/1.txt", "set/data.yaml"), "yolo:{}/set"),
        (("train/1.jpg", "train/_annotations.coco.json"), "coco:{}/train/_annotations.coco.json"),
        (
            (
                "train2017/1.jpg",
                "annotations/captions.json",
                "annotations/instances_train2017.json",
            ),
            "coco:{}/annotations/instances_train2017.json",
        ),
        (
            ("train/1.jpg", *(f"{one}/_annotations.coco.json" for one in ("train", "valid"))),
            "coco:{}",
        ),
        (
            ("train/1.jpg", *(f"labels/instances_{one}.json" for one in ("train", "val"))),
            "coco:{}/labels",
        ),
    ],
)
def test_the_command_that_reads_them_is_said(
    keys: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    """It has the very place of the annotations, and can be pasted."""
    path = write_folder(tmp_path / "my set", dict.fromkeys(keys, b"x"))
    with pytest.raises(SourceError) as caught:
        open_tree(path)
    words = shlex.split(str(caught.value.hint))
    assert words[:7] == [
        "run",
        "tfrtool",
        "write",
        str(path),
        "DATASET",
        "--annotations",
        said.format(path),
    ]


def test_images_that_lie_beside_their_annotations(tmp_path: Path) -> None:
    """The command reads both; what lies farther out than splits and images is not looked at."""
    scenes(tmp_path / "set" / "images" / "train", [Scene("a.jpg", 8, 8)])
    write_yolo(tmp_path / "set", [])
    (tmp_path / "set" / "images" / "loop").symlink_to(tmp_path / "set" / "images")
    command = f"tfrtool write {tmp_path}/set DATASET --annotations yolo:{tmp_path}/set"
    with pytest.raises(SourceError) as caught:
        open_source(f"{tmp_path}/set/images/train", LabelFrom.FOLDER, tmp_path)
    assert command in str(caught.value.hint)
    (tmp_path / "set").rename(tmp_path / "photos")
    (tmp_path / "photos" / "images").rename(tmp_path / "photos" / "holiday")
    with pytest.raises(SourceError) as caught:
        open_source(f"{tmp_path}/photos/holiday/train", LabelFrom.FOLDER, tmp_path)
    assert "--annotations" not in str(caught.value)


def test_annotations_given_as_a_source_are_named(tmp_path: Path) -> None:
    """COCO's file, YOLO's and VOC's are no tables, and VOC's folder is none of images."""
    write_coco(tmp_path / "x.json")
    write_voc(tmp_path / "voc")
    write_yolo(tmp_path / "yolo")
    for source, told in (
        ("x.json", "coco:{}/x.json"),
        ("yolo/data.yaml", "yolo:{}/yolo/data.yaml"),
        ("voc/Annotations/a.xml", "voc:{}/voc"),
        ("voc/Annotations", "voc:{}/voc/Annotations"),
    ):
        with pytest.raises(SourceError) as caught:
            open_source(f"{tmp_path}/{source}", LabelFrom.FOLDER, tmp_path)
        command = f"tfrtool write IMAGES DATASET --annotations {told.format(tmp_path)}"
        assert command in str(caught.value.hint)
