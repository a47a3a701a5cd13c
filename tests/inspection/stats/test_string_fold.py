"""How often strings occur, with a Counter as the oracle."""

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
    assert (found.distinct(), found.error) == (len(whole), 0)
    assert sorted(found.counts.values()) == sorted(whole.values())
    for value, count in whole.items():
        if len(value) <= LONGEST:
            assert found.counts[b"=" + value] == count
    sizes = [string_json(value)["bytes"] for value in found.counts]
    assert sorted(sizes) == sorted(map(len, whole))


def test_counts_are_within_their_bounds() -> None:
    """Beyond it, no count is too high, none too low by more than is said; distinct within 3 %."""
    values = [b"%d" % (n * n % 40_009) for n in range(100_000)]
    values += [b"often"] * 9_000 + [b"", b"\xff\x00"] * 4_000
    found = folded(values[::2], values[1::2], room=500)
    whole = Counter(values)
    counts = found.counts
    assert 0 < found.error < len(values) / 500 + 2
    assert abs(found.distinct() - len(whole)) < 0.03 * len(whole)
    for value in (b"often", b"", b"\xff\x00"):
        assert whole[value] - found.error <= counts[b"=" + value] <= whole[value]
    for key, count in counts.items():
        assert count <= whole[key[1:]]
    assert len(pickle.dumps(found)) < 200_000
