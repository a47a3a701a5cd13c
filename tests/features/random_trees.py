"""Random TFDS features, values of them, and damage to one stored feature of a record."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

import numpy as np
from google.protobuf import json_format

__all__ = ["Damage", "RandomSet", "damaged", "random_set"]

_DTYPES = (
    *("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "float32", "float64", "bool"),
)
_TEXTS = ("", "a", "größe", "日本", "x\x80y")


class RandomSet(NamedTuple):
    """A random dataset: TFDS' features, their features.json, and records that TFDS wrote."""

    features: Any
    content: Any
    payloads: list[bytes]


class Damage(NamedTuple):
    """A changed record: what was done to which stored feature."""

    how: str
    key: str
    payload: bytes


def random_set(seed: int, records: int) -> RandomSet | None:
    """Return a dataset; None if TFDS can't write such features."""
    rng = Random(seed)
    features = _struct(rng, 3, 0, top=True)
    rows = [_value(rng, features) for _ in range(records)]
    try:
        payloads = [features.serialize_example(row) for row in rows]
    except Exception:  # noqa: BLE001
        return None
    present = json_format.MessageToDict(features.to_proto())
    return RandomSet(features, present if seed % 2 else features.to_json(), payloads)


def damaged(seed: int, payload: bytes) -> Damage | None:
    """Return a record with one stored feature changed; None if it can't be in that way."""
    import tensorflow as tf

    rng = Random(seed)
    message = tf.train.Example.FromString(payload)
    key = rng.choice(sorted(message.features.feature))
    feature = message.features.feature[key]
    kind = feature.WhichOneof("kind")
    how = rng.choice(["drop", "add", "cut", "retype", "range"])
    values = getattr(feature, kind).value
    if how == "drop":
        del message.features.feature[key]
    elif how == "add":
        empty: Any = {"bytes_list": b"", "int64_list": 0, "float_list": 0.0}[kind]
        values.append(values[-1] if values else empty)
    elif how == "retype":
        feature.Clear()
        (feature.float_list if kind != "float_list" else feature.int64_list).value.append(1)
    elif not values or (how == "range" and kind != "int64_list"):
        return None
    elif how == "cut":
        del values[-1]
    else:
        values[0] = rng.choice([-5, 2**40, 2**31, -(2**63)])
    return Damage(how, key, message.SerializeToString())


def _struct(rng: Random, depth: int, level: int, *, top: bool = False) -> Any:
    from tensorflow_datasets.core import features as tfds

    fields = {
        f"{letter}{rng.choice(['', 'x', '_y'])}": _feature(rng, depth - 1, level)
        for letter in "abcdefg"[: rng.choice([1, 2, 3])]
    }
    if top and rng.random() < 0.4:
        step = {f"s{number}": _feature(rng, 1, 1) for number in range(rng.choice([1, 2, 3]))}
        fields["steps"] = tfds.Dataset(tfds.FeaturesDict(step))
    return tfds.FeaturesDict(fields)


def _feature(rng: Random, depth: int, level: int) -> Any:
    from tensorflow_datasets.core import features as tfds

    choice = rng.random()
    if choice < 0.25 and depth > 0:
        return _struct(rng, depth, level)
    if choice < 0.55 and depth > 0 and level < 3:
        length = rng.choice([None, None, None, 2])
        return tfds.Sequence(_feature(rng, depth - 1, level + 1), length=length)
    return _leaf(rng, level)


def _leaf(rng: Random, level: int) -> Any:
    from tensorflow_datasets.core import features as tfds

    choice = rng.random()
    if choice < 0.05:
        return tfds.Translation(languages=["de", "en"])
    if choice < 0.15:
        return tfds.Text()
    if choice < 0.25:
        return tfds.ClassLabel(num_classes=5)
    if choice < 0.3:
        return tfds.BBoxFeature()
    dtype = np.dtype(rng.choice(_DTYPES))
    encoding = rng.choice(["none", "none", "zlib", "bytes"])
    if choice < 0.5:
        return tfds.Tensor(shape=(), dtype=dtype, encoding=encoding)
    shape: list[int | None] = [rng.choice([1, 2, 3]) for _ in range(rng.choice([1, 1, 2, 3]))]
    if rng.random() < (0.1 if level else 0.3):
        shape[0 if encoding == "none" else rng.randrange(len(shape))] = None
        if encoding != "none" and len(shape) > 1 and rng.random() < 0.5:
            shape = [None] * len(shape)
    return tfds.Tensor(shape=tuple(shape), dtype=dtype, encoding=encoding)


def _value(rng: Random, feature: Any) -> Any:
    """Return a random value of a feature."""
    from tensorflow_datasets.core import features as tfds

    if isinstance(feature, tfds.Translation):
        return {"de": "Füße", "en": rng.choice(_TEXTS)}
    if isinstance(feature, tfds.FeaturesDict):
        return {name: _value(rng, part) for name, part in feature.items()}
    if isinstance(feature, tfds.Dataset):
        return [_value(rng, feature.feature) for _ in range(rng.choice([1, 2, 3]))]
    if isinstance(feature, tfds.Sequence):
        length = feature.to_proto().sequence.length
        count = rng.choice([0, 1, 2, 3]) if length < 0 else length
        return [_value(rng, feature.feature) for _ in range(count)]
    if isinstance(feature, tfds.Text):
        return rng.choice(_TEXTS)
    if isinstance(feature, tfds.ClassLabel):
        return rng.randrange(5)
    if isinstance(feature, tfds.BBoxFeature):
        return tfds.BBox(0.1, 0.2, 0.5, 0.6)
    shape = [rng.choice([1, 2, 3]) if size is None else size for size in feature.shape]
    return _numbers(rng, feature.np_dtype, shape)


def _numbers(rng: Random, dtype: Any, shape: Sequence[int]) -> Any:
    """Return a tensor; floats are such that float32 holds, as TFDS stores no others."""
    count = int(np.prod(shape))
    if dtype.kind == "f":
        floats = np.array([rng.uniform(-100, 100) for _ in range(count)], np.float32)
        return floats.astype(dtype).reshape(shape)
    edges: list[Any] = [False, True]
    if dtype != np.bool_:
        limits = np.iinfo(dtype)
        edges = [limits.min, limits.max, 0, 1]
    return np.array([rng.choice(edges) for _ in range(count)], dtype).reshape(shape)
