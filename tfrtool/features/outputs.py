"""A tree of fields in the terms of other libraries: Hugging Face's datasets, TensorFlow."""

from typing import Any

from tfrtool.examples.example import DType
from tfrtool.examples.schema import FeatureSpec, Schema
from tfrtool.features.stored_layout import stored_leaf
from tfrtool.features.types import Encoding, Field, Kind, ListOf, Struct, Values, leaves_of

_HUGGING_FACE_TYPES = {Kind.BOOL: "bool", Kind.TEXT: "string", Kind.LABEL: "int64"}


def hugging_face_features(item: Field) -> Any:
    """Return a field as ``datasets.Features.from_dict`` of Hugging Face's datasets reads it."""
    if isinstance(item, Struct):
        return {name: hugging_face_features(part) for name, part in item.fields.items()}
    if isinstance(item, ListOf):
        return {"feature": hugging_face_features(item.item), "_type": "List"}
    content = _hugging_face_values(item)
    for size in reversed(item.shape):
        length = {"length": size} if size else {}
        content = {"feature": content, **length, "_type": "List"}
    return content


def _hugging_face_values(values: Values) -> dict[str, Any]:
    if values.kind is Kind.IMAGE:
        return {"_type": "Image"}
    if values.kind is Kind.LABEL and values.info.get("names"):
        return {"names": [*values.info["names"]], "_type": "ClassLabel"}
    dtype = _HUGGING_FACE_TYPES.get(values.kind, "binary")
    if values.kind is Kind.NUMBER:
        dtype = "float32" if values.dtype in ("float16", "bfloat16") else values.dtype
    if values.kind is Kind.TIME:
        word, _, zone = values.dtype.partition("(")
        zones = {"timestamp": f"timestamp[us{f', tz={zone[:-1]}' if zone else ''}]"}
        dtype = zones.get(word) or {"date": "date32"}.get(word) or f"decimal128({zone}"
    return {"dtype": dtype, "_type": "Value"}


def stored_schema(root: Struct) -> Schema:
    """Return TensorFlow's description of the features that store a tree.

    A value that every record has is a scalar or has its shape; all others have any length.
    """
    specs: list[FeatureSpec] = []
    for leaf in leaves_of(root):
        stored, values = stored_leaf(leaf), leaf.values
        for feature in stored.all:
            shape: tuple[int, ...] | None = None
            is_values = feature is stored.values
            if leaf.level == 0 and is_values and values.encoding is not Encoding.NONE:
                shape = ()
            elif leaf.level == 0 and is_values and None not in values.shape:
                shape = tuple(size for size in values.shape if size is not None)
            elif leaf.level == 0 and not is_values:
                shape = (len(values.shape),)
            specs.append(FeatureSpec(name=feature.key, dtype=DType(feature.dtype), shape=shape))
    return Schema(tuple(specs))
