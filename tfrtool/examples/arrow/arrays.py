"""Arrow arrays made of numpy's, without a copy.

`pa.array`, `pa.scalar` and ``to_numpy`` would import pandas, which takes half a second.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tfrtool.records import frames
from tfrtool.records.payloads import LONG_STRING
from tfrtool.records.payloads import Bools as Bools
from tfrtool.records.payloads import Ints as Ints


def numbers_array(values: NDArray[Any]) -> pa.Array:
    """Return numbers as an array."""
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def bools_array(values: Bools) -> pa.Array:
    """Return truth values as an array."""
    bits = pa.py_buffer(np.packbits(values, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, bits])


def binary_array(ends: NDArray[Any], data: Any) -> pa.Array:
    """Return strings that each end where the next starts; large ones for places of 64 bits.

    The data is what has the bytes one after the other, as a buffer.
    """
    kind = pa.binary() if ends.dtype == np.int32 else pa.large_binary()
    return pa.Array.from_buffers(
        kind, len(ends) - 1, [None, pa.py_buffer(ends), pa.py_buffer(data)]
    )


def strings_array(parts: Sequence[bytes], dtype: type = np.int32) -> pa.Array:
    """Return strings as an array."""
    return binary_array(np.cumsum([0, *map(len, parts)], dtype=dtype), b"".join(parts))


def strings_at(data: Any, start: Ints, end: Ints) -> pa.Array:
    """Return what is at some places in data of less than 2 GiB, in order, as a binary array."""
    if len(start) == 1:  # as a long value is
        return binary_array(np.array([start[0], end[0]], np.int32), data)
    content: bytes | None = None
    if int((end - start).sum()) > LONG_STRING * len(start):
        view, places = memoryview(data), zip(start.tolist(), end.tolist(), strict=True)
        content = b"".join([view[first:last] for first, last in places])
        ends_of = np.cumsum([0, *(end - start).tolist()], dtype=np.int32)
    elif frames.native is not None:
        content, ends_of = frames.native.bytes_at(data, start, end)
    if content is not None:
        # Arrow's `take` says of each string that it is valid, and so sizes are the same.
        valid = np.packbits(np.ones(len(start), np.bool_), bitorder="little")
        buffers = [pa.py_buffer(one) for one in (valid, ends_of, content)]
        return pa.Array.from_buffers(pa.binary(), len(start), buffers)
    # An array of them and of what is between them takes no copy.
    ends = np.full(2 * len(start) + 1, end.max(initial=0), np.int32)
    ends[:-1:2], ends[1::2] = start, end
    return binary_array(ends, data).take(numbers_array(np.arange(0, 2 * len(start), 2)))


def texts_array(values: pa.Array) -> pa.Array:
    """Return strings as text, or raise `pa.ArrowInvalid` if some of them are not UTF-8.

    It is Arrow's cast, without its functions, which take longer to load than a small file to read.
    """
    if values.type != pa.binary():
        return values.cast(pa.string())
    buffers, nulls = values.buffers(), values.null_count
    texts = pa.Array.from_buffers(pa.string(), len(values), buffers, nulls, values.offset)
    texts.validate(full=True)
    return texts


def list_array(
    kind: pa.DataType, size: int, places: Ints, counts: Ints, values: pa.Array
) -> pa.Array:
    """Return an array of lists with ``counts`` values at ``places``, and null elsewhere."""
    lengths = np.zeros(size + 1, np.int32)
    lengths[places + 1] = counts
    buffers = [_validity(size, places), pa.py_buffer(np.cumsum(lengths, dtype=np.int32))]
    return pa.Array.from_buffers(kind, size, buffers, children=[values])


def scattered(values: pa.Array, size: int, places: Ints) -> pa.Array:
    """Return an array of ``size`` that has the values at these places, and null at the others."""
    order = np.zeros(size, np.int64)
    order[places] = np.arange(len(places))
    buffers = [_validity(size, places), pa.py_buffer(order)]
    return values.take(pa.Array.from_buffers(pa.int64(), size, buffers))


def struct_array(
    kind: pa.DataType, size: int, places: Ints | None, fields: Sequence[pa.Array]
) -> pa.Array:
    """Return an array of structs, null but at these places, if they are given."""
    validity = None if places is None else _validity(size, places)
    return pa.Array.from_buffers(kind, size, [validity], children=list(fields))


def _validity(size: int, places: Ints) -> pa.Buffer | None:
    if len(places) == size:
        return None
    mask = np.zeros(size, np.bool_)
    mask[places] = True
    return pa.py_buffer(np.packbits(mask, bitorder="little"))
