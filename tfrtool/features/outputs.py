"""A tree of fields in the terms of other libraries: Hugging Face's datasets, TensorFlow."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from tfrtool.examples.arrow.arrays import list_array, struct_array
from tfrtool.examples.example import DType
from tfrtool.examples.fields import Encoding, Field, Kind, ListOf, Struct, Values, leaves_of
from tfrtool.examples.schema import FeatureSpec, Schema
from tfrtool.features.nested import arrow_type
from tfrtool.features.sound_fields import is_rated, samples_of_files, wav_files
from tfrtool.features.stored_layout import StoredFeature, stored_leaf

IMAGE_STRUCT = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
"""How Hugging Face's datasets store an image."""

_MEDIA = {Kind.IMAGE: "Image", Kind.AUDIO: "Audio"}
"""Hugging Face's types of what is stored as a file."""

_HUGGING_FACE_TYPES = {Kind.BOOL: "bool", Kind.TEXT: "string", Kind.LABEL: "int64"}


def hugging_face_features(item: Field) -> Any:
    """Return a field as ``datasets.Features.from_dict`` of Hugging Face's datasets reads it."""
    if isinstance(item, Struct):
        return {name: hugging_face_features(part) for name, part in item.fields.items()}
    if is_rated(item):
        return {"_type": _MEDIA[Kind.AUDIO]}
    if isinstance(item, ListOf):
        return {"feature": hugging_face_features(item.item), "_type": "List"}
    content = _hugging_face_values(item)
    for size in reversed(item.shape):
        length = {"length": size} if size else {}
        content = {"feature": content, **length, "_type": "List"}
    return content


def _hugging_face_values(values: Values) -> dict[str, Any]:
    if values.kind in _MEDIA:
        return {"_type": _MEDIA[values.kind]}
    if values.kind is Kind.MIXED:
        dtypes = (("bytes_list", "binary"), ("float_list", "float32"), ("int64_list", "int64"))
        items = ((name, {"dtype": dtype, "_type": "Value"}) for name, dtype in dtypes)
        return {name: {"feature": item, "_type": "List"} for name, item in items}
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

    A value that every record has is a scalar or has its shape; others have any length.
    """
    specs: list[FeatureSpec] = []
    sizes = list[StoredFeature]()
    for leaf in leaves_of(root):
        stored, values = stored_leaf(leaf), leaf.values
        sizes += stored.sizes
        for feature in stored.unshared if values.kind is not Kind.MIXED else ():
            shape: tuple[int, ...] | None = None
            is_values = feature is stored.values
            if values.info.get("optional"):
                pass  # it may be missing
            elif leaf.level == 0 and is_values and values.encoding is not Encoding.NONE:
                shape = ()
            elif leaf.level == 0 and is_values and None not in values.shape:
                shape = tuple(size for size in values.shape if size is not None)
            elif leaf.level == 0 and not is_values:
                shape = (len(values.shape),)
            specs.append(FeatureSpec(name=feature.key, dtype=DType(feature.dtype), shape=shape))
    known = {spec.name for spec in specs}
    for name, dtype in dict.fromkeys(feature for feature in sizes if feature.key not in known):
        specs.append(FeatureSpec(name=name, dtype=DType(dtype), shape=None))
    return Schema(tuple(specs))


def has_media(item: Field) -> bool:
    """Return whether there are images or sound in a field that tables have as structs."""
    return is_rated(item) or any(leaf.values.kind in _MEDIA for leaf in leaves_of(item))


def table_type(item: Field) -> pa.DataType:
    """Return the Arrow type of a field whose images and sound are structs of bytes and path."""
    if not has_media(item):
        return arrow_type(item)
    if isinstance(item, Struct):
        return pa.struct([(name, table_type(part)) for name, part in item.fields.items()])
    return pa.list_(table_type(item.item)) if isinstance(item, ListOf) else IMAGE_STRUCT


def with_image_structs(item: Field, array: pa.Array, rows: pa.RecordBatch) -> pa.Array:
    """Return an array of a field with each image or sound as a struct; the paths are null.

    ``rows`` has the column with the rates of samples.
    """
    if is_rated(item):
        return _as_struct(wav_files(item, array, rows))
    return _changed(item, array, _as_struct)


def without_image_structs(item: Field, array: pa.Array) -> pa.Array:
    """Return an array of `table_type` with the bytes alone of each image or sound."""
    import pyarrow.compute as pc

    if is_rated(item):
        return samples_of_files(item, pc.struct_field(array, "bytes"), arrow_type(item))
    return _changed(item, array, lambda images: pc.struct_field(images, "bytes"))


def image_leaves(item: Field, name: str) -> Iterator[str]:
    """Yield the paths in Parquet of the bytes of images in a column."""
    if isinstance(item, Struct):
        for key, part in item.fields.items():
            yield from image_leaves(part, f"{name}.{key}")
    elif isinstance(item, ListOf):
        yield from image_leaves(item.item, f"{name}.list.element")
    elif isinstance(item, Values) and (is_rated(item) or item.kind in _MEDIA):
        yield f"{name}.bytes"


def _as_struct(images: pa.Array) -> pa.Array:
    nulls = images.is_null() if images.null_count else None
    paths = pa.nulls(len(images), pa.string())
    return pa.StructArray.from_arrays([images, paths], fields=list(IMAGE_STRUCT), mask=nulls)


def _changed(item: Field, array: pa.Array, change: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Return an array with a function applied to its images and sound."""
    import pyarrow.compute as pc

    if not has_media(item):
        return array
    if isinstance(item, Struct):
        parts = zip(item.fields.items(), array.flatten(), strict=True)
        fields = {name: _changed(part, child, change) for (name, part), child in parts}
        kind = pa.struct([(name, child.type) for name, child in fields.items()])
        places = np.flatnonzero(np.asarray(array.is_valid()))
        return struct_array(kind, len(array), places, [*fields.values()])
    if isinstance(item, ListOf):
        items = _changed(item.item, array.flatten(), change)
        places = np.flatnonzero(np.asarray(array.is_valid()))
        counts = np.asarray(pc.fill_null(pc.list_value_length(array), 0))[places]
        return list_array(pa.list_(items.type), len(array), places, counts, items)
    return change(array)
