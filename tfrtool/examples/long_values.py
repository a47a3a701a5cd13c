"""Long values and lists of numbers, taken out of a payload before protobuf copies all of it.

What is parsed in its place has a mark for each, which says where that is in the payload. Then a
record of a gigabyte takes memory for itself and for the value that is looked at, and neither what
protobuf holds once more, nor eight bytes for each number that the record holds in one.
"""

import os
import struct
from collections.abc import Iterator, Sequence
from itertools import chain, count, islice
from typing import Any

from google.protobuf.message import DecodeError

from tfrtool.examples.proto import example_pb2 as pb
from tfrtool.records.wire import read_spans
from tfrtool.storage.limits import MAX_FEATURES, MAX_FIELDS

LARGE = 256 * 1024
"""Payloads up to this size, in bytes, are parsed as they are; that is as fast."""

_LONG = 1024
"""Values up to this size, in bytes, are left in their place."""

_WORTH = 0.5
"""The share of a payload that may be left; where it is more, taking it out saves too little."""

_PART = 64 * 1024
"""Bytes of a list of numbers that are looked at a time."""

_MARK = struct.Struct("<16sQQQ")
"""What no payload can know; the start of a value, its end, and how many numbers it is."""
_SECRET = os.urandom(16)

_MOST_UNPACKED = 256 * 1024
"""The longest list of numbers, in bytes, that are not packed; nothing writes them like that."""

_PACKED = 0x0A
_PLACE = pb.Int64List.PLACE_FIELD_NUMBER << 3 | 2

_Numbers = type[pb.FloatList | pb.Int64List]
_Fields = dict[int, Any]
"""The fields of a message that are gone into, by their tags: others, or the type of a list."""

_Counts = tuple[Iterator[int], Iterator[int]]

_FEATURE: _Fields = {0x0A: {0x0A: pb.BytesList}, 0x12: pb.FloatList, 0x1A: pb.Int64List}
_MAPS: _Fields = {0x0A: {0x0A: {0x12: _FEATURE}}, 0x12: {0x0A: {0x12: {0x0A: _FEATURE}}}}


def is_large(payload: bytes) -> bool:
    """Return whether a payload is so long that it is not parsed as it is."""
    return len(payload) > LARGE


def hollowed(payload: bytes) -> bytes:
    """Return an Example or SequenceExample with marks in the place of its long values.

    What is not large, or holds no long values, is returned as it is. It is a `DecodeError` if what
    is large is no such message, or is one only to protobuf, which takes some that no writer makes.
    """
    if not is_large(payload):
        return payload
    try:
        parts = list(_parts(payload, 0, len(payload), _MAPS, (count(), count())))
    except ValueError as error:
        raise DecodeError(str(error)) from error
    if sum(map(len, parts)) > _WORTH * len(payload):
        return payload
    return b"".join(parts)


def whole(held: pb.BytesList | pb.FloatList | pb.Int64List, payload: bytes) -> Any:
    """Return the values of a list of ``hollowed(payload)`` as they are in the payload.

    Numbers have a length; strings may only come one after the other.
    """
    if not is_large(payload):
        return held.value
    if isinstance(held, pb.BytesList):
        return (whole_string(value, payload) for value in held.value)
    place = _unmarked(held.place)
    return held.value if place is None else LongNumbers(payload, *place, type(held))


def whole_string(value: bytes, payload: bytes) -> bytes:
    """Return one string of a `hollowed` payload as it is in the payload."""
    place = _unmarked(value)
    return value if place is None else payload[place[0] : place[1]]


def _unmarked(value: bytes) -> tuple[int, int, int] | None:
    if len(value) != _MARK.size or not value.startswith(_SECRET):
        return None
    _, start, end, count = _MARK.unpack(value)
    return start, end, count


class LongNumbers(Sequence[Any]):
    """The numbers of a long list, which become objects of Python a part at a time."""

    def __init__(self, payload: bytes, start: int, end: int, count: int, kind: _Numbers) -> None:
        """Name the bytes of the payload that hold the numbers, packed."""
        self._payload, self._start, self._end = payload, start, end
        self._count, self._kind = count, kind

    def __len__(self) -> int:
        return self._count

    def parts(self) -> Iterator[Sequence[Any]]:
        """Yield all numbers in order, some thousands at a time; `DecodeError` if they are none."""
        start = self._start
        while start < self._end:
            stop = min(start + _PART, self._end)
            if self._kind is pb.Int64List:  # the last byte of an integer has no high bit
                while self._payload[stop - 1] > 0x7F and stop > start + 1:
                    stop -= 1
            part = self._payload[start:stop]
            yield self._kind.FromString(bytes([_PACKED]) + varint(len(part)) + part).value
            start = stop

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(self.parts())

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(islice(self, *index.indices(self._count)))
        return next(islice(self, range(self._count)[index], None))


def _parts(
    data: bytes, start: int, end: int, fields: _Fields, counts: _Counts
) -> Iterator[bytes | memoryview]:
    """Yield a message in pieces, in which the long values are marks; count fields and features."""
    n_fields, n_features = counts
    view = memoryview(data)
    copied = before = start
    is_map = fields in _MAPS.values()
    for tag, first, stop in read_spans(data, start, end):
        if next(n_fields) >= MAX_FIELDS or (is_map and next(n_features) >= MAX_FEATURES):
            raise ValueError("too many fields or features")
        if stop - first > _LONG and tag in fields:
            inner = list(_replaced(data, first, stop, fields[tag], counts))
            yield view[copied:before]
            yield varint(tag) + varint(sum(map(len, inner)))
            yield from inner
            copied = stop
        before = stop
    yield view[copied:end]


def _replaced(
    data: bytes, first: int, stop: int, held: Any, counts: _Counts
) -> Iterator[bytes | memoryview]:
    """Yield what takes the place of a long field."""
    if isinstance(held, dict):
        yield from _parts(data, first, stop, held, counts)
    elif held is pb.BytesList:
        yield _MARK.pack(_SECRET, first, stop, 0)
    else:
        tag, start, end = next(read_spans(data, first, stop))
        if tag == _PACKED and end == stop:
            length = sum(map(len, LongNumbers(data, start, end, 0, held).parts()))
            yield varint(_PLACE) + bytes([_MARK.size]) + _MARK.pack(_SECRET, start, end, length)
        elif stop - first > _MOST_UNPACKED:
            raise ValueError("a long list of numbers that are not packed")
        else:
            yield memoryview(data)[first:stop]


def varint(value: int) -> bytes:
    """Return a number as protobuf writes it."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])
