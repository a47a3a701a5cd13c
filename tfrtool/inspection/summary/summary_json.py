"""Values and features as JSON values, as every command prints them."""

import base64
import math
from array import array
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from tfrtool.examples.content import decode_text, describe_bytes
from tfrtool.storage.json_values import to_json_values

if TYPE_CHECKING:
    from tfrtool.examples.parsing import ParsedValue
    from tfrtool.examples.schema_fold import FeatureStatistics


def feature_json(feature: "FeatureStatistics") -> dict[str, Any]:
    """Return what was seen of a feature, but for its values."""
    low, high = feature.lengths
    data: dict[str, Any] = {
        "name": feature.name,
        "dtype": to_json_values(feature.dtype),
        "present": feature.present,
        "min_length": low,
        "max_length": high,
        "content": feature.described_content,
        "unset": feature.unset,
        "dtypes": {dtype.value: count for dtype, count in feature.dtypes.items()},
        "duplicates": feature.duplicates,
    }
    if feature.is_list:
        low_step, high_step = feature.steps or (None, None)
        data |= {"list": True, "min_step": low_step, "max_step": high_step}
    return data


def values_json(feature: "FeatureStatistics") -> dict[str, Any]:
    """Return what a feature's values are; how often each comes, unless there are too many."""
    found, distinct = feature.range, feature.range.distinct
    data = {
        "min": value_json(found.minimum),
        "max": value_json(found.maximum),
        "nan": found.nan,
        "infinite": found.infinite,
        "distinct": None,
        "values": None,
    }
    if distinct is not None:
        counts = [{"value": value_json(v), "count": distinct[v]} for v in sorted(distinct)]
        data |= {"distinct": len(distinct), "values": counts}
    return data


def value_json(value: "ParsedValue | None") -> Any:
    """Return a parsed value as JSON values: of bytes their number and content, and text as such.

    Floats are the shortest decimals of the same float32; "NaN", "Infinity" where JSON has none.
    """
    if isinstance(value, bytes):
        data: dict[str, Any] = {"bytes": len(value), "content": describe_bytes(value)}
        text = decode_text(value)
        if text is not None:
            data["text"] = text
        return data
    if isinstance(value, Sequence):
        return [value_json(item) for item in value]
    return as_json(value, short=True)


def as_json(value: Any, *, short: bool = False, nulls: bool = False) -> Any:
    """Return a value of Arrow as JSON values, from which it can be restored.

    Bytes that are UTF-8 are a text, others base64; NaN and infinities are words, and what JSON has
    no type for is text.

    Args:
        value: as Arrow gives it to Python.
        short: whether floats are float32, and written as the shortest decimals of these.
        nulls: whether nulls in a struct are included.
    """
    match value:
        case float():
            if math.isfinite(value):
                return shortest_float(value) if short else value
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case None | int() | str() | list([int(), *_]):  # Arrow's lists have one type
            return value
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return {"base64": base64.b64encode(value).decode()}
        case list() | tuple():
            return [as_json(one, short=short, nulls=nulls) for one in value]
        case dict():
            shown = {key: one for key, one in value.items() if nulls or one is not None}
            return {key: as_json(one, short=short, nulls=nulls) for key, one in shown.items()}
        case Decimal():  # sums of int64 have no fraction; some fractions no double holds
            if value == value.to_integral_value():
                return int(value)
            number = float(value)
            return number if Decimal(repr(number)) == value else format(value, "f")
    return str(value)


def shortest_float(value: float) -> float:
    """Return the float with the fewest digits that is the same float32 as ``value``."""
    # Nine significant digits identify all float32 values (IEEE 754, 5.12.2), and up to six are
    # distinct, except among subnormal numbers.
    for digits in range(6 if abs(value) >= 2.0**-126 else 1, 9):
        candidate = float(f"{value:.{digits}g}")
        if array("f", [candidate])[0] == value:
            return candidate
    return float(f"{value:.9g}")
