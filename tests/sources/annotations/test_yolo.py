"""YOLO's folders are read, whatever data.yaml and the files of labels say."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.annotated_sets import COLORS, SCENES, Scene, Thing, scenes, write_yolo
from tests.sources.annotations.told import (
    boxes,
    listed,
    lost,
    objects_of,
    open_annotated,
    truth,
)
from tfrtool.errors import SourceError
from tfrtool.sources.annotations.annotation_reader import AnnotationFolder
from tfrtool.sources.items import Source

ALL = truth(SCENES, "images/train/")


@pytest.fixture
def yolo(tmp_path: Path) -> Path:
    """Return a folder as YOLO has it, of all scenes."""
    scenes(tmp_path / "set" / "images" / "train")
    return write_yolo(tmp_path / "set")


def _yaml(folder: Path, text: str) -> Path:
    (folder / "data.yaml").write_text(f"{text}\nnames: [cat, dog, traffic light]\n", "utf-8")
    return folder


def _with(folder: Path, labels: str | bytes, yaml: str = "") -> Source:
    """Return the source of an image of 200 x 100 pixels with these labels, and of another one."""
    scenes(folder / "images" / "train", [Scene("a.jpg", 200, 100), Scene("b.jpg", 40, 40)])
    _yaml(folder, f"train: images/train\n{yaml}")
    (folder / "labels" / "train").mkdir(parents=True)
    data = labels.encode() if isinstance(labels, str) else labels
    (folder / "labels" / "train" / "a.txt").write_bytes(data)
    return open_annotated(folder, f"yolo:{folder}")


def test_boxes_are_those_of_the_files(yolo: Path) -> None:
    """Each image has the boxes of its labels, in pixels; the classes are all of data.yaml."""
    source = open_annotated(yolo, f"yolo:{yolo}")
    assert boxes(source) == ALL
    assert source.labels == ("cat", "dog", "traffic light")
    assert source.features.class_ids == (1, 2, 3)
    assert source.splits == ("train",)
    assert boxes(open_annotated(yolo, f"yolo:{yolo}/data.yaml")) == ALL


def test_source_may_be_the_folder_of_images(yolo: Path) -> None:
    """Images are found from SOURCE, be it the folder of all, that of images, or an archive."""
    assert boxes(open_annotated(yolo / "images", f"yolo:{yolo}")) == truth(SCENES, "train/")
    shutil.make_archive(str(yolo.parent / "set"), "zip", yolo)
    assert boxes(open_annotated(yolo.parent / "set.zip", f"yolo:{yolo}")) == ALL


def test_polygons_have_boxes_around_them(tmp_path: Path) -> None:
    """The outline of segmentation stays, and is of oriented boxes their four corners."""
    scenes(tmp_path / "images" / "train")
    write_yolo(tmp_path, polygons=True)
    source = open_annotated(tmp_path, f"yolo:{tmp_path}")
    assert boxes(source) == ALL
    (told,) = objects_of(source)["images/train/a.jpg"].objects
    (line,) = json.loads(told.segmentation)
    assert line == pytest.approx(SCENES[0].things[0].polygon, abs=0.01)


def test_masks_of_any_outline_are_bounded(tmp_path: Path) -> None:
    """A polygon that goes a million times around is listed where masks are drawn."""
    around = "0 0 90 0 90 90 0 90 " * 5000
    scenes(tmp_path / "images" / "train", [Scene("a.jpg", 200, 100)])
    write_yolo(tmp_path, [Scene("a.jpg", 200, 100, (Thing("cat", 8, 16, 24, 32),))], polygons=True)
    with (tmp_path / "labels" / "train" / "a.txt").open("a") as file:
        file.write(f"0 {around}\n")
    source = open_annotated(tmp_path, f"yolo:{tmp_path}", masks="png")
    assert len(boxes(source)["images/train/a.jpg"]) == 1
    assert "outline has more than" in lost(source)[0][1]


@pytest.mark.parametrize(
    ("shape", "line", "points"),
    [
        ("[2, 3]", "0.1 0.2 2 0 0 0", (20, 20, 2, 0, 0, 0)),
        ("[2, 2]", "0.1 0.2 0 0", (20, 20, 2, 0, 0, 0)),
        ("[4, 2]", "0.5 0.5 0.1 0.2 0 0 1 1", (100, 50, 2, 20, 20, 2, 0, 0, 0, 200, 100, 2)),
    ],
)
def test_key_points(tmp_path: Path, shape: str, line: str, points: tuple[float, ...]) -> None:
    """Poses are boxes and points, as many as kpt_shape says."""
    source = _with(tmp_path, f"1 0.5 0.5 0.2 0.4 {line}\n", f"kpt_shape: {shape}")
    assert boxes(source)["images/train/a.jpg"] == [("dog", 80, 30, 120, 70)]
    (told,) = objects_of(source)["images/train/a.jpg"].objects
    assert told.keypoints == pytest.approx(points)


def test_background_is_kept(tmp_path: Path) -> None:
    """Images with an empty file of labels, and without any, are written; the latter are counted."""
    source = _with(tmp_path, "\n")
    assert boxes(source) == {"images/train/a.jpg": [], "images/train/b.jpg": []}
    assert source.notices == ("images without a label file, kept as background: 1",)


def test_labels_without_an_image_are_listed(yolo: Path) -> None:
    """So is each of their lines; other texts aren't taken for labels."""
    (yolo / "labels" / "train" / "gone.txt").write_text("0 .5 .5 .1 .1\n1 .5 .5 .1 .1\n")
    (yolo / "labels" / "train" / "classes.txt").write_text("cat\n")
    (yolo / "README.txt").write_text("0 .5 .5 .1 .1\n")
    source = open_annotated(yolo, f"yolo:{yolo}")
    assert [why for _, why in lost(source)] == [
        f"labels/train/gone.txt, line {line}: no image for this label file" for line in (1, 2)
    ]
    assert "labels/train/gone.txt" in {entry.key for entry in source.ignored}


