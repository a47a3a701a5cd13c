"""TensorProtos of numbers, which ``tf.io.serialize_tensor`` writes.

The fields are those of TensorFlow's tensor.proto, tensor_shape.proto and types.proto.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tfrtool.examples.fields import ITEM_SIZES
from tfrtool.records.wire import read_spans, read_varint, varint
from tfrtool.storage.limits import MAX_DIMENSIONS

_DTYPE, _SHAPE, _CONTENT = 1, 2, 4
_DIM, _SIZE, _UNKNOWN_RANK = 2, 1, 3

_DTYPES = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string",
    8: "complex64", 9: "int64", 10: "bool", 14: "bfloat16", 17: "uint16", 18: "complex128",
    19: "float16", 22: "uint32", 23: "uint64",
}  # fmt: skip
_NUMBERS = {name: number for number, name in _DTYPES.items()}

_FIXED = {5: "float32", 6: "float64"}
"""Fields with values of a fixed size: float_val and double_val."""

_VARINTS = {
    7: ("int32", "int16", "int8", "uint16", "uint8"),
    10: ("int64",),
    11: ("bool",),
    13: ("float16", "bfloat16"),
    16: ("uint32",),
    17: ("uint64",),
}
"""Fields with values as varints: int_val and others. Half floats are the bits of integers."""


class TensorContent(NamedTuple):
    """The sizes of a tensor, and its numbers as little-endian bytes."""

    sizes: tuple[int, ...]
    data: bytes


def tensor_sizes(proto: bytes) -> tuple[int, ...] | None:
    """Return the sizes of a serialized tensor; None if it is something else."""
    try:
        return _header(proto)[1]
    except ValueError:
        return None


def read_tensor_proto(proto: bytes, dtype: str, most: int) -> TensorContent:
    """Read a serialized tensor of a type; `ValueError` says what it is instead, a clause.

    ``most`` is how many bytes its numbers may have, as a few bytes can stand for any number.
    """
    try:
        found, sizes, spans = _header(proto)
    except ValueError as error:
        raise ValueError("other bytes") from error
    if found != dtype:
        raise ValueError(f"a tensor of {found}")
    item_size = ITEM_SIZES[dtype]
    if (count := math.prod(sizes)) > most // item_size:
        raise ValueError(f"a tensor of more than {most:,} bytes")
    content = b"".join(proto[start:stop] for tag, start, stop in spans if tag >> 3 == _CONTENT)
    if not content:
        content = _listed_values(proto, dtype, spans)
        if len(content) < count * item_size:  # the last value stands for all others
            last = content[-item_size:] or bytes(item_size)
            content += last * (count - len(content) // item_size)
    if len(content) != count * item_size:
        raise ValueError(f"{len(content):,} bytes of {count:,} values")
    return TensorContent(sizes, content)


def tensor_proto(dtype: str, sizes: Sequence[int], data: bytes) -> bytes:
    """Return a tensor as ``tf.io.serialize_tensor`` writes it; ``data`` is little-endian."""
    dims = b""
    for size in sizes:
        dim = _message(_SIZE << 3, varint(size)) if size else b""
        dims += _message(_DIM << 3 | 2, varint(len(dim)), dim)
    parts = [_message(_DTYPE << 3, varint(_NUMBERS[dtype]))]
    parts.append(_message(_SHAPE << 3 | 2, varint(len(dims)), dims))
    if data:
        parts.append(_message(_CONTENT << 3 | 2, varint(len(data)), data))
    return b"".join(parts)


def _message(tag: int, *parts: bytes) -> bytes:
    return bytes([tag]) + b"".join(parts)


def _header(proto: bytes) -> tuple[str, tuple[int, ...], list[tuple[int, int, int]]]:
    """Return the type and the sizes of a tensor, and where its fields are."""
    spans, sizes, dtype = [*read_spans(proto)], list[int](), ""
    for tag, start, stop in spans:
        if tag == _DTYPE << 3:
            number, _ = read_varint(proto, start)
            dtype = _DTYPES.get(number, f"dtype {number}")
        elif tag == _SHAPE << 3 | 2:
            for inner, first, end in read_spans(proto, start, stop):
                if inner >> 3 == _UNKNOWN_RANK:
                    raise ValueError("a tensor of unknown rank")
                if inner == _DIM << 3 | 2:
                    sizes.append(_dim_size(proto, first, end))
    if not dtype or len(sizes) > MAX_DIMENSIONS:
        raise ValueError("not a tensor")
    return dtype, tuple(sizes), spans


def _dim_size(proto: bytes, start: int, end: int) -> int:
    for tag, first, _ in read_spans(proto, start, end):
        if tag == _SIZE << 3:
            size, _ = read_varint(proto, first)
            if size >= 2**31:  # negative ones, too
                raise ValueError("an invalid size")
            return size
    return 0


def _listed_values(proto: bytes, dtype: str, spans: Sequence[tuple[int, int, int]]) -> bytes:
    """Return the numbers of a tensor that lists them one by one."""
    parts = list[bytes]()
    for tag, start, stop in spans:
        if _FIXED.get(tag >> 3) == dtype and tag & 7 in (1, 2, 5):
            if (stop - start) % ITEM_SIZES[dtype]:
                raise ValueError("other bytes")
            parts.append(proto[start:stop])
        elif dtype in _VARINTS.get(tag >> 3, ()) and tag & 7 in (0, 2):
            parts.append(_integers(proto[start:stop], ITEM_SIZES[dtype]))
    return b"".join(parts)


def _integers(data: bytes, item_size: int) -> bytes:
    """Return varints as little-endian integers of a size."""
    values, position, mask = list[int](), 0, (1 << 8 * item_size) - 1
    while position < len(data):
        try:
            value, position = read_varint(data, position)
        except ValueError as error:
            raise ValueError("other bytes") from error
        values.append(value & mask)
    return np.array(values, f"<u{item_size}").tobytes()
