"""Types in JSON files of other programs that are in the folder of shards.

- ``meta.json`` of MeshGraphNets: the dtype and shape of each feature, stored as raw bytes.
- ``info.json`` or ``info.SPLIT.json`` of SeqIO's caches: the same, stored as numbers.
- ``example_info.json`` of DeepVariant: the shape of its images.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tfrtool.examples.example import DType
from tfrtool.examples.fields import ITEM_SIZES, Encoding, Kind, Values
from tfrtool.features.first_examples import FirstExamples
from tfrtool.features.stored_layout import is_field_name
from tfrtool.storage.json_values import read_json
from tfrtool.storage.limits import MAX_COLUMNS, MAX_DIMENSIONS
from tfrtool.storage.remote_path import AnyPath

_DEEPVARIANT_IMAGE = "image/encoded"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataTypes:
    """The types that a file has for some of the features that records have.

    Attributes:
        path: the file; None if there is none.
        types: the types by the name of the feature.
    """

    path: AnyPath | None = None
    types: Mapping[str, Values] = field(default_factory=dict)


def has_metadata_types(shard: AnyPath) -> bool:
    """Return whether there is a file that may have types, next to a shard."""
    return any(path.exists() for path in _paths(shard))


def read_metadata_types(shard: AnyPath, first: FirstExamples) -> MetadataTypes:
    """Return the types of features of the first file that has any.

    A file with other content is ignored: it isn't meant for us.
    """
    for path in _paths(shard):
        with suppress(OSError, ValueError):
            content = read_json(path)
            found = {
                name: values
                for name, (dtype, shape) in _declared(path, content).items()
                if (values := _values(dtype, shape, first.stored_type(name))) is not None
            }
            if found:
                return MetadataTypes(path=path, types=found)
    return MetadataTypes()


def _paths(shard: AnyPath) -> tuple[AnyPath, ...]:
    split = re.split(r"[.-]", shard.name)[0]
    names = (
        "meta.json",
        "info.json",
        f"info.{split}.json",
        f"{shard.name}.example_info.json",
        "example_info.json",
    )
    return tuple(shard.with_name(name) for name in names)


def _declared(path: AnyPath, content: Any) -> dict[str, tuple[Any, Any]]:
    """Return the dtype and shape of features, which may be anything."""
    if not isinstance(content, dict):
        return {}
    if path.name.endswith("example_info.json"):
        return {_DEEPVARIANT_IMAGE: ("uint8", content.get("shape"))}
    features = content.get("features")
    if not isinstance(features, dict) or len(features) > MAX_COLUMNS:
        return {}
    return {
        name: (entry.get("dtype"), entry.get("shape"))
        for name, entry in features.items()
        if isinstance(entry, dict) and is_field_name(name)
    }


def _values(dtype: Any, sizes: Any, stored: DType | None) -> Values | None:
    """Return a type as features of a stored type have it; None if that can't be."""
    if dtype not in (*ITEM_SIZES,) or not isinstance(sizes, list) or len(sizes) > MAX_DIMENSIONS:
        return None
    if not all(size is None or type(size) is int for size in sizes):
        return None
    shape = tuple(None if size is None or size < 0 else size for size in sizes)
    is_float = "float" in dtype
    fits = {DType.STRING: True, DType.FLOAT32: is_float, DType.INT64: not is_float}
    if stored is None or not fits[stored]:
        return None
    encoding = Encoding.RAW if stored is DType.STRING else Encoding.NONE
    kind = Kind.BOOL if dtype == "bool" else Kind.NUMBER
    with suppress(ValueError):
        values = Values(kind=kind, dtype=dtype, shape=shape, encoding=encoding)
        return None if values.stores_shape else values
    return None
