"""Tables of boxes are read, whatever form they have and whatever is wrong with their rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.annotated_sets import SCENES, Scene, scenes, write_box_csv
from tests.sources.annotations.told import (
    boxes,
    listed,
    lost,
    objects_of,
    open_annotated,
    truth,
)
from tfrtool.errors import SourceError
from tfrtool.sources.items import Source

HEADER = "filename,width,height,class,xmin,ymin,xmax,ymax"


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Return a folder of two images of 200 x 100 and 40 x 40 pixels."""
    scenes(tmp_path / "images", [Scene("a.jpg", 200, 100), Scene("sub/b 50%.png", 40, 40)])
    return tmp_path / "images"


def _read(images: Path, text: str | bytes) -> Source:
    table = images.parent / "boxes.csv"
    table.write_bytes(text if isinstance(text, bytes) else text.encode())
    return open_annotated(images, f"csv:{table}")


def test_boxes_are_those_of_the_table(tmp_path: Path) -> None:
    """The table of generate_tfrecord.py gives every image its boxes; others aren't mentioned."""
    scenes(tmp_path / "images")
    table = write_box_csv(tmp_path / "boxes.csv")
    source = open_annotated(tmp_path / "images", f"csv:{table}")
    assert boxes(source) == {key: found for key, found in truth(SCENES).items() if found}
    assert source.labels == ("cat", "dog", "traffic light")
    assert [entry.key for entry in source.ignored] == ["deep/nothing.jpg", "nothing.png"]
    assert source.notices == ()


@pytest.mark.parametrize(
    "text",
    [
        f"{HEADER}\na.jpg,200,100,cat,20,10,60,50\n",
        f"\n{HEADER}\n\na.jpg,0,,cat,20,10,60,50\n",
        "Class;Path;x1;y1;x2;y2\ncat;C:\\data\\a.jpg;20;10;60;50\n",
        "image_id\tlabel\tbbox_x\tbbox_y\tbbox_width\tbbox_height\na\tcat\t20\t10\t40\t40\n",
        "width,height,file,x,y,w,h,label\n200,100,a.jpg,20,10,40,40,cat\n",
        "image,label,cx,cy,w,h\na.jpg,cat,40,30,40,40\n",
        "image,label,left,top,right,bottom\na.jpg,cat,.1,.1,.3,.5\n",
        "image,label,x_center,y_center,width,height\na.jpg,cat,.2,.3,.2,.4\n",
        "/home/me/images/a.jpg,20,10,60,50,cat\n",
        '"a.jpg","20","10","60","50","cat"\n',
        "TRAIN,gs://bucket/some/a.jpg,cat,0.1,0.1,,,0.3,0.5,,\n",
        "TRAIN,gs://bucket/some/a.jpg,cat,0.1,0.1,0.3,0.1,0.3,0.5,0.1,0.5\n",
        "TRAIN,gs://bucket/some/a.jpg,cat,0.1,0.1,0.3,0.5\n",
        "gs://bucket/some/a.jpg,cat,0.1,0.1,,,0.3,0.5,,\n",
        ",gs://bucket/some/a.jpg,cat,0.1,0.1,,,0.3,0.5\n",
        "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsTruncated\n"
        "a,xclick,cat,1,0.1,0.3,0.1,0.5,0\n",
    ],
)
def test_forms_of_tables(images: Path, text: str) -> None:
    """Columns are known by their names, and without names those of RetinaNet and AutoML."""
    assert boxes(_read(images, text)) == {"a.jpg": [("cat", 20, 10, 60, 50)]}


def test_shares_are_told_by_the_numbers(images: Path) -> None:
    """Where most boxes lie between 0 and 1 all are shares, which is said; a pixel is none."""
    source = _read(images, f"{HEADER}\na.jpg,,,cat,.1,.1,.3,.5\na.jpg,,,cat,0,0,1,1\n")
    assert boxes(source)["a.jpg"] == [("cat", 20, 10, 60, 50), ("cat", 0, 0, 200, 100)]
    assert source.notices == ("boxes.csv: boxes are read as fractions of the image size",)
    rows = "a.jpg,,,cat,20,10,60,50\n" * 2
    source = _read(images, f"{HEADER}\na.jpg,,,cat,0,0,1,1\n{rows}")
    assert boxes(source)["a.jpg"][0] == ("cat", 0, 0, 1, 1)


def test_background_is_kept(images: Path) -> None:
    """A path alone is an image without objects."""
    source = _read(images, "a.jpg,,,,,\nsub/b 50%.png,1,2,3,4,cat\n")
    assert boxes(source) == {"a.jpg": [], "sub/b 50%.png": [("cat", 1, 2, 3, 4)]}


