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
    total = StringFold(room)
    for part in parts:
        fold = StringFold(room)
        fold.add(pa.array(part, pa.binary()))
        total.merge(pickle.loads(pickle.dumps(fold)))
    return total


@given(strings, strings)
def test_counts_are_exact(one: list[bytes], two: list[bytes]) -> None:
    """Up to the room for different strings, each is counted; a long one by its CRC."""
    counts, distinct, short = folded(one, two).held()
    whole = Counter(one + two)
    assert (distinct, short) == (len(whole), 0)
    assert sorted(counts.values()) == sorted(whole.values())
    for value, count in whole.items():
        if len(value) <= LONGEST:
            key = "=" + value.decode("latin-1")
            assert counts[key] == count
            assert string_json(key)["bytes"] == len(value)


def test_sketches_are_within_their_bounds() -> None:
    """Beyond it, no count is too high, none too low by more than is said; distinct within 3 %."""
    values = [b"%d" % (n * n % 40_009) for n in range(100_000)]
    values += [b"often"] * 9_000 + [b"", b"\xff\x00"] * 4_000
    values.sort(key=lambda value: hash(value) % 1 or len(value))
    counts, distinct, short = folded(values[::2], values[1::2], room=500).held()
    whole = Counter(values)
    assert 0 < short < len(values) * 3.5 / 2**13 + 1
    assert abs(distinct - len(whole)) < 0.03 * len(whole)
    for value in (b"often", b"", b"\xff\x00"):
        assert whole[value] - short <= counts["=" + value.decode("latin-1")] <= whole[value]
    for key, count in counts.items():
        assert count <= whole[key[1:].encode("latin-1")]
