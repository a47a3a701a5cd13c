"""Values of our tables, compared with those that TFDS reads of the same record."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from tfrtool.examples.fields import Field, Kind, ListOf, Struct, Values

__all__ = ["differences", "items_of"]


def differences(item: Field, ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """Yield where a value of ours isn't TFDS' in value, dtype and shape.

    A missing value is null with us, and the least number or an empty string with TFDS.
    """
    if isinstance(item, Struct):
        if {*ours} != {*theirs}:
            yield f"{path}: {[*ours]} and {[*theirs]}"
            return
        for name, part in item.fields.items():
            yield from differences(part, ours[name], theirs[name], f"{path}/{name}")
    elif isinstance(item, ListOf):
        theirs = [*theirs] if item.is_dataset else items_of(theirs)
        if len(ours) != len(theirs):
            yield f"{path}: {len(ours)} and {len(theirs)} items"
            return
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(item.item, one, other, f"{path}[{number}]")
        if not len(ours) and isinstance(theirs, np.ndarray) and isinstance(item.item, Values):
            expected = _dtype(item.item)
            if item.item.kind is not Kind.IMAGE and theirs.dtype != expected:
                yield f"{path}: {expected} and {theirs.dtype}"
    else:
        one, other = _as_tfds(item, ours), np.asarray(theirs)
        if item.stores_shape and not one.size and not other.size:
            other = other.reshape(one.shape)  # Arrow has no sizes within an empty list
        if one.dtype != other.dtype or one.shape != other.shape:
            yield f"{path}: {one.dtype}{one.shape} and {other.dtype}{other.shape}"
        elif (
            one.tolist() != other.tolist()
            if one.dtype.kind == "O"
            else one.tobytes() != (other.tobytes())
        ):
            yield f"{path}: {one} and {other}"


def items_of(value: Any) -> Any:
    """Return the items of a list, of which TFDS makes a stack: of structs, a struct of stacks."""
    if isinstance(value, dict):
        columns = {name: items_of(part) for name, part in value.items()}
        count = len(next(iter(columns.values())))
        return [{name: part[at] for name, part in columns.items()} for at in range(count)]
    if not hasattr(value, "row_splits"):
        return value
    values, splits = items_of(value.values), np.asarray(value.row_splits).tolist()
    values = values.numpy() if hasattr(values, "numpy") else values
    return [values[start:end] for start, end in pairwise(splits)]


def _dtype(values: Values) -> Any:
    if values.kind in (Kind.TEXT, Kind.BYTES):
        return np.dtype(object)
    if values.dtype == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(values.dtype or "int64")


def _as_tfds(values: Values, value: Any) -> Any:
    """Return a value of ours as TFDS has it."""
    dtype = _dtype(values)
    if value is None:
        return np.full(values.shape, b"" if dtype.kind == "O" else _least(dtype), dtype)
    if values.kind is Kind.IMAGE:
        return _pixels(value, values)
    if values.kind is Kind.TEXT:
        value = value.encode()
    if dtype.kind == "O" and not values.shape:
        return np.asarray(value)
    array = np.array(value, dtype)
    return array if array.size else array.reshape([size or 0 for size in values.shape])


def _least(dtype: Any) -> Any:
    return (np.finfo if dtype.kind == "f" else np.iinfo)(dtype).min


def _pixels(content: bytes, values: Values) -> Any:
    """Return the pixels of an image; TFDS stores a float as the four channels of a PNG."""
    import tensorflow as tf

    dtype = values.info.get("dtype", "uint8")
    channels = int(values.info["shape"]["dimensions"][-1])
    if dtype == "float32":
        pixels = tf.io.decode_image(content, channels=4).numpy()
        return np.ascontiguousarray(pixels).view(np.float32).reshape(*pixels.shape[:2], 1)
    kind = tf.uint16 if dtype == "uint16" else tf.uint8
    return tf.io.decode_image(
        content, channels=channels, dtype=kind, expand_animations=False
    ).numpy()
