"""The wire format of protobuf, read where nothing is known of the message."""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _BYTES = 0, 2
_DIM, _SIZE = 2, 1  # tensorflow/core/framework/tensor_shape.proto
_MAX_RANK = 254
"""Dimensions of a tensor in TensorFlow."""


def read_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the value of each field of a message: a varint, or bytes.

    Raises:
        ValueError: it is no message of these two wire types.
    """
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


def read_shape(data: int | bytes) -> tuple[int, ...]:
    """Return the dimensions of a TensorShapeProto that has nothing else.

    Raises:
        ValueError: it isn't one.
    """
    sizes: list[int] = []
    for number, dim in read_fields(data) if isinstance(data, bytes) else ((0, 0),):
        fields = list(read_fields(dim)) if isinstance(dim, bytes) and len(dim) <= 11 else [(0, 0)]
        size = fields[0][1] if fields else 0
        if number != _DIM or fields not in ([], [(_SIZE, size)]) or isinstance(size, bytes):
            raise ValueError("not the dimensions of a tensor")
        sizes.append(size)
        if len(sizes) > _MAX_RANK:
            raise ValueError("too many dimensions")
    return tuple(sizes)


def read_varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return the varint at a position, and where it ends.

    Raises:
        ValueError: there is none.
    """
    value = 0
    for shift, byte in enumerate(data[position : position + 10]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, position + shift + 1
    raise ValueError("not a varint")
