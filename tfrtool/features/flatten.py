"""Nested Arrow arrays as the features that store them: the way back of `nested`."""

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tfrtool.errors import SchemaError
from tfrtool.examples.arrow.arrays import Bools, Ints, binary_array, list_array, numbers_array
from tfrtool.examples.arrow.value_types import microseconds_of, texts_of
from tfrtool.examples.fields import Encoding, Field, Kind, Leaf, ListOf, Struct, Values, join
from tfrtool.features.stored_layout import StoredFeature, stored_leaf
from tfrtool.features.tensor_protos import tensor_proto


class FlatFeatures:
    """The features that store the rows of a tree.

    Attributes:
        arrays: an array for each stored feature, by name: of values, or of lists; null where a
            record has none.
    """

    def __init__(self, root: Struct, rows: Sequence[pa.Array], records: int) -> None:
        """Flatten the arrays of a tree's top-level fields.

        Raises:
            SchemaError: a value that no feature holds, such as a null within a list.
        """
        self.arrays: dict[str, pa.Array] = {}
        self._records = records
        everywhere = np.ones(records, np.bool_)
        self._sizes: dict[str, pa.Array] = {}
        for (name, item), array in zip(root.fields.items(), rows, strict=True):
            self._flatten(item, array, name, (), everywhere)
        self.arrays = {**self._sizes, **self.arrays}

    def _flatten(
        self, item: Field, array: pa.Array, path: str, offsets: tuple[Ints, ...], present: Bools
    ) -> None:
        """Store a field; ``offsets`` are those of the lists around it."""
        import pyarrow.compute as pc

        if offsets and array.null_count:
            array, offsets, present = _without_absent(array, path, offsets, present)
        if isinstance(item, Struct):
            for (name, part), child in zip(item.fields.items(), array.flatten(), strict=True):
                self._flatten(part, child, join(path, name), offsets, present)
        elif isinstance(item, ListOf):
            counts = np.asarray(pc.fill_null(pc.list_value_length(array), 0)).astype(np.int64)
            if not offsets:
                present = np.asarray(array.is_valid())
            self._flatten(item.item, array.flatten(), path, (*offsets, _ends(counts)), present)
        else:
            self._store(Leaf(path, len(offsets), item), array, offsets, present)

    def _store(
        self, leaf: Leaf, array: pa.Array, offsets: tuple[Ints, ...], present: Bools
    ) -> None:
        stored, values = stored_leaf(leaf), leaf.values
        if values.kind is Kind.MIXED:
            self.arrays[leaf.path] = array
            return
        if not (leaf.level or values.shape) and values.encoding is Encoding.NONE:
            self.arrays[leaf.path] = _stored_values(array, values)
            return
        if not leaf.level:
            present = np.asarray(array.is_valid())
            array = array.drop_null()
        flat, counts, dims = _unnested(array, leaf)
        if values.encoding is Encoding.NONE:
            flat = _stored_values(flat, values)
        else:
            flat, counts = _encoded(flat, counts, dims, values), np.ones(len(counts), np.int64)
        self._add(stored.values, stored.lengths, flat, counts, offsets, present)
        if stored.shape:
            rank = np.full(len(dims), len(values.shape), np.int64)
            sizes = numbers_array(np.ascontiguousarray(dims.reshape(-1)))
            self._add(stored.shape[0], stored.shape[1:], sizes, rank, offsets, present)
        for feature in stored.sizes:
            named = [at for at, name in enumerate(values.size_features) if name == feature.key]
            rank = np.full(len(dims), len(named), np.int64)
            flat = numbers_array(np.ascontiguousarray(dims[:, named].reshape(-1)))
            self._add(feature, (), flat, rank, offsets, present, self._sizes)

    def _add(
        self,
        feature: StoredFeature,
        lengths: Sequence[StoredFeature],
        values: pa.Array,
        counts: Ints,
        offsets: tuple[Ints, ...],
        present: Bools,
        arrays: dict[str, pa.Array] | None = None,
    ) -> None:
        """Add a feature whose items have ``counts`` values, with the lengths of their lists."""
        places, arrays = np.flatnonzero(present), self.arrays if arrays is None else arrays
        if not offsets:
            arrays[feature.key] = self._lists(places, counts, values)
            return
        bounds = offsets[0]
        for length, inner in zip(lengths, offsets[1:], strict=True):
            sizes = numbers_array(np.diff(inner))
            arrays[length.key] = self._lists(places, np.diff(bounds)[places], sizes)
            bounds = inner[bounds]
        of_records = np.diff(_ends(counts)[bounds])
        arrays[feature.key] = self._lists(places, of_records[places], values)

    def _lists(self, places: Ints, counts: Ints, values: pa.Array) -> pa.Array:
        return list_array(pa.list_(values.type), self._records, places, counts, values)


