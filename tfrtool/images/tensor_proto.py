"""Tensors as ``tf.io.serialize_tensor`` writes them, read without TensorFlow."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Tensor", "read_tensor"]

# tensorflow/core/framework/tensor.proto and types.proto
_DTYPE, _SHAPE, _VERSION, _CONTENT = 1, 2, 3, 4
_DIM = 2
_SIZE = 1
_FORMATS = {1: "f", 2: "d", 3: "i", 4: "B", 5: "h", 6: "b", 9: "q", 10: "?", 17: "H", 19: "e"}
_UINT8 = 4

_VARINT, _BYTES = 0, 2
_MAX_RANK = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A tensor of numbers.

    Attributes:
        shape: its dimensions, each at least 0.
        values: its elements in row-major order; bytes for uint8.
    """

    shape: tuple[int, ...]
    values: Sequence[float]

    def __post_init__(self) -> None:
        if math.prod(self.shape) != len(self.values):
            raise ValueError(f"{len(self.values)} values don't fill the shape {self.shape}")


def read_tensor(data: bytes) -> Tensor | None:
    """Read a serialized TensorProto of numbers; None where ``data`` is no such message.

    Only what serialize_tensor writes is taken: a type, a shape, and the elements in one piece
    that fills the shape exactly. Anything else is too likely to be something else.
    """
    try:
        fields = list(_fields(data))
        values = dict(fields)
        if len(values) != len(fields) or not {_DTYPE, _CONTENT} <= values.keys():
            return None
        if values.keys() - {_DTYPE, _SHAPE, _VERSION, _CONTENT}:
            return None
        dtype, content = values[_DTYPE], values[_CONTENT]
        shape = _shape(values.get(_SHAPE, b""))
        code = _FORMATS.get(dtype) if isinstance(dtype, int) else None
        if code is None or not isinstance(content, bytes) or not content:
            return None
        count, rest = divmod(len(content), struct.calcsize(f"<{code}"))
        if rest or math.prod(shape) != count:
            return None
        numbers = content if dtype == _UINT8 else struct.unpack(f"<{count}{code}", content)
        return Tensor(shape=shape, values=numbers)
    except ValueError:
        return None


def _shape(data: int | bytes) -> tuple[int, ...]:
    if isinstance(data, int):
        raise ValueError("a shape is a message")
    sizes = []
    for number, dim in _fields(data):
        size = dict(_fields(dim)).get(_SIZE, 0) if isinstance(dim, bytes) else b""
        if number != _DIM or isinstance(size, bytes):
            raise ValueError("not the dimensions of a tensor")
        sizes.append(size)
        if len(sizes) > _MAX_RANK:
            raise ValueError("too many dimensions")
    return tuple(sizes)


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a protobuf message, of the two wire types that matter here."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire_type = divmod(tag, 8)
        if wire_type == _VARINT:
            value, position = _varint(data, position)
            yield number, value
        elif wire_type == _BYTES:
            length, position = _varint(data, position)
            if length > len(data) - position:
                raise ValueError("a field ends beyond its message")
            yield number, data[position : position + length]
            position += length
        else:
            raise ValueError(f"wire type {wire_type} does not occur")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError("not a varint")
