"""What a directory means: its shards by name and by content, versions, folders of splits."""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path

import pytest

from tests.conftest import MakeShard
from tfrtool.errors import DatasetError
from tfrtool.records.framing import frame
from tfrtool.records.shard_sets import group_shards
from tfrtool.records.shards import find_folders, find_shards


def found(directory: Path) -> list[str]:
    """Return the shards of a directory, with their folders below it."""
    return [path.relative_to(directory).as_posix() for path in find_folders(directory).shards]


@pytest.mark.parametrize("name", ["train.record", "data", "tfrecords", "part-r-00000", "x.json.b"])
def test_odd_names_are_recognized_by_content(
    name: str, make_shard: MakeShard, tmp_path: Path
) -> None:
    """A file that starts with a length and its CRC is a shard, whatever its name."""
    make_shard([b"x", b"y"], name)
    for other in ("README", "model.bin", "image.jpg", "empty"):
        (tmp_path / other).write_bytes(b"" if other == "empty" else b"something else entirely")
    assert found(tmp_path) == [name]


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
def test_compressed_files_of_odd_names(compress: object, tmp_path: Path) -> None:
    """So is one that uncompresses to that; another compressed file is not."""
    assert callable(compress)
    (tmp_path / "data.gz").write_bytes(compress(frame(b"x") * 1000))
    (tmp_path / "text.gz").write_bytes(compress(b"some text" * 1000))
    assert found(tmp_path) == ["data.gz"]


def test_damaged_shards_next_to_intact_ones(make_shard: MakeShard, tmp_path: Path) -> None:
    """One shard stands for the others of its writer, so that damage is not passed over."""
    make_shard([b"x"], "train.record")
    make_shard([b"x"], "part-r-00003")
    for name in ("test.record", "part-r-00004", "part-x", "notes.md"):
        (tmp_path / name).write_bytes(b"no header here, sorry")
    assert found(tmp_path) == ["part-r-00003", "part-r-00004", "test.record", "train.record"]


