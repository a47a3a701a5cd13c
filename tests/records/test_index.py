"""The index of a shard: DALI's format, and when it is out of date."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records.strategies import offsets_of, payload_lists, shard_of
from tfrtool.errors import CorruptShardError, ShardError, WriteError
from tfrtool.records.index import index_path, load_index, read_index, write_index

PAYLOADS = [b"first", b"", b"x" * 100, b"last"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tfrtool"


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    """A whole shard."""
    path = tmp_path / "data" / "a.tfrecord"
    path.parent.mkdir()
    path.write_bytes(shard_of(PAYLOADS))
    return path


def test_the_format_is_dalis(shard: Path) -> None:
    """A line for each record: where its header starts, and its size with the frame."""
    assert write_index(shard) == 4
    assert index_path(shard).read_text() == "0 21\n21 16\n37 116\n153 20\n"
    assert sorted(path.name for path in shard.parent.iterdir()) == ["a.tfrecord", "a.tfrecord.idx"]


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file that a property writes to again and again."""
    return tmp_path_factory.mktemp("index") / "a.tfrecord"


@given(payloads=st.lists(st.binary(max_size=9000), max_size=40) | payload_lists)
def test_round_trip(scratch: Path, payloads: list[bytes]) -> None:
    """What is written is read again, and is where the records are."""
    scratch.write_bytes(shard_of(payloads))
    assert write_index(scratch) == len(payloads)
    read = read_index(index_path(scratch), scratch.stat().st_size)
    assert read is not None
    assert list(read) == offsets_of(payloads)
    assert list(load_index(scratch)) == offsets_of(payloads)


def test_an_index_is_made_once(shard: Path) -> None:
    """The first use makes it, and the second reads it."""
    assert list(load_index(shard)) == offsets_of(PAYLOADS)
    before = index_path(shard).stat()
    assert list(load_index(shard)) == offsets_of(PAYLOADS)
    assert index_path(shard).stat() == before


def test_an_index_of_someone_else_is_used(shard: Path) -> None:
    """One that is no older than the shard, and fits it, is taken as it is."""
    index_path(shard).write_text("0 21\r\n21 16\r\n37 116\r\n153 20")
    assert list(load_index(shard)) == offsets_of(PAYLOADS)
    assert index_path(shard).read_text().endswith("20")


@pytest.mark.parametrize(
    "text",
    [
        "0 21\n21 16\n37 116\n",  # too short
        "0 21\n21 16\n37 116\n153 21\n",  # too long
        "0 21\n37 116\n153 20\n",  # a gap
        "0 20\n20 17\n37 116\n153 20\n",  # the right size, and no header there
        "0 21\n21 16\n37 116\n153 20\n-5 5\n",
        "0 173\n",
        "0 10\n10 163\n",  # less than a frame
        "nonsense\n",
        "0 99999999999999999999999999\n",
        "9" * 10_000,
        "\0" * 100,
        "",
    ],
)
def test_a_wrong_index_is_made_anew(shard: Path, text: str) -> None:
    """Whatever an index says that does not fit the shard, the right one replaces it."""
    index_path(shard).write_text(text)
    assert list(load_index(shard)) == offsets_of(PAYLOADS)
    assert index_path(shard).read_text() == "0 21\n21 16\n37 116\n153 20\n"


def test_an_index_older_than_its_shard_is_made_anew(shard: Path) -> None:
    """Time tells that the shard was changed, even where sizes are the same."""
    write_index(shard)
    payloads = [b"other", b"", b"y" * 100, b"last"]
    shard.write_bytes(shard_of(payloads))
    os.utime(shard, ns=(10**18 + 5, index_path(shard).stat().st_mtime_ns + 5))
    before = index_path(shard).stat().st_ino
    load_index(shard)
    assert index_path(shard).stat().st_ino != before


def test_a_shard_put_in_the_place_of_another_is_noticed(shard: Path) -> None:
    """A shard of the same size that is older than the index has its headers elsewhere."""
    write_index(shard)
    payloads = [b"x" * 100, b"", b"first", b"last"]
    shard.write_bytes(shard_of(payloads))
    os.utime(shard, (1, 1))
    assert list(load_index(shard)) == offsets_of(payloads)


def test_a_read_only_directory(shard: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index is then kept in the cache, found there, and not for another file at that path."""
    monkeypatch.setattr("tfrtool.records.index.index_path", lambda _: Path("/proc/none/a.idx"))
    assert list(load_index(shard)) == offsets_of(PAYLOADS)
    (kept,) = cache.iterdir()
    before = kept.stat()
    assert list(load_index(shard)) == offsets_of(PAYLOADS)
    assert kept.stat() == before
    shard.write_bytes(shard_of([b"other"]))
    assert list(load_index(shard)) == offsets_of([b"other"])
    assert len(list(cache.iterdir())) == 2


def test_nowhere_to_keep_it(shard: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any place that can be written to, the index is made each time."""
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setattr("tfrtool.records.index.index_path", lambda _: Path("/proc/none/a.idx"))
    assert list(load_index(shard)) == offsets_of(PAYLOADS)


def test_an_empty_shard(shard: Path) -> None:
    """A file without a byte has no records, and that is no error here."""
    shard.write_bytes(b"")
    assert list(load_index(shard)) == [0]


def test_what_has_no_index(shard: Path, tmp_path: Path) -> None:
    """Compressed, damaged and missing shards are errors with path and place."""
    packed = tmp_path / "a.gz"
    packed.write_bytes(gzip.compress(shard.read_bytes()))
    with pytest.raises(ShardError, match="compressed with gzip") as caught:
        load_index(packed)
    assert caught.value.path == str(packed)
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(CorruptShardError) as cut:
        write_index(shard)
    assert (cut.value.record, cut.value.offset) == (3, 153)
    assert not index_path(shard).exists()
    with pytest.raises(ShardError, match="no such file"):
        load_index(tmp_path / "none")


def test_an_index_that_cannot_be_written(shard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then `write_index` says so, and where."""
    monkeypatch.setattr("tfrtool.records.index.index_path", lambda _: Path("/proc/none/a.idx"))
    with pytest.raises(WriteError) as caught:
        write_index(shard)
    assert caught.value.path == "/proc/none/a.idx"
