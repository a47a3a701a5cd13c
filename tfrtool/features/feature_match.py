"""Whether records have just the features of a tree, found in C where all of it is simple."""

from array import array
from typing import NamedTuple

import numpy as np

from tfrtool.examples.arrow.scan import TAGS
from tfrtool.examples.example import DType, feature_key
from tfrtool.examples.fields import (
    Encoding,
    Field,
    Kind,
    ListOf,
    Struct,
    Values,
    class_count,
)
from tfrtool.features.stored_layout import stored_dtype
from tfrtool.records import frames
from tfrtool.records.frames import Frames

_MOST = 256
"""Features that are looked for; a record may have them in any order."""

_INT64 = np.iinfo(np.int64)


class FeatureMatch(NamedTuple):
    """Features that each record has exactly once, and no others.

    Attributes:
        features: eight numbers for each, as `Frames.match_features` takes them.
        keys: their keys.
    """

    features: "array[int]"
    keys: bytes

    @classmethod
    def of(cls, root: Struct) -> "FeatureMatch | None":
        """Return the features of a tree; None without C, or if some need others to be checked."""
        numbers, keys = array("q"), b""
        if frames.native is None or len(root.fields) > _MOST:
            return None
        for name, item in root.fields.items():
            rule = _rule(item)
            if rule is None:
                return None
            key = feature_key(name)
            numbers.extend((len(keys), len(keys) + len(key), *rule))
            keys += key
        return cls(numbers, keys)

    def differing(self, records: Frames) -> bytes:
        """Say of each record with a byte whether it has to be looked at in Python."""
        return records.match_features(self.features, self.keys)


def _rule(item: Field) -> tuple[int, ...] | None:
    """Return the tag of a feature, its counts, limits and whether it is text, if it is simple."""
    is_list = isinstance(item, ListOf)
    values = item.item if isinstance(item, ListOf) else item
    if not isinstance(values, Values) or values.kind in (Kind.MIXED, Kind.TIME):
        return None
    if values.encoding is not Encoding.NONE or values.stores_shape or values.size_features:
        return None
    is_open = None in values.shape
    if not values.size or (is_list and is_open):
        return None
    count = -1 if is_list or is_open else values.size
    if isinstance(item, ListOf) and item.length is not None:
        count = item.length * values.size
    dtype = stored_dtype(values)
    if dtype is None:
        return None
    limits = _limits(values) if dtype is DType.INT64 else (0, 0)
    return int(TAGS[dtype]), count, values.size, *limits, int(values.kind is Kind.TEXT)


def _limits(values: Values) -> tuple[int, int]:
    """Return the lowest and the highest integer."""
    if values.kind is Kind.BOOL:
        return 0, 1
    if values.kind is Kind.LABEL and class_count(values):
        return -1, class_count(values) - 1
    if values.kind is Kind.LABEL or values.dtype in ("int64", "uint64"):
        return int(_INT64.min), int(_INT64.max)
    limits = np.iinfo(values.dtype)
    return int(limits.min), int(limits.max)
