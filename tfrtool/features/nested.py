"""Stored features as nested Arrow arrays, each record checked at its own bounds.

Nothing here works on one record at a time, except unpacking of encoded tensors. A record that the
tree doesn't fit becomes a misfit, and the others are built without it.
"""

import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tfrtool.errors import SchemaError
from tfrtool.examples.arrow.arrays import (
    Bools,
    Ints,
    bools_array,
    list_array,
    numbers_array,
    scattered,
)
from tfrtool.examples.arrow.value_types import as_logical, logical_type
from tfrtool.examples.example import is_utf8
from tfrtool.features.stored_layout import StoredFeature, stored_leaf
from tfrtool.features.types import (
    ITEM_SIZES,
    Encoding,
    Field,
    Kind,
    Leaf,
    ListOf,
    Struct,
    Values,
    join,
)

_MOST_ITEMS = 2**31 - 1
"""Arrow counts the items of a list in 32 bits."""

_MOST_UNPACKED = 256 * 1024 * 1024
"""Bytes of an encoded tensor of unknown sizes, and of all in a batch: zlib packs a thousandfold."""

_STRINGS = (Kind.BYTES, Kind.IMAGE, Kind.AUDIO)


class FieldMisfit(NamedTuple):
    """How a record differs from its tree.

    Attributes:
        path: the feature, as it is stored.
        expected: what the tree says, a clause.
        found: what the record has.
        is_text: whether it is only that text isn't UTF-8, which TFDS reads all the same.
    """

    path: str
    expected: str
    found: str
    is_text: bool = False

    def __str__(self) -> str:
        return f"feature {self.path!r}: expected {self.expected}, found {self.found}"


def arrow_type(item: Field) -> pa.DataType:
    """Return the Arrow type of a field."""
    if isinstance(item, Struct):
        return pa.struct([pa.field(name, arrow_type(part)) for name, part in item.fields.items()])
    if isinstance(item, ListOf):
        return pa.list_(arrow_type(item.item))
    kind = _value_type(item)
    for size in reversed(item.shape):
        kind = pa.list_(kind, size) if size else pa.list_(kind)  # Arrow has no fixed size of 0
    return kind


def _value_type(values: Values) -> pa.DataType:
    if values.kind in (Kind.NUMBER, Kind.LABEL):
        dtype = values.dtype or "int64"
        return pa.from_numpy_dtype(
            np.dtype("float32" if "16" in dtype and "float" in dtype else dtype)
        )
    if values.kind is Kind.BOOL:
        return pa.bool_()
    if values.kind is Kind.TIME:
        return logical_type(values.dtype)
    return pa.string() if values.kind is Kind.TEXT else pa.binary()


class _Stored(NamedTuple):
    """A stored feature: where each record's values are, the values, and which records have it."""

    bounds: Ints
    values: pa.Array
    present: Bools

    @classmethod
    def of(cls, array: pa.Array) -> "_Stored":
        """Return the parts of an array of lists."""
        size, start = len(array), array.offset
        if not size:
            return cls(np.zeros(1, np.int64), array.values.slice(0, 0), np.zeros(0, np.bool_))
        bounds = np.frombuffer(array.buffers()[1], np.int32)[start : start + size + 1]
        values = array.values.slice(int(bounds[0]), int(bounds[-1] - bounds[0]))
        present = np.ones(size, np.bool_)
        if array.null_count:
            present = np.asarray(array.is_valid())
        return cls(bounds.astype(np.int64) - bounds[0], values, present)


class _BuiltField(NamedTuple):
    """A field in the making.

    Attributes:
        offsets: for each list around it, where the items of each entry start and end.
        array: its items, one after the other.
        present: which records have it.
    """

    offsets: tuple[Ints, ...]
    array: pa.Array
    present: Bools


