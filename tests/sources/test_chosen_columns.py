"""Tables whose columns have other names, or whose paths are those of another machine."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path, PureWindowsPath
from typing import Any

import pandas as pd
import pytest

import tfrtool
from tests.sources.reading_tables import found, make_images, read, reasons
from tfrtool.errors import SourceError, UsageError
from tfrtool.sources.folders.name_pattern import LabelFrom
from tfrtool.sources.items import Source
from tfrtool.sources.open_source import open_source
from tfrtool.sources.source_options import SourceOptions
from tfrtool.sources.tables.tables import read_table


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with three files."""
    (tmp_path / "data").mkdir()
    return make_images(tmp_path / "data")


def _read(folder: Path, text: str, root: Path | None = None, **options: Any) -> Source:
    (folder / "t.csv").write_text(text)
    return read_table(folder / "t.csv", root, options=SourceOptions(**options))


KEYS = [("a.jpg", "cat", None), ("b.jpg", "dog", None)]


@pytest.mark.parametrize(
    "name", ["id", "image_id", "Image", "file_name", "FileName", "img", "name", "Image Index"]
)
@pytest.mark.parametrize("suffix", ["", ".jpg"])
def test_columns_of_paths_are_found_by_their_values(folder: Path, name: str, suffix: str) -> None:
    """A column with a likely name is that of paths where its values name files."""
    text = f"number,{name},label\n7,a{suffix},cat\n8,b{suffix},dog\n"
    assert found(_read(folder, text)) == KEYS
    rows = [{name: "a" + suffix, "label": "cat"}, {name: "b" + suffix, "label": "dog"}]
    assert found(read(folder, "\n".join(map(json.dumps, rows)), "t.jsonl")) == KEYS
    pd.DataFrame(rows).to_parquet(folder / "t.parquet")
    assert found(read_table(folder / "t.parquet")) == KEYS


def test_a_likelier_column_counts_only_if_it_names_files(folder: Path) -> None:
    """Of columns called image and id, the one with files is read; without any, the first."""
    assert found(_read(folder, "image,id,label\nx,a.jpg,cat\ny,b.jpg,dog\n")) == KEYS
    assert found(_read(folder, "id,image,label\na,b.jpg,cat\n")) == [("b.jpg", "cat", None)]
    numbers = folder / "numbers"
    numbers.mkdir()
    (numbers / "12.png").write_bytes(b"x")
    lines = '{"id": 12, "label": "cat"}'
    assert found(read(numbers, lines, "t.jsonl")) == [("12.png", "cat", None)]


def test_a_column_of_any_name(folder: Path) -> None:
    """It is chosen by --path-column, or found if it alone names files, which a note says."""
    source = _read(folder, "which,label,notes\na.jpg,cat,x\nb.jpg,dog,y\n")
    assert found(source) == KEYS
    assert source.notices[0] == "paths are read from column 'which'"
    text = "which,label,copy\na.jpg,cat,b.jpg\nb.jpg,dog,a.jpg\n"
    with pytest.raises(SourceError, match=r"no path column.*use --path-column NAME"):
        _read(folder, text)
    assert found(_read(folder, text, path_column="which")) == KEYS
    assert found(_read(folder, text.replace("which,", " which ,"), path_column="which")) == KEYS
    with pytest.raises(UsageError, match=r"no column 'wich' for --path-column.*'which'"):
        _read(folder, text, path_column="wich")
    with pytest.raises(UsageError, match="--path-column requires a table"):
        tfrtool.write(folder, folder.parent / "out", path_column="x")


MACHINES: list[Callable[[str], str]] = [
    lambda key: f"/kaggle/input/pets/{key}",
    lambda key: f"/data/upload/5/{key}",
    lambda key: str(PureWindowsPath("C:/Users/ann/data") / key),
    lambda key: f"C:/Users/ann/data/{key}",
    lambda key: f"\\\\server\\share\\{key}".replace("/", "\\"),
    lambda key: f"file:///C:/Users/ann/{key}",
    lambda key: f"file:///home/ann/{key}",
    lambda key: f"old/data/{key}".replace("/", "\\"),
]


