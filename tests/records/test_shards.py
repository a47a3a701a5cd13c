"""What SHARDS on a command line means."""

from __future__ import annotations

import gzip
import os
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import MakeShard
from tfrtool.errors import DatasetError, ShardError, UsageError
from tfrtool.records.compression import Compression
from tfrtool.records.framing import frame
from tfrtool.records.shard_sets import natural_order
from tfrtool.records.shards import Shard, find_shards, locate_shards
from tfrtool.storage.remote_path import AnyPath

Run = Callable[..., tuple[int, str, str]]


def names(paths: tuple[AnyPath, ...]) -> list[str]:
    """Return the paths' names."""
    return [path.name for path in paths]


def test_directory_means_its_shards(make_shard: MakeShard, tmp_path: Path) -> None:
    """A directory with shards means the files with such names, in natural order, not below it."""
    wanted = ["a-2.tfrecord", "a-10.tfrecord", "b.tfrecords", "c-train.tfrecord-00000-of-00001"]
    others = ["features.json", "label.labels.txt", "a.tfrecord.json", "README", "below/d.tfrecord"]
    for name in [*reversed(wanted), *others]:
        make_shard([], name)
    (tmp_path / "directory.tfrecord").mkdir()
    assert names(find_shards([str(tmp_path)])) == wanted


@pytest.mark.parametrize(
    "other",
    [
        "c-train.array_record-00000-of-00001",
        "c-train.riegeli-00000-of-00001",
        "c-00000-of-00001.parquet",
    ],
)
def test_files_of_another_format_are_no_shards(
    other: str, make_shard: MakeShard, tmp_path: Path
) -> None:
    """TFDS writes several formats into one directory; those of others are noted, and left."""
    make_shard([b"x"], "c-train.tfrecord-00000-of-00001")
    (tmp_path / other).write_bytes(b"\x83\xafp\xd1\r\x88J?" + bytes(60))
    for argument in (str(tmp_path), f"{tmp_path}/c-*"):
        found = locate_shards([argument])
        assert names(found.paths) == ["c-train.tfrecord-00000-of-00001"]
        (note,) = found.notes
        assert note.endswith(f"1 file of another format not included ({other})")
    assert names(find_shards([str(tmp_path / other)])) == [other]
    (tmp_path / "c-train.tfrecord-00000-of-00001").unlink()
    assert names(find_shards([str(tmp_path)])) == [other]


@pytest.mark.parametrize(
    ("folder", "empty", "marker"),
    [
        ("spark", "part-00001-ab.c000.tfrecord.gz", "_SUCCESS"),
        ("spark", "part-00001-ab.c000.tfrecord", "_SUCCESS"),
        ("tfrecorder", "discarded-data-00000-of-00001", "notes.txt"),
    ],
)
def test_shards_that_are_meant_to_be_empty(
    folder: str, empty: str, marker: str, make_shard: MakeShard, run: Run
) -> None:
    """An empty part of a finished Spark job, or TFRecorder's discarded images: a note, no fault."""
    shard = make_shard([b"x"], f"{folder}/part-00000-ab.c000.tfrecord.gz")
    content = gzip.compress(b"") if empty.endswith(".gz") else b""
    shard.with_name(empty).write_bytes(content)
    shard.with_name(marker).touch()
    for arguments in (
        [str(shard.parent)],
        [f"{shard.parent}/*0*"],
        [str(shard), str(shard.parent)],
    ):
        found = locate_shards(arguments)
        assert found.paths == (shard,)
        assert found.notes[-1].endswith(f"1 shard without records not included ({empty})")
    code, out, _ = run("verify", shard.parent)
    assert (code, f"not included ({empty})" in " ".join(out.split())) == (0, True)
    code, out, _ = run("verify", shard.with_name(empty))
    assert (code, "the job that wrote them has finished" in " ".join(out.split())) == (
        (0, True) if folder == "spark" else (3, False)
    )
    shard.with_name(marker).unlink()
    assert run("verify", shard.parent)[0] == (3 if folder == "spark" else 0)


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
    with pytest.raises((ShardError, DatasetError)) as caught:
        find_shards([argument])
    assert caught.value.path == argument


@pytest.mark.parametrize("folder", ["a", "a b", "[x]", "it's"])
def test_error_names_a_pattern_for_shards_far_below(
    folder: str, make_shard: MakeShard, tmp_path: Path
) -> None:
    """The pattern that the error names means these shards, and nothing next to them."""
    wanted = make_shard([b"x"], f"{folder}/b/c/train.record")
    for name in (f"{folder}/b/c/notes.txt", f"{folder}/b/c/README", f"{folder}/LICENSE"):
        (tmp_path / name).write_text("text")
    with pytest.raises(DatasetError) as caught:
        find_shards([str(tmp_path / folder)])
    assert caught.value.hint is not None
    (pattern,) = (word for word in shlex.split(caught.value.hint) if "**" in word)
    assert find_shards([pattern]) == (wanted,)


def test_patterns_skip_indexes_and_metadata(make_shard: MakeShard, tmp_path: Path) -> None:
    """An index, metadata and lists are no shards for a pattern either; named, they are taken."""
    shard = make_shard([b"x"], "a-train.tfrecord-00000-of-00001")
    others = ["a-train.tfrecord-00000-of-00001.idx", "b.tfrecord.json", "c.tfrecord.txt"]
    for name in others:
        (tmp_path / name).write_text("0 17\n")
    for pattern in ("*train.tfrecord-*", "*tfrecord*", "*", "**/*.tfrecord*", "**"):
        assert find_shards(f"{tmp_path}/{pattern}") == (shard,), pattern
    assert find_shards(tmp_path / others[0]) == (tmp_path / others[0],)
    with pytest.raises(ShardError) as caught:
        find_shards(f"{tmp_path}/*.idx")
    assert others[0] in str(caught.value)


def test_pattern_takes_damaged_files_of_odd_names(make_shard: MakeShard, tmp_path: Path) -> None:
    """What somebody asked for is not passed over because its first bytes are damaged."""
    whole, other = make_shard([b"x"], "a.bin"), tmp_path / "b.bin"
    other.write_bytes(b"damage" * 10)
    assert find_shards(f"{tmp_path}/*.bin") == (whole, other)
    whole.unlink()
    assert find_shards(f"{tmp_path}/*.bin") == (other,)


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


def test_empty_name_is_an_error() -> None:
    """An empty argument, as from an unset variable, is not taken for the current directory."""
    with pytest.raises(UsageError):
        find_shards([""])


def test_standard_input_is_no_file(make_shard: MakeShard, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hyphen is never a file of that name; one with its folder is."""
    monkeypatch.chdir(make_shard([b"x"], "-").parent)
    with pytest.raises(UsageError, match="standard input"):
        find_shards(["-"])
    assert find_shards(["./-"]) == (Path("-"),)
