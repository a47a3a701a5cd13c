"""Lists of the labels of a split, for images that are not in class folders."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tfrtool.errors import SourceError, UsageError
from tfrtool.sources.folders.name_pattern import LabelFrom
from tfrtool.sources.items import Source
from tfrtool.sources.open_source import open_source
from tfrtool.sources.source_options import SourceOptions


def _tree(root: Path, *keys: str) -> Path:
    """Write files that are named like images."""
    for key in keys:
        (root / key).parent.mkdir(parents=True, exist_ok=True)
        (root / key).write_bytes(b"x")
    return root


def _open(root: Path, *split_labels: str) -> Source:
    options = SourceOptions(split_labels=split_labels)
    return open_source(str(root), LabelFrom.FOLDER, root.parent, options=options)


def _labels(source: Source) -> list[tuple[str | None, str, str]]:
    return [(item.split, item.key.rpartition("/")[2], item.label) for item in source.items]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("val/val_annotations.txt", "1.JPEG\tn01\t0\t0\t9\t9\r\n2.JPEG\tn02\t0\t0\t9\t9\r\n"),
        ("LOC_val_solution.csv", "ImageId,PredictionString\n1,n01 1 2 3 4 n01 5 6 7 8\n2,n02 1 2 3 4"),  # noqa: E501
        ("Val.csv", "\ufeffWidth;ClassId;Path\n3;n01;Val/1.JPEG\n3;n02;Val/2.JPEG\n"),
        ("val_labels.csv", "1.JPEG,n01\n2.JPEG,n02\n"),
    ],
)  # fmt: skip
def test_lists_in_the_tree(name: str, text: str, tmp_path: Path) -> None:
    """The lists of Tiny ImageNet, ImageNet, GTSRB and Kaggle are found by their names."""
    keys = ("train/n01/images/a.JPEG", "train/n02/b.JPEG", "val/images/1.JPEG", "val/images/2.JPEG")
    root = _tree(tmp_path / "set", *keys)
    (root / name).write_text(text)
    source = _open(root)
    assert _labels(source)[2:] == [("validation", "1.JPEG", "n01"), ("validation", "2.JPEG", "n02")]
    assert source.labels == ("n01", "n02")
    assert not source.rejected
    file = name.rpartition("/")[2]
    assert source.notices == (f"labels of split validation are read from {file}",)


@pytest.mark.parametrize(
    "text",
    [
        "1.jpg n01 1 2 3 4\nx/2.jpg a b\n9.jpg n01\n",
        'file name\tlabel\n1.jpg\tn01\n"C:\\x\\2.jpg"\ta b\n9\tn01\n',
        "1|n01\n2|a b\n9|n01\n",
    ],
)
def test_a_list_that_is_named(text: str, tmp_path: Path) -> None:
    """Any list is read, and what it lacks or has besides is reported."""
    root = _tree(tmp_path / "set", "train/n01/a.jpg", "val/1.jpg", "val/2.jpg", "val/3.jpg")
    (tmp_path / "list.gz").write_bytes(gzip.compress(text.encode()))
    source = _open(root, f"val={tmp_path / 'list.gz'}")
    assert _labels(source)[1:] == [("validation", "1.jpg", "n01"), ("validation", "2.jpg", "a b")]
    assert [(one.key, one.reason) for one in source.rejected] == [("val/3.jpg", "not in list.gz")]
    assert source.notices[1] == "rows of list.gz without an image: 1"


def test_splits_of_images_in_one_folder(tmp_path: Path) -> None:
    """Without folders of splits, the lists say which split an image is in."""
    root = _tree(tmp_path / "set", "1.jpg", "2.jpg", "3.jpg")
    (tmp_path / "a").write_text("1.jpg cat\n")
    (tmp_path / "b").write_text("2.jpg dog\n")
    source = _open(root, f"train={tmp_path / 'a'}", f"test={tmp_path / 'b'}")
    assert _labels(source) == [("train", "1.jpg", "cat"), ("test", "2.jpg", "dog")]
    assert [one.reason for one in source.rejected] == ["not in a, b"]
    assert source.splits == ("train", "test")


def test_files_that_are_no_lists(tmp_path: Path) -> None:
    """They are errors if they were named, and otherwise say nothing of labels."""
    root = _tree(tmp_path / "set", "train/cat/a.jpg", "val/1.jpg")
    (root / "val.csv").write_text("time,loss,accuracy\n1,2,3\n")
    source = _open(root)
    assert [one.reason for one in source.rejected] == ["not in a class folder"]
    assert "--split-labels validation=FILE" in source.notices[0]
    for text, what in (
        ("time,loss,accuracy\n1,2,3\n", "not a list of labels"),
        ("1.jpg\n", "has no label"),
        ("1.jpg cat\n1.jpg dog\n", "has two labels"),
        ("", "no labels"),
        ("id,PredictionString\n1,a 1 2 3 4 b 1 2 3 4\n", "boxes of several classes"),
    ):
        (tmp_path / "list").write_text(text)
        with pytest.raises(SourceError, match=what):
            _open(root, f"val={tmp_path / 'list'}")
    (tmp_path / "list").write_text("1.jpg cat\n")
    for argument, what in (("x", "invalid --split-labels"), ("dev=list", "no split 'dev' for")):
        with pytest.raises(UsageError, match=what):
            _open(root, argument.replace("list", str(tmp_path / "list")))
