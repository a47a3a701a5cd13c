"""The schema of a batch of payloads is what payloads give one by one, whatever they hold."""

from __future__ import annotations

from collections.abc import Sequence
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples.arrow.checking import any_payloads
from tests.examples.strategies import entry, float32, int64, raw_example, string
from tfrtool.examples.arrow.schema_scan import BatchSchemaFold
from tfrtool.examples.example import Feature
from tfrtool.examples.schema_fold import SchemaFold
from tfrtool.records import frames
from tfrtool.records.payloads import Payloads

PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452000000020000000308020000")

FEATURES = st.sampled_from(
    [
        Feature(dtype=None, values=()),
        int64(),
        int64(-(2**63), 0, 2**63 - 1),
        float32(0.0, -0.0),
        float32(-0.0, float("nan"), float("-inf"), 1.5),
        string(),
        string(b"", b"text", b"\xff\xfe"),
        string(PNG),
        string(b"x" * 65),
        string(*[b"w"] * 65),
    ]
)
KEYS = st.sampled_from([b"", b"a", b"b", b"caf\xe9", b"d" * 200])


@st.composite
def examples(draw: st.DrawFn) -> bytes:
    """Return an Example, in which a key may come twice."""
    keys = draw(st.lists(KEYS, max_size=4, unique=draw(st.booleans())))
    return raw_example([entry(key, draw(FEATURES)) for key in keys])


def added(fold: SchemaFold, payloads: Sequence[bytes], cut: int) -> tuple[object, ...]:
    """Return what a fold knows of payloads, which get the indexes from 10 on."""
    rejected: list[int] = []
    if isinstance(fold, BatchSchemaFold):
        for start, part in ((0, payloads[:cut]), (cut, payloads[cut:])):
            found = fold.add_batch(Payloads.joined(part), 10 + start) if part else ()
            rejected += [start + at for at in found]
    else:
        rejected = [n for n, one in enumerate(payloads) if not fold.add_payload(one, index=10 + n)]
    counts = fold.records, fold.sequences, fold.skipped
    features = fold.features()
    ranges = [repr((k.minimum, k.maximum)) for one in features for k in one.kinds.values()]
    return rejected, counts, features, ranges  # as text, in which zero has a sign


@given(
    st.lists(examples() | any_payloads, min_size=1, max_size=8), st.booleans(), st.integers(0, 8)
)
def test_batches_are_payloads_one_by_one(payloads: list[bytes], values: bool, cut: int) -> None:
    """Types, counts, ranges, distinct values, content and places are the same, also without C."""
    expected = added(SchemaFold(values=values), payloads, cut)
    assert added(BatchSchemaFold(values=values), payloads, cut) == expected
    with patch.object(frames, "native", None):
        assert added(BatchSchemaFold(values=values), payloads, cut) == expected


def test_more_names_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first ones are kept, and the others counted."""
    for module in ("examples.schema_fold", "examples.arrow.schema_scan"):
        monkeypatch.setattr(f"tfrtool.{module}.MAX_NAMES", 9)
    wide = [raw_example([entry(b"%d" % n, int64(n)) for n in range(k, 9 + k)]) for k in (0, 5)]
    expected = added(SchemaFold(), wide, 1)
    assert expected[1] == (2, 0, 5)
    for cut in (0, 1):
        assert added(BatchSchemaFold(), wide, cut) == expected
