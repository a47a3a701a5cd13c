"""Reading shards that are whole."""

from __future__ import annotations

import io
import os
import threading
import tracemalloc
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from tests.conftest import MakeShard
from tests.records.strategies import offsets_of, payload_lists, read, shard_of
from tfrtool.records.compression import Compression
from tfrtool.records.framing import Fault, FaultKind, Record, header
from tfrtool.records.reader import read_records
from tfrtool.records.stream import BLOCK_SIZE

MIB = 1024 * 1024


@given(payloads=payload_lists)
def test_reads_what_was_framed(payloads: list[bytes]) -> None:
    """A whole shard gives its payloads, each with its index and offset, and no fault."""
    reading = read(shard_of(payloads))
    assert reading.faults == []
    assert reading.payloads == payloads
    assert [record.index for record in reading.records] == list(range(len(payloads)))
    assert [record.offset for record in reading.records] == offsets_of(payloads)[:-1]


def test_records_across_the_edge_of_a_block() -> None:
    """A frame may lie across the edge of a block at any of its bytes."""
    for spare in range(-20, 21):
        payloads = [b"first", bytes(BLOCK_SIZE - 21 - 16 + spare), b"", b"last", b"x" * 300]
        reading = read(shard_of(payloads))
        assert (reading.payloads, reading.faults) == (payloads, []), spare


def test_payloads_longer_than_blocks() -> None:
    """A payload may be longer than one block, or than several."""
    payloads = [bytes(BLOCK_SIZE), os.urandom(3 * BLOCK_SIZE + 7), b"", b"y" * (BLOCK_SIZE + 1)]
    reading = read(shard_of(payloads))
    assert reading.faults == []
    assert reading.payloads == payloads


def test_tensorflow_reads_the_same(tf: Any, make_shard: MakeShard) -> None:
    """TFRecordDataset gives the payloads that our reader gives."""
    path = make_shard([b"", b"a", bytes(1000), os.urandom(BLOCK_SIZE + 5), b"z"])
    with path.open("rb") as file:
        ours = [item.payload for item in read_records(file) if isinstance(item, Record)]
    assert list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator()) == ours
    assert len(ours) == 5


def test_reading_is_lazy() -> None:
    """The first record comes out before the rest of the file is read."""
    file = io.BytesIO(shard_of([bytes(BLOCK_SIZE)] * 8))
    records = read_records(file)
    next(records)
    assert file.tell() < 4 * BLOCK_SIZE


def test_pipe() -> None:
    """A stream that can't be sought, and gives out a few bytes at a time, is read as a file is."""
    data = shard_of([b"one", bytes(100_000), b"three"])
    reader, writer = os.pipe()

    def feed() -> None:
        with open(writer, "wb", buffering=0) as file:  # noqa: PTH123 - a descriptor
            file.writelines(data[start : start + 7001] for start in range(0, len(data), 7001))

    thread = threading.Thread(target=feed)
    thread.start()
    with open(reader, "rb") as file:  # noqa: PTH123 - a descriptor
        items = list(read_records(file))
    thread.join()
    assert [len(item.payload) for item in items if isinstance(item, Record)] == [3, 100_000, 5]


def test_read_error_is_raised() -> None:
    """An error of the file system is no damage: it goes to the caller."""

    class Failing(io.BytesIO):
        def read(self, _size: int | None = -1, /) -> bytes:
            raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        list(read_records(Failing(b"x"), compression=Compression.NONE))


@pytest.fixture
def peak() -> Iterator[Any]:
    """Measure the memory that Python takes; call it for the peak so far, in bytes."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


@pytest.mark.parametrize("length", [2**31 - 1, 2**40, 2**64 - 1])
@pytest.mark.parametrize("seekable", [True, False])
def test_claimed_length_takes_no_memory(peak: Any, length: int, seekable: bool) -> None:
    """A huge length with a valid CRC is a fault, and its bytes are never allocated."""

    class Raw(io.RawIOBase):
        def __init__(self, data: bytes) -> None:
            self._file = io.BytesIO(data)

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            return self._file.readinto(buffer)

    data = shard_of([b"first"]) + header(length) + bytes(1000)
    file: Any = io.BytesIO(data) if seekable else io.BufferedReader(Raw(data))
    items = list(read_records(file))
    assert [item.payload for item in items if isinstance(item, Record)] == [b"first"]
    (fault,) = [item for item in items if isinstance(item, Fault)]
    kind = FaultKind.TRUNCATED if length < 2**31 else FaultKind.OVERSIZED_LENGTH
    assert (fault.kind, fault.offset, fault.record) == (kind, 21, 1)
    assert peak() < 24 * MIB


def test_length_beyond_the_end_holds_no_other_records(peak: Any, tmp_path: Path) -> None:
    """A length that reaches over 60 MB of records, and beyond the end, doesn't load them."""
    path = tmp_path / "a.tfrecord"
    records = shard_of([bytes(100_000)] * 10)
    with path.open("wb") as file:
        file.write(header(2**31 - 1) + b"damaged")
        for _ in range(60):
            file.write(records)
    with path.open("rb") as file:
        items = [type(item) for item in read_records(file)]
    assert (items.count(Record), items.count(Fault)) == (600, 1)
    assert peak() < 48 * MIB


@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.ZLIB])
def test_bomb_of_zeros_is_read_with_bounded_memory(
    peak: Any, tmp_path: Path, compression: Compression
) -> None:
    """60 MB of zeros in 60 kB of compressed data are not records, nor in memory at once."""
    bomb = zlib.compressobj(6, wbits=31 if compression is Compression.GZIP else 15)
    path = tmp_path / "bomb"
    with path.open("wb") as file:
        for _ in range(60):
            file.write(bomb.compress(bytes(MIB)))
        file.write(bomb.flush())
    with path.open("rb") as file:
        (fault,) = read_records(file)
    assert isinstance(fault, Fault)
    assert fault.kind is FaultKind.NOT_TFRECORD
    assert peak() < 12 * MIB


def test_many_records_are_read_with_bounded_memory(peak: Any, tmp_path: Path) -> None:
    """60 MB of compressed records take the memory of some blocks."""
    pack = zlib.compressobj(1, wbits=31)
    path = tmp_path / "many.tfrecord.gz"
    records = shard_of([bytes(100_000)] * 10)
    with path.open("wb") as file:
        for _ in range(60):
            file.write(pack.compress(records))
        file.write(pack.flush())
    with path.open("rb") as file:
        assert sum(isinstance(item, Record) for item in read_records(file)) == 600
    assert peak() < 12 * MIB
