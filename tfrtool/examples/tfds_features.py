"""A features.json for ``tensorflow_datasets.builder_from_directory`` (TFDS 4.9.10)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tfrtool.examples.example import DType, is_utf8
from tfrtool.examples.statistics import FeatureStatistics
from tfrtool.examples.tfds_metadata import Json, connector, dimensions

_IMAGES = {"image/jpeg": "jpeg", "image/png": "png"}
_LABEL_WORDS = frozenset({"label", "labels", "class", "target", "category", "y"})
_RAGGED_VALUES = "/ragged_flat_values"
_RAGGED_LENGTHS = "/ragged_row_lengths_{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TfdsFeatures:
    """What TFDS can be told of some features.

    Attributes:
        content: the contents of features.json.
        left_out: by name, why a feature is not in it; TFDS reads the records without it.
    """

    content: Json
    left_out: Mapping[str, str]


def tfds_features(
    features: Sequence[FeatureStatistics], records: int, *, labels: bool = True
) -> TfdsFeatures:
    """Describe features to TFDS, so that it reads all ``records`` records as they are.

    One JPEG or PNG becomes an ``Image``, UTF-8 text ``Text``, an int64 that is called a label and
    has the values 0 ... n-1 ``ClassLabel``, if all values are known (``labels``), all else a
    ``Tensor`` or ``Scalar``. What is missing in some records, or comes in any number, becomes a
    ``Sequence``, which is empty where it is missing: TFDS' own optional features put a number in
    its place. Lists of lists in TFDS' own layout (``ragged_flat_values`` and
    ``ragged_row_lengths_0``) become nested sequences.
    """
    found: dict[str, Json] = {}
    left_out: dict[str, str] = {}
    nested = dict(_nested(features))
    parts = {part for names in nested.values() for part in names}
    for feature in features:
        reason = _refusal(feature)
        if reason is not None:
            left_out[feature.name] = reason
        elif feature.name not in parts:
            found[feature.name] = _connector(feature, records, labels)
        elif feature.name.endswith(_RAGGED_VALUES):
            name = feature.name.removesuffix(_RAGGED_VALUES)
            found[name] = _scalar(feature)
            for _ in nested[name]:
                found[name] = _sequence(found[name])
    content = connector("FeaturesDict", featuresDict={"features": found})
    return TfdsFeatures(content=content, left_out=left_out)


def _refusal(feature: FeatureStatistics) -> str | None:
    """Return why TFDS can't read a feature; None where it can."""
    if feature.is_list:
        return "a feature list: TFDS reads each record as a tf.train.Example, which has none"
    if feature.conflict:
        types = " and ".join(dtype.value for dtype in feature.dtypes)
        return f"its type is {types}: TFDS takes one"
    if not is_utf8(feature.key):
        return "its name is no UTF-8, as names in JSON are"
    return None if feature.key else "it has no name"


def _nested(features: Sequence[FeatureStatistics]) -> Iterator[tuple[str, list[str]]]:
    """Find lists of lists: yield their names, and those of the features that hold them.

    `example_parser.py` of TFDS keeps the values in one feature and the lengths of the rows in one
    more for each level. That they belong together shows in their sums.
    """
    known = {feature.name: feature for feature in features if _refusal(feature) is None}
    for name, flat in known.items():
        base = name.removesuffix(_RAGGED_VALUES)
        lengths: list[str] = []
        while base + _RAGGED_LENGTHS.format(len(lengths)) in known:
            lengths.append(base + _RAGGED_LENGTHS.format(len(lengths)))
        if base == name or base in known or not lengths or not base:
            continue
        rows = [known[part].values.get(DType.INT64) for part in lengths]
        counts = [None if row is None else row.count for row in rows[1:]] + [flat.range.count]
        if [None if row is None else row.total for row in rows] == counts:
            yield base, [name, *lengths]


def _connector(feature: FeatureStatistics, records: int, labels: bool) -> Json:
    size = feature.size(records)
    if size == 1:
        item = _image(feature)
        if item is None and set(feature.content) <= {"text", "empty"} and feature.content:
            item = connector("Text", text={})
        elif labels and _is_label(feature):
            classes = str(len(feature.range.distinct or ()))
            item = connector("ClassLabel", classLabel={"numClasses": classes})
        return item or _scalar(feature)
    if size:
        return connector("Tensor", _dtype(feature), (size,))
    # Encoded images in a list stay bytes: TFDS stacks their pixels, and fails where sizes differ.
    return _sequence(_scalar(feature))


def _image(feature: FeatureStatistics) -> Json | None:
    formats = [_IMAGES.get(content) for content in feature.content]
    if not formats or None in formats:
        return None
    pixels = feature.range.pixels
    images = sum(feature.content.values())
    known = set(pixels) if sum(pixels.values()) == images else set()
    channels = 3
    if len(known) == 1:
        ((held, _),) = known
        # decode_image makes 1, 3 or 4 channels, of a JPEG never 4.
        channels = {1: 1, 2: 4, 4: 4}.get(held, 3) if formats == ["png"] else min(held, 3)
    deep = formats == ["png"] and known != set() and all(bits == 16 for _, bits in known)
    content: Json = {
        "dtype": "uint16" if deep else "uint8",
        "shape": dimensions(-1, -1, channels),
    }
    if len(formats) == 1:
        content["encodingFormat"] = formats[0]
    return connector("Image", image=content)


def _is_label(feature: FeatureStatistics) -> bool:
    words = re.split(r"[^a-z]+", feature.name.lower())
    distinct = feature.range.distinct
    return (
        feature.dtype is DType.INT64
        and not _LABEL_WORDS.isdisjoint(words)
        and distinct is not None
        and len(distinct) > 1
        and set(distinct) == set(range(len(distinct)))
    )


def _dtype(feature: FeatureStatistics) -> str:
    return (feature.dtype or DType.STRING).value


def _scalar(feature: FeatureStatistics) -> Json:
    return connector("Scalar", _dtype(feature))


def _sequence(item: Json) -> Json:
    return connector("Sequence", sequence={"feature": item, "length": "-1"})
