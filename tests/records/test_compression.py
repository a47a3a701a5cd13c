"""Compression of whole shards."""

from __future__ import annotations

import gzip
import io
import random
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records.strategies import offsets_of, payload_lists, read, shard_of
from tfrtool.records.compression import Compression, Inflater, detect_compression
from tfrtool.records.framing import HEADER_SIZE, FaultKind, Record, frame, header
from tfrtool.records.reader import read_records

levels = st.integers(0, 9)


def zlib_of(data: bytes, level: int = -1, wbits: int = 15) -> bytes:
    """Return ``data`` in the ZLIB format."""
    pack = zlib.compressobj(level, wbits=wbits)
    return pack.compress(data) + pack.flush()


def inflate(data: bytes, compression: Compression, size: int) -> tuple[bytes, str | None]:
    """Return all that comes out of an Inflater in reads of one size, and its failure."""
    inflater = Inflater(io.BytesIO(data), compression)
    pieces = []
    while piece := inflater.read(size):
        assert len(piece) <= size
        pieces.append(piece)
    return b"".join(pieces), inflater.failure


@given(payloads=payload_lists, level=levels)
def test_gzip_round_trip(payloads: list[bytes], level: int) -> None:
    """A gzip shard is found to be one, and read with offsets in the uncompressed stream."""
    data = gzip.compress(shard_of(payloads), level, mtime=0)
    assert detect_compression(io.BytesIO(data)) is Compression.GZIP
    reading = read(data)
    assert (reading.payloads, reading.faults) == (payloads, [])
    assert [record.offset for record in reading.records] == offsets_of(payloads)[:-1]


@given(payloads=payload_lists, level=levels, wbits=st.integers(9, 15))
def test_zlib_round_trip(payloads: list[bytes], level: int, wbits: int) -> None:
    """A zlib shard is found to be one, whatever its level and its window."""
    data = zlib_of(shard_of(payloads), level, wbits)
    assert detect_compression(io.BytesIO(data)) is Compression.ZLIB
    reading = read(data)
    assert (reading.payloads, reading.faults) == (payloads, [])


@given(payloads=payload_lists, data=st.data())
def test_gzip_of_several_members(payloads: list[bytes], data: st.DataObject) -> None:
    """A gzip file of several members is one stream, wherever it is divided."""
    shard = shard_of(payloads)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(shard)), max_size=4)))
    edges = [0, *cuts, len(shard)]
    members = [shard[a:b] for a, b in pairwise(edges)]
    reading = read(b"".join(gzip.compress(member, mtime=0) for member in members))
    assert (reading.payloads, reading.faults) == (payloads, [])


@given(data=st.binary(max_size=2000), size=st.integers(1, 300))
def test_pieces_of_any_size(data: bytes, size: int) -> None:
    """What is uncompressed doesn't depend on how much is asked for at a time."""
    assert inflate(gzip.compress(data), Compression.GZIP, size) == (data, None)
    assert inflate(zlib_of(data), Compression.ZLIB, size) == (data, None)


@given(data=st.binary(min_size=1, max_size=500), cut=st.integers(1, 8))
def test_missing_trailer_is_a_failure(data: bytes, cut: int) -> None:
    """A gzip file whose trailer is cut gives all its bytes, and says that it is cut."""
    found, failure = inflate(gzip.compress(data)[:-cut], Compression.GZIP, 64)
    assert found == data
    assert failure is not None


@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.ZLIB])
def test_bytes_behind_the_end(compression: Compression) -> None:
    """Bytes after the compressed data are reported, and cost no record."""
    shard = shard_of([b"one", b"two"])
    data = gzip.compress(shard) if compression is Compression.GZIP else zlib_of(shard)
    reading = read(data + b"more")
    assert reading.payloads == [b"one", b"two"]
    (fault,) = reading.faults
    assert (fault.kind, fault.offset) == (FaultKind.DECOMPRESSION, len(shard))


@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.ZLIB])
def test_records_before_the_damage_come_out(compression: Compression) -> None:
    """All that was compressed before the damaged byte comes out, to the last record."""
    payloads = [bytes([number]) * number for number in range(100)]
    pack = zlib.compressobj(6, wbits=31 if compression is Compression.GZIP else 15)
    before = pack.compress(shard_of(payloads[:70])) + pack.flush(zlib.Z_FULL_FLUSH)
    after = pack.compress(shard_of(payloads[70:])) + pack.flush()
    reading = read(before + b"\x07" + after[1:])  # a type of block that deflate doesn't have
    assert reading.payloads == payloads[:70]
    assert [(fault.kind, fault.offset) for fault in reading.faults] == [
        (FaultKind.DECOMPRESSION, offsets_of(payloads)[70])
    ]


