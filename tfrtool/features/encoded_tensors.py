"""Tensors that records hold as strings: packed numbers, perhaps compressed."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tfrtool.errors import SchemaError, human_bytes, human_count
from tfrtool.examples.arrow.arrays import Ints, bools_array, numbers_array
from tfrtool.examples.fields import ITEM_SIZES, Encoding, Values
from tfrtool.features.stored_lists import string_parts
from tfrtool.features.tensor_protos import read_tensor_proto

MOST_UNPACKED = 256 * 1024 * 1024
"""Bytes of an encoded tensor of unknown sizes, and those that all tensors of a record may have
beyond what it stores, as zlib packs a thousandfold."""

BATCH_UNPACKED = 64 * 1024 * 1024
"""Bytes that all tensors of several records may have beyond what these store, and a TensorProto,
which can repeat its last value: to build and write a table takes ten times as much."""


@dataclass(frozen=True, slots=True)
class UnpackedTensors:
    """Encoded tensors, unpacked.

    Attributes:
        data: the bytes of their numbers, one after the other; None if some are bad.
        counts: how many each has.
        sizes: the shape of each, a row each, if the strings have it.
        expected: what the bad ones should be.
        bad: what is wrong with each bad one, by its index.
    """

    data: NDArray[np.uint8] | None
    counts: Ints
    sizes: Ints | None = None
    expected: str = ""
    bad: Mapping[int, str] = field(default_factory=dict)


def unpack(strings: pa.Array, values: Values, most: int) -> UnpackedTensors:
    """Return the bytes of encoded tensors.

    Raises:
        SchemaError: they unpack to more than ``most`` bytes beyond their own.
    """
    ends, data = string_parts(strings)
    return _unpacked(data, ends, values, most)


def unpack_strings(strings: Sequence[bytes], values: Values) -> UnpackedTensors:
    """Do what `unpack` does, for strings of Python."""
    ends = np.fromiter(accumulate(map(len, strings), initial=0), np.int64, len(strings) + 1)
    data = np.frombuffer(b"".join(strings), np.uint8)
    return _unpacked(data, ends, values, MOST_UNPACKED)


def _unpacked(data: NDArray[np.uint8], ends: Ints, values: Values, most: int) -> UnpackedTensors:
    room = most + len(data)
    item_size = ITEM_SIZES[values.dtype]
    sizes = np.diff(ends)
    if values.encoding is Encoding.TENSOR:
        return _tensors(data, ends, values, room)
    if values.encoding is Encoding.ZLIB:
        most = MOST_UNPACKED if None in values.shape else values.size * item_size
        parts, bad = _decompressed(data, ends, most, room)
        if bad:
            return UnpackedTensors(None, sizes, expected="zlib data", bad=bad)
        sizes = np.fromiter(map(len, parts), np.int64, len(parts))
        data = np.frombuffer(b"".join(parts), np.uint8)
    wrong = np.flatnonzero(sizes % item_size)
    if wrong.size:
        found = dict(zip(wrong.tolist(), map(str, sizes[wrong].tolist()), strict=True))
        expected = f"a multiple of {item_size} bytes"
        return UnpackedTensors(None, sizes, expected=expected, bad=found)
    return UnpackedTensors(data, sizes // item_size)


def _tensors(data: NDArray[np.uint8], ends: Ints, values: Values, room: int) -> UnpackedTensors:
    """Return the numbers and the sizes of serialized tensors."""
    content, bounds, rank = data.tobytes(), ends.tolist(), len(values.shape)
    parts, sizes, bad, total = list[bytes](), list[tuple[int, ...]](), dict[int, str](), 0
    for index, (start, end) in enumerate(pairwise(bounds)):
        try:
            most = min(MOST_UNPACKED, end - start + BATCH_UNPACKED)
            tensor = read_tensor_proto(content[start:end], values.dtype, most)
            if len(tensor.sizes) != rank:
                raise ValueError(f"a tensor of {human_count(len(tensor.sizes), 'dimension')}")
        except ValueError as error:
            bad[index] = str(error)
            continue
        parts.append(tensor.data)
        sizes.append(tensor.sizes)
        total += len(tensor.data)
        if total > room:
            parts.clear()  # the error is handled while its traceback holds this list
            raise SchemaError(f"its tensors unpack to more than {human_bytes(MOST_UNPACKED)}")
    counts = np.fromiter(map(len, parts), np.int64, len(parts)) // ITEM_SIZES[values.dtype]
    if bad:
        expected = f"a serialized tensor of {values.dtype}, {human_count(rank, 'dimension')}"
        return UnpackedTensors(None, counts, expected=expected, bad=bad)
    numbers = np.frombuffer(b"".join(parts), np.uint8)
    return UnpackedTensors(numbers, counts, np.array(sizes, np.int64).reshape(len(parts), rank))


def _decompressed(
    data: NDArray[np.uint8], ends: Ints, most: int, room: int
) -> tuple[list[bytes], dict[int, str]]:
    """Return unpacked strings, and by index why others can't be unpacked, such as too long ones."""
    parts, bad, total = list[bytes](), dict[int, str](), 0
    view = memoryview(data.tobytes())
    for index, (start, end) in enumerate(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)):
        unpacker = zlib.decompressobj()
        try:
            part = unpacker.decompress(view[start:end], most + 1)
        except zlib.error:
            bad[index] = "other bytes"
            continue
        if len(part) > most:
            bad[index] = f"more than {most} bytes"
        elif not unpacker.eof:
            bad[index] = "an incomplete stream"
        else:
            parts.append(part)
            total += len(part)
            if total > room:
                parts.clear()  # the error is handled while its traceback holds this list
                raise SchemaError(f"its tensors unpack to more than {human_bytes(MOST_UNPACKED)}")
    return parts, bad


def arrow_numbers(data: NDArray[np.uint8], dtype: str) -> pa.Array:
    """Return little-endian numbers; small floats are float32."""
    if dtype == "bool":
        return bools_array(data != 0)
    if dtype == "bfloat16":  # the upper half of a float32
        halves: NDArray[Any] = data.view("<u2")
        return numbers_array((halves.astype(np.uint32) << 16).view(np.float32))
    kind = np.dtype(dtype).newbyteorder("<")
    numbers: NDArray[Any] = np.require(data.view(kind), requirements="A")
    if dtype == "float16":
        with np.errstate(invalid="ignore"):  # NaN may be any
            numbers = numbers.astype(np.float32)
    return numbers_array(numbers)


def native_numbers(data: NDArray[np.uint8], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a copy of little-endian numbers."""
    is_bool = dtype.kind == "b"
    numbers: NDArray[Any] = (
        data != 0 if is_bool else data.view(dtype.newbyteorder("<")).astype(dtype)
    )
    return numbers
