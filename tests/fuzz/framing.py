"""Fuzzing the readers of records: streaming, counting, the index, and repair."""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.fuzz.shard_bytes import mutate_shard
from tests.fuzz.target import Target, fixture_files, scratch
from tests.records.strategies import Reading, read, read_strictly
from tfrtool.errors import CorruptShardError, ShardError
from tfrtool.records import frames
from tfrtool.records.compression import Compression, detect_compression
from tfrtool.records.count import count_shard
from tfrtool.records.framing import CRC, FRAME_SIZE, HEADER_SIZE, FaultKind, crc32c, frame, header
from tfrtool.records.random_access import Records, make_index, write_index
from tfrtool.records.reader import RecordReader
from tfrtool.records.repair import repair_shard

__all__ = ["TARGET", "check", "check_files", "check_reading"]

_AMPLIFIED = 96 * 1024
_ONE_IN = 256
"""Every 256th input is repeated up to this number of bytes."""


def seeds() -> Iterator[bytes]:
    """Yield whole and damaged shards."""
    yield from fixture_files("golden", 5000)
    yield from fixture_files("damaged", 5000)
    yield frame(b"") * 5
    yield frame(b"first") + header(2**40) + frame(b"last")


def check(data: bytes) -> None:
    """Hold every reader against the bytes, and against the others."""
    check_reading(data, _read(data))
    check_reading(data, _read(data, verify_payload=False), verified=False)
    limit = crc32c(data) % 64
    check_reading(data, _read(data, max_record_bytes=limit), limit=limit)
    check_files(data)
    if data and crc32c(data) % _ONE_IN == 0:
        # Damage that comes again and again must not cost more each time: a hang is a finding.
        repeated = data * (_AMPLIFIED // len(data))
        check_reading(repeated, read(repeated, compression=Compression.NONE))


def _read(data: bytes, **options: Any) -> Reading:
    """Read a shard in C, where that is built, and in Python, with the same result."""
    reading = read(data, compression=Compression.NONE, **options)
    with patch.object(frames, "native", None):
        assert read(data, compression=Compression.NONE, **options) == reading
    return reading


def check_reading(
    data: bytes, reading: Reading, *, verified: bool = True, limit: int | None = None
) -> None:
    """All that was read stands in the data, in order, and what is whole was read."""
    assert reading.records or reading.faults
    end = 0
    index = -1
    for record in reading.records:
        assert record.offset >= end
        end = record.offset + FRAME_SIZE + len(record.payload)
        assert record.index > index
        index = record.index
        framed = frame(record.payload)
        stored = data[record.offset : end]
        assert stored[:-4] == framed[:-4]
        assert stored[-4:] == CRC.pack(record.payload_crc)
        assert not verified or stored == framed
        assert limit is None or len(record.payload) <= limit
    places = sorted(
        [(record.offset, record.index) for record in reading.records]
        + [(fault.offset, fault.record) for fault in reading.faults],
        key=lambda place: place[0],
    )
    assert [fault.offset for fault in reading.faults] == sorted(
        fault.offset for fault in reading.faults
    )
    assert all(first[0] < second[0] for first, second in pairwise(places))
    known = [number for _, number in places if number is not None]
    assert all(first < second for first, second in pairwise(known))
    assert all(0 <= offset <= len(data) for offset, _ in places)
    if verified and limit is None:
        _check_against_the_format(data, reading)


def _check_against_the_format(data: bytes, reading: Reading) -> None:
    """A whole shard has no fault, any other has one, and the records before it all come out."""
    wanted = read_strictly(data)
    if wanted:
        assert reading.payloads == wanted
        assert reading.faults == []
        return
    assert reading.faults
    end = 0
    for record in reading.records:
        if record.offset != end:
            break
        end += FRAME_SIZE + len(record.payload)
    # No intact record is where the first damage is reported: it would have been yielded.
    length = int.from_bytes(data[end : end + 8], "little")
    upto = end + FRAME_SIZE + length
    if upto <= len(data):
        assert data[end:upto] != frame(data[end + HEADER_SIZE : upto - 4])
    assert reading.faults[0].offset == end


def check_files(data: bytes) -> None:
    """Counting, the index, random access and repair agree with the streaming reader."""
    shard = scratch() / "shard"
    shard.write_bytes(data)
    compression = detect_compression(io.BytesIO(data))
    with shard.open("rb") as file:
        assert detect_compression(file) is compression
        assert file.tell() == 0
    unverified = read(data, verify_payload=False)
    count = count_shard(shard)
    assert count.records == len(unverified.records)
    assert list(count.faults) == unverified.faults
    _check_index(shard, data, compression, unverified)
    _check_repair(shard, data)


def _check_index(shard: Path, data: bytes, compression: Compression, unverified: Reading) -> None:
    damage = [fault for fault in unverified.faults if fault.kind is not FaultKind.EMPTY]
    try:
        offsets = make_index(shard)
    except CorruptShardError as error:
        assert (error.offset, error.record) == (damage[0].offset, damage[0].record)
        return
    except ShardError:
        assert compression is not Compression.NONE
        return
    assert damage == []
    assert list(offsets) == [*(record.offset for record in unverified.records), len(data)]
    place = shard.with_name("shard.idx")
    assert write_index(shard, place) == len(offsets) - 1
    lines = [f"{start} {end - start}\n" for start, end in pairwise(offsets)]
    assert place.read_text() == "".join(lines)
    with Records([shard]) as records:
        assert len(records) == len(unverified.records)
        for number, record in enumerate(unverified.records):
            try:
                assert records[number] == record
            except CorruptShardError as error:
                assert record.payload_crc != CRC.unpack(frame(record.payload)[-4:])[0]
                assert (error.offset, error.record) == (record.offset, number)
    place.unlink()


def _check_repair(shard: Path, data: bytes) -> None:
    reading = read(data)
    out = shard.with_name("repaired")
    reader = RecordReader(io.BytesIO(data))
    for _ in reader.read():
        pass
    try:
        report = repair_shard(shard, out)
    except CorruptShardError:
        assert reading.records == []
        assert not out.exists()
        return
    saved = read(out.read_bytes())
    out.unlink()
    assert shard.read_bytes() == data
    assert saved.faults == []
    assert saved.payloads == reading.payloads
    assert list(report.faults) == reading.faults
    assert report.records == len(reading.records)
    pieces = [
        (record.offset, record.offset + FRAME_SIZE + len(record.payload))
        for record in reading.records
    ]
    pieces += [(lost.offset, lost.offset + lost.bytes) for lost in report.lost]
    pieces.sort()
    assert pieces[0][0] == 0
    assert pieces[-1][1] == reader.find_end()
    assert all(first[1] == second[0] for first, second in pairwise(pieces))


TARGET = Target(check=check, seeds=seeds, mutate=mutate_shard)
