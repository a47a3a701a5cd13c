"""The values of stored features as they are divided among records, lists and tensors."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tfrtool.errors import SchemaError
from tfrtool.examples.arrow.arrays import Bools, Ints, binary_array, scattered

MOST_LISTS = 2**22
"""Lists of the tensors in a batch that have no values: a few bytes can name any number of them."""

_MOST_NULLS = 2**26
"""Values of the tensors in a batch that are null: in Arrow they take as much memory as others."""


class StoredLists(NamedTuple):
    """A stored feature: the values of all records, one after the other.

    Attributes:
        bounds: where each record's values start and end.
        counts: how many each record has.
        values: the values.
        present: which records have the feature.
        is_complete: whether all have it.
    """

    bounds: Ints
    counts: Ints
    values: pa.Array
    present: Bools
    is_complete: bool

    @classmethod
    def of(cls, array: pa.Array) -> "StoredLists":
        """Return the parts of an array of lists."""
        size, start = len(array), array.offset
        if not size:
            empty = np.zeros(0, np.int64)
            values = array.values.slice(0, 0)
            return cls(np.zeros(1, np.int64), empty, values, np.zeros(0, np.bool_), True)
        ends = np.frombuffer(array.buffers()[1], np.int32)[start : start + size + 1]
        values = array.values.slice(int(ends[0]), int(ends[-1] - ends[0]))
        bounds = ends.astype(np.int64)
        if bounds[0]:
            bounds -= bounds[0]
        is_complete = not array.null_count
        present = np.ones(size, np.bool_) if is_complete else np.asarray(array.is_valid())
        return cls(bounds, np.diff(bounds), values, present, is_complete)

    def owners(self, indexes: Ints) -> Ints:
        """Return the records that have these values."""
        return owners_of((self.bounds,), indexes)


def with_joined_strings(lists: StoredLists, item_size: int) -> StoredLists:
    """Return the same with one string in records whose strings have a byte or a number each."""
    several = lists.counts > 1
    if not several.any():
        return lists
    ends, data = string_parts(lists.values)
    lengths = np.diff(ends)
    several[lists.owners(np.flatnonzero((lengths != 1) & (lengths != item_size)))] = False
    is_start = ~np.repeat(several, lists.counts)
    is_start[lists.bounds[:-1][several]] = True
    starts = np.append(ends[:-1][is_start], ends[-1]).astype(np.int32)
    counts = np.where(several, 1, lists.counts)
    return lists._replace(bounds=ends_of(counts), counts=counts, values=binary_array(starts, data))


def string_parts(strings: pa.Array) -> tuple[Ints, NDArray[np.uint8]]:
    """Return where each string starts and ends, and the bytes of all of them."""
    _, offsets, content = strings.buffers()
    if not len(strings) or offsets is None:
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    ends = np.frombuffer(offsets, np.int32)[strings.offset : strings.offset + len(strings) + 1]
    data = np.frombuffer(content or b"", np.uint8)[ends[0] : ends[-1]]
    return ends.astype(np.int64) - ends[0], data


class BuiltField(NamedTuple):
    """A field in the making.

    Attributes:
        offsets: for each list around it, where the items of each entry start and end.
        array: its items, one after the other.
        present: which records have it.
    """

    offsets: tuple[Ints, ...]
    array: pa.Array
    present: Bools


def ends_of(counts: Ints) -> Ints:
    """Return where lists of these lengths start and end."""
    ends = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    return ends


def owners_of(offsets: Sequence[Ints], entries: Ints) -> Ints:
    """Return the record of each entry, by the offsets of the lists around it."""
    bounds = offsets[0]
    for ends in offsets[1:]:
        bounds = ends[bounds]
    return np.searchsorted(bounds, entries, "right") - 1


def differing_records(left: Sequence[Ints], right: Sequence[Ints]) -> Ints:
    """Return the records whose lists have other lengths in one of two fields."""
    for depth, (ends, others) in enumerate(zip(left, right, strict=True)):
        if not np.array_equal(ends, others):
            entries = np.flatnonzero(np.diff(ends) != np.diff(others))
            return np.unique(owners_of(left[:depth], entries)) if depth else entries
    return np.zeros(0, np.int64)


def numbers_of(array: pa.Array) -> NDArray[Any]:
    """Return the numbers of an array without nulls, not copied."""
    dtype = np.float32 if pa.types.is_float32(array.type) else np.int64
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(0, dtype)
    return np.frombuffer(buffer, dtype)[array.offset : array.offset + len(array)]


def list_of(offsets: Ints, values: pa.Array, present: Bools | None = None) -> pa.Array:
    """Return lists of values, null for records that don't have them."""
    validity = None
    if present is not None and not present.all():
        validity = pa.py_buffer(np.packbits(present, bitorder="little"))
    buffers = [validity, pa.py_buffer(offsets.astype(np.int32))]
    kind = pa.list_(values.type)
    return pa.Array.from_buffers(kind, len(offsets) - 1, buffers, children=[values])


def with_nulls(values: pa.Array, present: Bools) -> pa.Array:
    """Return values at the places where they are present, and null at the others.

    Raises:
        SchemaError: tensors that are null take too much memory.
    """
    extent, is_empty = _extent(values.type), not present.any()
    most = _MOST_NULLS if is_empty else _MOST_NULLS // 4  # the second one has indexes, too
    if extent > 1 and len(present) * extent > most:
        raise SchemaError("missing tensors take too much memory")
    if is_empty:
        return pa.nulls(len(present), values.type)
    return scattered(values, len(present), np.flatnonzero(present))


def _extent(kind: pa.DataType) -> int:
    """Return how many values an element has where it is null."""
    if pa.types.is_struct(kind):
        return max(1, sum(_extent(field.type) for field in kind))
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size) * _extent(kind.value_type)
    return 1


def tensors(
    values: pa.Array, items: int, shape: Sequence[int | None], counts: Ints | None = None
) -> pa.Array:
    """Return values as tensors of a shape; ``counts`` are theirs if one size is unknown."""
    if counts is None and 0 not in shape:
        for size in reversed(shape):
            values = pa.FixedSizeListArray.from_arrays(values, size)
        return values
    known = math.prod(size for size in shape if size is not None)
    sizes = [
        counts // max(known, 1) if size is None and counts is not None else np.full(items, size)
        for size in shape
    ]
    return tensors_of_sizes(values, sizes, shape)


def tensors_of_sizes(
    values: pa.Array, sizes: Sequence[Ints], shape: Sequence[int | None]
) -> pa.Array:
    """Return values as tensors, each with sizes of its own.

    Raises:
        SchemaError: those without values have too many lists.
    """
    repeats = [np.ones(len(sizes[0]), np.int64)]
    for number in range(len(shape) - 1):
        repeats.append(repeats[-1] * sizes[number])
    most = max(MOST_LISTS, len(shape) * (len(values) + len(repeats[0])))
    if sum(int(lists.sum()) for lists in repeats) > most:
        raise SchemaError("tensors without values take too much memory")
    for size, lengths, lists in reversed([*zip(shape, sizes, repeats, strict=True)]):
        if size:
            values = pa.FixedSizeListArray.from_arrays(values, size)
        else:
            values = list_of(ends_of(np.repeat(lengths, lists)), values)
    return values
