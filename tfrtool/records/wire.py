"""The wire format of protobuf, read where nothing is known of the message."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

_VARINT, _BYTES = 0, 2
_MAX_RANK = 254
"""Dimensions of a tensor in TensorFlow."""

# tensorflow/core/framework/tensor.proto and tensor_shape.proto
_DTYPE, _SHAPE, _VERSION = 1, 2, 3
_DIM, _SIZE = 2, 1

Field = tuple[int, int | bytes]
"""The number of a field, and a varint or bytes."""


def read_fields(data: bytes) -> Iterator[Field]:
    """Yield the fields of a message; `ValueError` if it has others than varints and bytes."""
    position = 0
    while position < len(data):
        tag, position = read_varint(data, position)
        number, wire_type = divmod(tag, 8)
        value, position = read_varint(data, position)
        if wire_type == _VARINT:
            yield number, value
        elif wire_type == _BYTES and value <= len(data) - position:
            yield number, data[position : position + value]
            position += value
        else:
            raise ValueError("no varint, and no bytes that end within the message")


def read_tensor(data: bytes) -> tuple[int, tuple[int, ...], Iterator[Field]]:
    """Return the dtype and the shape of a TensorProto, and the fields that hold its values.

    They are in the order in which TensorFlow writes them; `ValueError` if it is no such message.
    """
    fields = read_fields(data)
    (first, dtype), (second, shape) = islice(fields, 2)
    if (first, second) != (_DTYPE, _SHAPE) or isinstance(dtype, bytes) or isinstance(shape, int):
        raise ValueError("no tensor")
    sizes: list[int] = []
    for number, dim in read_fields(shape):
        parts = list(read_fields(dim)) if isinstance(dim, bytes) and len(dim) <= 11 else [(0, 0)]
        size = parts[0][1] if parts else 0
        if number != _DIM or parts not in ([], [(_SIZE, size)]) or isinstance(size, bytes):
            raise ValueError("not the dimensions of a tensor")
        sizes.append(size)
        if len(sizes) > _MAX_RANK:
            raise ValueError("too many dimensions")
    return dtype, tuple(sizes), (field for field in fields if field[0] != _VERSION)


def read_varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return the varint at a position, and where it ends; `ValueError` if there is none."""
    value = 0
    for shift, byte in enumerate(data[position : position + 10]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, position + shift + 1
    raise ValueError("not a varint")
