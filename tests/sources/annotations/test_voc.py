"""Pascal VOC's folders are read, whatever their XML files say."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.annotated_sets import SCENES, Scene, Thing, scenes, write_voc
from tests.sources.annotations.told import (
    boxes,
    listed,
    objects_of,
    open_annotated,
    truth,
)
from tfrtool.errors import SourceError
from tfrtool.sources.items import Source

OBJECT = "<object><name>cat</name>{}<bndbox>{}</bndbox></object>"
BOX = "<xmin>1</xmin><ymin>2</ymin><xmax>3</xmax><ymax>4</ymax>"
GOOD = OBJECT.format("", BOX)


@pytest.fixture
def voc(tmp_path: Path) -> Path:
    """Return a folder as VOC has it, of all scenes."""
    scenes(tmp_path / "voc" / "JPEGImages")
    return write_voc(tmp_path / "voc")


def _with(folder: Path, inside: str, image: str = "a.jpg") -> Source:
    """Return a folder of one image and one more, with this inside the annotation of the first."""
    scenes(folder / "JPEGImages", [Scene(image, 160, 120), Scene("z.png", 40, 40)])
    write_voc(folder, [Scene("z.png", 40, 40)])
    path = folder / "Annotations" / image
    path.with_suffix(".xml").write_text(f"<annotation>{inside}</annotation>", "utf-8")
    return open_annotated(folder, f"voc:{folder}")


def test_boxes_are_those_of_the_files(voc: Path) -> None:
    """Each image has the very boxes that its file tells, with what else it says of objects."""
    source = open_annotated(voc, f"voc:{voc}")
    assert boxes(source) == truth(SCENES, "JPEGImages/")
    assert source.labels == ("cat", "dog", "traffic light")
    assert source.features.class_ids == (1, 2, 3)
    assert source.features.optional == ("difficult", "truncated", "pose")
    told = objects_of(source)["JPEGImages/b 50%.jpg"]
    assert [one.difficult for one in told.objects] == [False, True, False]
    assert {(one.pose, one.truncated) for one in told.objects} == {("Left", False)}
    assert told.source_id == "b 50%.jpg"


def test_images_may_lie_elsewhere(voc: Path) -> None:
    """SOURCE may be the folder of the images alone."""
    images = shutil.move(voc / "JPEGImages", voc.parent / "photos")
    assert boxes(open_annotated(Path(images), f"voc:{voc}")) == truth(SCENES)


def test_files_may_lie_beside_the_images(tmp_path: Path) -> None:
    """Without a folder Annotations, XML lies beside the images; split folders are splits then."""
    for split, scene in (("train", SCENES[0]), ("valid", SCENES[1])):
        scenes(tmp_path / split, [scene])
        write_voc(tmp_path / split, [scene])
        for file in (tmp_path / split / "Annotations").iterdir():
            file.rename(tmp_path / split / file.name)
    source = open_annotated(tmp_path, f"voc:{tmp_path}")
    assert boxes(source) == truth([SCENES[0]], "train/") | truth([SCENES[1]], "valid/")
    assert [(item.key, item.split) for item in source.items] == [
        ("train/a.jpg", "train"),
        ("valid/b 50%.jpg", "validation"),
    ]


def test_lists_are_splits(voc: Path) -> None:
    """Images are in the splits that ImageSets tells; what is in two of them or none is listed."""
    names = ["a", "b 50%", "deep/c.png", "deep/nothing"]
    write_voc(voc, (), {"train": names[:2], "val": names[1:3], "test": ["gone", names[3]]})
    write_voc(voc, (), {"trainval": names[:3]})
    source = open_annotated(voc, f"voc:{voc}")
    assert {item.key.removeprefix("JPEGImages/"): item.split for item in source.items} == {
        "a.jpg": "train",
        "b 50%.jpg": "train",
        "deep/c.png": "validation",
        "deep/nothing.jpg": "test",
    }
    assert source.splits == ("train", "validation", "test")
    assert listed(source) == {
        "JPEGImages/b 50%.jpg": "ImageSets/Main/val.txt, line 1: already in split train, "
        "skipped in validation",
        **{
            f"JPEGImages/{name}": f"Annotations/{name[:-4]}.xml: not in any list of images"
            for name in ("nothing.png", "z.jpg")
        },
    }
    assert [entry.key for entry in source.ignored if "list" not in entry.reason][-1] == "gone"


def test_trainval_alone_is_for_training(voc: Path) -> None:
    """The list of both is the training split where train and val are no lists of their own."""
    write_voc(voc, (), {"trainval": ["\ufeffa"], "test": ["z"]})  # with Notepad's mark
    source = open_annotated(voc, f"voc:{voc}")
    assert [item.split for item in source.items] == ["train", "test"]


@pytest.mark.parametrize(
    "name", ["<filename></filename>", "", "<filename>a</filename>", "<filename>old.jpg</filename>"]
)
@pytest.mark.parametrize("image", ["a.jpg", "кот 100%25 é.png"])
def test_the_name_of_the_file_is_the_images(tmp_path: Path, name: str, image: str) -> None:
    """Where it says no image that is there, the image is the one that is called like the file."""
    source = _with(tmp_path, name + GOOD, image)
    assert boxes(source)[f"JPEGImages/{image}"] == [("cat", 1, 2, 3, 4)]


@pytest.mark.parametrize("names", [("\u0439.png", "\u0438\u0306.png"), ("e\u0301.png", "\xe9.png")])
def test_accents_may_be_written_in_two_ways(names: tuple[str, str], tmp_path: Path) -> None:
    """Archives made on macOS have letters and accents apart in the names of files."""
    scenes(tmp_path / "JPEGImages", [Scene(names[0], 160, 120)])
    write_voc(tmp_path, [Scene(names[1], 160, 120, (Thing("cat", 1, 2, 3, 4),))])
    found = boxes(open_annotated(tmp_path, f"voc:{tmp_path}"))
    assert found == {f"JPEGImages/{names[0]}": [("cat", 1, 2, 3, 4)]}


@pytest.mark.parametrize("size", ["", "<size/>", "<size><width>0</width><height>0</height></size>"])
def test_a_missing_size_is_the_images(tmp_path: Path, size: str) -> None:
    """Annotation tools write none, or 0; the image says it then."""
    told = objects_of(_with(tmp_path, size + GOOD))["JPEGImages/a.jpg"]
    assert (told.width, told.height) == (160, 120)


def test_what_is_not_written_is_said(tmp_path: Path) -> None:
    """Parts of objects are no objects; they are counted, and so is what has no feature."""
    part = f"<part><name>head</name><bndbox>{BOX}</bndbox></part>"
    more = f"{part}{part}<occluded>1</occluded><difficult>maybe</difficult>"
    source = _with(tmp_path, OBJECT.format(more, BOX))
    assert source.labels == ("cat",)
    (notice,) = source.notices
    assert notice.startswith("fields of objects not written: part (2), ")
    assert notice.split(", ")[1:] == ["difficult: maybe (1)"]


@pytest.mark.parametrize(
    "bomb",
    [
        '<!DOCTYPE a [<!ENTITY b "xx"><!ENTITY c "&b;&b;">]><annotation>&c;</annotation>',
        '<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><annotation>&b;</annotation>',
        '<!DOCTYPE a [<!ENTITY % b SYSTEM "http://127.0.0.1/x"> %b;]><annotation/>',
    ],
)
def test_entities_are_an_error(voc: Path, bomb: str) -> None:
    """Nothing is unpacked or fetched, and the error names the file."""
    path = voc / "Annotations" / "a.xml"
    path.write_text(bomb)
    with pytest.raises(SourceError, match="entities") as caught:
        open_annotated(voc, f"voc:{voc}")
    assert caught.value.path == str(path)


def test_deep_and_large_files(voc: Path) -> None:
    """Depth is no problem, and what is larger than any annotation is listed."""
    deep = f"<annotation>{'<a>' * 50_000}{'</a>' * 50_000}{GOOD}</annotation>"
    (voc / "Annotations" / "a.xml").write_text(deep)
    (voc / "Annotations" / "z.xml").write_text(" " * 5_000_000)
    source = open_annotated(voc, f"voc:{voc}")
    assert boxes(source)["JPEGImages/a.jpg"] == [("cat", 1, 2, 3, 4)]
    assert "4,194,304 bytes" in listed(source)["JPEGImages/z.jpg"]


def test_other_files(voc: Path, tmp_path: Path) -> None:
    """XML of another kind is listed; a folder without any is an error."""
    (voc / "pom.xml").write_text("<project/>")
    source = open_annotated(voc, f"voc:{voc}")
    assert "pom.xml" in {entry.key for entry in source.ignored}
    with pytest.raises(SourceError, match="no XML files"):
        open_annotated(voc, f"voc:{voc / 'JPEGImages'}")
    with pytest.raises(SourceError, match=r"pom\.xml: not a Pascal VOC annotation"):
        open_annotated(voc, f"voc:{voc / 'pom.xml'}")
    with pytest.raises(SourceError, match="no such file"):
        open_annotated(voc, f"voc:{tmp_path / 'gone'}")


def test_the_same_place_in_two_years(tmp_path: Path) -> None:
    """VOCdevkit has the same name in folders of several years: each gets its own boxes."""
    for year, side in (("VOC2007", 8), ("VOC2012", 16)):
        scene = Scene("1.jpg", 64, 64, (Thing("cat", side, side, 32, 32),))
        scenes(tmp_path / year / "JPEGImages", [scene])
        write_voc(tmp_path / year, [scene], {"train": ["1"]})
    source = open_annotated(tmp_path, f"voc:{tmp_path}")
    assert [found[0][1] for found in boxes(source).values()] == [8, 16]


@pytest.mark.parametrize(
    ("points", "outline"),
    [
        ((10, 20, 30, 20.5, 30, 40), [[10, 20, 30, 20.5, 30, 40]]),
        ((10, 20, 30, 20), None),
        (("a", 20, 30, 20, 30, 40), None),
    ],
)
def test_polygons_are_outlines(
    points: tuple[object, ...], outline: list[list[float]] | None, tmp_path: Path
) -> None:
    """Points are elements x1, y1, x2 ...; the box is the one in the file, also without them."""
    scenes(tmp_path / "s", SCENES[:1])
    names = [f"{axis}{at}" for at in (1, 2, 3) for axis in "xy"]
    pairs = zip(names, points, strict=False)
    polygon = "".join(f"<{name}>{value}</{name}>" for name, value in pairs)
    box = "<xmin>9</xmin><ymin>20</ymin><xmax>31</xmax><ymax>40</ymax>"
    (tmp_path / "s" / "a.xml").write_text(
        f"<annotation><filename>a.jpg</filename><object><name>cat</name><bndbox>{box}</bndbox>"
        f"<polygon>{polygon}</polygon></object></annotation>"
    )
    source = open_annotated(tmp_path / "s", f"voc:{tmp_path / 's'}")
    (one,) = objects_of(source)["a.jpg"].objects
    assert one[:4] == (9, 20, 31, 40)
    assert (json.loads(one.segmentation) if one.segmentation else None) == outline
    assert bool(source.notices) == (outline is None)
