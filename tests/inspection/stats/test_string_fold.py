"""How often strings come, with a Counter as the oracle; sketches within their bounds."""

from __future__ import annotations

import pickle
from collections import Counter

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tfrtool.inspection.stats.string_fold import LONGEST, StringFold, string_json

strings = st.lists(st.binary(max_size=3) | st.just(b"") | st.just(b"x" * (LONGEST + 1)))


def folded(*parts: list[bytes], room: int = 1000) -> StringFold:
    """Return the fold of parts, each folded alone, sent by pickle and merged."""
    total = StringFold()
    for part in parts:
        fold = StringFold()
        fold.add(pa.array(part, pa.binary()), room)
        total.merge(pickle.loads(pickle.dumps(fold)), room)
    return total


@given(strings, strings)
def test_counts_are_exact(one: list[bytes], two: list[bytes]) -> None:
    """Up to the room for different strings, each is counted; a long one by its CRC."""
    found = folded(one, two)
    whole = Counter(one + two)
    assert (found.distinct(), found.short) == (len(whole), 0)
    assert sorted(found.counts.values()) == sorted(whole.values())
    for value, count in whole.items():
        if len(value) <= LONGEST:
            assert found.counts[value] == count
    sizes = [string_json(value)["bytes"] for value in found.counts]
    assert sorted(sizes) == sorted(map(len, whole))


@given(strings, strings, st.integers(1, 8))
def test_counts_are_within_their_bound(one: list[bytes], two: list[bytes], room: int) -> None:
    """Beyond it, no count is too high, none too low by more than is said, and that is little."""
    found = folded(one, two, room=room)
    whole = Counter(one + two)
    assert len(found.counts) <= room
    assert found.short <= whole.total() / (room + 1)
    for value in whole.keys() - {b"x" * (LONGEST + 1)}:
        assert whole[value] - found.short <= found.counts.get(value, 0) <= whole[value]
    assert found.distinct() == len(whole)


def test_many_strings() -> None:
    """How many different strings there are is told within 3 %, and those that are common stay."""
    values = [b"%d" % n for n in range(100_000)]
    values += [b"often"] * 9_000 + [b"", b"\xff\x00"] * 4_000
    found = folded(values[::2], values[1::2], room=500)
    assert abs(found.distinct() - 100_003) < 3_000
    assert {b"often", b"", b"\xff\x00"} <= set(found.counts)
    assert len(pickle.dumps(found)) < 200_000