def test_the_last_folder_of_images_counts(tmp_path: Path) -> None:
    """Labels lie where the last folder called images would be called labels; marks don't count."""
    scenes(tmp_path / "images" / "images", [Scene("a.jpg", 200, 100)])
    (tmp_path / "images" / "labels").mkdir()
    (tmp_path / "images" / "labels" / "a.txt").write_text("\ufeff0 .5 .5 .1 .1", "utf-8")
    (tmp_path / "data.yaml").write_text("\ufefftrain: images\nnames: [cat]", "utf-8")
    source = open_annotated(tmp_path, f"yolo:{tmp_path}")
    assert boxes(source) == {"images/images/a.jpg": [("cat", 90, 45, 110, 55)]}


def test_lists_of_images_are_no_labels(tmp_path: Path) -> None:
    """A list that lies beside images and their labels is not taken for labels."""
    scenes(tmp_path, [Scene("a.jpg", 200, 100)])
    _yaml(tmp_path, "train: train.txt")
    (tmp_path / "train.txt").write_text("./a.jpg\n")
    (tmp_path / "a.txt").write_text("0 .5 .5 .1 .1\n")
    source = open_annotated(tmp_path, f"yolo:{tmp_path}")
    assert boxes(source) == {"a.jpg": [("cat", 90, 45, 110, 55)]}
    assert lost(source) == []


def test_roboflows_paths_are_understood(tmp_path: Path) -> None:
    """Roboflow's ../train/images means the folder beside data.yaml; a missing split is listed."""
    for split, scene in (("train", SCENES[0]), ("valid", SCENES[1])):
        scenes(tmp_path / split / "images", [scene])
        write_yolo(tmp_path / split, [scene])
        shutil.move(tmp_path / split / "labels" / "train", tmp_path / split / "found")
        shutil.rmtree(tmp_path / split / "labels")
        shutil.move(tmp_path / split / "found", tmp_path / split / "labels")
        (tmp_path / split / "data.yaml").unlink()
    _yaml(tmp_path, "train: ../train/images\nval: ../valid/images\ntest: ../test/images\nnc: 3")
    source = open_annotated(tmp_path, f"yolo:{tmp_path}")
    assert boxes(source) == truth(SCENES[:1], "train/images/") | truth(SCENES[1:2], "valid/images/")
    assert source.splits == ("train", "validation")
    assert [item.split for item in source.items] == ["train", "validation"]
    assert {entry.key: entry.reason for entry in source.ignored}["../test/images"] == (
        "named as test in data.yaml, but not found"
    )


@pytest.mark.parametrize(
    "yaml",
    [
        "train: ./images/train/",
        "path: .\ntrain: images/train",
        "path: set\ntrain: images/train",
        "path: images\ntrain: train",
        "train: [images/train/deep, images/train]",
        "train: 'images\\train'",
        "train: .",
        "train: lists/train.txt",
        "train: ../images/train",
        "path: {here}\ntrain: images/train",
        "train: {here}/images/train",
    ],
)
def test_paths_of_all_forms(yolo: Path, yaml: str) -> None:
    """Paths are relative to data.yaml or to path, or absolute below it; lists are of images."""
    (yolo / "lists").mkdir()
    lines = [f"./../images/train/{scene.name}" for scene in SCENES[:3]]
    lines += [f"images/train/{scene.name}" for scene in SCENES[3:]]
    (yolo / "lists" / "train.txt").write_text("\n".join([*lines, "gone.jpg", "/etc/passwd"]))
    _yaml(yolo, yaml.replace("{here}", str(yolo)))
    source = open_annotated(yolo, f"yolo:{yolo}")
    assert boxes(source) == ALL
    assert listed(source) == {}
    if "lists" in yaml:
        left = {entry.key: entry.reason for entry in source.ignored}
        assert left["gone.jpg"] == "lists/train.txt, line 7: no such image"
        assert "/etc/passwd" in left


