"""Features for property tests, and the same as TensorFlow's messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from tfrtool.examples.example import DType, Feature, Value
from tfrtool.examples.objects.record_features import FIELDS
from tfrtool.examples.proto import example_pb2 as pb

names = st.text(st.characters(codec="utf-8"), max_size=8)

values: dict[DType, st.SearchStrategy[Value]] = {
    DType.STRING: st.binary(max_size=20),
    DType.INT64: st.integers(-(2**63), 2**63 - 1),
    DType.FLOAT32: st.floats(width=32, allow_nan=False),
}


def features_of(dtype: DType | None) -> st.SearchStrategy[Feature]:
    """Return a strategy of features of one type, or of those without a kind."""
    if dtype is None:
        return st.just(Feature(dtype=None, values=()))
    return st.lists(values[dtype], max_size=4).map(
        lambda found: Feature(dtype=dtype, values=tuple(found))
    )


features = st.sampled_from([None, *DType]).flatmap(features_of)

feature_maps = st.dictionaries(names, features, max_size=5)

_OBJECTS = [
    *(f"image/object/{name}" for name, *_ in FIELDS.values()),
    *(f"image/object/bbox/{side}" for side in ("xmin", "ymin", "xmax", "ymax")),
    *(f"image/object/{name}" for name in ("class/text", "class/label", "mask", "segmentation")),
    *(f"image/object/keypoint/{name}" for name in ("x", "y", "visibility")),
    *("objects/bbox", "objects/label", "objects/keypoints", "objects/area", "bbox"),
    *("image/height", "image/width", "image/source_id"),
]
_ANY_FLOATS = st.lists(st.floats(width=32), max_size=5).map(
    lambda some: Feature(dtype=DType.FLOAT32, values=tuple(some))
)

hostile_objects = st.dictionaries(st.sampled_from(_OBJECTS), features | _ANY_FLOATS)
"""Features that have the names of those of objects, and hold anything."""


def entry(key: bytes, feature: Feature) -> pb.FeatureEntry:
    """Return an entry of a feature map, whose key may be any bytes."""
    held = pb.FeatureEntry(key=key)
    held.value.SetInParent()
    if feature.dtype is not None:
        name = {DType.STRING: "bytes_list", DType.INT64: "int64_list", DType.FLOAT32: "float_list"}
        values = getattr(held.value, name[feature.dtype])
        values.SetInParent()
        values.value.extend(feature.values)
    return held


def raw_example(
    context: Sequence[pb.FeatureEntry],
    lists: Mapping[bytes, Sequence[Feature]] | None = None,
) -> bytes:
    """Serialize entries as they are, twice the same key too, as an Example or SequenceExample."""
    message = pb.SequenceExample(context=pb.Features(feature=context))
    if lists is not None:
        message.feature_lists.SetInParent()
        for key, steps in lists.items():
            held = message.feature_lists.feature_list.add(key=key)
            held.value.feature.extend(entry(b"", step).value for step in steps)
    return message.SerializeToString()


_keys = st.sampled_from([b"a", b"b", b"c", b"caf\xe9", "ü".encode()])
_any_floats = st.lists(st.floats(width=32), max_size=3)
_any_features = features | _any_floats.map(lambda v: Feature(dtype=DType.FLOAT32, values=tuple(v)))

payloads = st.builds(
    raw_example,
    st.lists(st.builds(entry, _keys, _any_features), max_size=5),
    st.none() | st.dictionaries(_keys, st.lists(_any_features, max_size=3), max_size=2),
)
"""Serialized messages with few names, so that they meet: keys twice, no kind, NaN, no UTF-8."""


def tf_feature(tf: Any, feature: Feature) -> Any:
    """Return a feature as a tf.train.Feature."""
    held = list(feature.values)
    match feature.dtype:
        case DType.STRING:
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=held))
        case DType.INT64:
            return tf.train.Feature(int64_list=tf.train.Int64List(value=held))
        case DType.FLOAT32:
            return tf.train.Feature(float_list=tf.train.FloatList(value=held))
        case None:
            return tf.train.Feature()


def tf_example(tf: Any, features: Mapping[str, Feature]) -> Any:
    """Return features as a tf.train.Example."""
    held = {name: tf_feature(tf, feature) for name, feature in features.items()}
    return tf.train.Example(features=tf.train.Features(feature=held))


def tf_sequence(tf: Any, context: Mapping[str, Feature], lists: Mapping[str, list[Feature]]) -> Any:
    """Return features and feature lists as a tf.train.SequenceExample."""
    held = {
        name: tf.train.FeatureList(feature=[tf_feature(tf, step) for step in steps])
        for name, steps in lists.items()
    }
    return tf.train.SequenceExample(
        context=tf_example(tf, context).features,
        feature_lists=tf.train.FeatureLists(feature_list=held),
    )


def string(*held: bytes) -> Feature:
    """Return a feature of bytes."""
    return Feature(dtype=DType.STRING, values=held)


def int64(*held: int) -> Feature:
    """Return a feature of ints."""
    return Feature(dtype=DType.INT64, values=held)


def float32(*held: float) -> Feature:
    """Return a feature of floats."""
    return Feature(dtype=DType.FLOAT32, values=held)


UNSET = Feature(dtype=None, values=())
"""A feature without a kind."""
