"""Payloads as no proper writer makes them: protobuf's wire format with its parts moved about."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from hypothesis import strategies as st

__all__ = ["field", "mutants", "sequence_mutants", "varint"]


def varint(number: int) -> bytes:
    """Return a number as protobuf writes it."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(number: int, *parts: bytes) -> bytes:
    """Return a field with a length, which holds ``parts``."""
    content = b"".join(parts)
    return varint(number << 3 | 2) + varint(len(content)) + content


_JUNK = [
    b"\x38\x01", b"\x3d1234", b"\x3912345678", b"\x3b\x3c", b"\x08\x01", b"\x12\x00", b"\x0a\x00",
    b"\x1a\x00", b"\x22\x01x", b"\x8a\x00\x00",
]  # fmt: skip
"""Fields that mean nothing, or something where they don't belong: a varint, fixed numbers, a group,
strings, and one whose tag is longer than it must be."""


@st.composite
def _message(draw: st.DrawFn, parts: Sequence[bytes]) -> bytes:
    """Put a message together, with a part too many, too few or elsewhere, now and then."""
    held = list(parts)
    match draw(
        st.sampled_from(["", "", "", "", "", "", "", "", "", "junk", "twice", "less", "turn"])
    ):
        case "junk":
            held.insert(draw(st.integers(0, len(held))), draw(st.sampled_from(_JUNK)))
        case "twice" if held:
            held.insert(draw(st.integers(0, len(held))), draw(st.sampled_from(held)))
        case "less" if held:
            held.pop(draw(st.integers(0, len(held) - 1)))
        case "turn":
            held.reverse()
    return b"".join(held)


@st.composite
def _list(draw: st.DrawFn, kind: int) -> bytes:
    """Draw a list of strings (1), floats (2) or int64s (3), packed, unpacked, or partly so."""
    if kind == 1:
        strings = draw(st.lists(st.sampled_from([b"", b"x", b"yy"]), max_size=3))
        return draw(_message([field(1, item) for item in strings]))
    numbers = draw(st.lists(st.integers(0, 300), max_size=3))
    if kind == 2:
        items = [struct.pack("<f", number) for number in numbers]
        single = [b"\x0d" + item for item in items]
    else:
        items = [varint(number) for number in numbers]
        single = [b"\x08" + item for item in items]
    cut = draw(st.integers(0, len(items)))
    packed, rest = field(1, *items[:cut]), field(1, *items[cut:])
    forms = [
        [field(1, *items)],
        single,
        [packed, rest],
        [packed, *single[cut:]],
        [*single[:cut], rest],
    ]
    return draw(_message(draw(st.sampled_from([forms[0], *forms]))))


@st.composite
def _feature(draw: st.DrawFn) -> bytes:
    kinds = draw(st.sampled_from([(1,), (2,), (3,), (1,), (3,), (), (1, 1), (3, 2), (2, 2)]))
    return draw(_message([field(kind, draw(_list(kind))) for kind in kinds]))


@st.composite
def _entry(draw: st.DrawFn, value: bytes) -> bytes:
    key = draw(st.sampled_from([b"a", b"b", b"c", b"", b"\xff", b"tab\t"]))
    return field(1, draw(_message([field(1, key), field(2, value)])))


@st.composite
def _features(draw: st.DrawFn) -> bytes:
    values = draw(st.lists(_feature(), min_size=1, max_size=3))
    return draw(_message([draw(_entry(value)) for value in values]))


@st.composite
def mutants(draw: st.DrawFn) -> bytes:
    """Draw a payload that is more or less an Example."""
    return draw(_message([field(1, draw(_features()))]))


@st.composite
def sequence_mutants(draw: st.DrawFn) -> bytes:
    """Draw a payload that is more or less a SequenceExample."""
    entries = []
    for steps in draw(st.lists(st.lists(_feature(), max_size=2), min_size=1, max_size=2)):
        value = draw(_message([field(1, step) for step in steps]))
        entries.append(draw(_entry(value)))
    lists = draw(_message(entries))
    return draw(_message([field(1, draw(_features())), field(2, lists)]))
