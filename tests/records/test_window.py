"""The window on a stream: what it holds, and how much memory it keeps."""

from __future__ import annotations

import io
import random

from tfrtool.records.window import BLOCK_SIZE, Window

MIB = 1024 * 1024
DATA = random.Random(0).randbytes(3 * MIB)


def test_what_is_asked_for_is_held() -> None:
    """Any stretch from the last offset on is held, and the right bytes are in it."""
    window, offset, rng = Window(io.BytesIO(DATA)), 0, random.Random(1)
    while offset < len(DATA):
        size = rng.choice([1, 12, 1000, BLOCK_SIZE - 1, BLOCK_SIZE, 300_000])
        held = window.load(offset, size)
        wanted = DATA[offset : offset + size]
        assert held >= len(wanted)
        assert window.view(offset, offset + len(wanted)) == wanted
        offset += rng.choice([1, 500, size])
    assert window.load(len(DATA), 1) == 0


def test_pinned_bytes_stay() -> None:
    """All from the pinned offset on is there, however far loading has gone."""
    window = Window(io.BytesIO(DATA))
    window.load(100, 10)
    window.pinned = 105
    window.load(2 * MIB, 1000)
    assert window.view(105, 2 * MIB + 1000) == DATA[105 : 2 * MIB + 1000]


def test_memory_is_given_back() -> None:
    """What is held grows for a long search, and shrinks when it is over."""
    window = Window(io.BytesIO(bytes(40 * MIB)))
    window.pinned = 0
    window.load(30 * MIB, 1)
    assert len(window.data) >= 30 * MIB
    window.pinned = None
    window.load(window.end, 12)
    assert len(window.data) <= MIB


def test_memory_follows_what_has_come() -> None:
    """Asking for a gigabyte of a short stream takes no gigabyte, at no time."""

    class Counted(io.BytesIO):
        most = 0

        def read(self, size: int | None = -1, /) -> bytes:
            self.most = max(self.most, size or 0)
            return super().read(size)

    source = Counted(bytes(MIB))
    window = Window(source)
    assert window.load(0, 1024 * MIB) == MIB
    assert window.take(0, 1024 * MIB) == bytes(MIB)
    assert source.most <= MIB
