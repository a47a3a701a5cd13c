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
            return _non_finite(value)
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


def floats_json(values: Sequence[float]) -> list[float | str]:
    """Return what `as_json` does for each of some float32 values."""
    finite = math.isfinite
    return [shortest_float(one) if finite(one) else _non_finite(one) for one in values]


def _non_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


_ROUNDING = 1.5 * 2**52
"""Adding and subtracting this rounds to an integer, as 53 bits have no room for a fraction."""


_DECIMALS = {
    exponent: tuple(
        (power, min(half_ulp * power, 0.5) - 1e-6, half_ulp * power + 1e-6)
        # Up to 10**22, powers of ten are exact, and a division by them is rounded once.
        for power in [10.0**digits for digits in range(first, min(first + 5, 23))]
    )
    for exponent in range(-50, 25)
    for half_ulp in [2.0 ** (exponent - 25)]
    for first in [max(5 - math.floor(math.log10(2.0**exponent)), 0)]
}
"""By a float's binary exponent, what `shortest_float` tries for 6 to 9 digits.

Each is a power of ten, and how far from an integer the value times this power may be: up to the
first number it is certain that the integer gives the same float32, and from the second on that it
doesn't. Between them is 2e-6, for products that were rounded.
"""


def shortest_float(value: float) -> float:
    """Return the float with the fewest digits that is the same float32 as ``value``."""
    mantissa, exponent = math.frexp(value)
    if 0.5 < abs(mantissa) < 1:  # not zero, nor a power of two, whose neighbours differ in distance
        for power, near, far in _DECIMALS.get(exponent, ()):
            scaled = value * power
            digits = scaled + _ROUNDING - _ROUNDING
            distance = abs(scaled - digits)
            if distance < near:
                return digits / power
            if distance < far:
                break
    return _shortest_decimal(value)


def _shortest_decimal(value: float) -> float:
    """Do what `shortest_float` does, for every float32."""
    # Nine significant digits identify all float32 values (IEEE 754, 5.12.2), and up to six are
    # distinct, except among subnormal numbers.
    for digits in range(6 if abs(value) >= 2.0**-126 else 1, 9):
        candidate = float(f"{value:.{digits}g}")
        if array("f", [candidate])[0] == value:
            return candidate
    return float(f"{value:.9g}")