@pytest.mark.parametrize(
    "yaml",
    [
        "train: /etc",
        "train: images/train\nval: ../other/images",
        "train: link",
    ],
)
def test_paths_that_lead_out_are_an_error(yolo: Path, yaml: str) -> None:
    """Nothing outside of the folder is read, and the error names the path."""
    scenes(yolo.parent / "other" / "images", SCENES[:1])
    (yolo / "link").symlink_to(yolo.parent / "other")
    _yaml(yolo, yaml)
    with pytest.raises(SourceError, match="outside the dataset folder") as caught:
        open_annotated(yolo, f"yolo:{yolo}")
    assert caught.value.path == str(yolo / "data.yaml")
    assert str(caught.value.found).rpartition("/")[2] in yaml.replace("\\", "/")


@pytest.mark.parametrize(
    ("yaml", "notice"),
    [
        ("path: ../datasets/set\ntrain: images/train", "../datasets/set/images/train is read as"),
        ("path: /datasets\ntrain: images/train", "/datasets/images/train is read as"),
        ("train: 'C:\\data\\set\\images\\train'", "C:/data/set/images/train is read as"),
        ("train: /home/me/list.txt", "/home/me/list.txt is read as"),
        ("train: images/train\nval: images/train", "data.yaml: val has the same images as train"),
    ],
)
def test_paths_of_another_machine(yolo: Path, yaml: str, notice: str) -> None:
    """What this machine doesn't have is found by its end, in data.yaml as in lists."""
    lines = [f"/home/me/set/images/train/{scene.name}\n" for scene in SCENES]
    (yolo / "list.txt").write_text("".join(lines))
    source = open_annotated(_yaml(yolo, yaml), f"yolo:{yolo}")
    assert boxes(source) == ALL
    assert source.splits == ("train",)
    assert source.notices[0].startswith(notice)


def test_names_alone(yolo: Path) -> None:
    """Without folders in data.yaml, as supervision writes it, all images are read."""
    (yolo / "data.yaml").write_text("nc: 3\nnames: [cat, dog, traffic light]\n")
    source = open_annotated(yolo, f"yolo:{yolo}")
    assert boxes(source) == ALL
    assert source.splits == ("train",)


@pytest.mark.parametrize("path", ["../../elsewhere", "https://a.b/c.zip", "images/../../x"])
def test_the_paths_that_were_tried_are_listed(yolo: Path, path: str) -> None:
    """Where no images are, the error has the paths at which they were looked for."""
    with pytest.raises(SourceError, match="no images found") as caught:
        open_annotated(_yaml(yolo, f"train: {path}"), f"yolo:{yolo}")
    assert path.rpartition("/")[2] in str(caught.value.found)


def _darknet(folder: Path) -> str:
    """Lay out CVAT's export for darknet: lists whose paths start with a folder that isn't there."""
    shutil.move(folder / "images" / "train", folder / "obj_train_data")
    shutil.copytree(folder / "labels" / "train", folder / "obj_train_data", dirs_exist_ok=True)
    shutil.rmtree(folder / "labels")
    lines = [f"data/obj_train_data/{scene.name}\n" for scene in SCENES]
    (folder / "train.txt").write_text("".join(lines))
    (folder / "obj.names").write_text("\n".join([*COLORS, ""]))
    (folder / "obj.data").write_text(
        "classes = 3\ntrain = data/train.txt\nnames = data/obj.names\nbackup = backup/\n"
        + f"notes = a{' ' * 900_000}b\n"  # an hour for a pattern that tries each space
    )
    return "obj_train_data/"


def _label_studio(folder: Path) -> str:
    """Lay out Label Studio's export."""
    (folder / "classes.txt").write_text("\n".join(COLORS))
    (folder / "notes.json").write_text("{}")
    return "images/train/"


def _label_img(folder: Path) -> str:
    """Lay out what LabelImg saves in a folder of images."""
    shutil.copytree(folder / "labels" / "train", folder / "images" / "train", dirs_exist_ok=True)
    shutil.rmtree(folder / "labels")
    (folder / "images" / "train" / "classes.txt").write_text("\n".join(COLORS))
    return "images/train/"


