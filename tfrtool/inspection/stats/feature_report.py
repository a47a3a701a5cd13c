"""What a report says of each feature, and how far features are from their like."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from tfrtool.examples.example import DType, feature_name
from tfrtool.examples.roles import LabelNames
from tfrtool.examples.tfds_features import LABEL_WORDS
from tfrtool.inspection.stats.distance import jensen_shannon, l_infinity
from tfrtool.inspection.stats.feature_fold import FeatureFold, FeatureKey
from tfrtool.inspection.stats.string_fold import string_json

COMMONEST = 20
"""Values that are told with their numbers; as many as TFDV tells by default."""

Json = dict[str, Any]


def feature_stats(key: FeatureKey, fold: FeatureFold, records: int, names: LabelNames) -> Json:
    """Return what was seen of a feature in so many records, as docs/json.md describes it."""
    text = key.dtype is DType.STRING
    numbers, held, images = fold.numbers.to_json(), fold.strings.held(), fold.images
    data: Json = {
        "name": feature_name(key.key),
        "dtype": key.dtype and key.dtype.value,
        "present": fold.present,
        "missing": records - fold.present,
        "lengths": fold.lengths.to_json(),
    }
    if key.is_list:
        data |= {"list": True, "steps": fold.steps.to_json()}
    if text:
        data |= {"bytes": numbers, "distinct": held.distinct, "distinct_exact": fold.strings.exact}
        data["common_error"] = held.short
    elif key.dtype is not None:
        data |= {"values": numbers, "distinct": numbers["distinct"]}
        data |= {"distinct_exact": numbers["distinct"] is not None, "common_error": 0}
    if key.dtype in (DType.STRING, DType.INT64):
        counts: Mapping[Any, int] = held.counts if text else fold.numbers.counts()
        data["common"] = common = []
        for value in sorted(counts, key=lambda value: (-counts[value], value))[:COMMONEST]:
            shown = string_json(value) if text else value
            common.append({"value": shown, "count": counts[value]})
            if not text and 0 <= value < len(names.names):
                common[-1]["name"] = names.names[value]
    if images.formats:
        data["images"] = {
            "formats": dict(sorted(images.formats.items())),
            "channels": {str(n): count for n, count in sorted(images.channels.items())},
            "unreadable": images.unreadable,
            "width": images.width.to_json(),
            "height": images.height.to_json(),
        }
    return data


def feature_distances(
    key: FeatureKey,
    some: FeatureFold,
    others: FeatureFold,
    records: tuple[int, int],
    names: LabelNames,
) -> list[Json]:
    """Return how far a feature is from its like in all that can be compared."""
    present = [
        Counter({True: fold.present, False: count - fold.present})
        for fold, count in zip((some, others), records, strict=True)
    ]
    found = {
        "presence": l_infinity(*present),
        "format": l_infinity(some.images.formats, others.images.formats),
    }
    numbers = {
        "lengths": (some.lengths, others.lengths),
        "steps": (some.steps, others.steps),
        "width": (some.images.width, others.images.width),
        "height": (some.images.height, others.images.height),
    }
    if key.dtype is DType.STRING:
        numbers["bytes"] = some.numbers, others.numbers
        if not some.images.formats and not others.images.formats:
            found["values"] = l_infinity(some.strings.held().counts, others.strings.held().counts)
    elif _is_label(key, names) and some.numbers.quantiles.exact and others.numbers.quantiles.exact:
        found["values"] = l_infinity(some.numbers.counts(), others.numbers.counts())
    else:
        numbers["values"] = some.numbers, others.numbers
    common = {"feature": feature_name(key.key), "dtype": key.dtype and key.dtype.value}
    measured = [(of, "l_infinity", distance) for of, distance in found.items()]
    measured += [(of, "jensen_shannon", jensen_shannon(*pair)) for of, pair in numbers.items()]
    return [
        {**common, "of": of, "measure": measure, "distance": distance}
        for of, measure, distance in measured
        if distance is not None
    ]


def _is_label(key: FeatureKey, names: LabelNames) -> bool:
    """Return whether integers are classes rather than numbers, by their names."""
    words = re.split(r"[^a-z]+", feature_name(key.key).lower())
    return key.dtype is DType.INT64 and (bool(names.names) or not LABEL_WORDS.isdisjoint(words))
