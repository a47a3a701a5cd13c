"""What TensorFlow's own parser makes of a payload, where protobuf makes something else of it.

``tf.io.parse_single_example`` doesn't go through protobuf: it reads the wire format by itself
(``tensorflow/core/util/example_proto_fast_parsing.cc``), refuses some messages that protobuf
takes, and of others it reads only a part. What is written here was measured with TensorFlow 2.21.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tfrtool.examples.example import feature_name
from tfrtool.examples.proto import example_pb2 as pb
from tfrtool.records.wire import read_varint

_FIRST, _SECOND = 0x0A, 0x12
"""The tags of fields 1 and 2 where they have a length."""

_KINDS = {0x0A: "bytes_list", 0x12: "float_list", 0x1A: "int64_list"}
_SINGLE = {0x12: re.compile(rb"(?:\x0d.{4})+", re.DOTALL),
           0x1A: re.compile(rb"(?:\x08[\x80-\xff]*[\0-\x7f])+")}  # fmt: skip
"""Numbers that are not packed, by the tag of their list."""

_LONG = 64 * 1024
"""Payloads from this size on, in bytes: to go through their fields is faster than to write them."""

_NO_VALUES = 2
"""Bytes of a list without values: to TensorFlow it is as if it were missing."""

_Span = tuple[int, int]
_List = tuple[int, _Span]
"""The tag of a list of values, and where its bytes are."""


class _ProblemError(Exception):
    """TensorFlow's parser refuses the payload, or reads something else."""


def _refusal(why: str) -> _ProblemError:
    return _ProblemError(f"TensorFlow's parser refuses it: {why}")


def _otherwise(key: bytes) -> _ProblemError:
    name = feature_name(key)
    return _ProblemError(f"TensorFlow's parser reads other values of {name!r} than protobuf does")


def parser_problem(
    payload: bytes, message: pb.SequenceExample, *, complete: bool = False
) -> str | None:
    """Return why TensorFlow's parser refuses a payload, or that it reads other values, or None.

    ``message`` is what protobuf makes of it; fields that its type doesn't know are dropped. What
    has feature lists is judged as ``tf.io.parse_single_sequence_example`` does, all else as
    ``parse_single_example``. ``complete`` says that each feature of its context is known to have a
    name and a kind.
    """
    if len(payload) < _LONG:
        # What protobuf would write to the byte, as nearly all is, needs no closer look.
        message.DiscardUnknownFields()
        if message.SerializeToString() == payload and (complete or _is_complete(message)):
            return None
    try:
        _Reading(payload, sequence=message.HasField("feature_lists")).compare(message)
    except _ProblemError as problem:
        return str(problem)
    return None


def _is_complete(message: pb.SequenceExample) -> bool:
    """Return whether each map entry has a key of its own and a value."""
    for entries in (message.context.feature, message.feature_lists.feature_list):
        whole = (entry for entry in entries if entry.HasField("key") and entry.HasField("value"))
        if len({entry.key for entry in whole}) < len(entries):
            return False
    return True