def _image_folder(folder: Path) -> str:
    """Call the folder of images ``image``."""
    (folder / "images").rename(folder / "image")
    (folder / "data.yaml").write_text(f"train: image/train\nnames: {json.dumps([*COLORS])}")
    return "image/train/"


@pytest.mark.parametrize("lay_out", [_darknet, _label_studio, _label_img, _image_folder])
def test_folders_of_other_makers(yolo: Path, lay_out: Callable[[Path], str]) -> None:
    """Classes come from classes.txt or obj.names, and splits from lists or names of folders."""
    if lay_out is not _image_folder:
        (yolo / "data.yaml").unlink()
    prefix = lay_out(yolo)
    source = open_annotated(yolo, f"yolo:{yolo}")
    assert boxes(source) == truth(SCENES, prefix)
    assert lost(source) == []
    assert source.splits == ("train",)
    assert source.labels == (*COLORS,)


@pytest.mark.parametrize("place", ["ann", "ann/labels"])
def test_labels_may_be_in_another_folder(yolo: Path, place: str) -> None:
    """Images of SOURCE have their labels at the same path there, without the folder of images."""
    (yolo / "data.yaml").unlink()
    shutil.copytree(yolo / "labels" / "train", yolo.parent / place / "train")
    (yolo.parent / "ann" / "classes.txt").write_text("\n".join(COLORS))
    for images, prefix in (("images", "train/"), ("", "images/train/")):
        source = open_annotated(yolo / images, f"yolo:{yolo.parent / 'ann'}")
        assert boxes(source) == truth(SCENES, prefix)


def test_a_second_folder_has_the_labels(yolo: Path) -> None:
    """A link that leads out is an error with its path, unless --root names where it leads."""
    labels = yolo.parent / "kept"
    (yolo / "labels").rename(labels)
    with pytest.raises(SourceError, match="no label files") as caught:
        open_annotated(yolo, f"yolo:{yolo}")
    assert "labels/train/a.txt, images/train/a.txt" in str(caught.value.expected)
    assert boxes(open_annotated(yolo, f"yolo:{yolo}", root=labels)) == ALL
    (yolo / "labels").symlink_to(labels)
    with pytest.raises(SourceError, match="link leads outside") as caught:
        open_annotated(yolo, f"yolo:{yolo}")
    assert caught.value.path == str(yolo / "labels")
    assert boxes(open_annotated(yolo, f"yolo:{yolo}", root=labels)) == ALL


def test_lists_of_classes_that_differ_are_refused(yolo: Path) -> None:
    """None of several lists is guessed."""
    (yolo / "data.yaml").unlink()
    (yolo / "images" / "classes.txt").write_text("a\nb")
    (yolo / "labels" / "classes.txt").write_text("b\na")
    with pytest.raises(SourceError, match=r"other classes than labels/classes\.txt"):
        open_annotated(yolo, f"yolo:{yolo}")


def test_classes_without_a_name_are_told_once(tmp_path: Path) -> None:
    """Numbers beyond the names are one notice, and each of the objects is listed."""
    source = _with(tmp_path, "".join(f"{n} .5 .5 .1 .1\n" for n in range(5)))
    assert source.notices[0] == "data.yaml names 3 classes, labels use 0 to 4"
    assert [why for _, why in lost(source)] == [
        f"labels/train/a.txt, line {n + 1}, class {n}: class is not in data.yaml" for n in (3, 4)
    ]


def test_an_image_in_two_splits_is_listed(yolo: Path) -> None:
    """It stays in the first, as in coco128.yaml, whose images are all of both."""
    _yaml(yolo, "train: images/train\nval: images/train/deep")
    source = open_annotated(yolo, f"yolo:{yolo}")
    assert boxes(source) == ALL
    assert source.splits == ("train",)
    reason = "data.yaml, val: already in split train, skipped in val"
    assert listed(source) == {
        f"images/train/deep/{name}": reason for name in ("c.png", "nothing.jpg")
    }


