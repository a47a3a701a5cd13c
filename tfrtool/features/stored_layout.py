"""How a record stores a tree of fields: one feature for each leaf, or a few for nested lists.

The rules are those of TFDS (tensorflow-datasets 4.9.10, ``core/example_serializer.py``).
"""

from itertools import chain
from typing import NamedTuple

from tfrtool.examples.example import DType
from tfrtool.examples.fields import (
    MAX_DEPTH,
    Encoding,
    Field,
    Kind,
    Leaf,
    ListOf,
    Struct,
    Values,
    leaves_of,
)
from tfrtool.storage.limits import MAX_COLUMNS, MAX_FEATURES

MAX_LENGTH = 2**31 - 1
"""Items of a list: Arrow counts them in 32 bits."""

FLAT, LENGTHS = "ragged_flat_values", "ragged_row_lengths_{}"


class StoredFeature(NamedTuple):
    """A feature of an Example: its name, and the type of its values; None if that differs."""

    key: str
    dtype: DType | None


class StoredLeaf(NamedTuple):
    """The features that store one leaf.

    Attributes:
        values: the feature with the values.
        lengths: those with the numbers of items of each list within the first one.
        shape: those with the shapes of the tensors and their lengths; none if it isn't stored.
        sizes: those of other fields that have sizes of the tensors.
    """

    values: StoredFeature
    lengths: tuple[StoredFeature, ...] = ()
    shape: tuple[StoredFeature, ...] = ()
    sizes: tuple[StoredFeature, ...] = ()

    @property
    def unshared(self) -> tuple[StoredFeature, ...]:
        """The features of this leaf alone."""
        return (self.values, *self.lengths, *self.shape)

    @property
    def all(self) -> tuple[StoredFeature, ...]:
        """All of the features."""
        return (*self.unshared, *self.sizes)


def stored_dtype(values: Values) -> DType | None:
    """Return the type of feature that stores values; None if it differs between records."""
    if values.kind is Kind.MIXED:
        return None
    if values.encoding is not Encoding.NONE:
        return DType.STRING
    if values.kind is Kind.NUMBER:
        return DType.FLOAT32 if values.is_float else DType.INT64
    if values.kind is Kind.TIME:
        return DType.STRING if values.dtype.startswith("decimal") else DType.INT64
    return DType.INT64 if values.kind in (Kind.BOOL, Kind.LABEL) else DType.STRING


def stored_leaf(leaf: Leaf) -> StoredLeaf:
    """Return the features that store a leaf."""
    path, dtype = leaf.path, stored_dtype(leaf.values)
    if not leaf.values.stores_shape:
        names = dict.fromkeys(leaf.values.named_sizes)
        named = tuple(StoredFeature(name, DType.INT64) for name in names)
        return StoredLeaf(*_ragged(path, dtype, leaf.level), sizes=named)
    values, lengths = _ragged(f"{path}/value", dtype, leaf.level)
    sizes, size_lengths = _ragged(f"{path}/shape", DType.INT64, leaf.level)
    return StoredLeaf(values, lengths, (sizes, *size_lengths))


def _ragged(
    key: str, dtype: DType | None, level: int
) -> tuple[StoredFeature, tuple[StoredFeature, ...]]:
    """Return the feature with the values in lists of a level, and those with lengths."""
    if level < 2:
        return StoredFeature(key, dtype), ()
    lengths = (f"{key}/{LENGTHS.format(number)}" for number in range(level - 1))
    return (
        StoredFeature(f"{key}/{FLAT}", dtype),
        tuple(StoredFeature(one, DType.INT64) for one in lengths),
    )


def stored_features(root: Struct) -> tuple[StoredFeature, ...]:
    """Return the features that store a tree, in order; those that other fields name come twice."""
    return tuple(one for leaf in leaves_of(root) for one in stored_leaf(leaf).all)


def check_tree(root: Struct) -> None:
    """Raise a `ValueError` if records can't store a tree, or it exceeds a limit."""
    check_fields(root)
    known = dict[str, DType | None]()
    stored = [*map(stored_leaf, leaves_of(root))]
    for feature in chain.from_iterable(leaf.unshared for leaf in stored):
        if feature.key in known:
            raise ValueError(f"two fields are stored as {feature.key!r}")
        known[feature.key] = feature.dtype
    for feature in chain.from_iterable(leaf.sizes for leaf in stored):
        if known.setdefault(feature.key, feature.dtype) is not feature.dtype:
            raise ValueError(f"{feature.key!r} can't be a size: it doesn't store integers")
    if len(known) > MAX_FEATURES:
        raise ValueError(f"records store {len(known):,} features (limit {MAX_FEATURES:,})")


def check_fields(root: Struct) -> None:
    """Raise a `ValueError` if records can't store a field; two of them may be the same.

    So it is if fields are nested too deeply, or if a struct or list can't exist.
    """
    level, depth = list[Field](root.fields.values()), 1
    names: list[object] = [*root.fields]
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise ValueError(f"fields are nested more than {MAX_DEPTH} levels deep")
        below = list[Field]()
        for item in level:
            if isinstance(item, Struct):
                if not item.fields:
                    raise ValueError("a struct without fields")
                names += item.fields
                below += item.fields.values()
            elif isinstance(item, ListOf):
                if item.length is not None and not 0 <= item.length <= MAX_LENGTH:
                    raise ValueError(f"a list of {item.length} items")
                below.append(item.item)
        level = below
    for name in names:
        if not is_field_name(name):
            raise ValueError(f"invalid name of a field: {repr(name)[:100]}")
    leaves = [*leaves_of(root)]
    if len(leaves) > MAX_COLUMNS:
        raise ValueError(f"{len(leaves):,} fields (limit {MAX_COLUMNS:,})")
    for leaf in leaves:
        if leaf.values.kind is Kind.MIXED and (leaf.level or leaf.values.shape):
            raise ValueError(f"lists can't hold features of several types: {leaf.path!r}")
        if leaf.level and not can_divide(leaf.values):
            raise ValueError(f"lists don't store the shape of {leaf.path!r}")
        if leaf.level > 1 and leaf.values.size_features:
            raise ValueError(f"{leaf.path!r} is in lists of lists, whose sizes no feature has")


def can_divide(values: Values) -> bool:
    """Return whether the number of values gives the number of tensors in a list."""
    return values.encoding is not Encoding.NONE or not {None, 0} & {*values.shape}


def is_field_name(name: object) -> bool:
    """Return whether a field of a struct can have a name: text, as Arrow and protobuf want it."""
    if not isinstance(name, str) or not name or "\0" in name:
        return False
    return name.isascii() or name.encode("utf-8", "ignore").decode() == name
