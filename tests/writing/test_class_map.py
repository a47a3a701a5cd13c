"""Classes that are renamed, merged or left out, and boxes that are too small."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.annotated_sets import SCENES, scenes, write_box_csv, write_coco
from tests.photos import write_class_folders
from tests.sources.annotations.told import boxes, objects_of, open_annotated, truth
from tfrtool.cli import main
from tfrtool.sources.folders.name_pattern import LabelFrom
from tfrtool.sources.open_source import open_source
from tfrtool.sources.source_options import SourceOptions
from tfrtool.writing.write_report import WriteReport


@pytest.fixture
def coco(tmp_path: Path) -> Path:
    """Return COCO's annotations of all scenes, which are in the folder ``images`` next to them."""
    scenes(tmp_path / "images")
    write_coco(tmp_path / "some.json")
    return tmp_path / "some.json"


def _write(coco: Path, **options: Any) -> WriteReport:
    images, target = coco.parent / "images", coco.parent / "out"
    return tfrtool.write(
        images, target, annotations=f"coco:{coco}", existing="overwrite", **options
    )


@pytest.mark.parametrize(
    ("options", "classes", "dropped"),
    [
        ({"class_map": ["cat=Cat"]}, {"Cat": (1, 2), "dog": (3, 3), "traffic light": (7, 2)}, 0),
        ({"class_map": ["cat=pet", "dog=pet"]}, {"pet": (1, 5), "traffic light": (7, 2)}, 0),
        ({"class_map": ["dog=cat"]}, {"cat": (1, 5), "traffic light": (7, 2)}, 0),
        ({"class_map": ["dog="]}, {"cat": (1, 2), "traffic light": (7, 2)}, 3),
        ({"class_map": ["cat=dog", "dog=cat"], "only_classes": ["cat"]}, {"cat": (3, 3)}, 4),
        ({"only_classes": ["dog"]}, {"dog": (3, 3)}, 4),
        ({"class_map": ["cat=pet", "dog="], "only_classes": ["pet"]}, {"pet": (1, 2)}, 5),
        ({"min_box": 32.5}, {"cat": (1, 2), "dog": (3, 1), "traffic light": (7, 0)}, 4),
    ],
)  # fmt: skip
def test_objects(
    coco: Path, options: Mapping[str, Any], classes: dict[str, tuple[int, int]], dropped: int
) -> None:
    """Numbers and counts are those of the new classes; what is left out by request is counted."""
    report = _write(coco, **options)
    counts = {name: count for name, (_, count) in classes.items()}
    assert report.splits["train"].labels == counts
    found = report.annotations
    assert found is not None
    assert (found.read, found.written, found.dropped, found.rejected) == (
        7,
        7 - dropped,
        dropped,
        (),
    )
    text = (coco.parent / "out" / "label_map.pbtxt").read_text()
    for name, (number, _) in classes.items():
        assert f"id: {number}\n  name: {json.dumps(name)}" in text
    assert report.splits["train"].records == len(SCENES)


