"""What labels of tables are taken for: classes, integers, or what can't be written."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sources.reading_tables import make_images, read
from tfrtool.errors import SourceError
from tfrtool.sources.items import Source
from tfrtool.sources.tables.table_columns import refused_label, sort_labels


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with three files."""
    return make_images(tmp_path)


def _labels(folder: Path, *labels: str) -> Source:
    out = io.StringIO()
    names = ("a.jpg", "b.jpg", "sub/c.jpg")
    csv.writer(out).writerows([("path", "label"), *zip(names, labels, strict=False)])
    return read(folder, out.getvalue())


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("filename,width,height,class,xmin,ymin,xmax,ymax", "xmin"),
        ("path,label,X_min,Y_min,X_max,Y_max", "X_min"),
        ("path,label,x,y,w,h", "'w'"),
        ("path,label,bbox_x,bbox_y,bbox_width,bbox_height", "bbox_x"),
        ("path,label,x1,y1,x2,y2", "x1"),
        ("path,label,bbox", "bbox"),
        ("image,label,EncodedPixels", "EncodedPixels"),
    ],
)
def test_tables_of_boxes_are_refused(folder: Path, header: str, found: str) -> None:
    """A row is a box there, and no image: the columns that say so are named."""
    row = ["a.jpg" if name in ("filename", "path", "image") else "1" for name in header.split(",")]
    with pytest.raises(SourceError, match="boxes") as caught:
        read(folder, f"{header}\n{','.join(row)}\n")
    assert found in str(caught.value.found)
    assert caught.value.path == str(folder / "table.csv")
    line = json.dumps(dict(zip(header.split(","), row, strict=True)))
    with pytest.raises(SourceError, match="boxes"):
        read(folder, line, "table.jsonl")


@pytest.mark.parametrize(
    "header", ["path,label,width,height", "path,label,x,y", "path,label,box_number,xmin"]
)
def test_other_numbers_are_no_boxes(folder: Path, header: str) -> None:
    """The size of an image, or a place on a map, is no box."""
    row = ",".join(["a.jpg", "cat", "1", "2"][: header.count(",") + 1])
    assert len(read(folder, f"{header}\n{row}\n").items) == 1


@pytest.mark.parametrize(
    "labels",
    [
        ("bird", "cat|dog"),
        ("bird", '["cat", "dog"]'),
        ("bird", "['cat', 'dog']"),
    ],
)
def test_several_labels_in_a_cell_are_refused(folder: Path, labels: tuple[str, ...]) -> None:
    """They are no class of their own; the cell and its row are named."""
    with pytest.raises(SourceError, match="several labels") as caught:
        _labels(folder, *labels)
    number, label = next(
        (number, label) for number, label in enumerate(labels, start=2) if set(label) & set("|;,")
    )
    assert f"'{label}' in row {number}" in str(caught.value.found)


def test_lists_of_json_are_refused(folder: Path) -> None:
    """A list of labels is no string or integer, and is named as what it is."""
    lines = '{"path":"a.jpg","label":"x"}\n{"path":"b.jpg","label":["cat","dog"]}\n'
    with pytest.raises(SourceError, match=r"several labels.* in row 2"):
        read(folder, lines, "table.jsonl")
    source = read(folder, lines.replace('["cat","dog"]', "[]"), "table.jsonl")
    assert [entry.reason for entry in source.rejected] == ["row 2: no label"]


@pytest.mark.parametrize(
    "labels",
    [
        ("tench, Tinca tinca", "goldfish, Carassius auratus", "hen"),
        ("Paris, France", "Lyon, France", "Paris, Texas"),
        ("maillot", "maillot, tank suit", "hen, fowl"),
        ("AC/DC", "[unknown]", "a, b"),
        ("cat;", "dog|", "x"),
    ],
)
def test_names_with_commas_are_names(folder: Path, labels: tuple[str, ...]) -> None:
    """A separator alone makes no list."""
    assert set(_labels(folder, *labels).labels) == set(labels)


@given(st.lists(st.text("abc ", min_size=1).map(str.strip).filter(bool), unique=True, max_size=8))
def test_plain_names_are_never_refused(labels: list[str]) -> None:
    """Names without separators are classes, whatever they are."""
    assert refused_label(labels) is None


def test_fractions_are_refused(folder: Path) -> None:
    """Numbers with fractions are no classes, in CSV as in JSON; among names they are names."""
    for labels in (("0.5", "1", "2"), ("1e3", "nan"), ("1.0", "2.0"), ("-.5",)):
        with pytest.raises(SourceError, match="fractions") as caught:
            _labels(folder, *labels)
        assert labels[0] in str(caught.value.found)
    with pytest.raises(SourceError, match="row 1: label is not a string or an integer"):
        read(folder, '{"path":"a.jpg","label":0.5}', "table.jsonl")
    assert _labels(folder, "1.6", "2.0 TDI").labels == ("1.6", "2.0 TDI")


def test_what_becomes_of_integers_is_said(folder: Path) -> None:
    """Integers keep their order by value; if they change, each change is told."""
    source = _labels(folder, "10", "5", "-1")
    assert source.labels == ("-1", "5", "10")
    (notice,) = source.notices
    assert "-1 becomes 0, 5 becomes 1, 10 becomes 2" in notice
    assert _labels(folder, "1", "0", "2").notices == ()
    assert _labels(folder, "cat", "5").notices == ()


@given(st.sets(st.integers(-(10**17), 10**17), min_size=1))
def test_integers_are_sorted_by_value(values: set[int]) -> None:
    """Whatever the integers are."""
    assert [int(label) for label in sort_labels({str(value) for value in values})] == sorted(values)


def test_other_columns_are_named_once(folder: Path) -> None:
    """What is dropped of a table is said, in CSV and in JSON Lines."""
    source = read(folder, "path,label,split,note,,w\na.jpg,x,train,n,,1\nb.jpg,y,test,n,,1\n")
    assert [notice.partition(": ")[2] for notice in source.notices] == ["'note', 'w'"]
    lines = '{"path":"a.jpg","label":"x","b":1}\n{"path":"b.jpg","label":"y","b":1,"c":2}\n'
    source = read(folder, lines, "table.jsonl")
    assert [notice.partition(": ")[2] for notice in source.notices] == ["'b', 'c'"]
    assert read(folder, "path,label\na.jpg,x\n").notices == ()


@pytest.mark.parametrize("label", ["9" * 1_000_000, "[" + '"' * 1_000_000, "," * 1_000_000])
def test_long_labels_cost_little(label: str) -> None:
    """A label of a megabyte is looked at once, not once for each of its characters: for hours."""
    refused_label([label + "x", "cat"])
