"""What TensorFlow's own parser makes of a payload, where protobuf makes something else of it.

``tf.io.parse_single_example`` doesn't go through protobuf: it reads the wire format by itself
(``tensorflow/core/util/example_proto_fast_parsing.cc``), refuses some messages that protobuf
takes, and of others it reads only a part. What is written here was measured with TensorFlow 2.21.
"""

import functools
import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, EncodeError

from tfrtool.examples.example import LARGE, feature_name
from tfrtool.examples.proto import canonical_pb2 as canonical
from tfrtool.records.wire import read_spans, varint

_FIRST, _SECOND = 0x0A, 0x12
"""The tags of fields 1 and 2 where they have a length."""

_STRINGS, _FLOATS, _INTEGERS = 0x0A, 0x12, 0x1A
_UNPACKED = {
    _FLOATS: re.compile(rb"(?:\x0d.{4})*", re.DOTALL),
    _INTEGERS: re.compile(rb"(?:\x08[\x80-\xff]*[\0-\x7f])*"),
}


SHORT = 2048
"""Payloads up to this size, in bytes, are parsed faster together than one by one."""

_UNSET = re.compile(rb"\x12\x00(?:\n|\Z)").search
"""The value of a map entry whose feature has no kind, and what follows it."""

_Canonical = TypeVar(
    "_Canonical", bound=canonical.CanonicalExample | canonical.CanonicalSequenceExample
)

_head = functools.lru_cache(SHORT)(lambda size: b"\n" + varint(size))


def are_canonical(payloads: Sequence[bytes], *, sequences: bool) -> bool:
    """Return whether all of some short payloads are written as every writer does it.

    Protobuf would write each to the byte, each map entry has a key and a value, and each feature
    has a kind. TensorFlow's parser reads the same from them as protobuf. Payloads with feature
    lists are only expected with ``sequences``.
    """
    joined = b"".join(chain.from_iterable((_head(len(one)), one) for one in payloads))
    if _UNSET(joined):
        return False
    message = canonical.SequenceExampleBatch if sequences else canonical.ExampleBatch
    try:
        batch = message.FromString(joined)
        batch.DiscardUnknownFields()
        return batch.SerializeToString() == joined
    except (DecodeError, EncodeError):  # or a required field is missing
        return False


def canonical_message(payload: bytes, kind: type[_Canonical]) -> _Canonical | None:
    """Return a payload as such a message if protobuf would write it to the byte, or None.

    Each map entry has a key and a value. Payloads that are large (`LARGE`) are not written again,
    to save memory, and give None.
    """
    if len(payload) > LARGE:
        return None
    try:
        message: Any = kind.FromString(payload)
        message.DiscardUnknownFields()
        return message if message.SerializeToString() == payload else None
    except (DecodeError, EncodeError):
        return None


def canonical_keys(payload: bytes, *, sequences: bool) -> list[bytes] | None:
    """Return the keys of a payload's features if it is written as every writer does it, or None.

    It is a `canonical_message`, and each map entry has a key of its own.
    """
    kinds = canonical.CanonicalExample, canonical.CanonicalSequenceExample
    message = canonical_message(payload, kinds[sequences])
    if message is None:
        return None
    keys = [entry.key for entry in message.context.feature]
    return keys if len({*keys}) == len(keys) else None


def parser_problem(payload: bytes, *, sequence: bool) -> str | None:
    """Return why TensorFlow's parser refuses a payload, or reads other values, or None.

    A payload with feature lists (``sequence``) is judged as ``tf.io.parse_single_sequence_example``
    does, all else as ``parse_single_example``. What no writer makes, such as an unknown field
    within a feature, is a problem even where TensorFlow happens to read the same as protobuf.
    """
    kinds: dict[bytes, int | None] = {}
    try:
        for tag, start, end in read_spans(payload):
            if tag != _FIRST and not (tag == _SECOND and sequence):
                continue
            for entry in _repeated(payload, start, end, "something other than a map entry"):
                fields = list(islice(read_spans(payload, *entry), 3))
                if not sequence:
                    fields.sort()  # TensorFlow takes either first
                if [field for field, _, _ in fields] != [_FIRST, _SECOND]:
                    raise ValueError("a map entry is not one key and one value")
                (_, first, last), (_, begin, close) = fields
                key = payload[first:last]
                if tag == _SECOND:
                    what = "a feature list with something other than features"
                    for step in _repeated(payload, begin, close, what):
                        _check_feature(payload, key, *step)
                    continue
                kind = _check_feature(payload, key, begin, close)
                if kind is None and kinds.get(key) and not sequence:
                    raise _otherwise(key)  # it reads the values of the one before
                kinds[key] = kind
    except ValueError as problem:
        return f"TensorFlow's parser rejects it: {problem}"
    return None


def _otherwise(key: bytes) -> ValueError:
    return ValueError(f"or reads different values for {feature_name(key)!r} than protobuf does")


def _repeated(data: bytes, start: int, end: int, other: str) -> Iterator[tuple[int, int]]:
    """Yield the fields of a message that has nothing but field 1."""
    for tag, first, last in read_spans(data, start, end):
        if tag != _FIRST:
            raise ValueError(f"it has {other}")
        yield first, last


def _check_feature(data: bytes, key: bytes, start: int, end: int) -> int | None:
    """Check the one list of a feature, and return its tag; None where no kind is set."""
    if start == end:
        return None
    name = repr(feature_name(key))
    tag, first, last = next(read_spans(data, start, end))
    if tag not in (_STRINGS, _FLOATS, _INTEGERS):
        raise ValueError(f"{name} does not start with a list of values")
    if last < end:
        raise _otherwise(key)
    if tag == _STRINGS:
        for _ in _repeated(data, first, last, f"something other than strings in {name}"):
            pass
    elif first < last and data[first] == _FIRST:
        if next(read_spans(data, first, last))[2] < last:
            raise _otherwise(key)
    elif not _UNPACKED[tag].fullmatch(data, first, last):
        raise ValueError(f"{name} mixes packed and unpacked numbers")
    return tag
