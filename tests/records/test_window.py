"""The window on a stream: what it holds, and how much memory it keeps."""

from __future__ import annotations

import io
import random

import pytest

from tfrtool.records.window import BLOCK_SIZE, Window

MIB = 1024 * 1024
DATA = random.Random(0).randbytes(3 * MIB)


class Trickle(io.RawIOBase):
    """A stream that gives a few bytes at a time, through `read` alone."""

    def __init__(self, data: bytes) -> None:
        self._rest = data

    def read(self, size: int = -1, /) -> bytes:
        count = min(size, 1000)
        part, self._rest = self._rest[:count], self._rest[count:]
        return part


@pytest.mark.parametrize("source", [io.BytesIO(DATA), Trickle(DATA)], ids=["whole", "trickle"])
def test_what_is_asked_for_is_held(source: io.BytesIO) -> None:
    """Any stretch from the last offset on is held, and the right bytes are in it."""
    window, offset, rng = Window(source), 0, random.Random(1)
    while offset < len(DATA):
        size = rng.choice([1, 12, 1000, BLOCK_SIZE - 1, BLOCK_SIZE, 300_000])
        held = window.load(offset, size)
        wanted = DATA[offset : offset + size]
        assert held >= len(wanted)
        assert window.view(offset, offset + len(wanted)) == wanted
        offset += rng.choice([1, 500, size])
    assert window.load(len(DATA), 1) == 0
    assert window.ended


def test_pinned_bytes_stay() -> None:
    """All from the pinned offset on is there, however far loading has gone."""
    window = Window(io.BytesIO(DATA))
    window.load(100, 10)
    window.pinned = 105
    window.load(2 * MIB, 1000)
    assert window.view(105, 2 * MIB + 1000) == DATA[105 : 2 * MIB + 1000]


def test_memory_is_given_back() -> None:
    """The buffer grows for a long record, and shrinks when short ones follow."""
    window = Window(io.BytesIO(bytes(40 * MIB)))
    window.load(0, 30 * MIB)
    assert len(window.buffer) >= 30 * MIB
    window.load(30 * MIB - 5, 1000)
    window.load(31 * MIB, 12)
    assert len(window.buffer) <= MIB


def test_memory_follows_what_has_come() -> None:
    """Asking for a gigabyte of a short stream takes no gigabyte."""
    window = Window(io.BytesIO(bytes(MIB)))
    assert window.load(0, 1024 * MIB) == MIB
    assert len(window.buffer) <= 4 * MIB