@pytest.mark.parametrize("machine", MACHINES)
def test_paths_of_another_machine(folder: Path, machine: Callable[[str], str]) -> None:
    """They lose the leading folders that don't exist; the bytes are those of the right files."""
    text = io.StringIO()
    rows = [("path", "label"), *((machine(key), key) for key in ("a.jpg", "b.jpg", "sub/c.jpg"))]
    csv.writer(text).writerows([*rows, (machine("none.jpg"), "x")])
    source = _read(folder, text.getvalue())
    sizes = {item.label: len(source.reader.read(item)) for item in source.items}
    assert sizes == {"a.jpg": 1, "b.jpg": 2, "sub/c.jpg": 3}
    assert reasons(source) == ["row 5: no such file"]
    other = folder.with_name("tables")
    other.mkdir()
    assert len(_read(other, text.getvalue(), folder).items) == 3


def test_paths_of_this_machine_stay_out_of_bounds(folder: Path) -> None:
    """A file that exists elsewhere is not replaced by one of the same name next to the table."""
    outside = folder.with_name("outside")
    outside.mkdir()
    (outside / "a.jpg").write_bytes(b"secret")
    for path in (outside / "a.jpg", outside / "a"):
        (outside / "a").touch()
        with pytest.raises(SourceError, match="outside the table's folder"):
            _read(folder, f"path,label\n{path},x\n")
    (folder / "gone").symlink_to(outside)
    with pytest.raises(SourceError, match="outside the table's folder"):
        _read(folder, "path,label\n/kaggle/gone/a.jpg,x\n")
    with pytest.raises(SourceError, match="outside the table's folder"):
        _read(folder, "path,label\nC:\\..\\..\\outside\\a.jpg,x\n")


def test_no_suffix_is_added_where_names_have_one(folder: Path) -> None:
    """The rest of a path with a comma is no other file's name."""
    source = _read(folder, "path,label\na.jpg,cat\nsub/c,d.jpg\n")
    assert found(source) == [("a.jpg", "cat", None)]
    assert reasons(source) == ["row 3: no such file"]


def test_the_error_names_an_option_that_works(folder: Path) -> None:
    """It lists three values and the paths that were tried; what it says leads to the images."""
    table = folder.with_name("labels")
    table.mkdir()
    text = "image_id,label\nc,cat\nx,dog\ny,dog\nz,dog\n"
    with pytest.raises(SourceError) as caught:
        _read(table, text)
    message = str(caught.value)
    assert f"tried {table}/c, {table}/c.jpg" in message
    assert "found 'c', 'x', 'y' in column 'image_id'" in message
    assert message.endswith(f"use --root {folder}/sub, where such files are")
    assert found(_read(table, text, folder / "sub")) == [("c.jpg", "cat", None)]
    with pytest.raises(SourceError, match=r"--root DIR .*, or --path-column NAME .*'note'"):
        _read(table, "id,label,note\nnone,cat,x\n")


def test_columns_of_0_and_1_are_labels(folder: Path) -> None:
    """Each column is a label, in their order, whether they are named or found."""
    text = "filename, cat, dog, indoor, bird\na.jpg, 0, 1, 1, 0\nb.jpg, 0, 0, 0, 0\n"
    text += "sub/c.jpg, 1.0, 0, true, 0\n"
    source = _read(folder, text)
    assert source.labels == ("cat", "dog", "indoor", "bird")
    assert [item.label.split("\x1f") for item in source.items] == [
        ["dog", "indoor"],
        [""],
        ["cat", "indoor"],
    ]
    assert source.notices == (
        "labels are the columns of 0 and 1: 'cat', 'dog', 'indoor', 'bird'",
        "images without a label: 1 of 3",
    )
    chosen = _read(folder, text.replace("dog", "x"), label_columns=("indoor", "cat"))
    assert (chosen.labels, chosen.rejected) == (("indoor", "cat"), ())
    assert "columns not written: 'x', 'bird'" in chosen.notices
    frame = pd.read_csv(folder / "t.csv", skipinitialspace=True)
    frame.assign(cat=frame["cat"] == 1).to_parquet(folder / "t.parquet")
    assert read_table(folder / "t.parquet").labels == ("cat", "x", "indoor", "bird")


