"""Serialized messages inside a string feature: Examples and tensors.

Protobuf has no type names on the wire, and short bytes of any sort parse as some message by luck.
Only messages are named here whose layout leaves next to nothing to luck; a message of another
type is "binary".
"""

from __future__ import annotations

import math

from google.protobuf.message import DecodeError

from tfrtool.examples.example import knows_all_fields
from tfrtool.examples.long_values import hollowed
from tfrtool.examples.proto import example_pb2 as pb

__all__ = ["describe_message"]

# tensorflow/core/framework/types.proto: the number of a dtype, and the bytes of one value.
_ITEM_BYTES = {
    1: 4, 2: 8, 3: 4, 4: 1, 5: 2, 6: 1, 8: 8, 9: 8, 10: 1, 11: 1, 12: 1, 13: 4, 14: 2, 15: 2,
    16: 2, 17: 2, 18: 16, 19: 2, 22: 4, 23: 8,
}  # fmt: skip
_STRING = 7

# tensorflow/core/framework/tensor.proto: where `tf.make_tensor_proto` keeps a few values of a
# dtype; the tags of float_val, double_val, int_val, int64_val and bool_val.
_VALUE_TAGS = {
    1: 0x2A, 2: 0x32, 3: 0x3A, 4: 0x3A, 5: 0x3A, 6: 0x3A, 17: 0x3A, 9: 0x52, 10: 0x5A,
}  # fmt: skip
_CONTENT_TAG, _STRING_TAG, _VERSION_TAG = 0x22, 0x42, 0x18


def describe_message(value: bytes) -> str | None:
    """Name the message that ``value`` is, or return None.

    An Example or SequenceExample must have a feature, fill its bytes without a field that the
    message type doesn't know, and have a printable name and a kind in each feature: at least
    eight bytes that have to be as they are, and lengths that must agree at four levels. A
    TensorProto, as ``tf.io.serialize_tensor`` and ``tf.make_tensor_proto`` write it, must have as
    many bytes of values as its dtype and shape make. An ExampleListWithContext must have nothing
    but such Examples.
    """
    if value[:1] == b"\x08":
        return "TensorProto" if _is_tensor(value) else None
    if value[:1] not in (b"\n", b"\x12"):
        return None
    name = _describe_example(value)
    if name is None and _is_example_list(value):
        return "ExampleListWithContext"
    return name


def _describe_example(value: bytes) -> str | None:
    try:
        message = pb.SequenceExample.FromString(hollowed(value))
    except DecodeError:
        return None
    lists = message.feature_lists.feature_list
    features = [(entry.key, entry.value) for entry in message.context.feature]
    features += [(entry.key, step) for entry in lists for step in entry.value.feature]
    if not features or not knows_all_fields(message):
        return None
    for key, feature in features:
        if not key or not _is_plausible_name(key) or feature.WhichOneof("kind") is None:
            return None
    return "tf.train.SequenceExample" if lists else "tf.train.Example"


def _is_plausible_name(key: bytes) -> bool:
    """Return whether ``key`` is text in UTF-8 or in some older encoding.

    A feature's name may be any bytes; but a few bytes that parse as a message by luck must not
    pass for one.
    """
    try:
        return key.decode("utf-8").isprintable()
    except UnicodeDecodeError:
        return not any(value < 0x20 or value == 0x7F for value in key)


def _is_example_list(value: bytes) -> bool:
    # tensorflow_serving/apis/input.proto: examples = 1, context = 2, all of them tf.train.Example.
    start = examples = 0
    while start < len(value):
        field = _field(value, start)
        if field is None or field[0] not in (0x0A, 0x12):
            return False
        _, begin, start = field
        if begin < start:
            if _describe_example(value[begin:start]) != "tf.train.Example":
                return False
            examples += 1
    return examples > 0


def _is_tensor(value: bytes) -> bool:
    if len(value) < 4 or value[2] != 0x12:
        return False
    dtype, start = value[1], 4 + value[3]
    count = _shape_size(value[4:start])
    if count is None or len(value) < start:
        return False
    if value[start : start + 1] == bytes([_VERSION_TAG]):
        start += 2
    if start == len(value):
        return count == 0 and (dtype in _ITEM_BYTES or dtype == _STRING)
    if dtype == _STRING:
        return _has_strings(value, start, count)
    field = _field(value, start)
    if dtype not in _ITEM_BYTES or field is None:
        return False
    tag, begin, end = field
    if end != len(value):
        return False
    if tag == _CONTENT_TAG:
        return end - begin == count * _ITEM_BYTES[dtype]
    return tag == _VALUE_TAGS.get(dtype) and end > begin


def _has_strings(value: bytes, start: int, count: int) -> bool:
    while count and start < len(value):
        field = _field(value, start)
        if field is None or field[0] != _STRING_TAG:
            return False
        start = field[2]
        count -= 1
    return count == 0 and start == len(value)


def _shape_size(shape: bytes) -> int | None:
    """Return how many values a TensorShapeProto makes; None where it isn't one."""
    sizes, start = [], 0
    while start < len(shape):
        field = _field(shape, start)
        if field is None or field[0] != 0x12:
            return None
        _, begin, start = field
        size = 0
        if begin < start:
            read = _varint(shape[:start], begin + 1)
            if shape[begin] != 0x08 or read is None or read[1] != start:
                return None
            size = read[0]
        sizes.append(size)
    return math.prod(sizes)


def _field(value: bytes, start: int) -> tuple[int, int, int] | None:
    """Return the tag of the field with a length at ``start``, and where its bytes are."""
    read = _varint(value, start + 1)
    if read is None or read[1] + read[0] > len(value):
        return None
    length, begin = read
    return value[start], begin, begin + length


def _varint(value: bytes, start: int) -> tuple[int, int] | None:
    """Return the varint at ``start``, and where it ends."""
    number = 0
    for position in range(start, min(start + 10, len(value))):
        number |= (value[position] & 0x7F) << 7 * (position - start)
        if value[position] < 0x80:
            return number, position + 1
    return None
