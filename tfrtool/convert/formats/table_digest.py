"""A digest of a table that does not depend on how its rows are cut into batches."""

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds
from numpy.typing import NDArray

from tfrtool.records.framing import extend_crc32c

_Path = tuple[str, ...]

_STRINGS = pa.BinaryArray | pa.LargeBinaryArray | pa.StringArray | pa.LargeStringArray


class TableDigest:
    """CRC-32C of what the rows of a table hold: of each column, and of each level within it.

    What stands behind a null, and where an array starts in its buffers, makes no difference.
    """

    def __init__(self) -> None:
        self._counts = Counter[_Path]()
        self._types: dict[_Path, pa.DataType] = {}
        self._crcs: dict[_Path, int] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TableDigest) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the rows that follow."""
        self._counts[()] += batch.num_rows
        for name, array in zip(batch.schema.names, batch.columns, strict=True):
            self._add((name,), array)

    def _add(self, path: _Path, array: pa.Array) -> None:
        """Add which values are null, and then those that aren't."""
        kind = self._types[path] = array.type
        if array.null_count:
            nulls = np.flatnonzero(_buffer(array.is_null().cast(pa.uint8()), 1))
            self._extend((*path, "null"), nulls + self._counts[path])
        self._counts[path] += len(array)
        if kinds.is_struct(kind):
            for field, values in zip(kind, array.flatten(), strict=True):
                self._add((*path, field.name), values)
        elif kinds.is_list(kind) or kinds.is_large_list(kind):
            self._extend((*path, "length"), _buffer(pc.list_value_length(array.drop_null()), 1))
            self._add((*path, "item"), array.flatten())
        elif kinds.is_fixed_size_list(kind):
            self._add((*path, "item"), array.drop_null().flatten())
        elif kinds.is_dictionary(kind):
            self._add((*path, "value"), array.dictionary_decode())
        elif isinstance(array, _STRINGS):
            array = array.drop_null()
            self._extend((*path, "length"), _buffer(pc.binary_length(array), 1))
            is_large = kinds.is_large_binary(kind) or kinds.is_large_string(kind)
            self._extend(path, _buffer(array, 2, np.int64 if is_large else np.int32))
        elif kinds.is_boolean(kind):
            self._extend(path, _buffer(array.drop_null().cast(pa.uint8()), 1))
        elif kinds.is_primitive(kind) or kinds.is_decimal(kind) or kinds.is_fixed_size_binary(kind):
            self._extend(path, _buffer(array.drop_null(), 1))
        else:  # maps, unions, views of strings
            lines = "".join(f"{value!r}\n" for value in array.to_pylist())
            self._extend(path, np.frombuffer(lines.encode("utf-8", "surrogatepass"), np.uint8))

    def _extend(self, path: _Path, data: NDArray[Any]) -> None:
        if data.size:
            self._crcs[path] = extend_crc32c(self._crcs.get(path, 0), data)


def _buffer(array: pa.Array, number: int, offsets: type | None = None) -> NDArray[np.uint8]:
    """Return the bytes of an array's values, which have one width, or start at offsets."""
    if not len(array):
        return np.empty(0, np.uint8)
    start, end, buffers = array.offset, array.offset + len(array), array.buffers()
    if offsets is None:
        start, end = (at * array.type.bit_width // 8 for at in (start, end))
    else:
        ends: NDArray[Any] = np.frombuffer(buffers[1], offsets)
        start, end = ends[start], ends[end]
    return np.frombuffer(buffers[number] or b"", np.uint8)[start:end]
