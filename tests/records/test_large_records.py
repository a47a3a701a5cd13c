"""Large records, which bypass the reader's buffer: the results are those of small ones."""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records.strategies import Reading, payload_lists, read, shard_of
from tfrtool.records import stream
from tfrtool.records.stream import BLOCK_SIZE


@contextmanager
def small_buffer() -> Iterator[None]:
    """Take every record for large, and read a few bytes at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "BLOCK_SIZE", 16)
        yield


def both(data: bytes, **options: Any) -> tuple[Reading, Reading]:
    """Return what is read through the buffer, and what is read past it."""
    expected = read(data, **options)
    with small_buffer():
        return expected, read(data, **options)


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Return bytes with a bit flipped, with some taken out or put in, or cut."""
    place = chance.randrange(len(data))
    kind = chance.randrange(4)
    if kind == 0:
        return data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :]
    if kind == 1:
        return data[:place] + data[place + chance.randrange(1, 30) :]
    if kind == 2:
        return data[:place] + chance.randbytes(chance.randrange(1, 30)) + data[place:]
    return data[:place]


@given(payload_lists, st.integers(0, 3), st.integers(0, 2**32), st.booleans())
def test_large_records_are_read_as_small_ones(
    payloads: list[bytes], times: int, seed: int, packed: bool
) -> None:
    """Records and faults are the same, whatever the damage, compressed or not."""
    chance = random.Random(seed)
    data = shard_of(payloads)
    if packed:
        data = gzip.compress(data)
    for _ in range(times):
        data = damaged(data, chance) or data
    for verify in (True, False):
        expected, found = both(data, verify_payload=verify)
        assert found == expected


@pytest.mark.parametrize("packed", [False, True])
def test_damage_to_a_large_record(packed: bool) -> None:
    """A bit flip in a record longer than any block costs only that record."""
    payloads = [b"before", bytes(1) + random.Random(0).randbytes(4 * BLOCK_SIZE), b"after"]
    data = bytearray(shard_of(payloads))
    data[2 * BLOCK_SIZE] ^= 1
    reading = read(gzip.compress(data, 0) if packed else bytes(data))
    assert reading.payloads == [b"before", b"after"]
    assert [(fault.record, fault.offset) for fault in reading.faults] == [(1, 22)]
