"""Shortened payloads: they have the same types and the same short values."""

from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

import tfrtool
from tfrtool.examples.arrow.decode_batch import decode_batch
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.example import parse_message
from tfrtool.examples.short_payloads import LONG, empty_strings, shorten

NAMES = st.sampled_from(["a", "b", "image/encoded", "ä" * 20, "n" * 200])
LONG_BYTES = st.builds(
    lambda head, size: head + bytes(size),
    st.sampled_from([b"\xff\xd8", b"\x80", b"GIF89a", "ä".encode() * 600]),
    st.sampled_from([LONG - 90, LONG, 20_000, 3_000_000]),
)
TEXTS = st.integers(0, 2000).map(lambda n: "tä".encode() * n)
VALUES = st.one_of(
    st.binary(max_size=5),
    TEXTS,
    LONG_BYTES,
    st.lists(LONG_BYTES, max_size=2),
    st.lists(st.integers(-5, 2**40), max_size=400),
    st.lists(st.floats(width=32, allow_nan=False), max_size=400),
)


def folded(payload: bytes) -> tuple[object, ...]:
    """Return what a fold finds in a payload."""
    fold = ColumnsFold()
    fold.add([payload])
    columns = [fold.table_columns(exact=exact) for exact in (True, False)]
    return fold.kinds, columns


@given(st.dictionaries(NAMES, VALUES), st.integers(0, 60), st.binary(max_size=2))
def test_types_and_short_values_stay(features: dict[str, object], at: int, odd: bytes) -> None:
    """A fold finds the same in a shortened payload, also if the payload is damaged."""
    payload = tfrtool.encode_example({k: v for k, v in features.items() if v != []})
    names = set[bytes]()
    short = shorten(payload, names)
    assert folded(short) == folded(payload)
    assert (len(short) < len(payload)) == bool(names)
    fold = ColumnsFold()
    fold.add([payload])
    columns = fold.table_columns(exact=False)
    columns = columns.select([one for one in columns.names if one.encode() not in names])
    assert decode_batch([short], columns).equals(decode_batch([payload], columns))
    damaged = payload[:at] + odd + payload[at + len(odd) :]
    assert folded(shorten(damaged, set())) == folded(damaged)


def test_images_become_short() -> None:
    """A photograph is not in what is left of its record."""
    payload = tfrtool.encode_example({"image": b"\xff\xd8" * 50_000, "label": 1})
    assert len(shorten(payload, set())) < 120


LISTS = st.lists(st.sampled_from([b"", b"a", bytes(100), bytes(200), bytes(20_000)]), max_size=30)


@given(st.dictionaries(NAMES, st.one_of(LISTS, VALUES)), st.integers(0, 400), st.binary(max_size=2))
def test_strings_become_empty(features: dict[str, object], at: int, odd: bytes) -> None:
    """Long features of some names have as many strings, all empty; others stay as they are."""
    payload = tfrtool.encode_example({k: v for k, v in features.items() if v != []})
    keys = {b"a", b"n" * 200}
    expected, short = parse_message(payload), parse_message(empty_strings(payload, keys))
    for entry in expected.context.feature:
        strings = entry.value.bytes_list.value
        if entry.key in keys and entry.ByteSize() > LONG:
            strings[:] = [b""] * len(strings)
    assert short == expected
    damaged = payload[:at] + odd + payload[at + len(odd) :]
    assert parses(empty_strings(damaged, {b"a"})) == parses(damaged)


def parses(payload: bytes) -> bool:
    """Return whether a payload is a message."""
    try:
        parse_message(payload)
    except DecodeError:
        return False
    return True


def test_lists_of_images_become_short() -> None:
    """Of the images of an episode, only their number is left."""
    payload = tfrtool.encode_example({"images": [b"\xff" * 900] * 99, "label": 1})
    short = empty_strings(payload, {b"images"})
    (images,) = [one.value for one in parse_message(short).context.feature if one.key == b"images"]
    assert (len(short) < 300, [*images.bytes_list.value]) == (True, [b""] * 99)
    assert empty_strings(payload, {b"label"}) is payload
