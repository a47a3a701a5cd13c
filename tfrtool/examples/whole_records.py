"""Whether payloads are Examples just as writers write them, told of many at a time.

Protobuf parses a batch of them and writes it again, without an object of Python for any record. A
long value is not copied for that: a short one stands in its place.
"""

import re
from collections.abc import Collection, Sequence
from itertools import chain
from typing import Any, NamedTuple

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError, EncodeError

from tfrtool.examples.long_values import varint
from tfrtool.examples.proto import example_pb2

SHORT = 2048
"""Payloads up to this size, in bytes, are taken as they are; longer values are left out."""

_MOST = 16 * 1024
"""Of what is left of a payload, in bytes; longer ones are parsed one by one as fast."""

_VALUES, _ENTRIES = 4, 32
"""Values that are left out of one payload, and features that are looked at for each."""

_BRIEF, _MOST_LAYOUTS = 0x7F, 256
"""Entries of up to so many bytes are skipped at a glance; so many ways to begin one are kept."""

_FIRST, _SECOND = 0x0A, 0x12
"""The tags of fields 1 and 2 where they have a length; of strings and floats in a feature, too."""

_STAND_IN = b"\x12\x04\x0a\x02\x0a\x00"
"""A feature of one string without a byte, with the tag before it in an entry."""

_MESSAGES = {
    "Entry": (Field.LABEL_REQUIRED, "", ".tfrtool.proto.Feature"),
    "Features": (Field.LABEL_REPEATED, "Entry"),
    "ListEntry": (Field.LABEL_REQUIRED, "", ".tfrtool.proto.FeatureList"),
    "FeatureLists": (Field.LABEL_REPEATED, "ListEntry"),
    "Example": (Field.LABEL_OPTIONAL, "Features"),
    "SequenceExample": (Field.LABEL_OPTIONAL, "Features", "FeatureLists"),
    "ExampleBatch": (Field.LABEL_REPEATED, "Example"),
    "SequenceBatch": (Field.LABEL_REPEATED, "SequenceExample"),
}
"""The messages of example.proto in which each feature has a key and a value, and many of them: what
is not so can't be serialized. The types of their fields, where "" is bytes, by number from 1 on."""

_UNSET = re.compile(rb"\x12\x00(?:\n|\Z)").search
"""The value of a map entry whose feature has no kind; of a key that comes twice, it hides one."""


class _Prefixes(dict[int, bytes]):
    """What stands before an Example of a size in a batch."""

    def __missing__(self, size: int) -> bytes:
        prefix = bytes([_FIRST]) + varint(size)
        if size <= _MOST:
            self[size] = prefix
        return prefix


def _batches() -> tuple[Any, Any]:
    """Return the messages of many Examples, and of many SequenceExamples."""
    file = FileDescriptorProto(name="tfrtool/whole", package="tfrtool.whole")
    file.dependency.append(example_pb2.DESCRIPTOR.name)
    for name, (label, *kinds) in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, kind in enumerate(kinds, 1):
            content = {"type_name": kind} if kind else {"type": Field.TYPE_BYTES}
            message.field.add(name=f"field_{number}", number=number, label=label, **content)
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    found = [pool.FindMessageTypeByName(f"{file.package}.{name}") for name in [*_MESSAGES][-2:]]
    examples, sequences = map(message_factory.GetMessageClass, found)
    return examples, sequences


_prefixes = _Prefixes()
_Examples, _Sequences = _batches()


def whole_ones(payloads: Collection[bytes], *, sequences: bool) -> Collection[bytes]:
    """Return those of which TensorFlow's parser surely reads the same as protobuf does.

    So it is of what protobuf would write to the byte, if each feature has a key and a value, and
    no key comes twice without a kind. Of others this says nothing; of none at all, where one is not
    so written. Those with feature lists are among the others, unless ``sequences`` are expected.
    """
    if _UNSET(b"\n".join(payloads)):
        payloads = {one for one in payloads if not _UNSET(one)}
    prefixes = map(_prefixes.__getitem__, map(len, payloads))
    joined = b"".join(chain.from_iterable(zip(prefixes, payloads, strict=True)))
    try:
        batch = (_Sequences if sequences else _Examples).FromString(joined)
        batch.DiscardUnknownFields()
        return payloads if batch.SerializeToString() == joined else ()
    except (DecodeError, EncodeError):  # or a required field is missing
        return ()


def shortened(payload: bytes) -> bytes | None:
    """Return a payload that has the same problem, if any, and is short; None if none is known.

    Long values of an Example are left out: strings alone in their list, and lists of floats.
    """
    for _ in range(_VALUES):
        if len(payload) <= SHORT:
            return payload
        try:
            payload = _shortened(payload)
        except (IndexError, ValueError):
            break
    return payload if len(payload) <= _MOST else None


