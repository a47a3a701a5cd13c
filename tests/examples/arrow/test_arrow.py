"""The Arrow bridge: payloads become record batches and come back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.examples.strategies import payloads
from tfrtool.examples.arrow.columns import Columns
from tfrtool.examples.arrow.decode_batch import decode_batch
from tfrtool.examples.arrow.encode_batch import encode_batch
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.example import PayloadKind, classify_payload, decode_example


@given(st.lists(payloads, max_size=4))
def test_any_payloads_come_back(given_payloads: list[bytes]) -> None:
    """What the columns hold is what the payloads say."""
    kinds = (PayloadKind.EXAMPLE, PayloadKind.SEQUENCE_EXAMPLE)
    kept = [one for one in given_payloads if classify_payload(one) in kinds]
    fold = ColumnsFold()
    fold.add(kept)
    columns = fold.columns()
    batch = decode_batch(kept, columns)
    assert Columns.from_arrow(batch.schema) == columns
    again = encode_batch(batch, columns)
    for one, other in zip(kept, again, strict=True):
        assert repr(decode_example(one, PayloadKind.SEQUENCE_EXAMPLE).features) == repr(
            decode_example(other, PayloadKind.SEQUENCE_EXAMPLE).features
        ) or set(decode_example(one).features) == set(decode_example(other).features)
