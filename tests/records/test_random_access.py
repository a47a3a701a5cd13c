"""Records by their number."""

from __future__ import annotations

import errno
import gzip
import multiprocessing
import pickle
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tfrtool
from tests.records.strategies import offsets_of, payload_lists, shard_of
from tfrtool.errors import CorruptShardError, ShardError, UsageError
from tfrtool.records.random_access import Records
from tfrtool.storage.remote_path import RemotePath

FIRST = [b"first", b"", b"x" * 1000]
SECOND = [b"second", b"last"]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Two shards of a set."""
    path = tmp_path / "data"
    path.mkdir()
    (path / "a.tfrecord-00000-of-00002").write_bytes(shard_of(FIRST))
    (path / "a.tfrecord-00001-of-00002").write_bytes(shard_of(SECOND))
    return path


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file that a property writes to again and again."""
    return tmp_path_factory.mktemp("open") / "a.tfrecord"


@given(payloads=payload_lists, data=st.data())
def test_it_is_a_sequence(scratch: Path, payloads: list[bytes], data: st.DataObject) -> None:
    """Numbers, negative ones and slices mean what they mean for a list."""
    scratch.write_bytes(shard_of(payloads))
    with tfrtool.open_records(scratch) as records:
        assert isinstance(records, Sequence)
        assert len(records) == len(payloads)
        index = data.draw(st.integers(-len(payloads), len(payloads) - 1))
        assert records[index].payload == payloads[index]
        assert records[index].offset == offsets_of(payloads)[index % len(payloads)]
        part = data.draw(st.slices(len(payloads)))
        assert [record.payload for record in records[part]] == payloads[part]
        assert [record.payload for record in records] == payloads
        assert [record.payload for record in reversed(records)] == payloads[::-1]
        assert records[0] in records
        for wrong in (len(payloads), -len(payloads) - 1):
            with pytest.raises(IndexError):
                records[wrong]


def test_several_shards_are_one_sequence(directory: Path) -> None:
    """A directory, a glob and a list of files go through their shards in order."""
    for shards in (
        directory,
        str(directory / "a.tfrecord-*-of-00002"),
        sorted(directory.glob("*-of-*")),
    ):
        records = tfrtool.open_records(shards)
        assert [record.payload for record in records[:]] == FIRST + SECOND
        assert records[3].index == 0
        assert records.shard_of(3).name == "a.tfrecord-00001-of-00002"
        assert records.shard_of(-3).name == "a.tfrecord-00000-of-00002"
        assert repr(records) == "<Records: 5 records in 2 shards>"


def _payload(task: tuple[Records[tfrtool.Record], int]) -> bytes:
    records, index = task
    return records[index].payload


def test_it_goes_to_other_processes(directory: Path) -> None:
    """It can be pickled, open files and all, and read in processes that are started afresh."""
    records = tfrtool.open_records(directory)
    assert records[0].payload == b"first"
    copy = pickle.loads(pickle.dumps(records))
    assert [record.payload for record in copy] == FIRST + SECOND
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        read = pool.map(_payload, [(records, index) for index in range(5)])
    assert read == FIRST + SECOND


def test_threads_share_it(directory: Path) -> None:
    """Many threads read at once from the same files, and each gets its record."""
    records = tfrtool.open_records(directory)
    wanted = list(range(5)) * 200
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda index: records[index].payload, wanted))
    assert found == [(FIRST + SECOND)[index] for index in wanted]


def test_more_shards_than_files_may_be_open(tmp_path: Path) -> None:
    """Some hundred shards are read without as many open files."""
    for number in range(200):
        name = f"a.tfrecord-{number:05d}-of-00200"
        (tmp_path / name).write_bytes(shard_of([str(number).encode()]))
    records = tfrtool.open_records(tmp_path)
    assert [int(record.payload) for record in records[:]] == list(range(200))
    assert len(records._files) == 0


def test_batches_as_pytorch_asks_for_them(directory: Path) -> None:
    """``__getitems__`` gives a list in the order of the numbers."""
    records = tfrtool.open_records(directory)
    assert [record.payload for record in records.__getitems__([4, 0, -2])] == [
        b"last",
        b"first",
        b"second",
    ]


