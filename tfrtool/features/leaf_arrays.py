"""The stored features of one leaf of a tree as NumPy arrays, for a single record."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfrtool.errors import SchemaError, some_of
from tfrtool.examples.arrow.arrays import numbers_array
from tfrtool.examples.example import DTYPES, DType, feature_key
from tfrtool.examples.fields import ITEM_SIZES, Encoding, Kind, Leaf, Values
from tfrtool.examples.proto import example_pb2 as pb
from tfrtool.features.encoded_tensors import native_numbers, unpack_strings
from tfrtool.features.leaf_build import expected_count, instead_of_sizes, misshapen
from tfrtool.features.misfits import FieldMisfit, Misfits
from tfrtool.features.named_sizes import Items, named_sizes
from tfrtool.features.stored_layout import MAX_LENGTH, StoredFeature, stored_dtype, stored_leaf
from tfrtool.features.stored_lists import StoredLists
from tfrtool.storage.limits import MAX_TENSOR_VALUES

_FEW = 48
"""Numbers that are faster to copy one by one than as an array."""

_MICROSECONDS_A_DAY = 86_400_000_000
_LISTS = {dtype: name for name, dtype in DTYPES.items()}
_NO_VALUES: Sequence[Any] = ()


class _Source(NamedTuple):
    """A stored feature: its key and name, its type, and protobuf's field of such values."""

    key: bytes
    name: str
    dtype: DType
    kind: str

    @classmethod
    def of(cls, feature: StoredFeature) -> "_Source":
        dtype = feature.dtype or DType.STRING
        return cls(feature_key(feature.key), feature.key, dtype, _LISTS[dtype])

    def values(self, features: Mapping[bytes, pb.Feature]) -> Sequence[Any] | None:
        """Return the values of a record; None if it doesn't have the feature."""
        feature = features.get(self.key)
        if feature is None:
            return None
        values: Sequence[Any] = getattr(feature, self.kind).value
        if not values:
            kind = feature.WhichOneof("kind")
            if kind is None:
                return None
            if kind != self.kind:
                raise misfit(self.name, f"{self.dtype.value} values", DTYPES[kind].value)
        return values


class LeafPart(NamedTuple):
    """A leaf of a record.

    Attributes:
        lengths: for each list around it, the numbers of items.
        items: its items, one after the other: an array, or a list of arrays of any sizes.
        is_present: whether the record has it.
    """

    lengths: tuple[list[int], ...]
    items: Any
    is_present: bool


def misfit(path: str, expected: str, found: object) -> ValueError:
    """Return the error of a record that differs from its tree."""
    return ValueError(str(FieldMisfit(path, expected, str(found))))


def numpy_dtype(values: Values) -> np.dtype[Any]:
    """Return the dtype of values."""
    if values.dtype == "bfloat16":
        import ml_dtypes

        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    if values.kind is Kind.TIME:
        if values.dtype.startswith("decimal"):
            return np.dtype(object)
        return np.dtype("datetime64[D]" if values.dtype == "date" else "datetime64[us]")
    if values.kind in (Kind.NUMBER, Kind.BOOL, Kind.LABEL):
        return np.dtype(values.dtype or "int64")
    return np.dtype(object)