class NestedBuild:
    """Builds the arrays of a tree's fields from those of its stored features.

    Attributes:
        misfits: how records differ from the tree, by their places; there are no arrays if any do.
        arrays: the top-level fields.
    """

    def __init__(
        self, root: Struct, stored: Mapping[str, pa.Array], records: int, *, strict: bool = False
    ) -> None:
        """Build the fields.

        Args:
            root: the tree.
            stored: an array of lists for each of its `stored_features`, by name.
            records: how many there are.
            strict: whether what can be shown all the same, such as a missing feature that TFDS
                needs, is a misfit too.
        """
        self.misfits: dict[int, dict[str, FieldMisfit]] = {}
        self._stored, self._records, self._strict = stored, records, strict
        parts = [self._build(item, name, 0) for name, item in root.fields.items()]
        self.arrays = [part.array for part in parts if part is not None]

    def _refuse(
        self,
        rows: Ints,
        path: str,
        expected: str,
        found: Sequence[object] | Ints | str,
        *,
        is_text: bool = False,
    ) -> None:
        """Note misfits of records; ``found`` is a text, or says it for each of the rows."""
        texts = [found] * len(rows) if isinstance(found, str) else found
        for row, text in zip(rows.tolist(), texts, strict=True):
            known = self.misfits.setdefault(row, {})
            if path not in known:
                known[path] = FieldMisfit(path, expected, str(text), is_text)

    def _build(self, item: Field, path: str, level: int) -> _BuiltField | None:
        """Return a field, which is in ``level`` lists; None if some records don't fit it."""
        if isinstance(item, Struct):
            return self._struct(item, path, level)
        if isinstance(item, ListOf):
            return self._list(item, path, level)
        return self._leaf(Leaf(path, level, item))

    def _struct(self, item: Struct, path: str, level: int) -> _BuiltField | None:
        names = [*item.fields]
        built = [self._build(part, join(path, name), level) for name, part in item.fields.items()]
        parts = [part for part in built if part is not None]
        if len(parts) < len(built):
            return None
        if not parts:
            empty = pa.StructArray.from_buffers(pa.struct([]), self._records, [None])
            return None if level else _BuiltField((), empty, np.ones(self._records, np.bool_))
        if level:
            aligned = self._aligned(parts, [join(path, name) for name in names])
            if aligned is None:
                return None
            parts = aligned
        arrays = [part.array for part in parts]
        kinds = [pa.field(name, array.type) for name, array in zip(names, arrays, strict=True)]
        array = pa.Array.from_buffers(pa.struct(kinds), len(arrays[0]), [None], children=arrays)
        present = np.logical_or.reduce([part.present for part in parts])
        return _BuiltField(parts[0].offsets, array, present)

    def _aligned(
        self, parts: Sequence[_BuiltField], paths: Sequence[str]
    ) -> list[_BuiltField] | None:
        """Return the fields of structs in lists with as many items each; None if some differ.

        A field that a record doesn't have at all is null in all of its items.
        """
        if len(parts) == 1:
            return [*parts]
        counts = [np.diff(part.offsets[0]) for part in parts]
        most = np.maximum.reduce(counts)
        longest = np.argmax(counts, axis=0)
        fits = True
        for part, path, count in zip(parts, paths, counts, strict=True):
            wrong = count != most
            if len(part.offsets) == 1:
                wrong &= part.present
            rows = np.flatnonzero(wrong)
            if rows.size:
                fits = False
                other = paths[int(longest[rows[0]])]
                self._refuse(
                    rows,
                    path,
                    f"as many items as {other!r}",
                    _instead(count[rows], most[rows]),
                )
        first = parts[0].offsets
        for part, path in zip(parts, paths, strict=True) if fits else ():
            for depth, (left, right) in enumerate(zip(first[1:], part.offsets[1:], strict=True), 1):
                if np.array_equal(left, right):
                    continue
                if len(left) == len(right):
                    entries = np.flatnonzero(np.diff(left) != np.diff(right))
                    rows = np.unique(_owners(first[:depth], entries))
                    what = f"lists as long as those of {paths[0]!r}"
                    self._refuse(rows, path, what, "other lengths")
                fits = False
                break
        if not fits:
            return None
        ends = _ends(most)
        return [
            part
            if (count == most).all()
            else _BuiltField((ends,), _filled(part, most), part.present)
            for part, count in zip(parts, counts, strict=True)
        ]

    def _list(self, item: ListOf, path: str, level: int) -> _BuiltField | None:
        part = self._build(item.item, path, level + 1)
        if part is None:
            return None
        *outer, last = part.offsets
        if item.length is not None:
            lengths = np.diff(last)
            wrong = np.flatnonzero(lengths != item.length)
            rows = wrong if not outer else _owners(outer, wrong)
            absent = ~part.present[rows]
            wrong, rows = wrong[~absent], rows[~absent]
            if rows.size:
                what = f"{item.length} items"
                self._refuse(rows, path, what, lengths[wrong])
                return None
        if level:
            return _BuiltField(tuple(outer), _list_of(last, part.array), part.present)
        return _BuiltField((), _list_of(last, part.array, part.present), part.present)

    def _leaf(self, leaf: Leaf) -> _BuiltField | None:
        stored, values = stored_leaf(leaf), leaf.values
        is_encoded = values.encoding is not Encoding.NONE
        per = 1 if is_encoded or None in values.shape else values.size
        found = self._items(stored.values, stored.lengths, leaf, per)
        if found is None:
            return None
        offsets, source = found
        if self._strict:
            self._check_presence(leaf, source)
        dims = None
        if stored.shape:
            dims = self._dims(stored.shape, leaf, offsets, source)
            if dims is None:
                return None
        numbers = source.values
        items = self._item_places(leaf, offsets, source)
        if is_encoded:
            unpacked = self._unpacked(leaf, source)
            if unpacked is None:
                return None
            numbers, counts = unpacked
        else:
            converted = self._converted(leaf, source)
            if converted is None:
                return None
            numbers = converted
            counts = np.diff(source.bounds)[items] if not leaf.level else np.full(items.size, per)
        array = self._shaped(leaf, numbers, counts, dims, items)
        if array is None:
            return None
        if leaf.level == 0:
            places = np.flatnonzero(source.present)
            array = (
                array
                if len(places) == len(source.present)
                else scattered(array, len(source.present), places)
            )
        return _BuiltField(offsets, array, source.present)

    def _items(
        self, feature: StoredFeature, lengths: Sequence[StoredFeature], leaf: Leaf, per: int
    ) -> tuple[tuple[Ints, ...], _Stored] | None:
        """Return where the items of each list are, and a feature with ``per`` values an item.

        None if some records don't fit.
        """
        stored = _Stored.of(self._stored[feature.key])
        counts = np.diff(stored.bounds)
        if leaf.level == 0:
            return self._single(feature, leaf, stored, per)
        if leaf.level == 1:
            wrong = np.flatnonzero(counts % per if per else counts)
            if wrong.size:
                expected = f"a multiple of {per} values" if per else "no values"
                self._refuse(wrong, feature.key, expected, counts[wrong])
                return None
            return (stored.bounds // max(per, 1),), stored
        return self._ragged(feature, lengths, stored, per)

    def _single(
        self, feature: StoredFeature, leaf: Leaf, stored: _Stored, per: int
    ) -> tuple[tuple[Ints, ...], _Stored] | None:
        """Check a feature that isn't in lists."""
        values, counts = leaf.values, np.diff(stored.bounds)
        is_shape = feature.key != leaf.path and feature.key.endswith("/shape")
        if values.encoding is Encoding.NONE and None in values.shape:
            known = values.size
            wrong = counts % known != 0 if known else counts != 0
            expected = f"a multiple of {known} values"
        else:
            wrong = counts != per
            what = "value" if values.encoding is Encoding.NONE or is_shape else "string"
            expected = f"one {what}" if per == 1 else f"{per} values"
            if values.shape and per > 1 and not is_shape:
                expected = f"{per} values ({values})"
        rows = np.flatnonzero(wrong & stored.present)
        if rows.size:
            self._refuse(rows, feature.key, expected, counts[rows])
            return None
        return (), stored

    def _ragged(
        self, feature: StoredFeature, lengths: Sequence[StoredFeature], stored: _Stored, per: int
    ) -> tuple[tuple[Ints, ...], _Stored] | None:
        """Return the lists within lists that row lengths describe."""
        present = stored.present
        first = _Stored.of(self._stored[lengths[0].key])
        offsets, bounds = [first.bounds], first.bounds
        for number, length in enumerate(lengths):
            rows = first if not number else _Stored.of(self._stored[length.key])
            present = present | rows.present
            sizes, expected = _numbers_of(rows.values), np.diff(bounds)
            outside = np.flatnonzero((sizes < 0) | (sizes > _MOST_ITEMS))
            wrong = np.flatnonzero(np.diff(rows.bounds) != expected)
            if outside.size:
                owners = _owners((rows.bounds,), outside)
                self._refuse(owners, length.key, "lengths of lists", "numbers out of range")
            if wrong.size:
                entries = np.diff(rows.bounds)
                self._refuse(
                    wrong,
                    length.key,
                    "as many lengths as there are lists",
                    _instead(entries[wrong], expected[wrong]),
                )
            if outside.size or wrong.size:
                return None
            ends = _ends(sizes)
            offsets.append(ends)
            bounds = ends[rows.bounds]
        expected, counts = np.diff(bounds) * per, np.diff(stored.bounds)
        wrong = np.flatnonzero((counts != expected) | (np.diff(bounds) > _MOST_ITEMS))
        if wrong.size:
            self._refuse(
                wrong,
                feature.key,
                "as many values as the row lengths say",
                _instead(counts[wrong], expected[wrong]),
            )
            return None
        if bounds[-1] > _MOST_ITEMS:
            raise SchemaError(f"the lists of {feature.key!r} have too many items in one batch")
        return tuple(offsets), stored._replace(present=present)

    def _item_places(self, leaf: Leaf, offsets: Sequence[Ints], source: _Stored) -> Ints:
        """Return for each item which record, or which entry of the last list, it is."""
        if leaf.level == 0:
            return np.flatnonzero(source.present)
        return np.arange(int(offsets[-1][-1]))

    def _dims(
        self,
        features: Sequence[StoredFeature],
        leaf: Leaf,
        offsets: Sequence[Ints],
        source: _Stored,
    ) -> Ints | None:
        """Return the stored shapes, one row an item; None if some records have none that fits."""
        rank = len(leaf.values.shape)
        found = self._items(features[0], features[1:], leaf, rank)
        if found is None:
            return None
        shape_offsets, shapes = found
        counts, items = np.diff(shapes.bounds), np.diff(source.bounds)
        wrong = np.flatnonzero(counts != items * rank)
        if wrong.size:
            what = f"{rank} sizes a tensor"
            key = features[0].key
            self._refuse(wrong, key, what, counts[wrong])
            return None
        for left, right in zip(offsets, shape_offsets, strict=True):
            if not np.array_equal(left, right):
                rows = np.arange(len(source.present))
                self._refuse(rows, features[0].key, "a shape for each tensor", "others")
                return None
        sizes = _numbers_of(shapes.values)
        outside = np.flatnonzero((sizes < 0) | (sizes > _MOST_ITEMS))
        if outside.size:
            owners = _owners((shapes.bounds,), outside)
            self._refuse(owners, features[0].key, "sizes", sizes[outside])
            return None
        return sizes.reshape(-1, rank)

    def _converted(self, leaf: Leaf, source: _Stored) -> pa.Array | None:
        """Return values with the type that they have in a table; None if some can't have it."""
        values, stored = leaf.values, source.values
        if values.kind in _STRINGS:
            return stored
        if values.kind is Kind.TEXT:
            return self._texts(leaf, source)
        if values.kind is Kind.TIME:
            return self._times(leaf, source)
        numbers = _numbers_of(stored)
        if values.kind is Kind.LABEL:
            self._check_labels(leaf, source, numbers)
            return stored
        if values.kind is Kind.BOOL:
            wrong = np.flatnonzero((numbers != 0) & (numbers != 1))
            if not wrong.size:
                return bools_array(numbers.astype(np.bool_))
            expected = "0 or 1"
        elif values.dtype in ("float32", "bfloat16", "float16", "int64"):
            return stored
        elif values.dtype in ("float64", "uint64"):
            is_float = values.dtype == "float64"
            return numbers_array(
                numbers.astype(np.float64) if is_float else numbers.view(np.uint64)
            )
        else:
            limits = np.iinfo(values.dtype)
            wrong = np.flatnonzero((numbers < limits.min) | (numbers > limits.max))
            if not wrong.size:
                return numbers_array(numbers.astype(values.dtype))
            expected = values.dtype
        owners = _owners((source.bounds,), wrong)
        self._refuse(owners, leaf.path, expected, numbers[wrong])
        return None

    def _texts(self, leaf: Leaf, source: _Stored) -> pa.Array | None:
        try:
            return source.values.cast(pa.string())
        except pa.ArrowInvalid:
            texts = source.values.to_pylist()
        bad = np.array([index for index, text in enumerate(texts) if not is_utf8(text)], np.int64)
        owners = _owners((source.bounds,), bad)
        self._refuse(owners, leaf.path, "text", "bytes that are not UTF-8", is_text=True)
        return None

    def _times(self, leaf: Leaf, source: _Stored) -> pa.Array | None:
        kind, values = logical_type(leaf.values.dtype), source.values
        try:
            return as_logical(values, kind)
        except (ValueError, pa.ArrowException):
            bad = []
            for index in range(len(values)):
                try:
                    as_logical(values.slice(index, 1), kind)
                except (ValueError, pa.ArrowException):
                    bad.append(index)
        owners = _owners((source.bounds,), np.array(bad, np.int64))
        self._refuse(owners, leaf.path, leaf.values.dtype, "another value")
        return None

    def _check_labels(self, leaf: Leaf, source: _Stored, numbers: NDArray[Any]) -> None:
        info = leaf.values.info
        count = len(info.get("names") or ()) or int(info.get("numClasses") or 0)
        if not (self._strict and count):
            return
        wrong = np.flatnonzero((numbers < -1) | (numbers >= count))
        owners = _owners((source.bounds,), wrong)
        expected = f"a class from -1 to {count - 1}"
        self._refuse(owners, leaf.path, expected, numbers[wrong])

    def _check_presence(self, leaf: Leaf, source: _Stored) -> None:
        """Refuse records without a feature that TFDS needs: it fails, but we show null."""
        values = leaf.values
        is_needed = leaf.level == 0 and not values.info.get("optional")
        if is_needed and (values.encoding is not Encoding.NONE or None not in values.shape):
            missing = np.flatnonzero(~source.present)
            self._refuse(missing, leaf.path, str(values), "no such feature")

    def _unpacked(self, leaf: Leaf, source: _Stored) -> tuple[pa.Array, Ints] | None:
        """Return the numbers of encoded tensors one after the other, and how many each has."""
        values, item_size = leaf.values, ITEM_SIZES[leaf.values.dtype]
        ends: NDArray[Any] = np.frombuffer(source.values.buffers()[1], np.int32)
        ends = ends[source.values.offset : source.values.offset + len(source.values) + 1]
        data = np.frombuffer(source.values.buffers()[2] or b"", np.uint8)
        data = data[ends[0] : ends[-1]] if len(ends) else data
        ends = ends.astype(np.int64) - (ends[0] if len(ends) else 0)
        sizes = np.diff(ends)
        if values.encoding is Encoding.ZLIB:
            parts, bad = _decompressed(data, ends, self._most_bytes(values))
            if bad:
                owners = _owners((source.bounds,), np.array([*bad], np.int64))
                self._refuse(owners, leaf.path, "zlib data", [*bad.values()])
                return None
            sizes = np.fromiter(map(len, parts), np.int64, len(parts))
            data = np.frombuffer(b"".join(parts), np.uint8)
        wrong = np.flatnonzero(sizes % item_size)
        if wrong.size:
            owners = _owners((source.bounds,), wrong)
            what = f"a multiple of {item_size} bytes"
            self._refuse(owners, leaf.path, what, sizes[wrong])
            return None
        return _as_numbers(data, values.dtype), sizes // item_size

    def _most_bytes(self, values: Values) -> int:
        """Return how many bytes a tensor may unpack to."""
        if None in values.shape:
            return _MOST_UNPACKED
        return values.size * ITEM_SIZES[values.dtype]

    def _shaped(
        self, leaf: Leaf, numbers: pa.Array, counts: Ints, dims: Ints | None, items: Ints
    ) -> pa.Array | None:
        """Return one element an item, of the tensor's shape; None if some have other sizes."""
        values = leaf.values
        shape, known = values.shape, values.size
        source = _Stored.of(self._stored[stored_leaf(leaf).values.key])
        if dims is not None:
            fixed = [n for n, size in enumerate(shape) if size is not None]
            products = np.prod(dims.astype(np.float64), axis=1)
            exact = np.where(products < _MOST_ITEMS, np.prod(dims, axis=1, dtype=np.int64), -1)
            wrong = exact != counts
            for number in fixed:
                wrong |= dims[:, number] != shape[number]
            expected = "the stored shape"
        elif None in shape:
            wrong = counts % known != 0 if known else counts != 0
            expected = f"a multiple of {known} values"
        else:
            wrong = counts != known
            expected = f"{known} values ({values})" if shape else "one value"
        bad = np.flatnonzero(wrong)
        if bad.size:
            # An item is a value of its own where it is encoded; other counts are checked already.
            owners = items[bad] if leaf.level == 0 else _owners((source.bounds,), bad)
            self._refuse(owners, leaf.path, expected, counts[bad])
            return None
        if dims is None and None in shape:
            dims = np.tile(np.array([size or 0 for size in shape], np.int64), (len(counts), 1))
            dims[:, shape.index(None)] = counts // max(known, 1)
        return _nested(numbers, len(counts), shape, dims)


def _nested(
    values: pa.Array, items: int, shape: Sequence[int | None], dims: Ints | None
) -> pa.Array:
    """Return values as tensors; ``dims`` has the sizes of each where they are not all known."""
    if dims is None:
        dims = (
            np.tile(np.array([*shape], np.int64).reshape(1, -1), (items, 1)) if 0 in shape else dims
        )
    if dims is None:
        for size in reversed(shape):
            values = pa.FixedSizeListArray.from_arrays(values, size)
        return values
    repeats = [np.ones(items, np.int64)]
    for number in range(len(shape) - 1):
        repeats.append(repeats[-1] * dims[:, number])
    for number in reversed(range(len(shape))):
        size = shape[number]
        if size:
            values = pa.FixedSizeListArray.from_arrays(values, size)
        else:
            values = _list_of(_ends(np.repeat(dims[:, number], repeats[number])), values)
    return values


def _filled(part: _BuiltField, counts: Ints) -> pa.Array:
    """Return items with null ones for each record that has none of them, but others do."""
    is_own = np.repeat(part.present, counts)
    return scattered(part.array, len(is_own), np.flatnonzero(is_own))


def _list_of(offsets: Ints, values: pa.Array, present: Bools | None = None) -> pa.Array:
    """Return lists of values, null for records that don't have them."""
    size = len(offsets) - 1
    places = np.arange(size) if present is None else np.flatnonzero(present)
    return list_array(pa.list_(values.type), size, places, np.diff(offsets)[places], values)


def _instead(found: Ints, expected: Ints) -> list[str]:
    """Return what each record has, and what it should have."""
    pairs = zip(found.tolist(), expected.tolist(), strict=True)
    return [f"{number} instead of {other}" for number, other in pairs]


def _ends(counts: Ints) -> Ints:
    return np.append(0, np.cumsum(counts, dtype=np.int64))


def _owners(offsets: Sequence[Ints], entries: Ints) -> Ints:
    """Return the record of each entry, by the offsets of the lists around it."""
    bounds = offsets[0]
    for ends in offsets[1:]:
        bounds = ends[bounds]
    return np.searchsorted(bounds, entries, "right") - 1


def _numbers_of(array: pa.Array) -> NDArray[Any]:
    """Return the numbers of an array without nulls, not copied."""
    dtype = np.float32 if pa.types.is_float32(array.type) else np.int64
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(0, dtype)
    return np.frombuffer(buffer, dtype)[array.offset : array.offset + len(array)]


def _decompressed(
    data: NDArray[np.uint8], ends: Ints, most: int
) -> tuple[list[bytes], dict[int, str]]:
    """Return unpacked strings, and by index why others can't be unpacked.

    `SchemaError` if a batch of them takes too much memory.
    """
    parts, bad, total = list[bytes](), dict[int, str](), 0
    view = memoryview(data.tobytes())
    for index, (start, end) in enumerate(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)):
        unpacker = zlib.decompressobj()
        try:
            part = unpacker.decompress(view[start:end], most + 1)
        except zlib.error as error:
            bad[index] = str(error)
            continue
        if len(part) > most:
            bad[index] = f"more than {most} bytes"
        elif not unpacker.eof:
            bad[index] = "an incomplete stream"
        else:
            parts.append(part)
            total += len(part)
            if total > _MOST_UNPACKED and index:
                raise SchemaError(f"tensors unpack to more than {_MOST_UNPACKED:,} bytes")
    return parts, bad


def _as_numbers(data: NDArray[np.uint8], dtype: str) -> pa.Array:
    """Return little-endian numbers."""
    if dtype == "bool":
        return bools_array(data != 0)
    if dtype == "bfloat16":  # the upper half of a float32
        return numbers_array((data.copy().view(np.uint16).astype(np.uint32) << 16).view(np.float32))
    numbers = data.copy().view(np.dtype(dtype).newbyteorder("<"))
    return numbers_array(numbers.astype(np.float32) if dtype == "float16" else numbers)