class _Reading:
    """What TensorFlow's parser takes out of a payload that protobuf has accepted."""

    def __init__(self, payload: bytes, *, sequence: bool) -> None:
        self._data = payload
        self._sequence = sequence
        self._whole = True  # whether all of it is taken, so that nothing is to be compared
        self._entries: list[tuple[bytes, _Span]] = []
        self._lists: dict[bytes, _Span] = {}

    def compare(self, message: pb.SequenceExample) -> None:
        """Go through the payload; raise if TensorFlow refuses it, or finds other values."""
        self._read()
        found = self._context()
        lists = {key: self._steps(key, span) for key, span in self._lists.items()}
        if self._whole:
            return
        expected = {entry.key: entry.value for entry in message.context.feature}
        for key in found.keys() | expected.keys():
            theirs, ours = self._message(found.get(key)), _serialized(expected.get(key))
            if theirs != ours and (theirs or len(ours) > _NO_VALUES):
                raise _otherwise(key)
        for key, item in {one.key: one.value for one in message.feature_lists.feature_list}.items():
            steps = [self._message(one) for one in lists.get(key, ())]
            if steps != [_serialized(step) for step in item.feature]:
                raise _otherwise(key)

    def _read(self) -> None:
        position, end = 0, len(self._data)
        while position < end:
            tag = self._data[position]
            if tag != _FIRST and not (self._sequence and tag == _SECOND):
                position, self._whole = self._skip(position), False
                continue
            start, position = self._span(position + 1, end)
            for field in self._repeated(start, position, "what is no map entry"):
                key, value = self._entry(*field)
                if tag == _FIRST:
                    self._entries.append((key, value))
                else:
                    self._whole &= key not in self._lists
                    self._lists[key] = value

    def _context(self) -> dict[bytes, _List | None]:
        """Return of each name the last feature; of an Example the last one that has a kind."""
        found: dict[bytes, _List | None] = {}
        for key, span in reversed(self._entries):
            if key not in found:
                found[key] = self._list(key, *span)
                continue
            self._whole = False
            if not self._sequence:
                self._kind(key, *span)
                found[key] = found[key] or self._list(key, *span)
        return found

    def _steps(self, key: bytes, span: _Span) -> list[_List | None]:
        steps = []
        for start, end in self._repeated(*span, "a list of what is no feature"):
            steps.append(self._list(key, start, end))
            if steps[-1] is not None and steps[-1][1][1] != end:
                raise _otherwise(key)  # what is left of a step is read as steps
        return steps

    def _repeated(self, position: int, end: int, other: str) -> Iterator[_Span]:
        """Yield the fields of a message that has nothing but field 1."""
        while position < end:
            if self._data[position] != _FIRST:
                raise _refusal(f"there is {other}")
            start, position = self._span(position + 1, end)
            yield start, position

    def _entry(self, position: int, end: int) -> tuple[bytes, _Span]:
        """Return the key and the value of a map entry, which has two fields."""
        parts: dict[int, _Span] = {}
        for expected in (_FIRST, _SECOND):
            if position == end:
                what = "value" if _FIRST in parts else "key"
                raise _refusal(f"a map entry has no {what}")
            tag, after = self._varint(position, end)
            strict = self._sequence and self._data[position] != expected
            if strict or tag not in (_FIRST, _SECOND):
                raise _refusal("a map entry is not a key and a value")
            start, position = self._span(after, end)
            self._whole &= tag not in parts
            parts[tag] = start, position
        if position != end:
            raise _refusal("a map entry is more than a key and a value")
        key, value = parts.get(_FIRST, (0, 0)), parts.get(_SECOND, (0, 0))
        return self._data[slice(*key)], value

    def _kind(self, key: bytes, start: int, end: int) -> int | None:
        if start == end:
            return None
        tag = self._data[start]
        if tag not in _KINDS:
            raise _refusal(f"{feature_name(key)!r} does not start with a list of values")
        return tag

    def _list(self, key: bytes, start: int, end: int) -> _List | None:
        """Return the list of a feature as far as it is read; None where no kind is set."""
        tag = self._kind(key, start, end)
        if tag is None:
            return None
        first, last = self._span(start + 1, end)
        self._whole &= last == end
        name = feature_name(key)
        if tag == _FIRST:
            strings = self._repeated(first, last, f"in {name!r} what is no string")
            # One string is an image; of many, protobuf tells sooner that they are in order.
            if next(strings, (0, last))[1] < last and not _are_strings(self._data[first:last]):
                for _ in strings:
                    pass
        elif first < last and self._data[first] == _FIRST:
            _, packed = self._span(first + 1, last)
            self._whole &= packed == last
            last = packed
        elif first < last and not _SINGLE[tag].fullmatch(self._data, first, last):
            raise _refusal(f"the numbers of {name!r} are not all packed, nor all unpacked")
        return tag, (first, last)

    def _message(self, held: _List | None) -> bytes:
        if held is None:
            return b""
        feature = pb.Feature()
        tag, (start, end) = held
        values = getattr(feature, _KINDS[tag])
        values.SetInParent()
        values.MergeFromString(self._data[start:end])
        return _serialized(feature)

    def _skip(self, position: int) -> int:
        tag, position = self._varint(position, len(self._data))
        match tag & 7:
            case 0:
                return self._varint(position, len(self._data))[1]
            case 1:
                return position + 8
            case 2:
                return self._span(position, len(self._data))[1]
            case 5:
                return position + 4
        raise _refusal("it has a group")

    def _span(self, position: int, end: int) -> _Span:
        """Return where a field is whose length stands at ``position``."""
        length, start = self._varint(position, end)
        if start + length > end:
            raise _refusal("a length goes beyond its message")
        return start, start + length

    def _varint(self, position: int, end: int) -> tuple[int, int]:
        try:
            value, after = read_varint(self._data, position)
        except ValueError:
            after = end + 1
        if after > end:
            raise _refusal("a number is cut")
        return value, after


def _are_strings(data: bytes) -> bool:
    strings = pb.BytesList.FromString(data)
    strings.DiscardUnknownFields()
    return bool(strings.SerializeToString() == data)


def _serialized(feature: pb.Feature | None) -> bytes:
    if feature is None:
        return b""
    feature.DiscardUnknownFields()
    return feature.SerializeToString()
