"""Damage that can be read in more than one way: what is reported."""

from __future__ import annotations

import pytest

from tests.records.strategies import offsets_of, read, shard_of
from tfrtool.records.framing import FRAME_SIZE, HEADER_SIZE, FaultKind, frame
from tfrtool.records.stream import BLOCK_SIZE

PAYLOADS = [bytes([65 + number]) * (30 + number) for number in range(6)]


def test_index_is_not_claimed_after_an_unprovable_gap() -> None:
    """Where the number of lost records can't be known, later faults have no record number."""
    data = bytearray(shard_of(PAYLOADS))
    offsets = offsets_of(PAYLOADS)
    data[offsets[1]] ^= 1  # its length ...
    data[offsets[1] + HEADER_SIZE] ^= 1  # ... and its payload
    data[offsets[4] + HEADER_SIZE] ^= 1
    reading = read(bytes(data))
    assert [(fault.offset, fault.record) for fault in reading.faults] == [
        (offsets[1], 1),
        (offsets[4], None),
    ]
    assert reading.payloads == [PAYLOADS[index] for index in (0, 2, 3, 5)]


@pytest.mark.parametrize("size", [5, 3 * BLOCK_SIZE])
def test_a_damaged_payload_before_a_damaged_header(size: int) -> None:
    """Each of two damaged records in a row is a fault of its own."""
    payloads = [bytes([65 + number]) * size for number in range(5)]
    offsets, data = offsets_of(payloads), bytearray(shard_of(payloads))
    data[offsets[1] + HEADER_SIZE + 2] ^= 1
    data[offsets[2]] ^= 1
    reading = read(bytes(data))
    assert [(fault.kind, fault.offset, fault.record) for fault in reading.faults] == [
        (FaultKind.PAYLOAD_CRC, offsets[1], 1),
        (FaultKind.LENGTH_CRC, offsets[2], 2),
    ]
    assert reading.payloads == [payloads[0], *payloads[3:]]


@pytest.mark.parametrize("cut", [5, 100, 117, 150, 170])
def test_cut_in_a_payload_that_holds_records(cut: int) -> None:
    """Records inside a payload are never given out, wherever the stream is cut in it."""
    inner = b"".join(frame(bytes([97 + number]) * 40) for number in range(3))
    outer = frame(b"first"), frame(b"head" + inner + b"tail" * 8)
    start = len(outer[0])
    # Between two of the inner records nothing distinguishes the two readings.
    assert (cut - HEADER_SIZE - len(b"head")) % (FRAME_SIZE + 40) != 0
    reading = read(b"".join(outer)[: start + HEADER_SIZE + cut])
    assert reading.payloads == [b"first"]
    assert [(fault.kind, fault.offset, fault.record) for fault in reading.faults] == [
        (FaultKind.TRUNCATED, start, 1)
    ]


def test_records_after_a_length_that_reaches_beyond_the_end() -> None:
    """Where bytes were taken out of the last but two, the last two come out all the same."""
    payloads = [b"a" * 20, b"b" * 500, b"c" * 30, b"d" * 40]
    offsets = offsets_of(payloads)
    data = shard_of(payloads)
    reading = read(data[: offsets[1] + 50] + data[offsets[1] + 450 :])
    assert reading.payloads == [b"a" * 20, b"c" * 30, b"d" * 40]
    assert [(fault.kind, fault.offset, fault.record) for fault in reading.faults] == [
        (FaultKind.TRUNCATED, offsets[1], 1)
    ]
