"""Reading class folders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.photos import image_bytes, write_class_folders
from tfrtool.errors import SourceError
from tfrtool.sources.class_folders import read_class_folders


def test_folders_are_classes(tmp_path: Path) -> None:
    """Items come sorted, with key, label, path and size; labels are sorted."""
    write_class_folders(tmp_path, ("dog", "cat"), count=2)
    source = read_class_folders(tmp_path)
    assert source.labels == ("cat", "dog")
    assert [(item.key, item.label) for item in source.items] == [
        ("cat/cat.0.jpg", "cat"),
        ("cat/cat.1.jpg", "cat"),
        ("dog/dog.0.jpg", "dog"),
        ("dog/dog.1.jpg", "dog"),
    ]
    assert all(item.bytes == item.path.stat().st_size for item in source.items)


def test_wrapping_folder_is_looked_through(tmp_path: Path) -> None:
    """In PetImages/Cat the class is Cat, and the key keeps PetImages."""
    write_class_folders(tmp_path / "PetImages", ("Cat", "Dog"), count=1)
    source = read_class_folders(tmp_path)
    assert source.labels == ("Cat", "Dog")
    assert source.items[0].key == "PetImages/Cat/Cat.0.jpg"


def test_nested_folders_belong_to_their_class(tmp_path: Path) -> None:
    """An image two folders down has the label of the upper folder."""
    write_class_folders(tmp_path, count=1)
    (tmp_path / "cat" / "persian").mkdir()
    (tmp_path / "cat" / "persian" / "x.JPG").write_bytes(image_bytes())
    source = read_class_folders(tmp_path)
    assert ("cat/persian/x.JPG", "cat") in [(item.key, item.label) for item in source.items]


def test_one_class_stays_a_class(tmp_path: Path) -> None:
    """A single folder of images is a class, and is not looked through."""
    write_class_folders(tmp_path, ("cat",), count=2)
    assert read_class_folders(tmp_path).labels == ("cat",)


def test_everything_is_accounted_for(tmp_path: Path) -> None:
    """Stray images are rejected, other files ignored, both listed; clutter is passed over."""
    write_class_folders(tmp_path, count=1)
    (tmp_path / "stray.jpg").write_bytes(image_bytes())
    (tmp_path / "cat" / "notes.txt").write_text("x")
    (tmp_path / "cat" / ".hidden.jpg").write_bytes(b"")
    (tmp_path / "cat" / "Thumbs.db").write_bytes(b"")
    source = read_class_folders(tmp_path)
    assert [entry.key for entry in source.rejected] == ["stray.jpg"]
    assert [entry.key for entry in source.ignored] == ["cat/notes.txt"]
    assert len(source.items) == 2


def test_links_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    """A link to an image and to a folder counts; a folder that links to itself ends."""
    write_class_folders(tmp_path / "photos", count=1)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "far.jpg").write_bytes(image_bytes())
    (tmp_path / "photos" / "cat" / "more").symlink_to(outside)
    (tmp_path / "photos" / "cat" / "again").symlink_to(tmp_path / "photos" / "cat")
    keys = [item.key for item in read_class_folders(tmp_path / "photos").items]
    assert keys == ["cat/cat.0.jpg", "cat/more/far.jpg", "dog/dog.0.jpg"]


def test_unicode_names_are_kept(tmp_path: Path) -> None:
    """Spaces and letters of any script are part of keys and labels."""
    write_class_folders(tmp_path / "mes photos", ("été", "猫"), count=1)
    source = read_class_folders(tmp_path / "mes photos")
    assert source.labels == ("été", "猫")


@pytest.mark.parametrize("layout", ["missing", "file", "empty", "no-images", "flat"])
def test_nothing_usable_is_an_error(layout: str, tmp_path: Path) -> None:
    """A source without images in class folders is an error that names it."""
    path = tmp_path / "source"
    if layout == "file":
        path.write_text("x")
    elif layout != "missing":
        path.mkdir()
    if layout == "no-images":
        (path / "cat").mkdir()
        (path / "cat" / "readme.txt").write_text("x")
    if layout == "flat":
        (path / "1.jpg").write_bytes(image_bytes())
    with pytest.raises(SourceError) as caught:
        read_class_folders(path)
    assert caught.value.path == str(path)
    assert caught.value.exit_code == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_folder_is_an_error(tmp_path: Path) -> None:
    """A class folder that may not be listed is not passed over in silence."""
    write_class_folders(tmp_path, count=1)
    (tmp_path / "dog").chmod(0)
    try:
        with pytest.raises(SourceError):
            read_class_folders(tmp_path)
    finally:
        (tmp_path / "dog").chmod(0o755)


def test_class_name_must_fit_a_line(tmp_path: Path) -> None:
    """A class name with a line break can't be written to label.labels.txt, and is refused."""
    write_class_folders(tmp_path, ("cat", "do\ng"), count=1)
    with pytest.raises(SourceError):
        read_class_folders(tmp_path)