def test_second_member_is_damaged() -> None:
    """Records before a damaged member come out."""
    first, second = (gzip.compress(shard_of([payload] * 20)) for payload in (b"one", b"two"))
    reading = read(first + second[:12] + b"\xff\xff\xff" + second[15:])
    assert reading.payloads[:20] == [b"one"] * 20
    assert [fault.kind for fault in reading.faults] == [FaultKind.DECOMPRESSION]


@pytest.mark.parametrize("name", ["a.tfrecord", "a.tfrecord.gz", "a.tfrecord.zlib"])
@pytest.mark.parametrize("compression", Compression)
def test_name_proves_nothing(tmp_path: Path, name: str, compression: Compression) -> None:
    """Compression is detected from a file's bytes, whatever its name."""
    shard = shard_of([b"one", b"two"])
    made = {
        Compression.NONE: shard,
        Compression.GZIP: gzip.compress(shard),
        Compression.ZLIB: zlib_of(shard),
    }
    path = tmp_path / name
    path.write_bytes(made[compression])
    with path.open("rb") as file:
        assert detect_compression(file) is compression
        assert file.tell() == 0
        assert sum(isinstance(item, Record) for item in read_records(file)) == 2


@pytest.mark.parametrize("length", [0x088B1F, 0x0178, 0x9C78])
def test_length_that_looks_like_a_magic_number(length: int) -> None:
    """A plain shard whose first length is the magic number of gzip or zlib is read as plain."""
    payloads = [bytes(length), b"second"]
    data = shard_of(payloads)
    assert detect_compression(io.BytesIO(data)) is Compression.NONE
    assert read(data).payloads == payloads
    broken = shard_of(payloads[:1])[:-1] + b"x"
    assert [fault.kind for fault in read(broken).faults] == [FaultKind.PAYLOAD_CRC]


@pytest.mark.parametrize("length", [0x088B1F, 0x0178, 0x9C78])
@pytest.mark.parametrize("at", [3, 8, 11])
def test_damaged_length_that_looks_like_a_magic_number(length: int, at: int) -> None:
    """The same where the CRC of that length doesn't hold either."""
    data = bytearray(shard_of([bytes(length), b"second"]))
    data[at] ^= 1
    reading = read(bytes(data))
    assert reading.payloads == [b"second"]
    assert [(fault.offset, fault.record) for fault in reading.faults] == [(0, 0)]


def test_compressed_shard_whose_start_is_damaged() -> None:
    """If nothing can be uncompressed, the fault says that the file is gzip data."""
    data = bytearray(gzip.compress(bytes(range(256)) * 10 + shard_of([b"x"] * 50)))
    data[10] = 0x07  # a block type that deflate doesn't have
    (fault,) = read(bytes(data)).faults
    assert fault.kind is FaultKind.NOT_TFRECORD
    assert "gzip data" in fault.message


@given(data=st.binary(max_size=40))
def test_detection_never_fails(data: bytes) -> None:
    """Whatever the bytes, the file's position stays, and a good header means no compression."""
    file = io.BytesIO(data)
    detect_compression(file)
    assert file.tell() == 0
    assert detect_compression(io.BytesIO(header(len(data)) + data)) is Compression.NONE


def test_options_overrule_detection() -> None:
    """A caller who knows the compression is believed."""
    data = gzip.compress(frame(b"one"))
    (fault,) = read(data, compression=Compression.NONE).faults
    assert fault.kind is FaultKind.NOT_TFRECORD
    assert "gzip" in fault.message
    assert len(data) > HEADER_SIZE


@pytest.mark.parametrize(("compression", "name"), [("GZIP", "gzip"), ("ZLIB", "zlib")])
def test_reads_what_tensorflow_compresses(
    tf: Any, tmp_path: Path, compression: str, name: str
) -> None:
    """Our reader gives the payloads that TFRecordWriter compressed."""
    payloads = [b"", b"one", bytes(300_000), bytes(range(256)) * 100]
    path = tmp_path / "a.tfrecord"
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for payload in payloads:
            writer.write(payload)
    with path.open("rb") as file:
        assert detect_compression(file).value == name
        items = list(read_records(file))
    assert [item.payload for item in items if isinstance(item, Record)] == payloads


@pytest.mark.parametrize("place", [0.3, 0.6, 0.9, 0.99])
def test_all_that_comes_before_the_damage_is_rescued(place: float) -> None:
    """In a large gzip shard, every record that ends before the damaged byte comes out."""
    noise = random.Random(1)
    payloads = [noise.randbytes(5000).hex().encode() for _ in range(60)]
    packed = bytearray(gzip.compress(shard_of(payloads)))
    at = int(len(packed) * place)
    sound = len(zlib.decompressobj(31).decompress(bytes(packed[:at])))
    packed[at] ^= 0x10
    reading = read(bytes(packed))
    before = [end <= sound for end in offsets_of(payloads)[1:]].count(True)
    assert before > 10
    assert reading.payloads[:before] == payloads[:before]
    assert len(reading.faults) >= 1
