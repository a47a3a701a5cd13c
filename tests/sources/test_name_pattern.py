"""Labels and features that a regular expression finds in the paths of images."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.photos import image_bytes
from tests.sources.trees import labelled
from tfrtool.errors import SourceError, UsageError
from tfrtool.examples.example import DType
from tfrtool.sources.folders.name_pattern import parse_label_from
from tfrtool.sources.items import Source
from tfrtool.sources.open_source import open_source
from tfrtool.sources.source_options import SourceOptions

UTK = r"^(?P<age>\d+)_(?P<gender>[01])_(?P<race>[0-4])_(?P<date>\d+)\."
FACES = ("25_0_1_20170109150557.jpg", "100_1_0_20170109150558.jpg", "9_1_4_20170110000000.jpg")


def _open(folder: Path, pattern: str, *keys: str, **options: Any) -> Source:
    for number, key in enumerate(keys):
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).write_bytes(image_bytes(tint=number))
    scratch = folder.parent / "scratch"
    scratch.mkdir(exist_ok=True)
    chosen = SourceOptions(**options)
    return open_source(str(folder), parse_label_from(pattern), scratch, options=chosen)


@pytest.mark.tf
def test_utkface(tmp_path: Path) -> None:
    """The first group is the label, all are features, and a name that lacks one is listed."""
    (tmp_path / "faces").mkdir()
    for number, name in enumerate((*FACES, "61_1_20170109142408.jpg")):
        (tmp_path / "faces" / name).write_bytes(image_bytes(tint=number))
    report = tfrtool.write(tmp_path / "faces", tmp_path / "d", label_from=UTK, name="utk")
    assert [(one.key, one.reason) for one in report.rejected] == [
        ("61_1_20170109142408.jpg", "its path doesn't match --label-from")
    ]
    assert report.notices == ("labels are the group 'age'; name a group 'label' to choose",)
    assert (tmp_path / "d" / "label.labels.txt").read_text().split() == ["9", "25", "100"]
    records = {
        record["image/filename"].decode(): tuple(
            record[name] for name in ("age", "gender", "race", "date")
        )
        for record in tfrtool.open_records(tmp_path / "d", decode="features")
    }
    assert records == {
        FACES[0]: (25, 0, 1, 20170109150557),
        FACES[1]: (100, 1, 0, 20170109150558),
        FACES[2]: (9, 1, 4, 20170110000000),
    }


def test_a_group_called_label(tmp_path: Path) -> None:
    """It is the label; of the others, --column chooses some, and their types."""
    pattern = r"(?P<age>\d+)_(?P<label>[01])_(?P<race>\d)"
    source = _open(tmp_path / "in", pattern, *FACES)
    assert labelled(source) == [(FACES[1], "1"), (FACES[0], "0"), (FACES[2], "1")]
    assert [column.name for column in source.features.columns] == ["age", "race"]
    assert source.notices == ()
    source = _open(tmp_path / "in", pattern, columns=("age:float32",))
    assert [(one.name, one.dtype) for one in source.features.columns] == [("age", DType.FLOAT32)]
    with pytest.raises(UsageError, match="no column 'agee' for --column"):
        _open(tmp_path / "in", pattern, columns=("agee",))


def test_one_group_is_the_label_alone(tmp_path: Path) -> None:
    """Folders are part of the path, those of splits still are splits, and labels may be text."""
    keys = ("train/a/x-cat_1.jpg", "train/b/x-dog_1.jpg", "test/a/y-cat_2.jpg")
    source = _open(tmp_path / "in", "-(?P<kind>[a-z]+)_", *keys)
    assert [(item.key, item.label, item.split) for item in source.items] == [
        ("test/a/y-cat_2.jpg", "cat", "test"),
        ("train/a/x-cat_1.jpg", "cat", "train"),
        ("train/b/x-dog_1.jpg", "dog", "train"),
    ]
    assert source.features.columns == ()
    by_folder = _open(tmp_path / "in", r"/(?P<label>[ab])/")
    assert [item.label for item in by_folder.items] == ["a", "a", "b"]


def test_features_that_some_names_lack(tmp_path: Path) -> None:
    """An optional group makes a list that may be empty; text that is no number stays text."""
    pattern = r"(?P<label>[a-z]+)(?:_(?P<year>\d{4}))?(?:-(?P<place>[a-z]+))?\.jpg"
    source = _open(tmp_path / "in", pattern, "cat_2024.jpg", "dog-home.jpg")
    kinds = {one.name: (one.dtype, one.is_list) for one in source.features.columns}
    assert kinds == {"year": (DType.INT64, True), "place": (DType.STRING, True)}


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("regex", "'regex' has no named group"),
        ("(a", "not a valid regular expression"),
        ("(a)(?P<label>b)", "unnamed groups"),
        ("(?P<label>a)(?P<image>b)?", "'image' has the name of a feature that tfrtool writes"),
    ],
)
def test_patterns_that_are_refused(
    pattern: str, message: str, tmp_path: Path, run: Callable[..., tuple[int, str, str]]
) -> None:
    """The error says what is wrong with the expression, and nothing is written."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jpg").write_bytes(image_bytes())
    words = ("write", tmp_path / "in", tmp_path / "out", "--label-from", pattern)
    code, _, error = run(*words)
    assert code == 2
    assert message in error


def test_nothing_matches(tmp_path: Path) -> None:
    """Without a match, the error has the expression and a path."""
    with pytest.raises(SourceError, match=r"no image path matches --label-from '\(\?P<a>x\)'"):
        _open(tmp_path / "in", "(?P<a>x)", "cat_1.jpg")
    table = tmp_path / "t.csv"
    table.write_text("path,label\ncat_1.jpg,cat\n")
    with pytest.raises(UsageError, match="--label-from REGEX doesn't apply"):
        open_source(str(table), parse_label_from("(?P<a>x)"), tmp_path)
