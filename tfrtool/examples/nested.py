"""Serialized messages inside a string feature: Examples and tensors.

Protobuf has no type names on the wire, and short bytes of any sort parse as some message by luck.
Only messages are named here whose layout leaves next to nothing to luck; a message of another
type is "binary".
"""

from __future__ import annotations

import math
from itertools import islice

from google.protobuf.message import DecodeError

from tfrtool.examples.example import knows_all_fields
from tfrtool.examples.long_values import hollowed
from tfrtool.examples.proto import example_pb2 as pb
from tfrtool.records.wire import read_fields, read_tensor

# tensorflow/core/framework/types.proto: the number of a dtype, and the bytes of one value.
_ITEM_BYTES = {
    1: 4, 2: 8, 3: 4, 4: 1, 5: 2, 6: 1, 8: 8, 9: 8, 10: 1, 11: 1, 12: 1, 13: 4, 14: 2, 15: 2,
    16: 2, 17: 2, 18: 16, 19: 2, 22: 4, 23: 8,
}  # fmt: skip
_STRING = 7

# tensorflow/core/framework/tensor.proto: where `tf.make_tensor_proto` keeps a few values of a
# dtype: float_val, double_val, int_val, int64_val and bool_val.
_VALUES = {1: 5, 2: 6, 3: 7, 4: 7, 5: 7, 6: 7, 17: 7, 9: 10, 10: 11}
_CONTENT, _STRINGS = 4, 8


def describe_message(value: bytes) -> str | None:
    """Name the message that ``value`` is, or return None.

    An Example or SequenceExample must have a feature, fill its bytes without a field that the
    message type doesn't know, and have a printable name and a kind in each feature: at least
    eight bytes that have to be as they are, and lengths that must agree at four levels. A
    TensorProto, as ``tf.io.serialize_tensor`` and ``tf.make_tensor_proto`` write it, must have as
    many bytes of values as its dtype and shape make. An ExampleListWithContext must have nothing
    but such Examples.
    """
    try:
        if value[:1] == b"\x08":
            return "TensorProto" if _is_tensor(value) else None
        if value[:1] not in (b"\n", b"\x12"):
            return None
        name = _describe_example(value)
        return "ExampleListWithContext" if name is None and _is_example_list(value) else name
    except ValueError:
        return None


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
    """Return whether ``key`` is text in UTF-8 or in some older encoding, not bytes by luck."""
    try:
        return key.decode("utf-8").isprintable()
    except UnicodeDecodeError:
        return not any(value < 0x20 or value == 0x7F for value in key)


def _is_example_list(value: bytes) -> bool:
    # tensorflow_serving/apis/input.proto: examples = 1, context = 2, all of them tf.train.Example.
    examples = 0
    for number, example in read_fields(value):
        if number not in (1, 2) or not isinstance(example, bytes):
            return False
        if example and _describe_example(example) != "tf.train.Example":
            return False
        examples += len(example) > 0
    return examples > 0


def _is_tensor(value: bytes) -> bool:
    dtype, shape, fields = read_tensor(value)
    count = math.prod(shape)
    if dtype == _STRING:
        for number, held in fields:
            if number != _STRINGS or isinstance(held, int):
                return False
            count -= 1
        return count == 0
    rest = list(islice(fields, 2))
    if dtype not in _ITEM_BYTES or len(rest) != 1:
        return dtype in _ITEM_BYTES and not rest and count == 0
    ((number, held),) = rest
    if not isinstance(held, bytes):
        return False
    if number == _CONTENT:
        return len(held) == count * _ITEM_BYTES[dtype]
    return number == _VALUES.get(dtype) and len(held) > 0
