"""Tensors as ``tf.io.serialize_tensor`` writes them, read without TensorFlow."""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tfrtool.records import wire

# tensorflow/core/framework/tensor.proto and types.proto
_CONTENT = 4
_FORMATS: dict[int, Any] = {
    1: "f",
    2: "d",
    3: "i",
    4: "B",
    5: "h",
    6: "b",
    9: "q",
    10: "?",
    17: "H",
    19: "e",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A tensor of numbers.

    Attributes:
        shape: its dimensions, each at least 0.
        values: its elements in row-major order; bytes for uint8, else not objects of Python, which
            would take eight times as much memory.
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
        dtype, shape, fields = wire.read_tensor(data)
        ((number, content),) = islice(fields, 2)
        code = _FORMATS.get(dtype)
        if code is None or number != _CONTENT or not isinstance(content, bytes) or not content:
            return None
        numbers: Sequence[float] = content
        if code == "e":  # which neither arrays nor views know
            numbers = array("f", (number for (number,) in struct.iter_unpack("<e", content)))
        elif code != "B":  # TensorFlow, too, runs on machines with little-endian numbers alone
            numbers = memoryview(content).cast(code)
        return Tensor(shape=shape, values=numbers)
    except (ValueError, TypeError, struct.error):  # TypeError: half a number is left over
        return None
