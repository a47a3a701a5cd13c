"""Large payloads, whose long values are taken out before parsing: nothing is told otherwise."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from tests.examples.strategies import entry, features, int64, names, raw_example
from tests.examples.wire import field, mutants, sequence_mutants
from tfrtool.examples import long_values
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.content import describe_bytes
from tfrtool.examples.example import (
    DType,
    Feature,
    PayloadKind,
    classify_payload,
    decode_example,
    encode_example,
)
from tfrtool.examples.inference import SchemaFold
from tfrtool.inspection.verify.payload_check import NO_EXAMPLE, PayloadCheck
from tfrtool.storage.limits import MAX_FEATURES

KEYS = st.one_of(names.map(str.encode), st.binary(max_size=4))
payloads = st.builds(
    lambda context, lists: raw_example([entry(*item) for item in context], lists),
    st.lists(st.tuples(KEYS, features), max_size=4),
    st.none() | st.dictionaries(KEYS, st.lists(features, max_size=3), max_size=2),
)


@contextmanager
def all_large() -> Iterator[None]:
    """Take every payload for large, and values of more than three bytes for long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_values, "LARGE", -1)
        patch.setattr(long_values, "_LONG", 3)
        patch.setattr(long_values, "_WORTH", 100)
        yield


def told(payload: bytes) -> list[Any]:
    """Return all that is told of a payload."""
    fold, check = SchemaFold(values=True), PayloadCheck()
    return [
        classify_payload(payload),
        [_decoded(payload, kind) for kind in (PayloadKind.EXAMPLE, PayloadKind.SEQUENCE_EXAMPLE)],
        fold.add(payload),
        fold.features(),
        check.problem(payload),
    ]


def _decoded(payload: bytes, kind: PayloadKind) -> Any:
    try:
        found = decode_example(payload, kind)
    except ValueError:
        return None
    lists = found.feature_lists.items()
    return (
        [(name, item.dtype, list(item.values)) for name, item in found.features.items()],
        [(name, [(step.dtype, list(step.values)) for step in steps]) for name, steps in lists],
    )


def assert_told_alike(payload: bytes) -> None:
    """Compare what is told of a payload with what is told if it is large.

    What TensorFlow's parser makes something else of may be no Example then.
    """
    expected = told(payload)
    with all_large():
        found = told(payload)
        try:
            long_values.hollowed(payload)
        except DecodeError:
            assert found[0] in (PayloadKind.UNKNOWN, PayloadKind.EVENT)
            assert found[1:] == [[None, None], False, (), NO_EXAMPLE]
            assert expected[4] is not None
            return
    if expected[4] is None or "TensorFlow" not in expected[4]:
        assert repr(found) == repr(expected)  # NaN is not equal to itself
    else:
        assert found[4] == expected[4]


@given(payloads)
def test_large_payloads_are_parsed_as_small_ones(payload: bytes) -> None:
    """Kind, features, values, statistics and problems are the same."""
    assert_told_alike(payload)


@given(payloads, st.integers(0, 2**32))
@example(field(1, field(1, field(1, b"key") + field(2, field(1, field(1, b"value") * 2)))), 0)
def test_damaged_payloads_too(payload: bytes, seed: int) -> None:
    """So they are for bytes that are no such message any more, or hardly."""
    chance, hurt = random.Random(seed), bytearray(payload)
    for _ in range(chance.randrange(4)):
        if hurt:
            hurt[chance.randrange(len(hurt))] = chance.choice([0, 8, 10, 18, 26, 128, 255])
    assert_told_alike(bytes(hurt))


@given(mutants() | sequence_mutants())
def test_payloads_that_no_writer_makes(payload: bytes) -> None:
    """So they are where the parts of a message are moved about."""
    assert_told_alike(payload)


UNUSUAL: dict[str, Callable[[], bytes]] = {
    "an unknown field": lambda: field(9, bytes(50)) + field(1, b""),
    "a field unknown to an entry": lambda: field(1, field(1, field(1, b"k") + field(9, bytes(50)))),
    "a group": lambda: field(1, field(1, b"\x0b" + bytes(20) + b"\x0c")),
    "a list within a list": lambda: field(1, field(1, field(2, field(1, field(2, bytes(50)))))),
    "twice the same list": lambda: field(
        1, field(1, field(1, b"k") + field(2, field(1, field(1, bytes(9))) * 2))
    ),
    "a long key": lambda: field(1, field(1, field(1, b"k" * 90) + field(2, b""))),
    "numbers that are cut": lambda: field(1, field(1, field(2, field(2, field(1, bytes(9)))))),
    "a length beyond the end": lambda: field(
        1, field(1, field(2, field(1, b"\x0a\x50" + bytes(9))))
    ),
    "an overlong length": lambda: b"\x0a\x84\x80\x00" + field(1, b"ab"),
    "noise": lambda: random.Random(0).randbytes(200),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_payloads(name: str) -> None:
    """What is no usual Example is told alike, too."""
    assert_told_alike(UNUSUAL[name]())


def test_values_of_a_large_record_are_whole() -> None:
    """A record of more than 16 MiB gives its values byte for byte."""
    long = random.Random(0).randbytes(20 << 20)
    values = {"a": (long, b"short", long[:5000]), "b": (b"",)}
    payload = encode_example(
        {name: Feature(dtype=DType.STRING, values=held) for name, held in values.items()}
    )
    assert len(long_values.hollowed(payload)) < 1000
    found = decode_example(payload).features
    assert {name: item.values for name, item in found.items()} == values


def test_too_many_features() -> None:
    """A record that names more features than any table has columns is none, soon and for all."""
    entries = [entry(b"%x" % number, int64(1)) for number in range(MAX_FEATURES)]
    whole, over = raw_example(entries), raw_example([*entries, entry(b"", int64())])
    empty = field(1, b"\x0a\x02\x12\x00" * (2 * MAX_FEATURES))
    for payload, kind in (
        (whole, PayloadKind.EXAMPLE),
        (over, PayloadKind.UNKNOWN),
        (empty, PayloadKind.UNKNOWN),
    ):
        columns = ColumnsFold()
        columns.add([payload])
        assert columns.kinds[kind] == 1
        assert classify_payload(payload) is kind
        assert SchemaFold().add(payload) == (kind is PayloadKind.EXAMPLE)


def test_many_steps() -> None:
    """The steps of a feature list are looked at one after the other, and not held."""
    steps = field(1, b"") * 100_000
    payload = field(2, field(1, field(1, b"steps") + field(2, steps)))
    fold = SchemaFold()
    tracemalloc.start()
    try:
        assert fold.add(payload)
        assert describe_bytes(payload) == "binary"
        assert tracemalloc.get_traced_memory()[1] < 2_600_000
    finally:
        tracemalloc.stop()
    (steps_seen,) = fold.features()
    assert (steps_seen.lengths, steps_seen.unset) == ((100_000, 100_000), 100_000)