def test_other_numbers_are_no_labels(folder: Path) -> None:
    """A column of other values is not taken for a label; a cell of one that is leaves its row out.

    So no image has labels that nobody gave it.
    """
    with pytest.raises(SourceError, match="no label column"):
        _read(folder, "id,cat,dog,age\na,0,1,3\nb,1,0,4\n")
    with pytest.raises(SourceError, match="no label column"):
        _read(folder, "id,has_cactus\na,0\nb,1\n")
    text = "id,cat,dog\na,0,1\nb,1,-1\nsub/c,,1\n"
    source = _read(folder, text, label_columns=("cat", "dog"))
    assert [item.key for item in source.items] == ["a.jpg"]
    assert reasons(source) == [
        "row 3: column 'dog' is neither 0 nor 1",
        "row 4: column 'cat' is empty",
    ]
    with pytest.raises(UsageError, match="no column 'bird' for --label-columns"):
        _read(folder, text, label_columns=("cat", "bird"))
    clashes: list[dict[str, Any]]
    clashes = [{"multi_label": ";"}, {"label_column": "x"}, {"labels": "keep"}]
    for other in clashes:
        with pytest.raises(UsageError, match="--label-columns and"):
            SourceOptions(label_columns=("cat",), **other)
    with pytest.raises(SourceError, match="duplicate column 'dog'"):
        _read(folder, "id,cat,dog,DOG\na,0,1,1\n")


def test_a_folder_with_classes_csv_in_each_split(tmp_path: Path) -> None:
    """Roboflow's tables are read from the folder; images that no row names are listed."""
    header = "filename, cat, dog\n"
    for split, rows in (("train", "a.jpg, 1, 0\nb.jpg, 1, 1\n"), ("valid", "c.jpg, 0, 1\n")):
        (tmp_path / split).mkdir()
        (tmp_path / split / "_classes.csv").write_text(header + rows)
        for line in rows.splitlines():
            (tmp_path / split / line.partition(",")[0]).write_bytes(b"x")
    (tmp_path / "train" / "extra.jpg").write_bytes(b"x")
    (tmp_path / "train" / "phone.dng").write_bytes(b"x")
    source = open_source(str(tmp_path), LabelFrom.FOLDER, tmp_path)
    assert [(item.key, item.label.split("\x1f"), item.split) for item in source.items] == [
        ("train/a.jpg", ["cat"], "train"),
        ("train/b.jpg", ["cat", "dog"], "train"),
        ("valid/c.jpg", ["dog"], "validation"),
    ]
    assert (source.labels, source.splits) == (("cat", "dog"), ("train", "validation"))
    assert [entry.key for entry in source.rejected] == ["train/extra.jpg", "train/phone.dng"]
    assert reasons(source)[0] == "no row of _classes.csv names it"
    assert "camera raw" in reasons(source)[1]
    assert len(open_source(str(tmp_path / "valid"), LabelFrom.FOLDER, tmp_path).items) == 1


def test_classes_csv_of_one_class_below_a_folder(tmp_path: Path) -> None:
    """A folder around everything changes nothing, nor do a BOM and line ends of Windows."""
    (tmp_path / "README.dataset.txt").write_text("about")
    for split, value in (("train", 1), ("valid", 0)):
        folder = tmp_path / "export" / split
        folder.mkdir(parents=True)
        row = f"\ufefffilename, crack\r\n{split}.jpg, {value}\r\n"
        (folder / "_classes.csv").write_bytes(row.encode())
        (folder / f"{split}.jpg").write_bytes(b"x")
    source = open_source(str(tmp_path), LabelFrom.FOLDER, tmp_path)
    assert [(item.key, item.label, item.split) for item in source.items] == [
        ("export/train/train.jpg", "crack", "train"),
        ("export/valid/valid.jpg", "", "validation"),
    ]
    assert source.labels == ("crack",)
    archive = shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path)
    with pytest.raises(SourceError, match=r"pass the folder: export/train/_classes\.csv has"):
        open_source(archive, LabelFrom.FOLDER, tmp_path)


def test_values_of_masks_are_no_table_of_images(tmp_path: Path) -> None:
    """Roboflow's other _classes.csv, which names the values of masks, is not read as labels."""
    (tmp_path / "_classes.csv").write_text("Pixel Value, Class\n0, background\n1, sky\n")
    (tmp_path / "a.jpg").write_bytes(b"x")
    (tmp_path / "a_mask.png").write_bytes(b"x")
    with pytest.raises(SourceError, match="no images in class folders"):
        open_source(str(tmp_path), LabelFrom.FOLDER, tmp_path)
