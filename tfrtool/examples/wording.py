"""Statistics in words, in the few that fit beside a feature's name."""

from __future__ import annotations

from tfrtool.errors import printable
from tfrtool.examples.content import decode_text
from tfrtool.examples.example import DType, Value, feature_key, is_utf8
from tfrtool.examples.statistics import FeatureStatistics, ValueStatistics

_LISTED = 4
"""Distinct values that are named one by one."""

_LONGEST_VALUE = 16
"""Characters of a distinct value that is named."""


def name_text(name: str) -> str:
    """Return a feature's name for people: as it is, or as Python writes it where it must.

    That is where a terminal would take it for something else, or a reader would. No two names
    have the same text.
    """
    if name.isprintable() and name == name.strip() and not name.startswith(("'", '"', "b'", 'b"')):
        return name or "''"
    return repr(name if is_utf8(key := feature_key(name)) else key)


def conflict_text(feature: FeatureStatistics) -> str:
    """Return which types records have, where they disagree, and where each comes first."""
    if not feature.conflict:
        return ""
    parts = []
    for dtype, count in sorted(feature.dtypes.items(), key=lambda item: (-item[1], item[0].value)):
        source, index = feature.values[dtype].first
        where = f" of {printable(source)}" if source else ""
        parts.append(f"{dtype.value} in {count:,} (first in record {index}{where})")
    unit = "steps" if feature.is_list else "records"
    return f"no description fits all {unit}: {', '.join(parts)}"


def presence_text(feature: FeatureStatistics, records: int) -> str:
    """Return in how many records the feature is, where that is not each of them once."""
    unset = f"{feature.unset:,} without a kind" if feature.unset else ""
    parts = []
    if feature.dtype is None and not feature.is_list:
        parts.append("never set")
    elif feature.present != records:
        there = f"in {feature.present:,} of {records:,} records"
        parts.append(f"{there} ({unset})" if unset and not feature.is_list else there)
    if unset and feature.is_list:
        parts.append(f"steps: {unset}")
    if feature.duplicates:
        parts.append(f"more than once in {feature.duplicates:,}, where the last counts")
    return ", ".join(parts)


def lengths_text(feature: FeatureStatistics) -> str:
    """Return how many values a record has, or how many steps of how many values."""
    if not feature.present:
        return ""
    text = _span(feature.min_length, feature.max_length)
    if not feature.is_list:
        return text
    text += " steps"
    if feature.min_step is not None and feature.max_step is not None:
        text += f" of {_span(feature.min_step, feature.max_step)}"
    return text


def values_text(feature: FeatureStatistics, *, brief: bool = False) -> str:
    """Return what bytes hold, and the distinct values if they are few, or their range.

    In ``brief``, the number of distinct texts or the range, not both.
    """
    found = feature.range
    parts = [feature.described_content or ""]
    distinct = found.distinct
    texts = feature.dtype is not DType.STRING or set(feature.content) <= {"text", "empty"}
    shown = [value_text(v) for v in sorted(distinct)] if distinct and texts else []
    if 0 < len(shown) <= _LISTED and all(len(text) <= _LONGEST_VALUE for text in shown):
        parts.append(", ".join(shown))
    else:
        count = f"{len(distinct)} distinct" if distinct else ""
        limits = _limits_text(feature.dtype, found)
        if brief:
            parts.append(count if count and feature.dtype is DType.STRING else limits)
        else:
            parts += [limits, count]
    if found.nan:
        parts.append(f"{found.nan:,} NaN")
    if found.infinite:
        parts.append(f"{found.infinite:,} infinite")
    return ", ".join(part for part in parts if part)


def _limits_text(dtype: DType | None, found: ValueStatistics) -> str:
    if found.minimum is None or found.maximum is None:
        return ""
    low, high = number_text(found.minimum), number_text(found.maximum)
    text = low if low == high else f"{low} to {high}"
    return f"{text} bytes" if dtype is DType.STRING else text


def value_text(value: Value) -> str:
    """Return one value, strings as Python writes them."""
    if isinstance(value, bytes):
        text = decode_text(value)
        return repr(value if text is None else text)
    return number_text(value)


def number_text(value: float) -> str:
    """Return a number in at most ten digits or so: seven of a float32 mean something."""
    return f"{value:.7g}" if isinstance(value, float) else str(value)


def _span(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