def test_openimages_flags(images: Path) -> None:
    """IsTruncated and IsGroupOf are kept; -1 is not known."""
    text = "ImageID,LabelName,XMin,XMax,YMin,YMax,IsTruncated,IsGroupOf\n"
    text += "a,/m/01g317,0.1,0.3,0.1,0.5,1,-1\na,/m/01g317,0.1,0.3,0.1,0.5,0,1\n"
    source = _read(images, text)
    assert [(one.truncated, one.crowd) for one in objects_of(source)["a.jpg"].objects] == [
        (True, False),
        (False, True),
    ]
    assert source.features.optional == ("crowd", "truncated")


def test_splits(images: Path) -> None:
    """AutoML's sets and columns of splits are splits; without one among others, and in two."""
    rows = "VALIDATE,a.jpg,cat,0,0,,,1,1,,\nTEST,sub/b 50%.png,cat,0,0,,,1,1,,\n"
    source = _read(images, rows)
    assert [item.split for item in source.items] == ["validation", "test"]
    source = _read(images, rows.replace("TEST", "UNASSIGNED"))
    assert listed(source) == {"sub/b 50%.png": "row 2: no split, although others have one"}
    source = _read(images, rows.replace("TEST", "a/b"))
    assert "'a/b'" in listed(source)["sub/b 50%.png"]
    source = _read(images, rows + "TRAIN,a.jpg,cat,0,0,,,1,1,,\n")
    assert listed(source) == {"a.jpg": "row 1: rows of this image disagree on its split"}
    assert source.splits == ("test",)
    source = _read(images, "UNASSIGNED,a.jpg,cat,0,0,,,1,1,,\n")
    assert source.splits == ()


def test_corners_of_automl_are_two_or_four(images: Path) -> None:
    """Three corners are no box."""
    rows = "TRAIN,a.jpg,cat,.1,.1,.3,.1,.3,.5,,\nTRAIN,a.jpg,cat,.1,.1,,,.3,.5,,\n"
    source = _read(images, rows)
    assert boxes(source) == {"a.jpg": [("cat", 20, 10, 60, 50)]}
    assert lost(source) == [("a.jpg", "row 1: box is not four numbers")]


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        (("200,100", "200,101"), "disagree on its size"),
        (("-1,100", ","), "not two whole numbers"),
        (("wide,100", ","), "not two whole numbers"),
        ((",", "nan,1"), "not two whole numbers"),
        (("100000000000000000000,0", ","), "not two whole numbers"),
        (("0,100000000000000000000", ","), "not two whole numbers"),
        (("200,\u0661\u0660\u0660", ","), "not two whole numbers"),
        (("200.5,100", ","), "not two whole numbers"),
        (("200,0", "0,0"), "disagree on its size"),
        (("200,100", ","), None),
    ],
)
def test_sizes(images: Path, sizes: tuple[str, str], reason: str | None) -> None:
    """Rows that say several sizes of an image, or none that can be, cost it; one is enough."""
    rows = "".join(f"a.jpg,{size},cat,1,2,3,4\n" for size in sizes)
    source = _read(images, f"{HEADER}\n{rows}sub/b 50%.png,40,40,cat,1,2,3,4\n")
    assert [*listed(source)] == (["a.jpg"] if reason else [])
    assert reason is None or reason in listed(source)["a.jpg"]
    assert len(lost(source)) == (2 if reason else 0)


def test_too_many_rows_of_an_image(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more rows than any image has objects the first are kept, and the others listed."""
    monkeypatch.setattr("tfrtool.sources.annotations.box_table.MAX_IMAGE_OBJECTS", 3)
    source = _read(images, "a.jpg,1,2,3,4,cat\n" * 5)
    assert len(boxes(source)["a.jpg"]) == 3
    assert [why for _, why in lost(source)] == [
        f"row {row}: image has more than 3 objects" for row in (4, 5)
    ]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "box columns"),
        ("filename,xmin,ymin,xmax,ymax\n", "box columns"),
        ("path,label\na.jpg,cat\n", "box columns"),
        ("path,label,bbox\na.jpg,cat,\n", "box columns"),
        (HEADER, "no image has annotations"),
        (b"\x89PNG\r\n", "line 1 is not valid UTF-8"),
        (b"a.jpg,1,2,3,4,cat\0\n", "line 1 contains a NUL"),
        (f'{HEADER}\n"a.jpg,1,1,cat,1,2,3,4\n', "quotation mark"),
        (f"{HEADER}\na.jpg,{'9' * 2_000_000}", "longer than"),
        ("PAR1", "box columns"),
    ],
)
def test_what_is_no_table_of_boxes(images: Path, text: str | bytes, what: str) -> None:
    """The error names the table, and what it should have been."""
    with pytest.raises(SourceError, match=what):
        _read(images, text)


def test_a_table_of_too_many_columns_is_refused(images: Path) -> None:
    """The limit of 10,000 columns holds for tables of boxes."""
    header = f"{HEADER},{','.join(map(str, range(10_000)))}\n"
    with pytest.raises(SourceError, match="too many columns: expected at most 10,000"):
        _read(images, header)
