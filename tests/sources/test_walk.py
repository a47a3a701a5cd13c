"""Listing directories."""

from __future__ import annotations

import inspect
import os
import socket
import sys
from pathlib import Path

import pytest

from tests.photos import image_bytes, write_class_folders
from tests.sources.trees import contents, labelled, open_tree
from tfrtool.errors import SourceError


def _reasons(entries: object) -> dict[str, str]:
    return {entry.key: entry.reason for entry in entries}  # type: ignore[attr-defined]


def test_items_have_their_size_and_bytes(tmp_path: Path) -> None:
    """An item says how large its file is, and reads as the file does."""
    write_class_folders(tmp_path, ("dog", "cat"), count=2)
    source = open_tree(tmp_path)
    assert [item.key for item in source.items] == [
        "cat/cat.0.jpg",
        "cat/cat.1.jpg",
        "dog/dog.0.jpg",
        "dog/dog.1.jpg",
    ]
    for item in source.items:
        assert item.bytes == (tmp_path / item.key).stat().st_size
        assert source.reader.read(item) == (tmp_path / item.key).read_bytes()
        assert source.reader.describe(item) == str(tmp_path / item.key)


def test_everything_is_accounted_for(tmp_path: Path) -> None:
    """Stray images are rejected, other files ignored, both listed; clutter is passed over."""
    write_class_folders(tmp_path, count=1)
    (tmp_path / "stray.jpg").write_bytes(image_bytes())
    (tmp_path / "cat" / "notes.txt").write_text("x")
    for clutter in (".hidden.jpg", "Thumbs.db", ".DS_Store", "._1.jpg", "desktop.ini"):
        (tmp_path / "cat" / clutter).write_bytes(b"")
    for folder in ("__MACOSX", ".git", "@eaDir"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "1.jpg").write_bytes(image_bytes())
    source = open_tree(tmp_path)
    assert _reasons(source.rejected) == {"stray.jpg": "not in a class folder"}
    assert _reasons(source.ignored) == {"cat/notes.txt": "no image file extension"}
    assert len(source.items) == 2


def test_images_that_are_not_read_are_rejected(tmp_path: Path) -> None:
    """Photographs of other formats, or without an ending, are listed; other files are ignored."""
    write_class_folders(tmp_path, count=1)
    (tmp_path / "cat" / "IMG_1.jp2").write_bytes(b"")
    (tmp_path / "cat" / "raw.NEF").write_bytes(b"")
    (tmp_path / "cat" / "IMG_2").write_bytes(image_bytes())
    (tmp_path / "cat" / "photo.jpg_large").write_bytes(image_bytes())
    (tmp_path / "cat" / "model.bin").write_bytes(bytes(40))
    source = open_tree(tmp_path)
    unnamed = "a JPEG image by its content, without a file name extension of images"
    assert _reasons(source.rejected) == {
        "cat/IMG_1.jp2": "JPEG 2000 images are not supported",
        "cat/IMG_2": unnamed,
        "cat/photo.jpg_large": unnamed,
        "cat/raw.NEF": "camera raw images are not supported",
    }
    assert _reasons(source.ignored) == {"cat/model.bin": "no image file extension"}
    for path in (tmp_path / "cat" / "cat.0.jpg", tmp_path / "dog" / "dog.0.jpg"):
        path.unlink()
    with pytest.raises(SourceError, match="JPEG 2000 images are not supported"):
        open_tree(tmp_path)


def test_links_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    """A link to an image and to a folder counts; a folder that links to itself ends."""
    write_class_folders(tmp_path / "photos", count=1)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "far.jpg").write_bytes(image_bytes())
    (tmp_path / "photos" / "cat" / "more").symlink_to(outside)
    (tmp_path / "photos" / "cat" / "again").symlink_to(tmp_path / "photos" / "cat")
    (tmp_path / "photos" / "dog" / "one.jpg").symlink_to(outside / "far.jpg")
    source = open_tree(tmp_path / "photos")
    assert labelled(source) == [
        ("cat/cat.0.jpg", "cat"),
        ("cat/more/far.jpg", "cat"),
        ("dog/dog.0.jpg", "dog"),
        ("dog/one.jpg", "dog"),
    ]
    assert len(contents(source)) == 4
    assert source.rejected == ()


