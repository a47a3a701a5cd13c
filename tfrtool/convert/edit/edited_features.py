"""TFDS metadata after an edit: what features.json and the files of class names then say."""

from collections.abc import Collection, Sequence
from pathlib import Path

from tfrtool.convert.edit.changes import Changes
from tfrtool.convert.pipeline.carried import CarriedMetadata
from tfrtool.examples.tfds_features import tfds_features
from tfrtool.examples.tfds_metadata import FEATURES, Json, connector, dimensions
from tfrtool.inspection.schema.shard_schema import infer_schema
from tfrtool.storage.json_files import reading_metadata


def edit_metadata(
    carried: CarriedMetadata, changes: Changes, known: Collection[str], shards: Sequence[Path]
) -> None:
    """Make the metadata of a dataset that of the edited one.

    ``known`` are the names of features that records have. What TFDS describes as it was stays,
    under its new name; all else is described by what the edited ``shards`` hold.
    """
    kept = {name: changes.rename.get(name, name) for name in known if changes.keeps(name)}
    files = {
        _labels_file(name): _labels_file(new)
        for name, new in kept.items()
        if name not in changes.cast
    }
    labels = carried.labels.items()
    carried.labels = {files[file]: text for file, text in labels if file in files}
    items = carried.info.pop("supervisedKeys", {}).get("tuple", {}).get("items", [])
    names = [str(item.get("featureKey")) for item in items]
    if names and all(map(changes.keeps, names)):
        items = [{"featureKey": changes.rename.get(name, name)} for name in names]
        carried.info["supervisedKeys"] = {"tuple": {"items": items}}
    if carried.features is None:
        return
    with reading_metadata(FEATURES, "TFDS"):
        before: dict[str, Json] = dict(carried.features["featuresDict"]["features"])
    after: dict[str, Json] = {}
    missing, touched = {*changes.added}, {*changes.cast, changes.image}
    for name, feature in before.items():
        parts = [one for one in known if one not in before and one.startswith(f"{name}/")]
        same = touched.isdisjoint([name, *parts]) and all(kept.get(one) == one for one in parts)
        if same and changes.keeps(name):
            after[changes.rename.get(name, name)] = feature
        else:
            missing.update(kept[one] for one in (name, *parts) if one in kept)
    if missing and shards:
        found = infer_schema(shards)
        made = tfds_features(found.features, found.records).content["featuresDict"]["features"]
        after |= {
            name: feature
            for name, feature in made.items()
            if not missing.isdisjoint([name, f"{name}/ragged_flat_values"])
        }
    if changes.image is not None and changes.recipe is not None and changes.recipe.resize:
        image = after.get(kept[changes.image], {}).get("image")
        if image:
            size = changes.recipe.resize
            channels = int(image["shape"]["dimensions"][-1])
            image["shape"] = dimensions(size.height or -1, size.width or -1, channels)
    carried.features = connector("FeaturesDict", featuresDict={"features": after})


def _labels_file(feature: str) -> str:
    """Return the name of the file that has the names of a feature's classes."""
    return f"{feature.replace('/', '_')}.labels.txt"
