"""Long values, taken out of a large payload before protobuf copies all of it.

What is parsed in its place has a mark for each value, which says where that is in the payload.
Then a record of a gigabyte takes memory for itself and for the value that is looked at, and not
once more for what protobuf holds.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["hollowed", "is_large", "whole"]

_LARGE = 16 * 1024 * 1024
"""Payloads up to this size, in bytes, are parsed as they are."""

_LONG = 1024
"""Values up to this size, in bytes, are left in their place."""

_WORTH = 0.5
"""The share of a payload that may be left; where it is more, taking it out saves too little."""

_PLACE = struct.Struct("<QQ")
_MARK = os.urandom(16)
"""How a mark starts; no payload can know it."""

_Fields = dict[int, Any]
"""The fields of a message that are gone into, by their tags; and what those are that are not."""

_STRING, _FLOATS, _INTEGERS = "string", "floats", "integers"
_ENDLESS = re.compile(rb"[\x80-\xff]{10}")  # no integer


def _sequence_example(feature: _Fields) -> _Fields:
    return {0x0A: {0x0A: {0x12: feature}}, 0x12: {0x0A: {0x12: {0x0A: feature}}}}


_STRINGS = {0x0A: {0x0A: _STRING}}
_NUMBERS = {0x12: {0x0A: _FLOATS}, 0x1A: {0x0A: _INTEGERS}}
_WITH_NUMBERS = _sequence_example(_STRINGS)
_WITHOUT_NUMBERS = _sequence_example({**_STRINGS, **_NUMBERS})


def is_large(payload: bytes) -> bool:
    """Return whether a payload is so long that it is not parsed as it is."""
    return len(payload) > _LARGE


def hollowed(payload: bytes, *, numbers: bool = True) -> bytes:
    """Return an Example or SequenceExample with marks in the place of its long values.

    What is not large, holds no long values, or is no such message, is returned as it is.

    Args:
        payload: the serialized bytes.
        numbers: whether long lists of numbers stay; else they are left out.
    """
    if not is_large(payload):
        return payload
    fields = _WITH_NUMBERS if numbers else _WITHOUT_NUMBERS
    try:
        parts = list(_parts(memoryview(payload), 0, len(payload), fields))
    except ValueError:
        return payload
    if sum(map(len, parts)) > _WORTH * len(payload):
        return payload
    return b"".join(parts)


def whole(values: Iterable[bytes], payload: bytes) -> Iterable[bytes]:
    """Return the values of a feature of ``hollowed(payload)`` as they are in the payload."""
    if not is_large(payload):
        return values
    return (_unmarked(value, payload) for value in values)


def _unmarked(value: bytes, payload: bytes) -> bytes:
    if len(value) != len(_MARK) + _PLACE.size or not value.startswith(_MARK):
        return value
    start, end = _PLACE.unpack_from(value, len(_MARK))
    return payload[start:end]


def _parts(data: memoryview, start: int, end: int, fields: _Fields) -> Iterator[bytes | memoryview]:
    """Yield a message in pieces, in which the long values are marks."""
    copied = position = start
    while position < end:
        tag, tagged = _varint(data, position, end)
        kind = tag & 7
        if kind in (1, 5):
            position = tagged + (8 if kind == 1 else 4)
            continue
        number, after = _varint(data, tagged, end)
        if kind == 0:
            position = after
            continue
        if kind != 2 or after + number > end:
            raise ValueError("no such message")
        position = after + number
        if number <= _LONG or tag not in fields:
            continue
        within, inner = fields[tag], list[bytes | memoryview]()
        if isinstance(within, dict):
            inner += _parts(data, after, position, within)
        elif within == _STRING:
            inner.append(_MARK + _PLACE.pack(after, position))
        elif not _are_numbers(data[after:position], within):
            raise ValueError("no such message")
        yield data[copied:tagged]
        yield _packed(sum(map(len, inner)))
        yield from inner
        copied = position
    yield data[copied:end]


def _are_numbers(data: memoryview, kind: str) -> bool:
    if kind == _FLOATS:
        return len(data) % 4 == 0
    return data[-1] < 0x80 and _ENDLESS.search(data) is None


def _varint(data: memoryview, position: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= end:
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError("no number")


def _packed(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