def test_only_so_many_files_are_looked_into(
    make_shard: MakeShard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a folder of all sorts, a bounded number is opened, and stands for the others."""
    monkeypatch.setattr("tfrtool.records.shards.MAX_FILES_LOOKED_INTO", 3)
    make_shard([b"x"], "z.tfrecord")
    for name in "abcdef":
        make_shard([b"x"], name)
    (tmp_path / "d").write_bytes(b"something else")
    assert found(tmp_path) == [*"abcdef", "z.tfrecord"]
    (tmp_path / "a").write_bytes(b"something else")
    assert len(find_shards(f"{tmp_path}/*")) == 6
    for name in "abc":
        (tmp_path / name).write_bytes(b"something else")
    assert found(tmp_path) == ["z.tfrecord"]


def test_a_folder_of_photographs_is_none_of_shards(
    make_shard: MakeShard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many files of one kind a few are looked into, whatever means them; none is a shard."""
    monkeypatch.setattr("tfrtool.records.shards.MAX_FILES_OF_A_KIND", 3)
    make_shard([b"x"], "z.tfrecord")
    for number in range(20):
        (tmp_path / f"{number}.jpg").write_bytes(b"\xff\xd8\xff")
    assert found(tmp_path) == ["z.tfrecord"]
    assert find_folders(tmp_path).notes == ()
    assert find_shards(f"{tmp_path}/*") == (tmp_path / "z.tfrecord",)


def test_newest_version_is_used_and_named(make_shard: MakeShard, tmp_path: Path) -> None:
    """Versions are compared as numbers, as TFDS does; a folder that is none is left alone."""
    for name in ("1.9.0", "1.10.0", "1.2.0", "not.a.version"):
        make_shard([b"x"], f"pets/{name}/pets-train.tfrecord-00000-of-00001")
    folders = find_folders(tmp_path / "pets")
    assert folders.root == tmp_path / "pets" / "1.10.0"
    version, others = folders.notes
    assert version == "using version 1.10.0, the newest of 1.2.0, 1.9.0, 1.10.0"
    assert others.startswith("3 shards in 3 subfolders are not included (1.2.0, 1.9.0, not.a")
    assert found(tmp_path / "pets") == ["1.10.0/pets-train.tfrecord-00000-of-00001"]


def test_shards_of_other_folders_at_the_same_depth_are_reported(
    make_shard: MakeShard, tmp_path: Path
) -> None:
    """Folders named like splits are read; a note counts the shards in other folders as deep."""
    make_shard([b"x"], "sets/extension/test/a.tfrecord")
    for name in "bc":
        make_shard([b"x"], f"sets/examples/data/{name}.tfrecord")
    folders = find_folders(tmp_path / "sets")
    assert [shard.name for shard in folders.shards] == ["a.tfrecord"]
    assert "2 shards in 1 subfolder are not included (examples/data)" in folders.notes[-1]


def test_the_only_configuration(make_shard: MakeShard, tmp_path: Path) -> None:
    """One configuration is taken; of several, one must be named."""
    make_shard([b"x"], "pets/small/1.0.0/a.record")
    assert found(tmp_path / "pets") == ["small/1.0.0/a.record"]
    make_shard([b"x"], "pets/large/2.0.0/a.record")
    with pytest.raises(DatasetError) as caught:
        find_folders(tmp_path / "pets")
    assert caught.value.found == "large, small"


def test_folders_of_splits(make_shard: MakeShard, tmp_path: Path) -> None:
    """As TFX writes them; also below a version."""
    make_shard([b"x"], "1.0.0/Split-train/data_tfrecord-00000-of-00001.gz")
    make_shard([b"x"], "1.0.0/Split-eval/data_tfrecord-00000-of-00001.gz")
    assert found(tmp_path) == [
        "1.0.0/Split-eval/data_tfrecord-00000-of-00001.gz",
        "1.0.0/Split-train/data_tfrecord-00000-of-00001.gz",
    ]
    assert find_folders(tmp_path / "1.0.0").notes == (
        "reading the shards in its folders Split-eval, Split-train",
    )


def test_images_are_named_where_shards_are_wanted(tmp_path: Path) -> None:
    """Who begins may want to train from photographs: the error says what makes shards of them."""
    for name, found_names in (
        ("notes.txt", None),
        ("1.JPG", "images; convert them to shards with tfrtool write"),
    ):
        (tmp_path / "cat").mkdir(exist_ok=True)
        (tmp_path / "cat" / name).touch()
        with pytest.raises(DatasetError) as caught:
            find_folders(tmp_path)
        assert caught.value.found == found_names


def test_links_and_pipes_do_no_harm(make_shard: MakeShard, tmp_path: Path) -> None:
    """A link in a circle ends, a FIFO is not opened, a hidden folder is not looked into."""
    make_shard([b"x"], ".hidden/a.tfrecord")
    (tmp_path / "circle").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "data")
    os.mkfifo(tmp_path / "b.tfrecord")
    with pytest.raises(DatasetError, match="no shards"):
        found(tmp_path)
    make_shard([b"x"], "train.record")
    assert found(tmp_path) == ["train.record"]


def test_folders_named_like_splits(make_shard: MakeShard, tmp_path: Path) -> None:
    """Shards in them are found at any depth, and have the names of splits that others use."""
    for name in ("seg_train/seg_train", "a/training/part1", "a/Valid", "pred", "a/test_tfrecords"):
        (tmp_path / name).mkdir(parents=True)
        make_shard([b"x"], f"{name}/data.tfrecord")
    shards = find_folders(tmp_path).shards
    splits = {one.directory: one.split_below(tmp_path) for one in group_shards(shards)}
    assert {path.relative_to(tmp_path).as_posix(): split for path, split in splits.items()} == {
        "seg_train/seg_train": "train",
        "a/training/part1": "train",
        "a/Valid": "validation",
        "a/test_tfrecords": "test",
        "pred": "pred",
    }
