"""Long values and lists of numbers, taken out of a payload before protobuf copies all of it.

What is parsed in its place has a mark for each, which says where that is in the payload. Then a
record of a gigabyte takes memory for itself and for the value that is looked at, and neither what
protobuf holds once more, nor eight bytes for each number that the record holds in one.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, overload

from tfrtool.examples.proto import example_pb2 as pb
from tfrtool.records.wire import read_varint

_LARGE = 1024 * 1024
"""Payloads up to this size, in bytes, are parsed as they are."""

_LONG = 1024
"""Values up to this size, in bytes, are left in their place."""

_WORTH = 0.5
"""The share of a payload that may be left; where it is more, taking it out saves too little."""

_PART = 64 * 1024
"""Bytes of a list of numbers that are looked at a time; of numbers that are not packed, so many
of which each is."""

_PLACE = struct.Struct("<QQ")
_MARK = os.urandom(16)
"""How a mark starts; no payload can know it."""

_NUMBERS_MARK = tuple(int.from_bytes(os.urandom(3), "little") for _ in range(6))
_LIMBS, _LIMB = 3, 1 << 22
"""A mark in a list of numbers is one of numbers that a float32 can hold, too: below 2**24."""

_FACTS = len(_NUMBERS_MARK)
_MARK_LENGTH = _FACTS + 4 * _LIMBS

_HIGH = bytes(value > 0x7F for value in range(256))
"""Of each byte, whether it is one of an integer that goes on."""

_ENDLESS = b"\1" * 10  # no integer
_PACKED, _SINGLE_INTEGER, _SINGLE_FLOAT = 0x0A, 0x08, 0x0D
_SINGLE = {
    _SINGLE_INTEGER: re.compile(rb"(?:\x08[\x80-\xff]{0,9}[\0-\x7f]){1,%d}" % (_PART >> 3)),
    _SINGLE_FLOAT: re.compile(rb"(?:\x0d.{4}){1,%d}" % (_PART >> 3), re.DOTALL),
}
"""Numbers that are not packed, some at a time: a match keeps something for each."""

_Fields = dict[int, Any]
"""The fields of a message that are gone into, by their tags; and what those are that are not."""

_STRING, _FLOATS, _INTEGERS = "string", "floats", "integers"


def _sequence_example(feature: _Fields) -> _Fields:
    return {0x0A: {0x0A: {0x12: feature}}, 0x12: {0x0A: {0x12: {0x0A: feature}}}}


_FIELDS = _sequence_example({0x0A: {0x0A: _STRING}, 0x12: _FLOATS, 0x1A: _INTEGERS})


def is_large(payload: bytes) -> bool:
    """Return whether a payload is so long that it is not parsed as it is."""
    return len(payload) > _LARGE


def hollowed(payload: bytes) -> bytes:
    """Return an Example or SequenceExample with marks in the place of its long values.

    What is not large, holds no long values, or is no such message, is returned as it is.
    """
    if not is_large(payload):
        return payload
    try:
        parts = list(_parts(memoryview(payload), 0, len(payload), _FIELDS))
    except ValueError:
        return payload
    if sum(map(len, parts)) > _WORTH * len(payload):
        return payload
    return b"".join(parts)


def whole(values: Sequence[Any], payload: bytes) -> Iterable[Any]:
    """Return the values of a feature of ``hollowed(payload)`` as they are in the payload.

    Numbers have a length; strings may only come one after the other.
    """
    if not is_large(payload) or not values:
        return values
    if isinstance(values[0], bytes):
        return (_unmarked(value, payload) for value in values)
    numbers, plain = list(values), 0
    pieces: list[_Place | Sequence[Any]] = []
    for place in _marks(numbers):
        limbs = [int(limb) for limb in numbers[place + _FACTS : place + _MARK_LENGTH]]
        start, end, count, tag = (
            sum(limb * _LIMB**n for n, limb in enumerate(limbs[first : first + _LIMBS]))
            for first in range(0, len(limbs), _LIMBS)
        )
        pieces += [numbers[plain:place], _Place(start, end, count, tag)]
        plain = place + _MARK_LENGTH
    if not pieces:
        return values
    return LongNumbers(payload, [*pieces, numbers[plain:]], floats=isinstance(numbers[0], float))


def _marks(numbers: list[Any]) -> Iterator[int]:
    """Yield where marks are: mostly there is one, but parts of a message add up."""
    place = -1
    while _NUMBERS_MARK[0] in numbers[place + 1 :]:
        place = numbers.index(_NUMBERS_MARK[0], place + 1)
        if tuple(numbers[place : place + _FACTS]) == _NUMBERS_MARK:
            yield place


class _Place(NamedTuple):
    """Where numbers are, from which byte up to which, how many, and what stands before each.

    Before all of them, if they are packed.
    """

    start: int
    end: int
    count: int  # type: ignore[assignment]  # in place of tuple's method
    tag: int


class LongNumbers(Sequence[Any]):
    """The numbers of a long list, which become objects of Python a part at a time."""

    def __init__(
        self, payload: bytes, pieces: Sequence[_Place | Sequence[Any]], *, floats: bool
    ) -> None:
        """Name the pieces of a list: places in the payload, and numbers."""
        self._payload = payload
        self._pieces = pieces
        self._floats = floats
        self._count = sum(
            piece.count if isinstance(piece, _Place) else len(piece) for piece in pieces
        )

    def __len__(self) -> int:
        return self._count

    def parts(self) -> Iterator[Sequence[Any]]:
        """Yield all numbers in order, some thousands at a time."""
        for piece in self._pieces:
            if isinstance(piece, _Place):
                yield from self._parsed(piece)
            else:
                yield piece

    def _parsed(self, place: _Place) -> Iterator[Sequence[Any]]:
        payload, position, end = self._payload, place.start, place.end
        parse = pb.FloatList.FromString if self._floats else pb.Int64List.FromString
        while position < end:
            if place.tag == _PACKED:
                stop = min(position + _PART, end)
                while not self._floats and payload[stop - 1] > 0x7F:
                    stop -= 1
                head = bytes([_PACKED]) + _varint(stop - position)
            else:
                stop, head = _run_end(payload, position, end, place.tag), b""
            yield parse(head + payload[position:stop]).value
            position = stop

    def __iter__(self) -> Iterator[Any]:
        for part in self.parts():
            yield from part

    @overload
    def __getitem__(self, index: int) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Any, ...]: ...

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._count)
            return tuple(islice(self, start, stop, step) if step > 0 else list(self)[index])
        first = index + self._count if index < 0 else index
        if not 0 <= first < self._count:
            raise IndexError(index)
        return next(islice(self, first, None))


def _unmarked(value: bytes, payload: bytes) -> bytes:
    if len(value) != len(_MARK) + _PLACE.size or not value.startswith(_MARK):
        return value
    start, end = _PLACE.unpack_from(value, len(_MARK))
    return payload[start:end]


def _parts(data: memoryview, start: int, end: int, fields: _Fields) -> Iterator[bytes | memoryview]:
    """Yield a message in pieces, in which the long values are marks."""
    copied = position = start
    while position < end:
        tag, tagged = read_varint(data, position)
        kind = tag & 7
        if kind in (1, 5):
            position = tagged + (8 if kind == 1 else 4)
            continue
        number, after = read_varint(data, tagged)
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
        else:
            inner += _marked_numbers(data, after, position, floats=within == _FLOATS)
        yield data[copied:tagged]
        yield _varint(sum(map(len, inner)))
        yield from inner
        copied = position
    yield data[copied:end]


def _marked_numbers(
    data: memoryview, start: int, end: int, *, floats: bool
) -> Iterator[bytes | memoryview]:
    """Yield a list of numbers; a mark, if all of them are packed together, or none is."""
    single = _SINGLE_FLOAT if floats else _SINGLE_INTEGER
    first, tag = start, data[start]
    if tag == _PACKED:
        length, first = read_varint(data, start + 1)
        tag = tag if first + length == end else 0
    if tag not in (_PACKED, single) or first == end:
        yield data[start:end]
        return
    if tag == single:
        position = first
        while position < end:
            position = _run_end(data, position, end, tag)
    if floats:
        count, rest = divmod(end - first, 4 if tag == _PACKED else 5)
    else:
        count, rest = divmod(_count_integers(data[first:end]), 1 if tag == _PACKED else 2)
    if rest:
        raise ValueError("no such message")
    pack = partial(struct.pack, "<f") if floats else _varint
    limbs = (fact // _LIMB**n % _LIMB for fact in (first, end, count, tag) for n in range(_LIMBS))
    numbers = [pack(number) for number in (*_NUMBERS_MARK, *limbs)]
    if tag == _PACKED:
        yield bytes([tag]) + _varint(sum(map(len, numbers)))
        yield from numbers
    else:
        yield from (bytes([tag]) + number for number in numbers)


def _count_integers(data: memoryview) -> int:
    """Return how many bytes end an integer; none is longer than ten.

    Raises:
        ValueError: one is, or the last has no end.
    """
    count, before = 0, b""
    for start in range(0, len(data), _PART):
        part = bytes(data[start : start + _PART]).translate(_HIGH)
        if _ENDLESS in part or _ENDLESS in before + part[:9]:
            raise ValueError("no integers")
        count += part.count(0)
        before = part[-9:]
    if before.endswith(b"\1"):
        raise ValueError("no integers")
    return count


def _run_end(data: bytes | memoryview, position: int, end: int, tag: int) -> int:
    """Return where some thousands of numbers that are not packed end.

    Raises:
        ValueError: there is something else.
    """
    run = _SINGLE[tag].match(data, position, end)
    if run is None:
        raise ValueError("no such message")
    return run.end()


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