class LeafArrays:
    """Decodes a leaf.

    Attributes:
        leaf: the leaf.
        sources: the features that store it.
    """

    def __init__(self, leaf: Leaf) -> None:
        """Prepare for a leaf."""
        values, stored = leaf.values, stored_leaf(leaf)
        if values.kind is Kind.MIXED:
            raise ValueError(f"the type of {leaf.path!r} differs between records")
        self.leaf = leaf
        self.sources = tuple(map(_Source.of, stored.all))
        self._source = _Source.of(stored.values)
        self._lengths = tuple(map(_Source.of, stored.lengths))
        self._shape = tuple(map(_Source.of, stored.shape))
        self._named = tuple(map(_Source.of, stored.sizes))
        self._is_encoded = values.encoding is not Encoding.NONE
        can_differ = self._is_encoded or bool(self._named)
        self._have_own_shapes = can_differ and None in values.shape
        self._size = values.size
        self._per_item = 1 if self._is_encoded else self._size
        self._dtype = numpy_dtype(values)
        self._stored: np.dtype[Any] = np.dtype(np.int64)
        if stored_dtype(values) is DType.FLOAT32:
            self._stored = np.dtype(np.float32)
        self._limits = _limits(values)
        self._item_shape = () if self._named else _item_shape(leaf)
        self._can_be_joined = values.encoding is Encoding.RAW and not leaf.level
        self._joined = {1, ITEM_SIZES.get(values.dtype, 1)}

    def decode(self, features: Mapping[bytes, pb.Feature]) -> LeafPart:
        """Return the leaf of a record; `ValueError` if that doesn't fit."""
        found = self._source.values(features)
        values, is_present = found or _NO_VALUES, found is not None
        if self.leaf.values.null is not None:
            is_present = bool(values)
        if self._can_be_joined and len(values) > 1 and {*map(len, values)} <= self._joined:
            values = (b"".join(values),)
        lengths: tuple[list[int], ...] = ()
        if self.leaf.level:
            sources = self._source, *self._lengths
            lengths, is_any_length = self._list_lengths(sources, values, self._per_item, features)
            is_present |= is_any_length
        elif is_present:
            self._check_single(len(values))
        sizes = self._sizes(lengths, len(values), features) if self._shape else None
        if not is_present and not lengths:
            return LeafPart((), self._defaults(1), is_present)
        if self._is_encoded:
            return LeafPart(lengths, self._tensors(values, sizes, features), is_present)
        items = self._converted(values)
        if self._named:
            counts = np.array([len(values)])
            sizes = self._named_sizes(counts, features)
            return LeafPart(lengths, self._divided(items, counts, sizes), is_present)
        if self._item_shape:
            items = items.reshape(self._item_shape)
        return LeafPart(lengths, items, is_present)

    def missing(self, count: int) -> LeafPart:
        """Return the leaf of a record that lacks it, but has items of its list."""
        level = self.leaf.level
        if level == 1:
            return LeafPart(([count],), self._defaults(count), is_present=False)
        inner: list[list[int]] = [[] for _ in range(level - 2)]
        items = self._defaults(0)
        return LeafPart(([count], [0] * count, *inner), items, is_present=False)

    def _defaults(self, count: int) -> Any:
        """Return what missing values are: the lowest number, as in TFDS, or empty strings."""
        values = self.leaf.values
        if count * values.extent > MAX_TENSOR_VALUES:
            raise ValueError("missing tensors take too much memory")
        shape = tuple(size or 0 for size in values.shape)
        items = np.full((count, *shape), _default(self._dtype), self._dtype)
        return [*items] if self._have_own_shapes else items

    def _check_single(self, count: int) -> None:
        """Check the number of values of a leaf that isn't in lists."""
        values, per_item = self.leaf.values, self._per_item
        if self._is_encoded or None not in values.shape:
            if count != per_item:
                raise misfit(self._source.name, expected_count(values, per_item), count)
        elif count % per_item if per_item else count:
            raise misfit(self._source.name, f"a multiple of {per_item} values", count)

    def _list_lengths(
        self,
        sources: Sequence[_Source],
        values: Sequence[Any],
        per_item: int,
        features: Mapping[bytes, pb.Feature],
    ) -> tuple[tuple[list[int], ...], bool]:
        """Return the lengths of the lists around values, and whether the record has any.

        ``sources`` are the feature with the values, and those with the lengths of inner lists.
        """
        (source, *row_lengths), count = sources, len(values)
        if not row_lengths:
            if count % per_item:
                raise misfit(source.name, f"a multiple of {per_item} values", count)
            return ([count // per_item],), False
        lengths, is_present = list[list[int]](), False
        for row_length in row_lengths:
            found = row_length.values(features)
            is_present |= found is not None
            sizes = [*(found or ())]
            lengths = lengths or [[len(sizes)]]
            for size in sizes:
                if not 0 <= size <= MAX_LENGTH:
                    raise misfit(row_length.name, "lengths of lists", size)
            if len(sizes) != (expected := sum(lengths[-1])):
                what = "as many lengths as there are lists"
                raise misfit(row_length.name, what, f"{len(sizes)} instead of {expected}")
            lengths.append(sizes)
        if count != (expected := sum(lengths[-1]) * per_item):
            what = "as many values as the row lengths say"
            raise misfit(source.name, what, f"{count} instead of {expected}")
        return tuple(lengths), is_present

    def _converted(self, values: Sequence[Any]) -> NDArray[Any]:
        """Return values with the dtype of the leaf."""
        kind, count = self._source.kind, len(values)
        if kind == "bytes_list":
            strings = np.empty(count, object)
            strings[:] = values
            self._check_decimals(strings)
            return strings
        is_small = count <= _FEW
        numbers = (
            np.fromiter(values, self._stored, count) if is_small else np.array(values, self._stored)
        )
        if self._limits is not None and count:
            low, high = self._limits
            least, most = numbers.min(), numbers.max()
            if least < low or most > high:
                expected = "0 or 1" if self._dtype.kind == "b" else self._dtype.name
                raise misfit(self.leaf.path, expected, least if least < low else most)
        return self._typed(numbers)

    def _typed(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """Return stored numbers, which fit, with the dtype of the leaf."""
        dtype = self._dtype
        if dtype == self._stored:
            return numbers
        if dtype.kind == "M":
            if dtype.name == "datetime64[us]":
                return numbers.view(dtype)
            if (numbers % _MICROSECONDS_A_DAY).any():
                raise misfit(self.leaf.path, self.leaf.values.dtype, "another value")
            return (numbers // _MICROSECONDS_A_DAY).astype(dtype)
        if dtype == np.uint64:
            return numbers.view(dtype)
        if self._stored.kind != "f":
            return numbers.astype(dtype)
        with np.errstate(invalid="ignore", over="ignore"):  # NaN may be any
            return numbers.astype(dtype)

    def _check_decimals(self, strings: NDArray[Any]) -> None:
        """Check that strings are decimal numbers, where they should be."""
        values = self.leaf.values
        if values.kind is not Kind.TIME:
            return
        import pyarrow as pa

        from tfrtool.examples.arrow.value_types import as_logical, logical_type

        try:
            as_logical(pa.array(strings, pa.binary()), logical_type(values.dtype))
        except (ValueError, pa.ArrowException) as error:
            raise misfit(self.leaf.path, values.dtype, "another value") from error

    def _sizes(
        self,
        lengths: tuple[list[int], ...],
        count: int,
        features: Mapping[bytes, pb.Feature],
    ) -> NDArray[np.int64]:
        """Return the stored shapes of encoded tensors, one a row."""
        source, rank = self._shape[0], len(self.leaf.values.shape)
        found = source.values(features) or _NO_VALUES
        fits = len(found) == count * rank
        if lengths and fits:
            others, _ = self._list_lengths(self._shape, found, rank, features)
            fits = others == lengths
        if not fits:
            raise misfit(source.name, f"{rank} sizes a tensor", len(found))
        for size in found:
            if not 0 <= size <= MAX_LENGTH:
                raise misfit(source.name, "sizes", size)
        return np.array(found, np.int64).reshape(-1, rank)

    def _named_sizes(
        self, counts: NDArray[np.int64], features: Mapping[bytes, pb.Feature]
    ) -> NDArray[np.int64]:
        """Return the sizes of tensors that other features have, a row each."""
        misfits = Misfits(strict=False)
        lists = dict[str, StoredLists]()
        for source in self._named:
            numbers = np.array([*(source.values(features) or ())], np.int64)
            ends = np.array([0, len(numbers)])
            present = np.ones(1, np.bool_)
            lists[source.name] = StoredLists(
                ends, ends[1:], numbers_array(numbers), present, is_complete=True
            )
        items = Items(np.zeros(len(counts), np.int64), counts)
        sizes = named_sizes(self.leaf.values, lists, items, misfits)
        if sizes is None:
            raise ValueError(str(next(iter(misfits.misfits[0].values()))))
        wrong = np.flatnonzero(misshapen(sizes, self.leaf.values.shape, counts))
        if wrong.size:
            expected = f"as many values as {some_of([*lists], 3)} says"
            found = instead_of_sizes(counts[wrong], sizes[wrong])
            raise misfit(self.leaf.path, expected, found[0])
        return sizes

    def _divided(
        self, numbers: NDArray[Any], counts: NDArray[np.int64], sizes: NDArray[np.int64] | None
    ) -> list[NDArray[Any]]:
        """Return numbers as tensors of their sizes, or of the leaf's."""
        tensors, end = list[NDArray[Any]](), 0
        for row, count in enumerate(counts.tolist()):
            any_size = count // max(self._size, 1)
            shape = [any_size if size is None else size for size in self.leaf.values.shape]
            start, end = end, end + count
            tensors.append(numbers[start:end].reshape(shape if sizes is None else sizes[row]))
        return tensors

    def _tensors(
        self,
        strings: Sequence[bytes],
        sizes: NDArray[np.int64] | None,
        features: Mapping[bytes, pb.Feature],
    ) -> Any:
        """Return encoded tensors."""
        values, path = self.leaf.values, self.leaf.path
        try:
            unpacked = unpack_strings(strings, values)
        except SchemaError as error:
            raise ValueError(error.what) from error
        if unpacked.data is None:
            raise misfit(path, unpacked.expected, next(iter(unpacked.bad.values())))
        counts, known = unpacked.counts, self._size
        if self._named:
            sizes = self._named_sizes(counts, features)
        if values.shape and unpacked.sizes is not None:
            sizes = unpacked.sizes
        if sizes is not None:
            wrong, expected = misshapen(sizes, values.shape, counts), "the stored shape"
        elif None in values.shape:
            wrong = counts % known != 0 if known else counts != 0
            expected = f"a multiple of {known} values"
        else:
            wrong, expected = counts != known, expected_count(values, known)
        if wrong.any():
            raise misfit(path, expected, counts[wrong][0])
        numbers = native_numbers(unpacked.data, self._dtype)
        if not self._have_own_shapes:
            return numbers.reshape(len(counts), *values.shape)
        return self._divided(numbers, counts, sizes)


def _item_shape(leaf: Leaf) -> tuple[int, ...]:
    """Return the shape of all items of a leaf; none if they are single values."""
    values = leaf.values
    if not values.shape:
        return ()
    any_size = -1 if values.size else 0
    shape = tuple(any_size if size is None else size for size in values.shape)
    return (1 if None in values.shape or not values.size else -1, *shape)


def _limits(values: Values) -> tuple[int, int] | None:
    """Return the lowest and highest of stored integers; None if they may be any."""
    if values.kind is Kind.BOOL:
        return 0, 1
    if values.kind is not Kind.NUMBER or values.is_float or values.dtype.endswith("64"):
        return None
    limits = np.iinfo(values.dtype)
    return int(limits.min), int(limits.max)


def _default(dtype: np.dtype[Any]) -> Any:
    """Return what stands for a missing value."""
    if dtype.kind in "biuM":
        lowest: Any = {"b": False, "M": "NaT"}.get(dtype.kind)
        return np.iinfo(dtype).min if lowest is None else lowest
    if dtype.kind == "f":
        return np.finfo(dtype).min
    if dtype.kind == "O":
        return b""
    import ml_dtypes  # of whose bfloat16 NumPy has no kind

    return ml_dtypes.finfo(dtype).min  # type: ignore[no-untyped-call]
