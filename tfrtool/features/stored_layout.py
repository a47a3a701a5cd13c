"""How a record stores a tree of fields: one feature for each leaf, or a few for nested lists.

The rules are those of TFDS (tensorflow-datasets 4.9.10, ``core/example_serializer.py``).
"""

from typing import NamedTuple

from tfrtool.examples.example import DType
from tfrtool.features.types import Encoding, Kind, Leaf, Struct, Values, leaves_of

FLAT, LENGTHS = "ragged_flat_values", "ragged_row_lengths_{}"


class StoredFeature(NamedTuple):
    """A feature of an Example: its name, and the type of its values."""

    key: str
    dtype: DType


class StoredLeaf(NamedTuple):
    """The features that store one leaf.

    Attributes:
        values: the feature with the values.
        lengths: those with the numbers of items of each list within the first one.
        shape: those with the shapes of the tensors and their lengths; none if it isn't stored.
    """

    values: StoredFeature
    lengths: tuple[StoredFeature, ...] = ()
    shape: tuple[StoredFeature, ...] = ()

    @property
    def all(self) -> tuple[StoredFeature, ...]:
        """All of the features."""
        return (self.values, *self.lengths, *self.shape)


def stored_dtype(values: Values) -> DType:
    """Return the type of feature that stores values."""
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
        return StoredLeaf(*_ragged(path, dtype, leaf.level))
    values, lengths = _ragged(f"{path}/value", dtype, leaf.level)
    sizes, size_lengths = _ragged(f"{path}/shape", DType.INT64, leaf.level)
    return StoredLeaf(values, lengths, (sizes, *size_lengths))


def _ragged(key: str, dtype: DType, level: int) -> tuple[StoredFeature, tuple[StoredFeature, ...]]:
    """Return the feature with the values in lists of a level, and those with lengths."""
    if level < 2:
        return StoredFeature(key, dtype), ()
    lengths = (f"{key}/{LENGTHS.format(number)}" for number in range(level - 1))
    return (
        StoredFeature(f"{key}/{FLAT}", dtype),
        tuple(StoredFeature(one, DType.INT64) for one in lengths),
    )


def stored_features(root: Struct) -> tuple[StoredFeature, ...]:
    """Return the features that store a tree, in order."""
    return tuple(one for leaf in leaves_of(root) for one in stored_leaf(leaf).all)
