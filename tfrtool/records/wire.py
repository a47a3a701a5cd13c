"""The wire format of protobuf, read where nothing is known of the message."""

from collections.abc import Iterator
from itertools import islice

from tfrtool.storage.limits import MAX_FIELDS

_MAX_RANK = 254
"""Dimensions of a tensor in TensorFlow."""

# tensorflow/core/framework/tensor.proto and tensor_shape.proto
_DTYPE, _SHAPE, _VERSION = 1, 2, 3
_DIM, _SIZE = 2, 1

Field = tuple[int, int | bytes]
"""The number of a field, and a varint or bytes."""


def read_spans(
    data: bytes | memoryview, position: int = 0, end: int | None = None, most: int = MAX_FIELDS
) -> Iterator[tuple[int, int, int]]:
    """Yield the tag of each field of a message, and where its content starts and ends.

    `ValueError` if it is not a message, or has groups, tags that are longer than necessary, or more
    than ``most`` fields.
    """
    end = len(data) if end is None else end
    while position < end:
        most -= 1
        if most < 0:
            raise ValueError("too many fields")
        tag = data[position]
        position += 1
        if tag > 0x7F:
            tag, position = read_varint(data, position - 1)
            if not data[position - 1]:
                raise ValueError("a tag is longer than necessary")
        if tag <= 7:  # so zeros are rejected at their first byte
            raise ValueError("a field has number 0")
        match tag & 7:
            case 2:
                length, position = read_varint(data, position)
                stop = position + length
            case 0:
                _, stop = read_varint(data, position)
            case 1:
                stop = position + 8
            case 5:
                stop = position + 4
            case _:
                raise ValueError("it contains a group")
        if stop > end:
            raise ValueError("a field extends past the end of its message")
        yield tag, position, stop
        position = stop


def read_fields(data: bytes) -> Iterator[Field]:
    """Yield the fields of a message; `ValueError` if it has others than varints and bytes."""
    for tag, start, stop in read_spans(data):
        number, wire_type = divmod(tag, 8)
        if wire_type in (1, 5):
            raise ValueError("unexpected fixed-size number")
        yield number, data[start:stop] if wire_type else read_varint(data, start)[0]


def read_tensor(data: bytes) -> tuple[int, tuple[int, ...], Iterator[Field]]:
    """Return the dtype and the shape of a TensorProto, and the fields that hold its values.

    They are in the order in which TensorFlow writes them; `ValueError` if it is no such message.
    """
    fields = read_fields(data)
    (first, dtype), (second, shape) = islice(fields, 2)
    if (first, second) != (_DTYPE, _SHAPE) or isinstance(dtype, bytes) or isinstance(shape, int):
        raise ValueError("not a tensor")
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
    value = shift = 0
    try:
        while (byte := data[position]) > 0x7F and shift < 63:
            value |= (byte & 0x7F) << shift
            position, shift = position + 1, shift + 7
    except IndexError:
        byte = 0x80
    if byte > 0x7F:
        raise ValueError("not a varint")
    return value | byte << shift, position + 1


def varint(value: int) -> bytes:
    """Return a number as protobuf writes it."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def field_head(tag: int, size: int) -> bytes:
    """Return what stands before the ``size`` bytes of a field with this tag, below 128."""
    if size < 0x80:
        return bytes((tag, size))
    if size < 0x4000:
        return bytes((tag, size & 0x7F | 0x80, size >> 7))
    return bytes((tag,)) + varint(size)
