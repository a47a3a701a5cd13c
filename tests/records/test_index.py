"""The index of a shard, as it is made and in DALI's format."""

from __future__ import annotations

import gzip
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records.strategies import offsets_of, payload_lists, shard_of
from tfrtool.errors import CorruptShardError, ShardError, WriteError
from tfrtool.records.random_access import index_paths, make_index, write_index

PAYLOADS = [b"first", b"", b"x" * 100, b"last"]


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    """A whole shard."""
    path = tmp_path / "data" / "a.tfrecord"
    path.parent.mkdir()
    path.write_bytes(shard_of(PAYLOADS))
    return path


def load(shard: Path) -> list[int]:
    """Return a shard's index as a list."""
    return list(make_index(shard))


def index_path(shard: Path) -> Path:
    """Return where a shard's index is written."""
    (path,) = index_paths([shard])
    return Path(path)


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
    """Whatever the payloads are, both forms name the places of the records."""
    scratch.write_bytes(shard_of(payloads))
    assert write_index(scratch, index_path(scratch)) == len(payloads)
    offsets = offsets_of(payloads)
    lines = [f"{start} {end - start}\n" for start, end in pairwise(offsets)]
    assert index_path(scratch).read_text() == "".join(lines)
    assert load(scratch) == offsets


def test_an_existing_index_is_not_trusted(shard: Path) -> None:
    """Whatever it says, the shard's own framing says where the records are."""
    index_path(shard).write_text("0 173\n")
    assert load(shard) == offsets_of(PAYLOADS)


def test_an_empty_shard(shard: Path) -> None:
    """A file without a byte has no records, and that is no error here."""
    shard.write_bytes(b"")
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
