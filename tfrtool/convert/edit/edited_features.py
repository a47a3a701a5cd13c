"""TFDS metadata after an edit: what features.json and the files of class names then say."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from tfrtool.convert.edit.changes import Changes
from tfrtool.convert.pipeline.carried import CarriedMetadata
from tfrtool.examples.example import DType
from tfrtool.examples.tfds_features import tfds_features
from tfrtool.examples.tfds_metadata import FEATURES, Json, connector, dimensions
from tfrtool.images.recipe import Encode
from tfrtool.inspection.schema.shard_schema import infer_schema
from tfrtool.storage.json_files import reading_metadata

LABELS_END = ".labels.txt"

_SCALARS = ("Scalar", "Text", "ClassLabel")


def edit_metadata(
    carried: CarriedMetadata, changes: Changes, known: Collection[str], shards: Sequence[Path]
) -> None:
    """Make the metadata of a dataset that of the edited one.

    ``known`` are the names of features that records have. Where TFDS describes one that is changed
    only as a part of another (``objects/bbox``), all is described anew, from the edited shards.
    """
    kept = {
        stem(changes.rename.get(name, name)): stem(name) for name in known if changes.keeps(name)
    }
    for name in changes.cast:
        kept.pop(stem(changes.rename.get(name, name)), None)
    carried.labels = {
        f"{new}{LABELS_END}": carried.labels[f"{old}{LABELS_END}"]
        for new, old in kept.items()
        if f"{old}{LABELS_END}" in carried.labels
    }
    items = carried.info.pop("supervisedKeys", {}).get("tuple", {}).get("items", [])
    names = [str(item.get("featureKey")) for item in items]
    if names and all(map(changes.keeps, names)):
        items = [{"featureKey": changes.rename.get(name, name)} for name in names]
        carried.info["supervisedKeys"] = {"tuple": {"items": items}}
    if carried.features is not None:
        with reading_metadata(FEATURES, "TFDS"):
            features = _edited_features(carried.features, changes, known)
        if features is None:
            found = infer_schema(shards)
            features = tfds_features(found.features, found.records).content
        carried.features = features


def _edited_features(content: Json, changes: Changes, known: Collection[str]) -> Json | None:
    features: dict[str, Json] = dict(content["featuresDict"]["features"])
    touched = {*changes.drop, *changes.cast, *changes.rename, changes.image or ""} - {""}
    touched.update(name for name in known if not changes.keeps(name))
    if not touched <= features.keys():
        return None
    for name, dtype in changes.cast.items():
        kind = str(features[name].get("pythonClassName", "")).rpartition(".")[2]
        tensor = features[name].get("tensor")
        if kind not in _SCALARS and not (kind == "Tensor" and tensor):
            return None
        sizes = [int(size) for size in (tensor or {}).get("shape", {}).get("dimensions", [])]
        features[name] = connector("Tensor" if sizes else "Scalar", dtype.value, sizes)
    if changes.image is not None and changes.recipe is not None:
        image = dict(features[changes.image].get("image", {}))
        resize = changes.recipe.resize
        if not image:
            return None
        if resize is not None:
            channels = image.get("shape", {}).get("dimensions", ["-1", "-1", "3"])[-1]
            sides = (resize.height or -1, resize.width or -1)
            image["shape"] = dimensions(*sides, int(channels))
        if not changes.same_format:
            png = changes.recipe.encode is Encode.PNG
            image["encodingFormat"] = "png" if png else "jpeg"
        features[changes.image] = connector("Image", image=image)
    kept = {
        changes.rename.get(name, name): feature
        for name, feature in features.items()
        if changes.keeps(name)
    }
    added = {name: _added(feature) for name, feature in changes.added.items()}
    return connector("FeaturesDict", featuresDict={"features": kept | added})


def _added(feature: Any) -> Json:
    """Describe a feature of which all records have the same values."""
    kind = feature.WhichOneof("kind")
    dtype = {"bytes_list": DType.STRING, "float_list": DType.FLOAT32}.get(kind, DType.INT64)
    count = len(getattr(feature, kind).value)
    if count == 1 and dtype is DType.STRING:
        return connector("Text", text={})
    return connector(
        "Scalar" if count == 1 else "Tensor", dtype.value, () if count == 1 else (count,)
    )


def stem(feature: str) -> str:
    """Return what the name of a feature is in the name of the file of its classes."""
    return feature.replace("/", "_")
