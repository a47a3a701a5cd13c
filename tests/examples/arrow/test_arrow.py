"""The Arrow bridge: payloads become record batches and come back."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples.strategies import payloads
from tests.examples.wire import mutants, sequence_mutants
from tfrtool.examples.arrow.columns import Columns
from tfrtool.examples.arrow.decode_batch import decode_batch
from tfrtool.examples.arrow.encode_batch import encode_batch
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.example import DType, Feature, PayloadKind, decode_example, encode_example
from tfrtool.examples.inference import SchemaFold
from tfrtool.examples.proto import example_pb2 as pb

KINDS = (PayloadKind.EXAMPLE, PayloadKind.SEQUENCE_EXAMPLE)


def bits(feature: Feature) -> tuple[object, ...]:
    """Return a feature in a form in which NaN equals itself."""
    values = tuple(feature.values)
    if feature.dtype is DType.FLOAT32:
        values = tuple(struct.pack(f"<{len(values)}f", *values))
    return feature.dtype, values


def content(payload: bytes) -> tuple[object, ...]:
    """Return what an Example or SequenceExample holds."""
    example = decode_example(payload, PayloadKind.SEQUENCE_EXAMPLE)
    lists = pb.SequenceExample.FromString(payload).HasField("feature_lists")
    context = {name: bits(feature) for name, feature in example.features.items()}
    steps = {name: list(map(bits, some)) for name, some in example.feature_lists.items()}
    return context, steps, lists


def taken(some: Sequence[bytes]) -> list[bytes]:
    """Return those that are Examples or SequenceExamples."""
    return [one for one in some if SchemaFold().add(one)]


def check_round_trip(some: Sequence[bytes]) -> None:
    """Payloads become a batch, and payloads with the same content."""
    fold = ColumnsFold()
    fold.add(some)
    columns = fold.columns()
    batch = decode_batch(some, columns)
    batch.validate(full=True)
    assert batch.num_rows == len(some)
    assert Columns.from_arrow(batch.schema) == columns
    for one, other in zip(some, encode_batch(batch, columns), strict=True):
        if columns.parsed:
            assert content(one) == content(other)
        else:
            assert one == other
    exact = decode_batch(some, columns, exact=True)
    assert encode_batch(exact, columns) == some


@given(st.lists(payloads | mutants() | sequence_mutants(), max_size=4))
@settings(max_examples=400)
def test_any_payloads_come_back(some: list[bytes]) -> None:
    """What the columns hold is what the payloads say."""
    check_round_trip(taken(some))


@given(st.lists(payloads, max_size=4))
def test_encoded_as_examples_are(some: list[bytes]) -> None:
    """What is encoded is what `encode_example` writes, to the byte."""
    some = [one for one in taken(some) if not pb.SequenceExample.FromString(one).feature_lists]
    fold = ColumnsFold()
    fold.add(some)
    encoded = encode_batch(decode_batch(some, fold.columns()), fold.columns())
    if fold.columns().parsed:
        assert encoded == [encode_example(decode_example(one).features) for one in some]
