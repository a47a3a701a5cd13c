"""Tensors as ``tf.io.serialize_tensor`` writes them, read without TensorFlow."""

from __future__ import annotations

import math
import struct
import sys
from array import array, typecodes
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from tfrtool.records.wire import read_fields, read_shape

__all__ = ["Tensor", "read_tensor"]

# tensorflow/core/framework/tensor.proto and types.proto
_DTYPE, _SHAPE, _VERSION, _CONTENT = 1, 2, 3, 4
_FIELDS = {_DTYPE, _SHAPE, _VERSION, _CONTENT}
_FORMATS = {1: "f", 2: "d", 3: "i", 4: "B", 5: "h", 6: "b", 9: "q", 10: "?", 17: "H", 19: "e"}
_UINT8 = 4
_MANY = 4_000_000


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
        fields = list(islice(read_fields(data), len(_FIELDS) + 1))
        values = dict(fields)
        if len(values) != len(fields) or not {_DTYPE, _CONTENT} <= values.keys() <= _FIELDS:
            return None
        dtype, content = values[_DTYPE], values[_CONTENT]
        shape = read_shape(values.get(_SHAPE, b""))
        code = _FORMATS.get(dtype) if isinstance(dtype, int) else None
        if code is None or not isinstance(content, bytes) or not content:
            return None
        count, rest = divmod(len(content), struct.calcsize(f"<{code}"))
        if rest or math.prod(shape) != count:
            return None
        return Tensor(shape=shape, values=content if dtype == _UINT8 else _numbers(content, code))
    except ValueError:
        return None


def _numbers(content: bytes, code: str) -> Sequence[float]:
    """Return the numbers of a tensor; many of them not as objects, which take eight times more.

    Raises:
        ValueError: they are too many for that.
    """
    count = len(content) // struct.calcsize(f"<{code}")
    if count <= _MANY:
        return struct.unpack(f"<{count}{code}", content)
    if code not in typecodes:
        raise ValueError("too many numbers")
    numbers = array(code, content)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