def test_damage_is_an_error_with_its_place(directory: Path) -> None:
    """A payload that changed is found when it is read, and names shard, record and offset."""
    records = tfrtool.open_records(directory)
    shard = Path(records.shard_of(0))
    data = bytearray(shard.read_bytes())
    data[-10] ^= 1
    shard.write_bytes(data)
    assert records[0].payload == b"first"
    with pytest.raises(CorruptShardError) as caught:
        records[2]
    assert (caught.value.path, caught.value.record, caught.value.offset) == (str(shard), 2, 37)
    with pytest.raises(CorruptShardError) as streamed:
        list(records)
    assert (streamed.value.record, streamed.value.offset) == (2, 37)


def test_a_shard_that_was_cut_after_opening(directory: Path) -> None:
    """A record that is not there any more is an error, not a shorter record."""
    records = tfrtool.open_records(directory)
    shard = Path(records.shard_of(0))
    with shard.open("r+b") as file:
        file.truncate(100)
    with pytest.raises(CorruptShardError):
        records[2]


def test_a_shard_that_is_gone_after_opening(directory: Path) -> None:
    """Going through the records is an error that names the file, as reading one of them is."""
    records = tfrtool.open_records(directory)
    Path(records.shard_of(0)).unlink()
    for read in (list, lambda some: some[0]):
        with pytest.raises(ShardError) as caught:
            read(records)
        assert caught.value.path == str(records.shards[0])


def test_what_can_not_be_opened(directory: Path, tmp_path: Path) -> None:
    """A compressed shard and a missing one are errors that name the file."""
    packed = tmp_path / "b.gz"
    packed.write_bytes(gzip.compress(shard_of(FIRST)))
    for path in (packed, tmp_path / "none"):
        with pytest.raises(ShardError) as caught:
            tfrtool.open_records([directory, path])
        assert caught.value.path == str(path)


def test_a_store_that_can_not_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an error of ours, as all else that stops a function of the package."""

    def refuse(_: RemotePath) -> bool:
        raise ConnectionRefusedError(errno.ECONNREFUSED, "the store can't be reached")

    monkeypatch.setattr(RemotePath, "is_dir", refuse)
    with pytest.raises(ShardError, match="can't be read: the store can't be reached"):
        tfrtool.open_records("http://127.0.0.1:9/x")


def test_a_replaced_shard(directory: Path) -> None:
    """After a shard was replaced, its records are errors where they moved; never a false one."""
    for close in (True, False):
        records = tfrtool.open_records(directory)
        assert records[1].payload == b""
        if close:
            records.close()
        shard = Path(records.shard_of(0))
        shard.write_bytes(shard_of([b"x" * 1000, b"new", b""]))  # of the same size, but for a byte
        for number in range(3):
            with pytest.raises(CorruptShardError, match="changed since it was opened"):
                records[number]
        shard.write_bytes(shard_of(FIRST))


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """A dataset of two splits."""
    path = tmp_path / "pets" / "1.0.0"
    path.mkdir(parents=True)
    (path / "pets-train.tfrecord-00000-of-00001").write_bytes(shard_of(FIRST))
    (path / "pets-test.tfrecord-00000-of-00001").write_bytes(shard_of(SECOND))
    (path / "dataset_info.json").write_text("{}")
    return path


def test_a_split_of_a_dataset(dataset: Path) -> None:
    """A dataset's directory, or the folder of its versions, is opened split by split."""
    for named in (dataset, str(dataset.parent)):
        assert [r.payload for r in tfrtool.open_records(named, split="train")] == FIRST
        assert [r.payload for r in tfrtool.open_records(named, split="test")] == SECOND


def test_no_mixture_of_splits(dataset: Path) -> None:
    """Several splits without a choice are an error that names them; so is one that isn't there."""
    with pytest.raises(UsageError) as caught:
        tfrtool.open_records(dataset)
    assert "test, train" in str(caught.value)
    with pytest.raises(UsageError) as missing:
        tfrtool.open_records(dataset, split="validation")
    assert "test, train" in str(missing.value)
    # What is named file by file is meant so.
    assert len(tfrtool.open_records(sorted(dataset.glob("pets-*")))) == 5
