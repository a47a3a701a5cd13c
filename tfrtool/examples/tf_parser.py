"""What TensorFlow's own parser makes of a payload, where protobuf makes something else of it.

``tf.io.parse_single_example`` doesn't go through protobuf: it reads the wire format by itself
(``tensorflow/core/util/example_proto_fast_parsing.cc``), refuses some messages that protobuf
takes, and of others it reads only a part. What is written here was measured with TensorFlow 2.21.
"""

import functools
import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice

from google.protobuf.message import DecodeError, EncodeError

from tfrtool.examples.example import LARGE, feature_name
from tfrtool.examples.proto import canonical_pb2 as canonical
from tfrtool.records.wire import read_spans, varint

_FIRST, _SECOND = 0x0A, 0x12
"""The tags of fields 1 and 2 where they have a length."""

_Span = tuple[int, int]

_STRINGS, _FLOATS, _INTEGERS = 0x0A, 0x12, 0x1A
_UNPACKED = {
    _FLOATS: re.compile(rb"(?:\x0d.{4})*", re.DOTALL),
    _INTEGERS: re.compile(rb"(?:\x08[\x80-\xff]*[\0-\x7f])*"),
}


SHORT = 2048
"""Payloads up to this size, in bytes, are parsed faster together than one by one."""

_UNSET = re.compile(rb"\x12\x00(?:\n|\Z)").search
"""The value of a map entry whose feature has no kind, and what follows it."""

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


def canonical_keys(payload: bytes, *, sequences: bool) -> list[bytes] | None:
    """Return the keys of a payload's features if it is written as every writer does it, or None.

    Protobuf would write it to the byte, and each map entry has a key of its own and a value.
    Payloads that are large (`LARGE`) are not written again, to save memory, and give None.
    """
    if len(payload) > LARGE:
        return None
    message = canonical.CanonicalSequenceExample if sequences else canonical.CanonicalExample
    try:
        parsed = message.FromString(payload)
        parsed.DiscardUnknownFields()
        if parsed.SerializeToString() != payload:
            return None
    except (DecodeError, EncodeError):
        return None
    keys = [entry.key for entry in parsed.context.feature]
    return keys if len({*keys}) == len(keys) else None


def parser_problem(payload: bytes, *, sequence: bool) -> str | None:
    """Return why TensorFlow's parser refuses a payload, or that it reads other values, or None.

    What has feature lists (``sequence``) is judged as ``tf.io.parse_single_sequence_example`` does,
    all else as ``parse_single_example``. What no writer makes, such as an unknown field within a
    feature, is taken for a problem even where TensorFlow happens to read the same as protobuf.
    """
    try:
        _check(payload, sequence=sequence)
    except _OtherwiseError as problem:
        return f"TensorFlow's parser reads different values for {problem} than protobuf does"
    except ValueError as problem:
        return f"TensorFlow's parser rejects it: {problem}"
    return None


class _OtherwiseError(Exception):
    """TensorFlow's parser reads other values of a feature."""


def _check(data: bytes, *, sequence: bool) -> None:
    """Go through a payload; `ValueError` where TensorFlow stops."""
    kinds: dict[bytes, int | None] = {}
    for tag, start, end in read_spans(data):
        if tag == _FIRST:
            for key, span in _entries(data, start, end, sequence=sequence):
                kind = _check_feature(data, key, *span)
                if kind is None and kinds.get(key) and not sequence:
                    raise _OtherwiseError(repr(feature_name(key)))  # those of the one before
                kinds[key] = kind
        elif tag == _SECOND and sequence:
            for key, span in _entries(data, start, end, sequence=sequence):
                for step in _repeated(
                    data, *span, "a feature list with something other than features"
                ):
                    _check_feature(data, key, *step)


def _repeated(data: bytes, start: int, end: int, other: str) -> Iterator[_Span]:
    """Yield the fields of a message that has nothing but field 1."""
    for tag, first, last in read_spans(data, start, end):
        if tag != _FIRST:
            raise ValueError(f"it has {other}")
        yield first, last


def _entries(data: bytes, start: int, end: int, *, sequence: bool) -> Iterator[tuple[bytes, _Span]]:
    """Yield the keys of a map, and where their values are."""
    for entry in _repeated(data, start, end, "something other than a map entry"):
        fields = list(islice(read_spans(data, *entry), 3))
        if not sequence:
            fields.sort()  # TensorFlow takes either first
        if [tag for tag, _, _ in fields] != [_FIRST, _SECOND]:
            raise ValueError("a map entry is not one key and one value")
        (_, first, last), (_, start_of_value, end_of_value) = fields
        yield data[first:last], (start_of_value, end_of_value)


def _check_feature(data: bytes, key: bytes, start: int, end: int) -> int | None:
    """Check the one list of a feature, and return its tag; None where no kind is set."""
    if start == end:
        return None
    name = repr(feature_name(key))
    tag, first, last = next(read_spans(data, start, end))
    if tag not in (_STRINGS, _FLOATS, _INTEGERS):
        raise ValueError(f"{name} does not start with a list of values")
    if last < end:
        raise _OtherwiseError(name)
    if tag == _STRINGS:
        for _ in _repeated(data, first, last, f"something other than strings in {name}"):
            pass
    elif first < last and data[first] == _FIRST:
        if next(read_spans(data, first, last))[2] < last:
            raise _OtherwiseError(name)
    elif not _UNPACKED[tag].fullmatch(data, first, last):
        raise ValueError(f"{name} mixes packed and unpacked numbers")
    return tag
