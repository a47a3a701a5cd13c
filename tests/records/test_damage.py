"""Reading damaged shards: intact records come out, and damage is reported where it is."""

from __future__ import annotations

import random
import zlib

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.more import more
from tests.records.strategies import (
    Reading,
    is_subsequence,
    offsets_of,
    payload_lists,
    payloads,
    read,
    read_strictly,
    shard_of,
)
from tfrtool.records.compression import Compression
from tfrtool.records.framing import FRAME_SIZE, HEADER_SIZE, FaultKind, frame, header
from tfrtool.records.stream import BLOCK_SIZE

run_payload_lists = st.lists(
    payloads.filter(lambda payload: len(payload) != 8), min_size=1, max_size=8
)
"""For runs of bytes that are put in or taken out.

A payload of 8 bytes and its CRC are a header, too. Where a cut leaves one half of a record next to
such a half of another, two readings of the same bytes may be equally right.
"""


def touched_by(offsets: list[int], position: int) -> int:
    """Return the index of the record that the byte at ``position`` belongs to."""
    return next(i for i, end in enumerate(offsets[1:]) if position < end)


def flip(data: bytes, bit: int) -> bytes:
    """Return ``data`` with one bit changed."""
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def assert_only_lost(reading: Reading, payloads: list[bytes], lost: int) -> None:
    """All records but one came out, where they were, and that one is the one fault."""
    offsets = offsets_of(payloads)
    kept = [index for index in range(len(payloads)) if index != lost]
    assert [(fault.offset, fault.record) for fault in reading.faults] == [(offsets[lost], lost)]
    assert reading.payloads == [payloads[index] for index in kept]
    assert [record.index for record in reading.records] == kept
    assert [record.offset for record in reading.records] == [offsets[index] for index in kept]