@pytest.mark.parametrize(
    ("names", "classes"),
    [
        ("[no, 1, 2.50]", ("no", "1", "2.50")),
        ("{0: кот, 1: 'a: b', 5: dog}", ("кот", "a: b", "dog")),
        ("[a]\nnc: 1", ("a",)),
        (None, ("class0", "class1")),
    ],
)
def test_names_are_texts(yolo: Path, names: str | None, classes: tuple[str, ...]) -> None:
    """A class may be called as YAML calls a truth value or a number."""
    told = "nc: 2" if names is None else f"names: {names}"
    (yolo / "data.yaml").write_text(f"train: images/train\n{told}\n", "utf-8")
    assert open_annotated(yolo, f"yolo:{yolo}").labels == classes


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "no classes"),
        ("[1, 2]", "no classes"),
        ("names: []", "no classes"),
        ("names: [[a]]", "'names'"),
        ("names: {a: b}", "'names'"),
        ("names: [a, b]\nnc: 3", "nc is 3, but there are 2"),
        ("names: [a, a]", "duplicates"),
        (f"names: [{'a' * 2**19}]", "data.yaml: class name 'aaaa.* longer than 1,024"),
        ('names: ["a\\e[2J"]', "control character"),
        ('names: ["a\\nb"]', "several lines"),
        ("nc: 999999999", "more than 100,000 classes"),
        ("names: [a", "invalid YAML"),
        ("names: !!python/object/apply:os.system [ls]\ntrain: images/none", "no images"),
        ("names: &a [*a]", "invalid YAML"),
        ("- " * 1500, "invalid YAML"),
        ("\x00", "invalid YAML"),
        ("names: [a]\nkpt_shape: [x, 3]", "kpt_shape"),
        ("names: [a]\nkpt_shape: [999999, 3]", "kpt_shape"),
        ("names: [a]\nkpt_shape: 3", "kpt_shape"),
        ("names: [a]\nkpt_shape: [5, 4]", "kpt_shape"),
        ("names: [a]\nkpt_shape: {a: b, c: d}", "kpt_shape"),
        ("names: [a]\ntrain: {a: b}", "no images"),
        ("names: [a]\ntrain: images/none", "no images"),
        ("#" * 1_100_000, "1,048,576 bytes"),
        ("names: [\xff]", "UTF-8"),
        ('names: ["a\\nb"]\ntrain: images/train', "several lines"),
    ],
)
def test_what_is_wrong_with_data_yaml_is_said(yolo: Path, text: str, what: str) -> None:
    """The error names the file, and nothing in it is carried out."""
    (yolo / "data.yaml").write_bytes(text.encode("latin-1"))
    with pytest.raises(SourceError, match=what):
        open_annotated(yolo, f"yolo:{yolo}")


def test_aliases_blow_nothing_up(yolo: Path) -> None:
    """Lists of aliases of lists, and merged maps, cost no more than what is written."""
    lists = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 40))
    maps = "\n".join(f"b{n}: &b{n} {{<<: [{', '.join([f'*b{n - 1}'] * 9)}]}}" for n in range(1, 40))
    _yaml(yolo, f"a0: &a0 [x]\n{lists}\nb0: &b0 {{k: v}}\n{maps}\ntrain: images/train")
    assert boxes(open_annotated(yolo, f"yolo:{yolo}")) == ALL


def test_the_yaml_may_have_another_name(yolo: Path) -> None:
    """It is the only one of the folder; of several none is guessed."""
    (yolo / "data.yaml").rename(yolo / "coco8.yaml")
    assert boxes(open_annotated(yolo, f"yolo:{yolo}")) == ALL
    shutil.copy(yolo / "coco8.yaml", yolo / "other.yaml")
    with pytest.raises(SourceError, match=r"expected a data\.yaml"):
        open_annotated(yolo, f"yolo:{yolo}")
    assert boxes(open_annotated(yolo, f"yolo:{yolo}/other.yaml")) == ALL


def test_labels_are_for_the_upright_image(tmp_path: Path) -> None:
    """Trainers of YOLO turn photographs as their EXIF says before they look at labels."""
    scenes(tmp_path / "images" / "train", [Scene("a.jpg", 160, 80)], orientation=6)
    write_yolo(tmp_path, [Scene("a.jpg", 80, 160, (Thing("cat", 8, 16, 24, 32),))])
    (told,) = objects_of(open_annotated(tmp_path, f"yolo:{tmp_path}")).values()
    assert (told.width, told.height, told.upright) == (80, 160, True)
    assert told.objects[0][:4] == pytest.approx((8, 16, 24, 32), abs=0.01)


def test_labels_that_are_links_lead_nowhere_else(tmp_path: Path) -> None:
    """Nothing of a file outside of the folder is read, and so nothing of it is shown."""
    (tmp_path / "secret").write_text("hidden words\n")
    (tmp_path / "set" / "labels").mkdir(parents=True)
    (tmp_path / "set" / "labels" / "1.txt").symlink_to(tmp_path / "secret")
    (found,) = AnnotationFolder(tmp_path / "set", None).read(["labels/1.txt"], 1000)
    assert found == "link leads outside the folder"