def _without_absent(
    array: pa.Array, path: str, offsets: tuple[Ints, ...], present: Bools
) -> tuple[pa.Array, tuple[Ints, ...], Bools]:
    """Return items without those of records in which all are null, as the field is absent there."""
    bounds = offsets[0]
    for ends in offsets[1:]:
        bounds = ends[bounds]
    nulls = np.append(0, np.cumsum(np.asarray(array.is_null()), dtype=np.int64))
    counts, missing = np.diff(bounds), nulls[bounds[1:]] - nulls[bounds[:-1]]
    absent = (missing == counts) & (counts > 0)
    wrong = np.flatnonzero((missing > 0) & ~absent)
    if wrong.size or len(offsets) > 1:
        record = int(wrong[0]) if wrong.size else int(np.flatnonzero(missing)[0])
        what = f"column {path!r}: a null within a list, which a feature can't store"
        raise SchemaError(what, record=record)
    items = array.filter(array.is_valid())
    return items, (_ends(np.where(absent, 0, counts)),), present & ~absent


def _unnested(array: pa.Array, leaf: Leaf) -> tuple[pa.Array, Ints, Ints]:
    """Return the values of tensors, how many each has, and its shape, a row each."""
    import pyarrow.compute as pc

    shape = leaf.values.shape
    items = len(array)
    dims = np.zeros((items, len(shape)), np.int64)
    bounds = np.arange(items + 1)
    for number, size in enumerate(shape):
        if array.null_count:
            raise SchemaError(f"column {leaf.path!r}: a null within a tensor")
        lengths = np.asarray(pc.list_value_length(array)).astype(np.int64)
        ends = _ends(lengths)
        totals, rows = ends[bounds[1:]] - ends[bounds[:-1]], np.diff(bounds)
        dims[:, number] = totals // np.maximum(rows, 1)
        longest = np.repeat(dims[:, number], rows)
        if (longest != lengths).any() or (size and (lengths != size).any()):
            raise SchemaError(f"column {leaf.path!r}: lists of different lengths in one tensor")
        bounds, array = ends[bounds], array.flatten()
    if array.null_count:
        raise SchemaError(f"column {leaf.path!r}: a null within a tensor")
    return array, np.diff(bounds), dims


def _stored_values(array: pa.Array, values: Values) -> pa.Array:
    """Return values with the type of the feature that stores them."""
    if values.kind is Kind.TEXT:
        return array.cast(pa.binary())
    if values.kind is Kind.TIME:
        is_decimal = values.dtype.startswith("decimal")
        return texts_of(array).cast(pa.binary()) if is_decimal else microseconds_of(array)
    if values.kind is Kind.BOOL:
        return array.cast(pa.int64())
    if values.kind is Kind.NUMBER and values.dtype == "uint64":
        return array.view(pa.int64())
    if values.kind is Kind.NUMBER:
        return array.cast(pa.float32() if values.is_float else pa.int64(), safe=not values.is_float)
    return array


def _encoded(array: pa.Array, counts: Ints, dims: Ints, values: Values) -> pa.Array:
    """Return one string for each tensor, which has ``counts`` numbers and the sizes ``dims``."""
    ends = _ends(counts)
    if values.kind is Kind.BOOL:
        numbers = _numbers(array.cast(pa.uint8()))
    elif values.dtype == "bfloat16":
        numbers = (_numbers(array).view(np.uint32) >> 16).astype(np.uint16)
    else:
        numbers = _numbers(array).astype(np.dtype(values.dtype).newbyteorder("<"), copy=False)
    data, ends = np.ascontiguousarray(numbers).view(np.uint8), ends * numbers.itemsize
    if values.encoding is Encoding.RAW:
        return binary_array(ends.astype(np.int32), data)
    pairs = zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)
    parts = [data[start:end].tobytes() for start, end in pairs]
    if values.encoding is Encoding.TENSOR:
        packed = [
            tensor_proto(values.dtype, *one) for one in zip(dims.tolist(), parts, strict=True)
        ]
    else:
        packed = list(map(zlib.compress, parts))
    sizes = np.fromiter(map(len, packed), np.int64, len(packed))
    return binary_array(_ends(sizes).astype(np.int32), b"".join(packed))


def _numbers(array: pa.Array) -> NDArray[Any]:
    numbers: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return numbers


def _ends(counts: Ints) -> Ints:
    return np.append(0, np.cumsum(counts, dtype=np.int64))
