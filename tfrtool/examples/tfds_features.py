"""A features.json for ``tensorflow_datasets.builder_from_directory`` (TFDS 4.9.10)."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tfrtool.examples.example import DType, is_utf8
from tfrtool.examples.schema_fold import FeatureStatistics
from tfrtool.examples.tfds_metadata import Json, connector, dimensions

_IMAGES = {"image/jpeg": "jpeg", "image/png": "png"}
LABEL_WORDS = frozenset({"label", "labels", "class", "target", "category", "y"})


_TEXT = connector("Text", text={})


class TfdsFeatures(NamedTuple):
    """The contents of features.json, and by name why a feature is not in it."""

    content: Json
    skipped: Mapping[str, str]


def tfds_features(
    features: Sequence[FeatureStatistics], records: int, *, labels: bool = True
) -> TfdsFeatures:
    """Describe features to TFDS, so that it reads all ``records`` records as they are.

    One JPEG or PNG becomes an ``Image``, UTF-8 text ``Text``, an int64 that is called a label and
    has the values 0 ... n-1 ``ClassLabel``, if all values are known (``labels``), all else a
    ``Tensor`` or ``Scalar``. What is missing in some records, or comes in any number, becomes a
    ``Sequence``, which is empty where it is missing: TFDS' own optional features put a number in
    its place. Lists of lists, which TFDS keeps as ``ragged_flat_values`` and, for each level,
    ``ragged_row_lengths_0``, become nested sequences. What can't be described is left out: TFDS
    reads the records without it.
    """
    reasons = {feature.name: _refusal(feature) for feature in features}
    skipped = {name: reason for name, reason in reasons.items() if reason is not None}
    known = {feature.name: feature for feature in features if feature.name not in skipped}
    found: dict[str, Json] = {}
    for name, feature in known.items():
        base, _, part = name.partition("/ragged_")
        parts = {"flat_values", "row_lengths_0"}
        if part and base not in known and all(f"{base}/ragged_{one}" in known for one in parts):
            if part == "flat_values":
                found[base] = _scalar(feature)
                for other in known:
                    if other.startswith(f"{base}/ragged_"):
                        found[base] = _sequence(found[base])
        else:
            found[name] = _connector(feature, records, labels)
    content = connector("FeaturesDict", featuresDict={"features": found})
    return TfdsFeatures(content=content, skipped=skipped)


def _refusal(feature: FeatureStatistics) -> str | None:
    """Return why TFDS can't read a feature; None where it can."""
    if feature.is_list:
        return "a feature list; TFDS reads each record as a tf.train.Example, which has none"
    if feature.conflict:
        types = " and ".join(dtype.value for dtype in feature.dtypes)
        return f"mixed types ({types}); TFDS needs one"
    named = feature.key and is_utf8(feature.key)
    return None if named else "name is empty or not UTF-8, which JSON needs"


def _connector(feature: FeatureStatistics, records: int, labels: bool) -> Json:
    size = feature.size(records)
    if size == 1:
        item = _image(feature)
        if item is None and _is_text(feature):
            item = _TEXT
        elif labels and _is_label(feature):
            classes = str(len(feature.range.distinct or ()))
            item = connector("ClassLabel", classLabel={"numClasses": classes})
        return item or _scalar(feature)
    if size:
        return connector("Tensor", (feature.dtype or DType.STRING).value, (size,))
    # Encoded images in a list stay bytes: TFDS stacks their pixels, and fails where sizes differ.
    return _sequence(_TEXT if _is_text(feature) else _scalar(feature))


def _is_text(feature: FeatureStatistics) -> bool:
    return bool(feature.content) and {*feature.content} <= {"text", "empty"}


def _image(feature: FeatureStatistics) -> Json | None:
    formats = [_IMAGES.get(content) for content in feature.content]
    if not formats or None in formats:
        return None
    forms = feature.range.pixels
    channels, bits = (next(iter(forms)) if len(forms) == 1 else None) or (3, 8)
    content: Json = {
        "dtype": "uint16" if bits == 16 else "uint8",
        # decode_image makes 1, 3 or 4 channels.
        "shape": dimensions(-1, -1, 4 if channels == 2 else channels),
    }
    if len(formats) == 1:
        content["encodingFormat"] = formats[0]
    return connector("Image", image=content)


def _is_label(feature: FeatureStatistics) -> bool:
    words = re.split(r"[^a-z]+", feature.name.lower())
    distinct = set(feature.range.distinct or ())
    return (
        feature.dtype is DType.INT64
        and not LABEL_WORDS.isdisjoint(words)
        and len(distinct) > 1
        and distinct == set(range(len(distinct)))
    )


def _scalar(feature: FeatureStatistics) -> Json:
    return connector("Scalar", (feature.dtype or DType.STRING).value)


def _sequence(item: Json) -> Json:
    return connector("Sequence", sequence={"feature": item, "length": "-1"})
