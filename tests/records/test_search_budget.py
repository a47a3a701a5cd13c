"""Damage everywhere: how much work a search for the next record may be, over and over."""

from __future__ import annotations

import random

import pytest

from tests.records.strategies import offsets_of, read, shard_of
from tests.records.test_damage import assert_only_lost, flip
from tfrtool.records import resync
from tfrtool.records.framing import HEADER_SIZE, crc32c, extend_crc32c, frame, header


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by an item for each header that a search looks at."""
    found: list[int] = []

    def counted(crc: int, data: bytes) -> int:
        found.append(len(data))
        return extend_crc32c(crc, data)

    monkeypatch.setattr(resync, "extend_crc32c", counted)
    return found


def broken(payload: bytes) -> bytes:
    """Return a record whose length and payload are both wrong, so that its end can't be proven."""
    return flip(flip(frame(payload), 0), 8 * (HEADER_SIZE + 1))


@pytest.mark.slow
def test_damage_everywhere_does_not_cost_more_and_more(
    looks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every other record beyond proof: all others come out, and work grows with the size alone."""
    monkeypatch.setattr(resync, "_AT_ONCE", 8 * 1024 * 1024)
    rng = random.Random(5)
    work = []
    for count in (500, 2000):
        looks.clear()
        payloads = [rng.randbytes(40) for _ in range(count)]
        reading = read(b"".join(broken(payload) + frame(payload) for payload in payloads))
        assert reading.payloads == payloads
        assert len(reading.faults) == count
        work.append(len(looks))
    # To the end of the stream each time would be 500 * 1,000 / 2 at first, and 16 times that.
    assert work[0] < 100_000
    assert work[1] < 5 * work[0]


@pytest.mark.more
def test_changed_line_breaks(looks: list[int]) -> None:
    """A shard that was sent as text: the records without a line break come out, and soon."""
    rng = random.Random(6)
    payloads = [rng.randbytes(300) for _ in range(6000)]
    reading = read(shard_of(payloads).replace(b"\n", b"\r\n"))
    kept = [payload for payload in payloads if b"\n" not in frame(payload)]
    assert reading.payloads == kept
    assert len(looks) < 400_000


def test_much_damage_does_not_hide_the_end_of_a_record(looks: list[int]) -> None:
    """After much of such damage, records inside a damaged record still don't come out."""
    start = b"".join(broken(b"x" * 40) + frame(b"y" * 40) for _ in range(200))
    inner = shard_of([bytes([number]) * 50 for number in range(100)])
    payloads = [b"first", inner, b"last"]
    shard = flip(shard_of(payloads), 8 * offsets_of(payloads)[1])
    reading = read(start + shard)
    assert reading.payloads == [*[b"y" * 40] * 200, b"first", b"last"]
    assert_only_lost(read(shard), payloads, 1)
    assert looks


def test_misleading_headers_cost_no_square_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers whose payloads overlap are given up on after some bytes, not after all of them."""
    checked = 0

    def counted(data: bytes) -> int:
        nonlocal checked
        checked += len(data)
        return crc32c(data)

    monkeypatch.setattr(resync, "crc32c", counted)
    monkeypatch.setattr(resync, "_AT_ONCE", 1_000_000)
    count = 4000
    hostile = header(12 * count) * count + b"x" * (12 * count + 16)
    reading = read(frame(b"first") + b"damaged header" + hostile + frame(b"last"))
    assert reading.payloads[0] == b"first"
    assert len(reading.faults) == 1
    # Each payload of 48 kB would be 190 MB.
    assert checked < 3_000_000


def test_a_few_misleading_headers_cost_no_record() -> None:
    """As long as the budget lasts, the record behind them is found."""
    hostile = header(2000) * 100 + b"x" * 2016
    reading = read(frame(b"first") + b"damaged header" + hostile + frame(b"last"))
    assert reading.payloads == [b"first", b"last"]


def test_damaged_payloads_before_headers_cost_no_look_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a record with a damaged payload, headers are looked for to its end, and not beyond."""
    checked = 0

    def counted(data: bytes) -> int:
        nonlocal checked
        checked += 1
        return crc32c(data)

    monkeypatch.setattr(resync, "crc32c", counted)
    monkeypatch.setattr(resync, "_AT_ONCE", 0)
    count = 500
    hostile = frame(b"x" * 40) + flip(frame(b"payload"), 8 * HEADER_SIZE) + header(2**63)
    reading = read(hostile * count)
    assert len(reading.records) == count
    assert len(reading.faults) == 2 * count
    assert checked < 300 * count  # to the end of the block it would be ten times that
