"""Counting records by hopping over them."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import MakeShard
from tests.records.strategies import offsets_of, payload_lists, shard_of
from tfrtool.errors import CorruptShardError, ShardError
from tfrtool.records.count import count_records, count_shard
from tfrtool.records.framing import FRAME_SIZE, frame


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file that properties write to again and again."""
    return tmp_path_factory.mktemp("count") / "a.tfrecord"


@given(payloads=payload_lists, packed=st.booleans())
def test_count(scratch: Path, payloads: list[bytes], packed: bool) -> None:
    """The count is the number of records, compressed or not, and a whole shard has no fault."""
    shard = shard_of(payloads)
    scratch.write_bytes(gzip.compress(shard) if packed else shard)
    assert count_records(scratch) == len(payloads)


@given(payloads=payload_lists, data=st.data())
def test_cut_is_found(scratch: Path, payloads: list[bytes], data: st.DataObject) -> None:
    """A shard that is cut within a record is an error there."""
    shard, offsets = shard_of(payloads), offsets_of(payloads)
    size = data.draw(st.integers(1, len(shard) - 1))
    scratch.write_bytes(shard[:size])
    whole = sum(end <= size for end in offsets[1:])
    if size in offsets:
        assert count_records(scratch) == whole
    else:
        with pytest.raises(CorruptShardError) as caught:
            count_records(scratch)
        assert caught.value.offset == offsets[whole]


def test_payloads_are_not_read(make_shard: MakeShard) -> None:
    """A damaged payload doesn't change the count, for payloads are hopped over."""
    path = make_shard([b"one", b"two"])
    data = bytearray(path.read_bytes())
    data[12] ^= 1
    path.write_bytes(data)
    assert count_records(path) == 2


def test_directories_and_patterns(tmp_path: Path, make_shard: MakeShard) -> None:
    """The records of all shards are counted, each once; damage names the shard."""
    shards = [make_shard([b"x"] * number, f"set/{number}.tfrecord") for number in (1, 2)]
    assert count_records(tmp_path / "set") == 3
    assert count_records([tmp_path / "set" / "*.tfrecord", shards[0]]) == 3
    shards[1].write_bytes(shards[1].read_bytes()[:-1])
    with pytest.raises(CorruptShardError) as caught:
        count_records(tmp_path / "set")
    assert caught.value.path == str(shards[1])


def test_empty_file_has_no_records(tmp_path: Path) -> None:
    """An empty file counts as no records."""
    path = tmp_path / "empty.tfrecord"
    path.touch()
    assert count_records(path) == 0


def test_missing_file(tmp_path: Path) -> None:
    """A file that can't be read is an error that names it."""
    with pytest.raises(ShardError) as caught:
        count_records(tmp_path / "missing")
    assert caught.value.path == str(tmp_path / "missing")


def test_a_length_that_leads_to_a_later_record(tmp_path: Path) -> None:
    """A wrong length is found even if a header stands where it leads."""
    first, second, third = (frame(payload) for payload in (b"first", b"second", b"third"))
    wrong = (len(first) + len(second) - FRAME_SIZE).to_bytes(8, "little") + first[8:]
    path = tmp_path / "a.tfrecord"
    path.write_bytes(wrong + second + third)
    with pytest.raises(CorruptShardError) as caught:
        count_records(path)
    assert (caught.value.record, caught.value.offset) == (0, 0)


@pytest.mark.parametrize("sizes", [[5000, 9000, 10, 20, 7000], [10, 5000, 5000], [70_000, 3, 4096]])
def test_cut_anywhere_near_a_header(tmp_path: Path, sizes: list[int]) -> None:
    """Long and short records in turn are counted, and a cut in any header is found there."""
    payloads = [bytes([number]) * size for number, size in enumerate(sizes)]
    shard, offsets = shard_of(payloads), offsets_of(payloads)
    path = tmp_path / "a.tfrecord"
    for number, offset in enumerate(offsets[1:], 1):
        for more in range(-3, 13):
            path.write_bytes(shard[: offset + more])
            if more == 0 or offset + more >= len(shard):
                assert count_records(path) == number
            else:
                count = count_shard(path)
                assert count.records == number - (more < 0)
                assert count.faults[0].offset == offsets[count.records]
