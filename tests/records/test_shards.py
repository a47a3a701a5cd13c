"""What SHARDS on a command line means."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import MakeShard
from tfrtool.errors import ShardError
from tfrtool.records.compression import Compression
from tfrtool.records.framing import frame
from tfrtool.records.shards import Shard, find_shards, natural_order


def names(paths: tuple[Path, ...]) -> list[str]:
    """Return the paths' names."""
    return [path.name for path in paths]


def test_directory_means_its_shards(make_shard: MakeShard, tmp_path: Path) -> None:
    """A directory means the files with names of shards, in natural order, not below it."""
    wanted = ["a-2.tfrecord", "a-10.tfrecord", "b.tfrecords", "c-train.tfrecord-00000-of-00001"]
    others = ["features.json", "label.labels.txt", "a.tfrecord.json", "README", "below/d.tfrecord"]
    for name in [*reversed(wanted), *others]:
        make_shard([], name)
    (tmp_path / "directory.tfrecord").mkdir()
    assert names(find_shards([str(tmp_path)])) == wanted


def test_file_is_taken_whatever_its_name(make_shard: MakeShard) -> None:
    """A file that is named is meant."""
    path = make_shard([b"x"], "features.json")
    assert find_shards([str(path)]) == (path,)


def test_globs(make_shard: MakeShard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A glob means the files that match, in natural order, also below, never directories."""
    for name in ["a10.tfrecord", "a9.tfrecord", "below/a1.tfrecord"]:
        make_shard([], name)
    assert names(find_shards([f"{tmp_path}/a*"])) == ["a9.tfrecord", "a10.tfrecord"]
    assert names(find_shards([f"{tmp_path}/*"])) == ["a9.tfrecord", "a10.tfrecord"]
    assert names(find_shards([f"{tmp_path}/**/a1.*"])) == ["a1.tfrecord"]
    monkeypatch.chdir(tmp_path / "below")
    assert names(find_shards(["../a9*"])) == ["a9.tfrecord"]


def test_name_with_the_letters_of_a_glob(make_shard: MakeShard) -> None:
    """A file that exists is meant, even if its name is a glob."""
    path = make_shard([], "a[1].tfrecord")
    assert find_shards([str(path)]) == (path,)


def test_each_shard_comes_once(make_shard: MakeShard, tmp_path: Path) -> None:
    """Arguments keep their order, and a shard that several mean comes at the first."""
    one, two = make_shard([], "1.tfrecord"), make_shard([], "2.tfrecord")
    found = find_shards([str(two), str(tmp_path), f"{tmp_path}/*.tfrecord", str(one)])
    assert found == (two, one)


@pytest.mark.parametrize("argument", ["missing.tfrecord", "*.tfrecord", "."])
def test_nothing_is_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argument: str) -> None:
    """A file that is missing, a glob without a match, an empty directory: errors that name them."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ShardError) as caught:
        find_shards([argument])
    assert caught.value.path == argument


def test_directory_without_shards_tells_a_glob(make_shard: MakeShard, tmp_path: Path) -> None:
    """A directory with shards only below it is an error that tells how to name them."""
    make_shard([], "below/a.tfrecord")
    with pytest.raises(ShardError) as caught:
        find_shards([str(tmp_path)])
    assert caught.value.hint is not None
    assert "**" in caught.value.hint


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission(make_shard: MakeShard) -> None:
    """A file that may not be read is an error that names it."""
    path = make_shard([b"x"])
    path.chmod(0)
    with pytest.raises(ShardError, match="permission denied"):
        find_shards([str(path)])


def test_shard_at(make_shard: MakeShard, tmp_path: Path) -> None:
    """Size and compression are known before any record is read."""
    path = make_shard([b"hello"])
    assert Shard.at(path) == Shard(path=path, bytes=21, compression=Compression.NONE)
    packed = tmp_path / "b"
    packed.write_bytes(gzip.compress(frame(b"hello")))
    assert Shard.at(packed).compression is Compression.GZIP
    with pytest.raises(ShardError):
        Shard.at(tmp_path)


@given(numbers=st.lists(st.integers(0, 10**6), unique=True))
def test_natural_order(numbers: list[int]) -> None:
    """Numbers in names are compared as numbers."""
    found = sorted((f"shard-{number}.tfrecord" for number in numbers), key=natural_order)
    assert found == [f"shard-{number}.tfrecord" for number in sorted(numbers)]


@given(texts=st.lists(st.text()))
def test_natural_order_is_an_order(texts: list[str]) -> None:
    """Any names can be compared, whatever they are, and different names differ."""
    assert sorted(sorted(texts), key=natural_order) == sorted(
        sorted(texts, reverse=True), key=natural_order
    )


def test_empty_name_is_an_error() -> None:
    """An empty argument, as from an unset variable, is not taken for the current directory."""
    with pytest.raises(ShardError):
        find_shards([""])