def test_links_that_lead_nowhere_are_rejected(tmp_path: Path) -> None:
    """A broken link, and one in a circle, are listed with a reason; the rest is read."""
    write_class_folders(tmp_path, count=1)
    (tmp_path / "cat" / "gone.jpg").symlink_to(tmp_path / "nothing")
    (tmp_path / "cat" / "folder").symlink_to(tmp_path / "nothing")
    (tmp_path / "cat" / "round.jpg").symlink_to(tmp_path / "cat" / "round.jpg")
    source = open_tree(tmp_path)
    assert len(source.items) == 2
    assert sorted(_reasons(source.rejected)) == ["cat/folder", "cat/gone.jpg", "cat/round.jpg"]


def test_folders_that_link_to_each_other_end(tmp_path: Path) -> None:
    """Twelve folders with links to all others have millions of paths: an error, and soon."""
    for number in range(12):
        (tmp_path / f"{number}").mkdir()
        for other in range(12):
            (tmp_path / f"{number}" / f"to{other}").symlink_to(tmp_path / f"{other}")
    with pytest.raises(SourceError) as caught:
        open_tree(tmp_path)
    assert caught.value.hint is not None


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    """A pipe called .jpg isn't opened, for nothing would ever come; nor a socket or a device."""
    write_class_folders(tmp_path, count=1)
    os.mkfifo(tmp_path / "cat" / "pipe.jpg")
    (tmp_path / "cat" / "null.jpg").symlink_to("/dev/null")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(tmp_path / "cat" / "socket"))
        source = open_tree(tmp_path)
    assert list(_reasons(source.ignored)) == ["cat/socket"]
    assert list(_reasons(source.rejected)) == ["cat/null.jpg", "cat/pipe.jpg"]
    assert set(_reasons(source.rejected).values()) == {"not a regular file"}
    assert len(source.items) == 2


def test_deep_folders_are_no_matter(tmp_path: Path) -> None:
    """Folders may be nested deeper than functions may call each other."""
    write_class_folders(tmp_path, count=1)
    depth = 250
    image = tmp_path.joinpath("cat", *["x"] * depth, "x.jpg")
    image.parent.mkdir(parents=True)
    image.write_bytes(b"x")
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 100)
    try:
        source = open_tree(tmp_path)
    finally:
        sys.setrecursionlimit(limit)
    assert source.items[1].label == "cat"
    assert source.reader.read(source.items[1]) == b"x"


def test_unicode_names_are_kept(tmp_path: Path) -> None:
    """Spaces and letters of any script are part of keys and labels."""
    write_class_folders(tmp_path / "mes photos", ("été", "猫"), count=1)
    source = open_tree(tmp_path / "mes photos")
    assert source.labels == ("été", "猫")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_names_that_are_no_utf8_are_read(tmp_path: Path) -> None:
    """A file's name may be any bytes, and is written as these bytes; a class's may not."""
    folder = tmp_path / "photos" / "cat"
    folder.mkdir(parents=True)
    (folder / os.fsdecode(b"\xe9t\xe9.jpg")).write_bytes(b"x")
    source = open_tree(tmp_path / "photos")
    assert os.fsencode(source.items[0].key) == b"cat/\xe9t\xe9.jpg"
    assert source.reader.read(source.items[0]) == b"x"
    folder.rename(tmp_path / "photos" / os.fsdecode(b"\xe9t\xe9"))
    with pytest.raises(SourceError):
        open_tree(tmp_path / "photos")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_folder_is_an_error(tmp_path: Path) -> None:
    """A class folder that may not be listed is not passed over in silence."""
    write_class_folders(tmp_path, count=1)
    (tmp_path / "dog").chmod(0)
    try:
        with pytest.raises(SourceError) as caught:
            open_tree(tmp_path)
        assert caught.value.path == str(tmp_path / "dog")
    finally:
        (tmp_path / "dog").chmod(0o755)


def test_a_folder_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the system says about a folder is an error with the folder's path."""
    write_class_folders(tmp_path, count=1)
    scandir = os.scandir

    def failing(path: str) -> object:
        if path.endswith("dog"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr("tfrtool.sources.folders.listing.os.scandir", failing)
    with pytest.raises(SourceError) as caught:
        open_tree(tmp_path)
    assert caught.value.path == str(tmp_path / "dog")