def test_images_without_objects_can_be_skipped(
    coco: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are listed, and don't change the exit code; nor do objects that are left out."""
    words = ["write", str(coco.parent / "images"), str(coco.parent / "x")]
    words += ["--annotations", f"coco:{coco}", "--skip-empty", "--class-map", "cat=", "--json"]
    assert main(words) == 0
    report = json.loads(capsys.readouterr().out)
    assert {entry["key"] for entry in report["ignored"]} == {
        "a.jpg", "deep/nothing.jpg", "nothing.png"
    }  # fmt: skip
    assert report["annotations"]["dropped"] == 2


def test_names_of_open_images(tmp_path: Path) -> None:
    """Its machine names become those of class-descriptions-boxable.csv, one of which is quoted."""
    names = {"cat": "/m/01yrx", "dog": "/m/0bt9lr", "traffic light": "/m/015qff"}
    things = [
        scene._replace(
            things=tuple(thing._replace(category=names[thing.category]) for thing in scene.things)
        )
        for scene in scenes(tmp_path / "images")
    ]
    write_box_csv(tmp_path / "boxes.csv", things)
    rows = ["/m/01yrx,cat", "/m/0bt9lr,dog", '/m/015qff,"light, traffic"', "/m/011k07,Tortoise"]
    (tmp_path / "names.csv").write_text("\n".join(rows))
    source = open_annotated(
        tmp_path / "images",
        f"csv:{tmp_path / 'boxes.csv'}",
        class_map=(str(tmp_path / "names.csv"), "/m/015qff=light, traffic"),
    )
    assert source.labels == ("light, traffic", "cat", "dog")
    renamed = {"traffic light": "light, traffic"}
    assert boxes(source) == {
        key: [(renamed.get(str(one[0]), one[0]), *one[1:]) for one in some]
        for key, some in truth(SCENES).items()
        if some
    }
    assert len(objects_of(source)) == 4


def test_class_folders(tmp_path: Path) -> None:
    """Classes of images are changed, too, and images of classes that are dropped not written."""
    folder = write_class_folders(tmp_path / "s", ("cat", "dog", "bird"), 2)
    report = tfrtool.write(folder, tmp_path / "a", class_map=["cat=pet", "dog=pet"])
    assert report.splits["train"].labels == {"bird": 2, "pet": 4}
    report = tfrtool.write(folder, tmp_path / "b", class_map=["cat="], only_classes=["dog"])
    assert report.splits["train"].labels == {"dog": 2}
    assert "images of classes that are dropped: 4" in report.notices
    others = tmp_path / "synsets.csv"
    others.write_text("n01440764,tench\n")
    with pytest.raises(tfrtool.UsageError, match="none of these classes exist"):
        tfrtool.write(folder, tmp_path / "none", class_map=[str(others)])
    labels = tmp_path / "labels.txt"
    labels.write_text("pet\nbird\n")
    report = tfrtool.write(folder, tmp_path / "c", class_map=["cat=pet", "dog=pet"], labels=labels)
    assert report.splits["train"].labels == {"pet": 4, "bird": 2}


def test_several_labels(tmp_path: Path) -> None:
    """Each label of an image is changed; the image stays while one remains."""
    write_class_folders(tmp_path / "s", ("x",), 3)
    keys = sorted(str(path.relative_to(tmp_path)) for path in (tmp_path / "s").rglob("*.jpg"))
    rows = zip(keys, ("a;b", "b", "c;a"), strict=True)
    table = tmp_path / "t.csv"
    table.write_text("path,label\n" + "".join(f"{key},{label}\n" for key, label in rows))
    report = tfrtool.write(
        table, tmp_path / "d", multi_label=";", class_map=["b=", "c=a"], dry_run=True
    )
    assert report.splits["train"].labels == {"a": 2}
    assert report.splits["train"].records == 2


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"class_map": ["cot=x"]}, "no class 'cot'; did you mean 'cat'"),
        ({"only_classes": ["x"]}, "--only-classes: no class 'x'"),
        ({"class_map": ["cat=a", "cat=b"]}, "two names for class 'cat'"),
        ({"class_map": ["cat=a\nb"]}, "spans several lines"),
        ({"class_map": ["cat=", "dog=", "traffic light="]}, "drops all classes"),
        ({"class_map": ["none.csv"]}, "none.csv"),
        ({"class_map": ["{bad}"]}, "row 2 has 3 columns"),
        ({"class_map": ["{latin}"]}, "not valid UTF-8"),
        ({"class_map": ["{torn}"]}, "row 2 has a line break in a cell"),
        ({"class_map": ["{others}"]}, "others: --class-map: none of these classes exist"),
        ({"class_map": ["cat=a", "{others}"]}, "expected 'cat', 'dog', .* found 'n01', 'n02'"),
        ({"class_map": ["{blank}"]}, "not a class map: it is empty"),
    ],
)
def test_what_is_wrong_is_said(coco: Path, options: dict[str, list[str]], what: str) -> None:
    """A name that isn't there, two for one class, and files of another form are errors."""
    (coco.parent / "bad").write_text("a,b\na,b,c\n")
    (coco.parent / "latin").write_bytes(b"a,\xff\n")
    (coco.parent / "torn").write_text('dog,animal\n"cat","an\nimal"\n')
    (coco.parent / "others").write_text("n01,cat\nn02,dog\n")
    (coco.parent / "blank").write_text("\n")
    names = ("bad", "latin", "torn", "others", "blank")
    places = {name: coco.parent / name for name in names}
    filled = {name: [one.format(**places) for one in some] for name, some in options.items()}
    with pytest.raises(tfrtool.TfrtoolError, match=what):
        _write(coco, **filled)
    assert not (coco.parent / "out").exists()


@pytest.mark.parametrize("option", [{"min_box": 3}, {"skip_empty": True}])
def test_options_of_boxes_need_annotations(tmp_path: Path, option: dict[str, Any]) -> None:
    """They mean nothing for images alone."""
    with pytest.raises(tfrtool.UsageError, match="needs --annotations"):
        tfrtool.write(tmp_path, tmp_path / "x", **option)


def test_images_of_one_video_stay_together(coco: Path) -> None:
    """Any member of COCO's images can be the group; one without it is alone."""
    whole = json.loads(coco.read_text())
    for at, image in enumerate(whole["images"][:5]):
        image["video_id"] = at % 2
    coco.write_text(json.dumps(whole))
    source = open_annotated(
        coco.parent / "images", f"coco:{coco}", coco.parent, group_by="video_id"
    )
    groups = [item.group for item in source.items]
    assert groups[0] == groups[2] == groups[4] != groups[1] == groups[3] != groups[5] == 0
    assert source.grouped
    assert source.notices[-1] == (
        "images without a group for 'video_id', split individually: 1 of 6"
    )
    named = open_annotated(coco.parent / "images", f"coco:{coco}", coco.parent, group_by="^[a-z]+")
    assert named.grouped


@pytest.mark.parametrize(
    "text",
    [
        "n01 tench\r\nn02 crane, bird\r\nn03 crane, bird\r\n",
        "n01\ttench\nn02\tcrane, bird\nn03\tcrane, bird\n",
        "n01 1 tench\nn02 2 crane, bird\nn03 3 crane, bird\n",
        json.dumps({"n01": "tench", "n02": "crane, bird", "n03": "crane, bird"}),
        json.dumps({0: ["n01", "tench"], 1: ["n02", "crane, bird"], 2: ["n03", "crane, bird"]}),
    ],
)
def test_names_of_folders(text: str, tmp_path: Path) -> None:
    """ImageNet's files name folders; two classes of the same name are not merged."""
    text = text.replace("n0", "n0000000")
    folders = ("n00000001", "n00000002", "n00000003")
    images = write_class_folders(tmp_path / "s", folders, count=1)
    (tmp_path / "names").write_bytes(b"\xef\xbb\xbf" + text.encode())
    names = ("tench", "crane, bird (n00000002)", "crane, bird (n00000003)")
    for options in (
        SourceOptions(class_map=(f"{tmp_path}/names",)),
        SourceOptions(labels=f"{tmp_path}/names"),
    ):
        source = open_source(str(images), LabelFrom.FOLDER, tmp_path, options=options)
        assert source.labels == names
        assert [item.label for item in source.items] == [*names]
