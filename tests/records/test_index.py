"""The index of a shard: DALI's format, and the one that is kept in the user's cache."""

from __future__ import annotations

import gzip
import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records.strategies import offsets_of, payload_lists, shard_of
from tfrtool.errors import CorruptShardError, ShardError, WriteError
from tfrtool.records import index
from tfrtool.records.index import index_paths, load_indices, write_index

PAYLOADS = [b"first", b"", b"x" * 100, b"last"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tfrtool" / "indices"


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    """A whole shard."""
    path = tmp_path / "data" / "a.tfrecord"
    path.parent.mkdir()
    path.write_bytes(shard_of(PAYLOADS))
    return path


def load(shard: Path) -> list[int]:
    """Return a shard's index as a list."""
    (offsets,) = load_indices([shard])
    return list(offsets)


def index_path(shard: Path) -> Path:
    """Return where a shard's index is written."""
    (path,) = index_paths([shard])
    return path


def test_the_format_is_dalis(shard: Path) -> None:
    """A line for each record: where its header starts, and its size with the frame."""
    assert write_index(shard, index_path(shard)) == 4
    assert index_path(shard).read_text() == "0 21\n21 16\n37 116\n153 20\n"
    assert sorted(path.name for path in shard.parent.iterdir()) == ["a.tfrecord", "a.tfrecord.idx"]


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file that a property writes to again and again."""
    return tmp_path_factory.mktemp("index") / "a.tfrecord"


@given(payloads=st.lists(st.binary(max_size=9000), max_size=40) | payload_lists)
def test_it_says_where_the_records_are(scratch: Path, payloads: list[bytes]) -> None:
    """Whatever the payloads are, both forms name the places of the records, kept or made."""
    scratch.write_bytes(shard_of(payloads))
    assert write_index(scratch, index_path(scratch)) == len(payloads)
    offsets = offsets_of(payloads)
    lines = [f"{start} {end - start}\n" for start, end in pairwise(offsets)]
    assert index_path(scratch).read_text() == "".join(lines)
    assert load(scratch) == offsets
    assert load(scratch) == offsets


def test_an_index_is_made_once(shard: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first use makes it, in a folder that nobody else can look into; the second reads it."""
    assert load(shard) == offsets_of(PAYLOADS)
    assert [path.name for path in shard.parent.iterdir()] == ["a.tfrecord"]
    assert cache.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(index, "make_index", None)
    assert load(shard) == offsets_of(PAYLOADS)


FORGED = [
    "0 21\n21 16\n37 116\n153 20\n", "0 21\n21 16\n37 116\n", "0 20\n20 17\n37 116\n153 20\n",
    "0 173\n", "nonsense\n", "9" * 10_000, "",
]  # fmt: skip


@pytest.mark.parametrize("text", FORGED)
def test_an_index_beside_the_shard_is_not_believed(shard: Path, text: str) -> None:
    """Whatever it says, the shard's own framing says where the records are; it is left alone."""
    index_path(shard).write_text(text)
    assert load(shard) == offsets_of(PAYLOADS)
    assert index_path(shard).read_text() == text


def test_what_is_no_file_beside_the_shard(shard: Path) -> None:
    """A pipe in the place of an index is not waited for."""
    os.mkfifo(index_path(shard))
    assert load(shard) == offsets_of(PAYLOADS)


@pytest.mark.parametrize("change", ["cut", "flip", "empty", "link", "fifo"])
def test_a_spoilt_cache_is_made_anew(shard: Path, cache: Path, change: str) -> None:
    """What is in the cache counts only if it is whole, and a file."""
    load(shard)
    (kept,) = cache.iterdir()
    whole = kept.read_bytes()
    match change:
        case "cut":
            kept.write_bytes(whole[:-8])
        case "flip":
            kept.write_bytes(whole[:20] + b"\xff" + whole[21:])
        case "empty":
            kept.write_bytes(b"")
        case "link":
            kept.rename(kept.with_suffix(".other"))
            kept.symlink_to(kept.with_suffix(".other"))
        case "fifo":
            kept.unlink()
            os.mkfifo(kept)
    assert load(shard) == offsets_of(PAYLOADS)
    assert kept.read_bytes() == whole
    assert not kept.is_symlink()


def test_a_changed_shard_has_another_index(shard: Path, cache: Path) -> None:
    """One of the same size and time, too, as long as it was written at another moment."""
    load(shard)
    before = shard.stat()
    payloads = [b"x" * 100, b"", b"first", b"last"]
    other = shard.with_name("b.tfrecord")
    other.write_bytes(shard_of(payloads))
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(shard)
    assert shard.stat().st_size == before.st_size
    assert load(shard) == offsets_of(payloads)
    assert len(list(cache.iterdir())) == 2


def test_the_cache_is_bounded(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many indices, those that were used last are kept."""
    monkeypatch.setattr(index, "_KEPT_BYTES", 3 * 56)
    shards = [tmp_path / f"{number}.tfrecord" for number in range(5)]
    for shard in shards:
        shard.write_bytes(shard_of(PAYLOADS))
    for number, shard in enumerate(shards):
        load(shard)
        newest = max(cache.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        os.utime(newest, (number, number))
    assert sorted(path.stat().st_mtime for path in cache.iterdir()) == [2, 3, 4]


@pytest.mark.parametrize("obstacle", ["file", "link", "home"])
def test_nowhere_to_keep_it(
    shard: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, obstacle: str
) -> None:
    """Without a place of our own for it, the index is made each time, and nothing is written."""
    if obstacle == "file":
        (tmp_path / "cache").write_text("a file")
    elif obstacle == "link":
        (tmp_path / "cache" / "tfrtool").mkdir(parents=True)
        (tmp_path / "theirs").mkdir()
        (tmp_path / "cache" / "tfrtool" / "indices").symlink_to(tmp_path / "theirs")
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", "relative")
        monkeypatch.setattr(Path, "home", _no_home)
    assert load(shard) == offsets_of(PAYLOADS)
    assert load(shard) == offsets_of(PAYLOADS)
    assert obstacle != "link" or not list((tmp_path / "theirs").iterdir())


def _no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_an_empty_shard(shard: Path) -> None:
    """A file without a byte has no records, and that is no error here."""
    shard.write_bytes(b"")
    assert load(shard) == [0]
    assert load(shard) == [0]


def test_what_has_no_index(shard: Path, tmp_path: Path) -> None:
    """Compressed, damaged and missing shards are errors with path and place."""
    packed = tmp_path / "a.gz"
    packed.write_bytes(gzip.compress(shard.read_bytes()))
    with pytest.raises(ShardError, match="compressed with gzip") as caught:
        load(packed)
    assert caught.value.path == str(packed)
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(CorruptShardError) as cut:
        write_index(shard, index_path(shard))
    assert (cut.value.record, cut.value.offset) == (3, 153)
    assert not index_path(shard).exists()
    with pytest.raises(ShardError, match="no such file"):
        load(tmp_path / "none")


def test_an_index_that_cannot_be_written(shard: Path) -> None:
    """Then `write_index` says so, and where."""
    with pytest.raises(WriteError) as caught:
        write_index(shard, Path("/proc/none/a.idx"))
    assert caught.value.path == "/proc/none/a.idx"


def test_names_do_not_collide(tmp_path: Path) -> None:
    """In a directory of their own, indices lie as their shards do below their common folder."""
    shards = [tmp_path / folder / "a.tfrecord" for folder in ("train", "test", "test/more")]
    places = index_paths(shards, Path("out"))
    assert [str(place) for place in places] == [
        "out/train/a.tfrecord.idx", "out/test/a.tfrecord.idx", "out/test/more/a.tfrecord.idx",
    ]  # fmt: skip
    (alone,) = index_paths(shards[:1], Path("out"))
    assert str(alone) == "out/a.tfrecord.idx"
