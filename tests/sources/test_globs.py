"""Patterns as sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sources.trees import contents, labelled, open_tree, write_folder
from tfrtool.errors import SourceError
from tfrtool.sources.folders.name_pattern import LabelFrom
from tfrtool.sources.open_source import open_source

TREE = {
    "photos/cat/1.jpg": b"1",
    "photos/cat/2.png": b"2",
    "photos/cat/old/3.jpg": b"3",
    "photos/dog/4.jpg": b"4",
    "photos/cow/5.jpg": b"5",
    "photos/.hidden/6.jpg": b"6",
    "photos/readme.txt": b"7",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder that holds the tree."""
    return write_folder(tmp_path / "files", TREE)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("photos/*/*.jpg", {"cat/1.jpg": "cat", "cow/5.jpg": "cow", "dog/4.jpg": "dog"}),
        ("photos/c*/*.jpg", {"cat/1.jpg": "cat", "cow/5.jpg": "cow"}),
        ("photos/[cd]o[wg]", {"photos/cow/5.jpg": "cow", "photos/dog/4.jpg": "dog"}),
        ("photos/cat/*.jpg", {"cat/1.jpg": "cat"}),
        ("photos/cat/?.*", {"cat/1.jpg": "cat", "cat/2.png": "cat"}),
        ("photos/c*/old/*", {"cat/old/3.jpg": "old"}),
        ("photos/**/o*/*.jpg", {"cat/old/3.jpg": "old"}),
        (
            "photos/**/*.jpg",
            {"cat/1.jpg": "cat", "cat/old/3.jpg": "cat", "cow/5.jpg": "cow", "dog/4.jpg": "dog"},
        ),
        ("ph*/c[ao]t/**", {f"photos/cat/{n}": "cat" for n in ("1.jpg", "2.png", "old/3.jpg")}),
        ("*/d*/", {"photos/dog/4.jpg": "dog"}),
    ],
)
def test_items_are_the_matches(pattern: str, expected: dict[str, str], folder: Path) -> None:
    """A pattern's items are what it matches, labelled with their folders."""
    source = open_tree(folder / pattern)
    assert dict(labelled(source)) == expected
    assert len(set(contents(source).values())) == len(expected)


def test_relative_patterns(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern without any folder has the class of the folder that one stands in."""
    monkeypatch.chdir(folder / "photos" / "cat")
    for pattern in ("*.jpg", "./*.jpg", "../cat/*.jpg"):
        source = open_source(pattern, LabelFrom.FOLDER, folder)
        assert labelled(source) == [("cat/1.jpg", "cat")]
        assert contents(source) == {"cat/1.jpg": b"1"}


def test_labels_from_names_of_matches(tmp_path: Path) -> None:
    """Patterns go together with labels from names."""
    write_folder(tmp_path / "files", {"cat.1.jpg": b"x", "dog.1.jpg": b"y", "dog.2.png": b"z"})
    source = open_tree(tmp_path / "files" / "*.jpg", LabelFrom.FILENAME)
    assert labelled(source) == [("files/cat.1.jpg", "cat"), ("files/dog.1.jpg", "dog")]


def test_a_file_may_have_wildcards_in_its_name(tmp_path: Path) -> None:
    """What is there is meant before what matches; a folder in the pattern may be so named too."""
    write_folder(tmp_path / "a[b]*", {"cat/1.jpg": b"x"})
    assert labelled(open_tree(tmp_path / "a[b]*")) == [("cat/1.jpg", "cat")]


def test_links_in_circles_end(folder: Path) -> None:
    """``**`` follows no link into a folder that it is in."""
    (folder / "photos" / "cat" / "again").symlink_to(folder)
    assert len(open_tree(folder / "photos" / "**" / "*.jpg").items) == 4


def test_broken_links_and_no_matches(folder: Path) -> None:
    """A link that leads nowhere is rejected; a pattern that matches nothing is an error."""
    (folder / "photos" / "cat" / "7.jpg").symlink_to(folder / "nothing")
    source = open_tree(folder / "photos" / "*" / "*.jpg")
    assert [entry.key for entry in source.rejected] == ["cat/7.jpg"]
    with pytest.raises(SourceError) as caught:
        open_tree(folder / "photos" / "x*" / "*.jpg")
    assert caught.value.path == str(folder / "photos" / "x*" / "*.jpg")