def _shortened(data: bytes) -> bytes:
    """Leave out the first long value; an IndexError or a ValueError if there is none like that."""
    start, end = _field(data, 0, _FIRST)
    at = start
    for _ in range(_ENTRIES):
        size = data[at + 1]
        if size <= _BRIEF and data[at] == _FIRST:
            at += 2 + size
            continue
        layout = _layouts.get(data[at + 3 : at + 7])
        if layout is not None and (stop := layout.end(data, at)):
            held = layout.held
            break
        entry, stop = _field(data, at, _FIRST)
        if stop - entry > SHORT:
            held = _held(data, at, entry, stop)
            break
        at = stop
    else:
        raise ValueError("no long value")
    if not len(data) == end >= stop:
        raise ValueError("not as long as it says")
    return _prefixes[end - start + len(held) - (stop - at)] + data[start:at] + held + data[stop:]


def _held(data: bytes, at: int, entry: int, stop: int) -> bytes:
    """Return what is held of an entry; know its layout from now on."""
    _, of_key = _field(data, entry, _FIRST)
    feature, of_feature = _field(data, of_key, _SECOND)
    values, of_values = _field(data, feature, data[feature])
    value, of_value = _field(data, values, _FIRST)
    kind = data[feature]
    if not (stop == of_feature == of_values == of_value) or not (
        kind == _FIRST or (kind == _SECOND and (stop - value) % 4 == 0)
    ):
        raise ValueError("not the one value of its feature")
    held = data[entry:of_key] + _STAND_IN
    held = _prefixes[len(held)] + held
    hint, width = data[at + 3 : at + 7], value - values - 1
    widths = {entry - at - 1, feature - of_key - 1, values - feature - 1, width}
    if kind == _FIRST and widths == {width} <= {1, 2, 3} and hint not in _layouts:
        if len(_layouts) == _MOST_LAYOUTS:
            _layouts.clear()
        starts = (entry, feature, values, value)
        _layouts[hint] = _Layout.of(
            data[at:value], [one - at for one in starts], stop - value, held
        )
    return held


class _Layout(NamedTuple):
    """What stands in an entry before its long string, as a number: the same for any length of it.

    Four lengths are in it, which differ by constants. A constant is added to one as it is written,
    seven bits in a byte: a carry goes over the mark of a byte, which is then set again.
    """

    size: int  # in bytes
    shift: int  # of the last length, in bits
    least: int  # what that may be, as it is written
    most: int
    factor: int  # puts it in the place of each
    plus: int
    marks: int
    held: bytes  # what is held of the entry

    @classmethod
    def of(cls, head: bytes, starts: Sequence[int], length: int, held: bytes) -> "_Layout":
        """Take it from what stands before a string; ``starts`` are behind each of the lengths."""
        size, width = starts[-1], starts[0] - 1
        mark = 0x8080 >> 8 * (3 - width)
        plus, shifts = int.from_bytes(head, "little"), [8 * (start - width) for start in starts]
        for start, shift in zip(starts, shifts, strict=True):
            more = size - start
            plus += (_written(more) - (_written(length + more) | mark)) << shift
        return cls(
            size,
            shifts[-1],
            _written(max(SHORT + 1, 1 << 7 * (width - 1))) | mark,
            _written((1 << 7 * width) - 1 - size + starts[0]) | mark,
            factor := sum(1 << shift for shift in shifts),
            plus,
            mark * factor,
            held,
        )

    def end(self, data: bytes, at: int) -> int:
        """Return where the entry at a place ends; 0 if it is another."""
        size, shift, least, most, factor, plus, marks, _ = self
        found = int.from_bytes(data[at : at + size], "little")
        last = found >> shift
        if least <= last <= most and found == last * factor + plus | marks:
            return at + size + (last & 0x7F | last >> 1 & 0x3F80 | last >> 2 & 0x1FC000)
        return 0


_layouts: dict[bytes, _Layout] = {}
"""Those met, by some bytes that the entries of a feature mostly share: of its key and before."""


def _written(length: int) -> int:
    """Return a number below 2**21 as it is written, but for the marks."""
    return length & 0x7F | (length & 0x3F80) << 1 | (length & 0x1FC000) << 2


def _field(data: bytes, at: int, tag: int) -> tuple[int, int]:
    """Return where a field's content starts and ends; `ValueError` if it is not so written."""
    if data[at] != tag:
        raise ValueError("another field")
    size, start = data[at + 1], at + 2
    if size > 0x7F:
        byte, shift = size, 0
        while byte > 0x7F and shift < 28:
            byte = data[start]
            start, shift = start + 1, shift + 7
            size += (byte - 1) << shift  # and less the mark of the byte before
        if not 0 < byte < 0x80:
            raise ValueError("a length that is longer than it must be")
    return start, start + size
