"""The stored features of one leaf of a tree as an Arrow array, each record checked by itself."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tfrtool.errors import some_of
from tfrtool.examples.arrow.arrays import Ints, bools_array, numbers_array, texts_array
from tfrtool.examples.arrow.value_types import as_logical, logical_type
from tfrtool.examples.example import DType, is_utf8
from tfrtool.examples.fields import (
    ITEM_SIZES,
    Encoding,
    Kind,
    Leaf,
    Values,
    class_count,
    shape_text,
)
from tfrtool.features.encoded_tensors import (
    BATCH_UNPACKED,
    MOST_UNPACKED,
    arrow_numbers,
    unpack,
)
from tfrtool.features.misfits import Misfits
from tfrtool.features.named_sizes import Items, named_sizes
from tfrtool.features.stored_layout import MAX_LENGTH, StoredFeature, StoredLeaf, stored_leaf
from tfrtool.features.stored_lists import (
    MOST_LISTS,
    BuiltField,
    StoredLists,
    differing_records,
    ends_of,
    numbers_of,
    string_parts,
    tensors,
    tensors_of_sizes,
    with_joined_strings,
    with_nulls,
)

STRINGS = (Kind.BYTES, Kind.IMAGE, Kind.AUDIO)
"""Kinds whose values are the bytes that a record stores."""

_AS_STORED = ("float32", "float16", "bfloat16", "int64")


class LeafBuild:
    """Builds leaves from the arrays of their stored features."""

    def __init__(self, stored: Mapping[str, pa.Array], misfits: Misfits, *, strict: bool) -> None:
        """Take an array of lists for each stored feature, by name."""
        self._stored, self._strict = stored, strict
        self._misfits, self._refuse = misfits, misfits.add
        is_batch = any(len(array) > 1 for array in stored.values())
        self._room = BATCH_UNPACKED if is_batch else MOST_UNPACKED

    def build(self, leaf: Leaf) -> BuiltField | None:
        """Return a leaf; None if some records don't fit it."""
        stored, values = stored_leaf(leaf), leaf.values
        if values.kind is Kind.MIXED:
            array = self._stored[leaf.path]
            return BuiltField((), array, np.asarray(array.is_valid()))
        is_encoded = values.encoding is not Encoding.NONE
        per_item = 1 if is_encoded else values.size
        found = self._items(stored.values, stored.lengths, leaf, per_item)
        if found is None:
            return None
        offsets, source = found
        if self._strict:
            self._check_presence(leaf, source)
        if is_encoded:
            array = self._decoded(leaf, stored, offsets, source)
        else:
            array = self._converted(leaf, source)
            if array is not None and values.size_features:
                array = self._shaped(array, leaf, offsets, source, source.counts[source.present])
            elif array is not None and values.shape:
                counts = source.counts[source.present] if None in values.shape else None
                array = tensors(array, int(source.present.sum()), values.shape, counts)
        if array is None:
            return None
        if leaf.level == 0 and not source.is_complete:
            array = with_nulls(array, source.present)
        return BuiltField(offsets, array, source.present)

    def _lists(self, feature: StoredFeature) -> StoredLists:
        return StoredLists.of(self._stored[feature.key])

    def _items(
        self, feature: StoredFeature, lengths: Sequence[StoredFeature], leaf: Leaf, per_item: int
    ) -> tuple[tuple[Ints, ...], StoredLists] | None:
        """Return where the items of each list are, and a feature with ``per_item`` values each.

        None if some records don't fit.
        """
        stored = self._lists(feature)
        if leaf.level == 0:
            return self._single(feature, leaf.values, stored, per_item)
        if leaf.level > 1:
            return self._ragged(feature, lengths, stored, per_item)
        if per_item == 1:
            return (stored.bounds,), stored
        wrong = np.flatnonzero(stored.counts % per_item)
        if wrong.size:
            expected = f"a multiple of {per_item} values"
            self._refuse(wrong, feature.key, expected, stored.counts[wrong])
            return None
        return (stored.bounds // per_item,), stored

    def _single(
        self, feature: StoredFeature, values: Values, stored: StoredLists, per_item: int
    ) -> tuple[tuple[Ints, ...], StoredLists] | None:
        """Check a feature that isn't in lists."""
        is_packed = feature.dtype is DType.STRING and values.encoding is Encoding.RAW
        if is_packed and not self._strict:
            stored = with_joined_strings(stored, ITEM_SIZES[values.dtype])
        if values.null is not None:
            present = stored.present & (stored.counts > 0)
            stored = stored._replace(present=present, is_complete=bool(present.all()))
        if values.encoding is Encoding.NONE and None in values.shape:
            wrong = stored.counts % per_item != 0 if per_item else stored.counts != 0
            expected = f"a multiple of {per_item} values"
        else:
            wrong = stored.counts != per_item
            expected = expected_count(values, per_item)
        if not stored.is_complete:
            wrong &= stored.present
        rows = np.flatnonzero(wrong)
        if rows.size:
            self._refuse(rows, feature.key, expected, stored.counts[rows])
            return None
        return (), stored

    def _ragged(
        self,
        feature: StoredFeature,
        lengths: Sequence[StoredFeature],
        stored: StoredLists,
        per_item: int,
    ) -> tuple[tuple[Ints, ...], StoredLists] | None:
        """Return the lists within lists that row lengths describe."""
        present = stored.present
        offsets, bounds = list[Ints](), np.zeros(0, np.int64)
        for length in lengths:
            rows = self._lists(length)
            bounds = bounds if offsets else rows.bounds
            offsets = offsets or [bounds]
            present = present | rows.present
            sizes, expected = numbers_of(rows.values), np.diff(bounds)
            outside = np.flatnonzero(sizes.view(np.uint64) > MAX_LENGTH)
            if outside.size:
                owners = rows.owners(outside)
                self._refuse(owners, length.key, "lengths of lists", sizes[outside])
            wrong = np.flatnonzero(rows.counts != expected)
            if wrong.size:
                what = "as many lengths as there are lists"
                found = instead(rows.counts[wrong], expected[wrong])
                self._refuse(wrong, length.key, what, found)
            if outside.size or wrong.size:
                return None
            ends = ends_of(sizes)
            offsets.append(ends)
            bounds = ends[rows.bounds]
        items = np.diff(bounds)
        wrong = np.flatnonzero((stored.counts != items * per_item) | (items > MAX_LENGTH))
        if wrong.size:
            found = instead(stored.counts[wrong], items[wrong] * per_item)
            self._refuse(wrong, feature.key, "as many values as the row lengths say", found)
            return None
        return tuple(offsets), stored._replace(present=present, is_complete=bool(present.all()))

    def _check_presence(self, leaf: Leaf, source: StoredLists) -> None:
        """Refuse records without a feature that TFDS needs: it fails, but we show null."""
        values = leaf.values
        is_needed = leaf.level == 0 and not values.info.get("optional")
        if is_needed and (values.encoding is not Encoding.NONE or None not in values.shape):
            missing = np.flatnonzero(~source.present)
            self._refuse(missing, leaf.path, str(values), "no such feature")

    def _decoded(
        self, leaf: Leaf, stored: StoredLeaf, offsets: Sequence[Ints], source: StoredLists
    ) -> pa.Array | None:
        """Return encoded tensors; None if some records don't fit."""
        shape, sizes = leaf.values.shape, None
        if stored.shape:
            sizes = self._sizes(stored.shape, leaf, offsets, source)
            if sizes is None:
                return None
        unpacked = unpack(source.values, leaf.values, self._room)
        if unpacked.data is None:
            owners = source.owners(np.array([*unpacked.bad], np.int64))
            self._refuse(owners, leaf.path, unpacked.expected, [*unpacked.bad.values()])
            return None
        self._room -= max(0, len(unpacked.data) - len(string_parts(source.values)[1]))
        counts, known = unpacked.counts, leaf.values.size
        numbers = arrow_numbers(unpacked.data, leaf.values.dtype)
        if leaf.values.size_features:
            return self._shaped(numbers, leaf, offsets, source, counts)
        if shape and unpacked.sizes is not None:
            sizes = unpacked.sizes
        if sizes is not None:
            wrong = misshapen(sizes, shape, counts)
            expected = "the stored shape" if stored.shape else f"the shape {shape_text(shape)}"
        elif None in shape:
            wrong = counts % known != 0 if known else counts != 0
            expected = f"a multiple of {known} values"
        else:
            wrong = counts != known
            expected = expected_count(leaf.values, known)
        bad = np.flatnonzero(wrong)
        if bad.size:
            found = (
                [*map(shape_text, unpacked.sizes[bad].tolist())]
                if unpacked.sizes is not None
                else counts[bad]
            )
            self._refuse(source.owners(bad), leaf.path, expected, found)
            return None
        if sizes is not None:
            return tensors_of_sizes(numbers, [*sizes.T], shape)
        known_counts = counts if None in shape else None
        return tensors(numbers, len(counts), shape, known_counts)

    def _shaped(
        self,
        values: pa.Array,
        leaf: Leaf,
        offsets: Sequence[Ints],
        source: StoredLists,
        counts: Ints,
    ) -> pa.Array | None:
        """Return values as tensors with sizes of other features; None if some records don't fit.

        ``counts`` is how many values each tensor has.
        """
        if leaf.level:
            owners = np.repeat(np.arange(len(source.counts)), np.diff(offsets[0]))
        else:
            owners = np.flatnonzero(source.present)
        stored = {one.key: self._lists(one) for one in stored_leaf(leaf).sizes}
        sizes = named_sizes(leaf.values, stored, Items(owners, counts), self._misfits)
        if sizes is None:
            return None
        bad = np.flatnonzero(misshapen(sizes, leaf.values.shape, counts))
        if bad.size:
            expected = f"as many values as {some_of([*stored], 3)} says"
            found = instead_of_sizes(counts[bad], sizes[bad])
            self._refuse(owners[bad], leaf.path, expected, found)
            return None
        return tensors_of_sizes(values, [*sizes.T], leaf.values.shape)

    def _sizes(
        self,
        features: Sequence[StoredFeature],
        leaf: Leaf,
        offsets: Sequence[Ints],
        source: StoredLists,
    ) -> Ints | None:
        """Return the stored shapes, one row an item; None if some records have none that fits."""
        rank, key = len(leaf.values.shape), features[0].key
        found = self._items(features[0], features[1:], leaf, rank)
        if found is None:
            return None
        shape_offsets, shapes = found
        if leaf.level:
            wrong = differing_records(offsets, shape_offsets)
        else:
            wrong = np.flatnonzero(shapes.counts != source.counts * rank)
        if wrong.size:
            what = f"{rank} sizes a tensor"
            self._refuse(wrong, key, what, shapes.counts[wrong])
            return None
        sizes = numbers_of(shapes.values)
        outside = np.flatnonzero(sizes.view(np.uint64) > MAX_LENGTH)
        if outside.size:
            self._refuse(shapes.owners(outside), key, "sizes", sizes[outside])
            return None
        return sizes.reshape(-1, rank)

    def _converted(self, leaf: Leaf, source: StoredLists) -> pa.Array | None:
        """Return values with the type that they have in a table; None if some can't have it."""
        values, stored = leaf.values, source.values
        if values.kind in STRINGS or values.dtype in _AS_STORED:
            return stored
        if values.kind is Kind.TEXT:
            return self._texts(leaf, source)
        if values.kind is Kind.TIME:
            return self._times(leaf, source)
        numbers = numbers_of(stored)
        if values.kind is Kind.LABEL:
            self._check_labels(leaf, source, numbers)
            return stored
        if values.dtype == "float64":
            with np.errstate(invalid="ignore"):  # NaN may be any
                return numbers_array(numbers.astype(np.float64))
        if values.dtype == "uint64":
            return numbers_array(numbers.view(np.uint64))
        if values.kind is Kind.BOOL:
            low, high, expected = 0, 1, "0 or 1"
        else:
            limits = np.iinfo(values.dtype)
            low, high, expected = int(limits.min), int(limits.max), values.dtype
        if numbers.size and (numbers.min() < low or numbers.max() > high):
            wrong = np.flatnonzero((numbers < low) | (numbers > high))
            self._refuse(source.owners(wrong), leaf.path, expected, numbers[wrong])
            return None
        if values.kind is Kind.BOOL:
            return bools_array(numbers.astype(np.bool_))
        return numbers_array(numbers.astype(values.dtype))

    def _texts(self, leaf: Leaf, source: StoredLists) -> pa.Array | None:
        """Return strings as text; bytes that aren't, if ``strict``, as what TFDS reads."""
        try:
            return texts_array(source.values)
        except pa.ArrowInvalid:
            texts = source.values.to_pylist()
        bad = np.array([index for index, text in enumerate(texts) if not is_utf8(text)], np.int64)
        found = "bytes that are not UTF-8"
        self._refuse(source.owners(bad), leaf.path, "text", found, is_text=True)
        return source.values if self._strict else None

    def _times(self, leaf: Leaf, source: StoredLists) -> pa.Array | None:
        kind = logical_type(leaf.values.dtype)
        bad = _unconvertible(source.values, kind)
        if not bad:
            return as_logical(source.values, kind)
        owners = source.owners(np.array(bad, np.int64))
        self._refuse(owners, leaf.path, leaf.values.dtype, "another value")
        return None

    def _check_labels(self, leaf: Leaf, source: StoredLists, numbers: NDArray[Any]) -> None:
        count = class_count(leaf.values)
        if not (self._strict and count):
            return
        wrong = np.flatnonzero((numbers < -1) | (numbers >= count))
        expected = f"a class from -1 to {count - 1}"
        self._refuse(source.owners(wrong), leaf.path, expected, numbers[wrong])


def instead(found: Ints, expected: Ints) -> list[str]:
    """Return what each record has, and what it should have."""
    pairs = zip(found.tolist(), expected.tolist(), strict=True)
    return [f"{number} instead of {other}" for number, other in pairs]


def instead_of_sizes(counts: Ints, sizes: Ints) -> list[str]:
    """Return how many values each tensor has, and which sizes it should have."""
    pairs = zip(counts.tolist(), sizes.tolist(), strict=True)
    return [f"{count} instead of {' x '.join(map(str, row))}" for count, row in pairs]


def expected_count(values: Values, per_item: int) -> str:
    """Return how many values a single item has, a clause."""
    if per_item == 1:
        return "one value" if values.encoding is Encoding.NONE else "one string"
    is_all = math.prod(size or 0 for size in values.shape) == per_item
    return f"{per_item} values ({shape_text(values.shape)})" if is_all else f"{per_item} values"


def misshapen(sizes: Ints, shape: Sequence[int | None], counts: Ints) -> NDArray[np.bool_]:
    """Return which tensors have other sizes than their shape, or another number of values."""
    products = np.prod(sizes.astype(np.float64), axis=1)
    extents = np.prod(np.maximum(sizes, 1).astype(np.float64), axis=1)
    wrong: NDArray[np.bool_] = (products != counts) | ((products == 0) & (extents > MOST_LISTS))
    for number, size in enumerate(shape):
        if size is not None:
            wrong |= sizes[:, number] != size
    return wrong


def _unconvertible(values: pa.Array, kind: pa.DataType, start: int = 0) -> list[int]:
    """Return the indexes of values that can't be times or decimals."""
    try:
        as_logical(values, kind)
    except (ValueError, pa.ArrowException):
        middle = len(values) // 2
        if not middle:
            return [start]
        left = _unconvertible(values.slice(0, middle), kind, start)
        return left + _unconvertible(values.slice(middle), kind, start + middle)
    return []
