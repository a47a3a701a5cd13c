"""Images that records hold as arrays of numbers, by the types of their features."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from tfrtool.errors import TfrtoolError, UsageError
from tfrtool.examples.fields import Encoding, Kind, ListOf, Struct, Values, field_at, only_fields
from tfrtool.features.record_arrays import FeatureArrays
from tfrtool.features.sources import declared_features
from tfrtool.images.pixels import Picture, draw_array
from tfrtool.storage.remote_path import AnyPath

_PIXELS = ("raw:uint8", "zlib:uint8", "tensor:uint8")

_RANKS = (2, 3, 4)
"""Sizes of an image: height and width, and perhaps channels; or of several images."""


def declared_root(path: AnyPath, types: Mapping[str, str] | None = None) -> Struct | None:
    """Return the fields of a shard by its metadata and types; None if there are none.

    Metadata that is damaged or about other records is ignored. The errors of types are those of
    `declared_features`.
    """
    try:
        declared = declared_features([path], types)
        if declared.is_sequence:
            raise UsageError("--type requires tf.train.Examples here", path=path)
        if declared.is_partial:
            declared = declared.inferred(declared.root or Struct({}))
    except TfrtoolError:
        if types:
            raise
        return None
    return declared.root


class ArrayImages:
    """Draws the arrays of a field. It can be pickled."""

    def __init__(self, root: Struct, name: str) -> None:
        """Choose a field of a tree by its path; `is_array_image` says whether it is an image."""
        chosen = only_fields(root, {name})
        self._path = name
        self._arrays = FeatureArrays(chosen if isinstance(chosen, Struct) else root)
        self._is_list = isinstance(field_at(root, name), ListOf)

    def pictures(self, payload: bytes, box: int) -> Iterator[tuple[str, Picture]]:
        """Yield the images of a record with their indexes, or why there is none."""
        try:
            value: Any = self._arrays(payload)
            while isinstance(value, dict):  # of the structs that the field is in
                value = next(iter(value.values()))
        except ValueError as error:
            yield "", Picture(problem=str(error))
            return
        arrays = [*map(np.asarray, value if self._is_list else [value])]
        if not arrays:
            yield "", Picture(problem="no images in the list")
        elif not self._is_list and arrays[0].ndim > 3 and arrays[0].size:
            arrays = [*arrays[0].reshape(-1, *arrays[0].shape[-3:])]
        for index, item in enumerate(arrays):
            list_index = f"[{index}]" if self._is_list or len(arrays) > 1 else ""
            yield list_index, draw_array(item, box)


def is_array_image(root: Struct | None, name: str | None) -> bool:
    """Return whether a field of a tree is an array that can be an image, or a list of such."""
    item = None if root is None or name is None else field_at(root, name)
    item = item.item if isinstance(item, ListOf) else item
    if not isinstance(item, Values) or item.kind not in (Kind.NUMBER, Kind.BOOL):
        return False
    with suppress(StopIteration):
        first = next(at for at, size in enumerate(item.shape) if size != 1)
        return len(item.shape[first:]) in _RANKS
    return False


def find_array_image(root: Struct | None) -> str | None:
    """Return the first field of a tree that is packed pixels."""
    for name, item in {} if root is None else root.fields.items():
        values = item.item if isinstance(item, ListOf) else item
        is_packed = isinstance(values, Values) and values.encoding is not Encoding.NONE
        if is_packed and str(values).startswith(_PIXELS) and is_array_image(root, name):
            return name
    return None