@given(payloads=payload_lists, data=st.data())
def test_flipped_bit(payloads: list[bytes], data: st.DataObject) -> None:
    """One bit that is wrong, wherever it is, costs its own record, and is found there."""
    shard = shard_of(payloads)
    bit = data.draw(st.integers(0, 8 * len(shard) - 1))
    lost = touched_by(offsets_of(payloads), bit // 8)
    reading = read(flip(shard, bit))
    assert_only_lost(reading, payloads, lost)
    in_record = bit // 8 - offsets_of(payloads)[lost]
    kind = FaultKind.LENGTH_CRC if in_record < HEADER_SIZE else FaultKind.PAYLOAD_CRC
    assert reading.faults[0].kind is kind


@pytest.mark.parametrize("length", [0, 1, 31 * 2 + 1, 376, 1384, 7432])
def test_every_bit_of_the_first_header(length: int) -> None:
    """A damaged first header is never taken for compression, whatever length it had.

    The bytes of some lengths, such as 376 (78 01), are those that a zlib file starts with.
    """
    payloads = [bytes(range(256)) * 30, b"second"]
    payloads[0] = payloads[0][:length]
    shard = shard_of(payloads)
    for bit in range(8 * HEADER_SIZE):
        assert_only_lost(read(flip(shard, bit)), payloads, 0)


@given(payloads=payload_lists, data=st.data())
def test_two_flipped_bits(payloads: list[bytes], data: st.DataObject) -> None:
    """Two wrong bits cost at most the two records that they are in."""
    shard = shard_of(payloads)
    first, second = (data.draw(st.integers(0, 8 * len(shard) - 1)) for _ in range(2))
    assume(first != second)
    offsets = offsets_of(payloads)
    lost = {touched_by(offsets, bit // 8) for bit in (first, second)}
    reading = read(flip(flip(shard, first), second))
    assert reading.payloads == [p for index, p in enumerate(payloads) if index not in lost]
    assert 1 <= len(reading.faults) <= len(lost)
    assert reading.faults[0].offset == offsets[min(lost)]
    # A shard without any whole record may look like other bytes.
    unknown = reading.faults[0].kind is FaultKind.NOT_TFRECORD and not reading.records
    assert reading.faults[0].record == (None if unknown else min(lost))


@given(payloads=payload_lists, data=st.data())
def test_cut(payloads: list[bytes], data: st.DataObject) -> None:
    """All whole records before a cut come out; the cut one is one fault, at its header."""
    shard = shard_of(payloads)
    offsets = offsets_of(payloads)
    size = data.draw(st.integers(0, len(shard)) | st.sampled_from(offsets))
    reading = read(shard[:size])
    whole = sum(end <= size for end in offsets[1:])
    assert reading.payloads == payloads[:whole]
    if size == 0:
        assert [fault.kind for fault in reading.faults] == [FaultKind.EMPTY]
    elif size == offsets[whole]:
        assert reading.faults == []
    else:
        (fault,) = reading.faults
        assert fault.offset == offsets[whole]
        assert fault.record in (whole, None)
        # The first bytes of a length, or eight zeros, may as well be stray bytes.
        left = size - offsets[whole]
        if left > 8 or (left >= 4 and payloads[whole]):
            assert (fault.kind, fault.record) == (FaultKind.TRUNCATED, whole)


@given(payloads=run_payload_lists, data=st.data(), run=st.binary(min_size=1, max_size=60))
def test_inserted_run(payloads: list[bytes], data: st.DataObject, run: bytes) -> None:
    """Bytes that were put in cost at most the record that they are in, and are one fault."""
    shard = shard_of(payloads)
    offsets = offsets_of(payloads)
    at = data.draw(st.integers(0, len(shard)) | st.sampled_from(offsets))
    damaged = shard[:at] + run + shard[at:]
    assume(read_strictly(damaged) is None)
    untouched = [
        payload
        for payload, start, end in zip(payloads, offsets, offsets[1:], strict=False)
        if not start < at < end
    ]
    reading = read(damaged)
    # Any 12 bytes before the CRC of no bytes may be the damaged header of an empty record. A run as
    # long as a record, put in after its header, makes two damaged ones: the first with the run's
    # first bytes as payload, and the second with its last 12 as header and the real payload.
    ambiguous = b"" in payloads or len(run) - FRAME_SIZE in map(len, payloads)
    assert 1 <= len(reading.faults) <= (2 if ambiguous else 1)
    assert is_subsequence(untouched, reading.payloads)
    assert is_subsequence(reading.payloads, payloads)


@example(payloads=[b"", b""], start=8, size=16)
@given(payloads=run_payload_lists, start=st.integers(0, 200), size=st.integers(1, 200))
def test_removed_run(payloads: list[bytes], start: int, size: int) -> None:
    """Bytes that were taken out cost the records that they were in, and are one fault."""
    shard = shard_of(payloads)
    offsets = offsets_of(payloads)
    assume(start < len(shard))
    end = min(start + size, len(shard))
    damaged = shard[:start] + shard[end:]
    untouched = [
        payload
        for payload, first, last in zip(payloads, offsets, offsets[1:], strict=False)
        if last <= start or end <= first
    ]
    reading = read(damaged)
    assert is_subsequence(untouched, reading.payloads)
    assert is_subsequence(reading.payloads, payloads)
    # Two halves of records may make a whole one; and nothing is damaged between two cuts.
    whole = damaged and read_strictly(damaged) is not None
    assert len(reading.faults) == (0 if whole else 1)


def test_removed_run_as_long_as_the_next_records() -> None:
    """Bytes are missing, and the length ends between two records by chance: none is lost."""
    payloads = [b"x" * 60, b"1234", b"5678", b"last"]
    shard = shard_of(payloads)
    for missing in (20, 40):
        reading = read(shard[:20] + shard[20 + missing :])
        assert reading.payloads == payloads[1:]
        assert [(fault.offset, fault.record) for fault in reading.faults] == [(0, 0)]


@given(payloads=run_payload_lists, data=st.data())
def test_overwritten_run(payloads: list[bytes], data: st.DataObject) -> None:
    """A run of bytes that were overwritten costs the records that it lies in, and no other."""
    shard = shard_of(payloads)
    offsets = offsets_of(payloads)
    start = data.draw(st.integers(0, len(shard) - 1))
    run = data.draw(
        st.binary(min_size=1, max_size=len(shard) - start)
        | st.integers(1, len(shard) - start).map(bytes)
    )
    end = start + len(run)
    damaged = shard[:start] + run + shard[end:]
    untouched = [
        payload
        for payload, first, last in zip(payloads, offsets, offsets[1:], strict=False)
        if last <= start or end <= first
    ]
    reading = read(damaged)
    assert is_subsequence(untouched, reading.payloads)
    assert is_subsequence(reading.payloads, payloads)
    assert bool(reading.faults) == (read_strictly(damaged) is None)


@given(payloads=payload_lists, stray=st.binary(min_size=1, max_size=30))
def test_stray_bytes_at_the_end(payloads: list[bytes], stray: bytes) -> None:
    """Bytes after the last record are one fault, behind it, and cost nothing."""
    shard = shard_of(payloads)
    reading = read(shard + stray)
    assert reading.payloads == payloads
    assert [fault.offset for fault in reading.faults] == [len(shard)]


@given(payloads=payload_lists, size=st.integers(1, 5000))
def test_zeros_at_the_end(payloads: list[bytes], size: int) -> None:
    """Zeros after the last record, as a preallocated file has them, are trailing bytes."""
    shard = shard_of(payloads)
    reading = read(shard + bytes(size))
    assert reading.payloads == payloads
    (fault,) = reading.faults
    assert (fault.kind, fault.offset) == (FaultKind.TRAILING_BYTES, len(shard))


@given(inner=payload_lists, before=st.binary(max_size=20), data=st.data())
def test_records_inside_a_damaged_record(
    inner: list[bytes], before: bytes, data: st.DataObject
) -> None:
    """Records that a payload holds are never given out as records of the shard."""
    payloads = [b"first", before + shard_of(inner) + before, b"last"]
    shard = shard_of(payloads)
    start, end = offsets_of(payloads)[1:3]
    header_bits = st.integers(8 * start, 8 * (start + HEADER_SIZE) - 1)
    footer_bits = st.integers(8 * (end - 4), 8 * end - 1)
    assert_only_lost(read(flip(shard, data.draw(header_bits))), payloads, 1)
    assert_only_lost(read(flip(shard, data.draw(footer_bits))), payloads, 1)


def test_records_inside_the_only_record() -> None:
    """The same where the damaged record is all that there is."""
    payloads = [shard_of([b"inner", b"", b"other"])]
    for bit in range(8 * HEADER_SIZE):
        assert_only_lost(read(flip(shard_of(payloads), bit)), payloads, 0)


def test_inner_shard_longer_than_a_block() -> None:
    """The same where the inner records fill several blocks."""
    rng = random.Random(7)
    inner = [rng.randbytes(rng.randrange(200_000)) for _ in range(40)]
    payloads = [b"first", shard_of(inner), b"last"]
    assert_only_lost(read(flip(shard_of(payloads), 8 * 25)), payloads, 1)


@pytest.mark.parametrize("length", [2**31, 2**32, 2**40, 2**63, 2**64 - 1])
def test_unbelievable_length(length: int) -> None:
    """A length beyond protobuf's limit is a fault, even where its CRC holds."""
    wrong = header(length) + b"payload" + bytes(4)
    reading = read(frame(b"first") + wrong + frame(b"last"))
    assert reading.payloads == [b"first", b"last"]
    (fault,) = reading.faults
    assert (fault.kind, fault.offset, fault.record) == (FaultKind.OVERSIZED_LENGTH, 21, 1)
    assert str(length) in fault.message


@given(payloads=payload_lists, limit=st.integers(0, 40))
def test_limit(payloads: list[bytes], limit: int) -> None:
    """Each record above the limit is a fault at its place, and the others come out."""
    reading = read(shard_of(payloads), max_record_bytes=limit)
    offsets = offsets_of(payloads)
    long = [index for index, payload in enumerate(payloads) if len(payload) > limit]
    assert reading.payloads == [payload for payload in payloads if len(payload) <= limit]
    assert all(fault.kind is FaultKind.OVERSIZED_LENGTH for fault in reading.faults)
    assert {fault.offset for fault in reading.faults} <= {offsets[index] for index in long}
    assert bool(reading.faults) == bool(long)


@pytest.mark.parametrize("compression", [None, *Compression])
@given(data=st.binary(max_size=300))
def test_any_bytes(compression: Compression | None, data: bytes) -> None:
    """Whatever the bytes are, reading ends, without an exception and with a fault or a record."""
    reading = read(data, compression=compression)
    assert reading.records or reading.faults


@given(data=st.lists(st.sampled_from([bytes(1), bytes(8), b"\x78\x9c", frame(b""), header(7)])))
def test_bytes_like_frames(data: list[bytes]) -> None:
    """The same for bytes that look like records, or nearly."""
    joined = b"".join(data)
    reading = read(joined)
    wanted = read_strictly(joined)
    if wanted:
        assert (reading.payloads, reading.faults) == (wanted, [])
    else:
        assert reading.faults


@pytest.mark.parametrize("distance", [0, 1, 4, 11, 12, 13, 15, 16, 17, 300])
@pytest.mark.parametrize("part", ["length", "payload", "cut out"])
def test_damage_just_before_the_edge_of_a_block(distance: int, part: str) -> None:
    """The next record is found wherever the edge of a block lies between it and the damage."""
    payloads = [b"x" * (BLOCK_SIZE - FRAME_SIZE - distance), b"damaged", b"", b"y" * 500, b"last"]
    start = offsets_of(payloads)[1]
    shard = shard_of(payloads)
    if part == "cut out":
        damaged = shard[: start + 9] + shard[start + 14 :]
        reading = read(damaged)
        assert reading.payloads == [payloads[0], *payloads[2:]]
        assert [(fault.offset, fault.record) for fault in reading.faults] == [(start, 1)]
    else:
        at = start + (3 if part == "length" else HEADER_SIZE + 2)
        assert_only_lost(read(flip(shard, 8 * at)), payloads, 1)


@pytest.mark.parametrize("edge", [BLOCK_SIZE, 2 * BLOCK_SIZE])
def test_next_header_across_the_edge_of_a_block(edge: int) -> None:
    """The record after a damaged one is found wherever the edge of a block cuts its header."""
    for start in range(edge - 20, edge + 5):
        payloads = [b"first", b"x" * (start - 21 - FRAME_SIZE), b"next", b"last"]
        assert_only_lost(read(flip(shard_of(payloads), 8 * 21)), payloads, 1)
        broken = flip(flip(shard_of(payloads), 8 * 21), 8 * 500)
        reading = read(broken)
        assert reading.payloads == [b"first", b"next", b"last"]
        assert len(reading.faults) == 1


@pytest.mark.parametrize(
    "size", [BLOCK_SIZE - 40, more(BLOCK_SIZE), more(2 * BLOCK_SIZE - 12), more(700_000)]
)
@pytest.mark.parametrize("fill", [b"\0", b"\x01\0\0\0\0\0\0\0", more(b"x")])
def test_damaged_record_longer_than_a_block(size: int, fill: bytes) -> None:
    """A long record whose length is wrong costs itself alone, whatever its payload is."""
    long = (fill * (size // len(fill) + 1))[:size]
    payloads = [b"first", long, b"third", long, b""]
    shard = shard_of(payloads)
    for lost in (1, 3):
        assert_only_lost(read(flip(shard, 8 * offsets_of(payloads)[lost] + 5)), payloads, lost)


def test_damage_in_many_records() -> None:
    """Every other record damaged: as many faults as there are damaged records."""
    payloads = [bytes([index]) * index for index in range(1, 101)]
    shard = shard_of(payloads)
    offsets = offsets_of(payloads)
    for index in range(0, 100, 2):
        shard = flip(shard, 8 * (offsets[index] + 12))
    reading = read(shard)
    assert reading.payloads == payloads[1::2]
    assert [fault.offset for fault in reading.faults] == offsets[:-1:2]
    assert [fault.record for fault in reading.faults] == list(range(0, 100, 2))


def packed(data: bytes, compression: Compression, level: int = 6) -> bytes:
    """Return ``data`` compressed."""
    pack = zlib.compressobj(level, wbits=31 if compression is Compression.GZIP else 15)
    return pack.compress(data) + pack.flush()


compressions = st.sampled_from([Compression.GZIP, Compression.ZLIB])


@given(payloads=payload_lists, compression=compressions, level=st.integers(0, 9), data=st.data())
def test_cut_of_compressed(
    payloads: list[bytes], compression: Compression, level: int, data: st.DataObject
) -> None:
    """A compressed shard that is cut gives its first records, and one fault behind them."""
    stream = packed(shard_of(payloads), compression, level)
    size = data.draw(st.integers(0, len(stream) - 1))
    for option in (compression, None):
        reading = read(stream[:size], compression=option)
        count = len(reading.records)
        assert reading.payloads == payloads[:count]
        (fault,) = reading.faults
        if option is not None:
            assert fault.offset == offsets_of(payloads)[count]
            assert fault.kind is FaultKind.DECOMPRESSION


@given(payloads=payload_lists, compression=compressions, level=st.integers(0, 9), data=st.data())
def test_flipped_bit_of_compressed(
    payloads: list[bytes], compression: Compression, level: int, data: st.DataObject
) -> None:
    """A wrong bit in compressed data never makes a record that was not written."""
    stream = packed(shard_of(payloads), compression, level)
    bit = data.draw(st.integers(0, 8 * len(stream) - 1))
    reading = read(flip(stream, bit))
    # Deflate refers back: the wrong bit may make a record come twice.
    assert set(reading.payloads) <= set(payloads)
    if reading.payloads != payloads:
        assert reading.faults


@given(garbled=st.lists(payloads, min_size=1, max_size=4), data=st.data())
def test_damage_below_compression(garbled: list[bytes], data: st.DataObject) -> None:
    """Damage that was there before compression is found as in a plain shard."""
    shard = shard_of(garbled)
    damaged = flip(shard, data.draw(st.integers(0, 8 * len(shard) - 1)))
    plain = read(damaged, compression=Compression.NONE)
    for compression in (Compression.GZIP, Compression.ZLIB):
        reading = read(packed(damaged, compression), compression=compression)
        assert reading.records == plain.records
        assert reading.faults == plain.faults
