"""What a report says of each feature, and how far features are from their like."""

import re
from typing import Any

from tfrtool.examples.example import DType, feature_name
from tfrtool.examples.tfds_features import LABEL_WORDS
from tfrtool.inspection.stats.distance import jensen_shannon, l_infinity
from tfrtool.inspection.stats.feature_fold import FeatureFold, FeatureKey
from tfrtool.inspection.stats.string_fold import string_json

COMMONEST = 20
"""Values that are told with their numbers; as many as TFDV tells by default."""

_NUMBERS = ("lengths", "steps", "width", "height", "bytes")
Json = dict[str, Any]
Labels = tuple[str, ...]


def feature_stats(key: FeatureKey, fold: FeatureFold, records: int, labels: Labels) -> Json:
    """Return what was seen of a feature in so many records, as docs/json.md describes it."""
    numbers = fold.numbers
    data: Json = {
        "name": feature_name(key.key),
        "dtype": key.dtype and key.dtype.value,
        "present": fold.present,
        "missing": records - fold.present,
        "lengths": numbers["lengths"].to_json(),
    }
    if key.is_list:
        data |= {"list": True, "steps": numbers["steps"].to_json()}
    counts: dict[Any, int]
    counts, distinct, short = fold.strings.held()
    if key.dtype is DType.STRING:
        data |= {"bytes": numbers["bytes"].to_json(), "distinct": distinct}
        data |= {"distinct_exact": not short, "common_error": short}
    elif key.dtype is not None:
        values, counts = numbers["values"], numbers["values"].distinct()
        data |= {"values": values.to_json(), "distinct": None if values.error else len(counts)}
        data |= {"distinct_exact": not values.error, "common_error": 0}
    if key.dtype in (DType.STRING, DType.INT64):
        data["common"] = common = []
        for value in sorted(counts, key=lambda value: (-counts[value], value))[:COMMONEST]:
            shown = string_json(value) if isinstance(value, str) else value
            common.append({"value": shown, "count": counts[value]})
            if not isinstance(value, str) and 0 <= value < len(labels):
                common[-1]["name"] = labels[value]
    if fold.formats:
        data["images"] = {
            "formats": dict(sorted(fold.formats.items())),
            "channels": {str(n): count for n, count in sorted(fold.channels.items())},
            "unreadable": fold.formats.total() - numbers["width"].count,
            "width": numbers["width"].to_json(),
            "height": numbers["height"].to_json(),
        }
    return data


def feature_distances(
    key: FeatureKey,
    some: FeatureFold,
    others: FeatureFold,
    records: tuple[int, int],
    labels: Labels,
) -> list[Json]:
    """Return how far a feature is from its like in all that can be compared."""
    first, second = (
        {True: fold.present, False: count - fold.present}
        for fold, count in zip((some, others), records, strict=True)
    )
    apart = {
        ("presence", "l_infinity"): l_infinity(first, second),
        ("format", "l_infinity"): l_infinity(some.formats, others.formats),
    }
    numbers, known = list(_NUMBERS), [fold.numbers["values"] for fold in (some, others)]
    if key.dtype is DType.STRING:
        if not some.formats and not others.formats:
            apart["values", "l_infinity"] = l_infinity(
                some.strings.held()[0], others.strings.held()[0]
            )
    elif _is_label(key, labels) and not any(one.error for one in known):
        apart["values", "l_infinity"] = l_infinity(*(one.distinct() for one in known))
    else:
        numbers.append("values")
    for of in numbers:
        apart[of, "jensen_shannon"] = jensen_shannon(some.numbers[of], others.numbers[of])
    title = {"feature": feature_name(key.key), "dtype": key.dtype and key.dtype.value}
    return [
        {**title, "of": of, "measure": measure, "distance": distance}
        for (of, measure), distance in apart.items()
        if distance is not None
    ]


def _is_label(key: FeatureKey, labels: Labels) -> bool:
    """Return whether integers are classes rather than numbers, by their names."""
    words = re.split(r"[^a-z]+", feature_name(key.key).lower())
    return key.dtype is DType.INT64 and (bool(labels) or not LABEL_WORDS.isdisjoint(words))
