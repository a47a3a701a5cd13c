"""What is above the columns of the table: how the values of all records are distributed."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from tfrtool.errors import human_count, printable
from tfrtool.examples.arrow.columns import CONTEXT, LISTS
from tfrtool.inspection.stats.stats import StatsReport
from tfrtool.view import drawings
from tfrtool.view.pieces import short

_HEIGHT = 28
"""Pixels of a drawing."""

_MOST_BARS = 20
"""Values that have a bar each; as many as `inspect stats` lists."""


def column_heads(statistics: StatsReport | None, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the name of each column, with a drawing and the range of its values.

    These are the numbers of ``inspect stats``, which are there once everything has been read.
    """
    features = () if statistics is None else statistics.features
    by_name = {one["name"]: one for one in features}
    heads = []
    for name in names:
        stored = name.removeprefix(f"{CONTEXT}/").removeprefix(f"{LISTS}/")
        feature = by_name.get(name, by_name.get(stored))
        drawing, text = (Markup(""), "") if feature is None else _summary(feature)
        missing = feature["missing"] if feature is not None else 0
        notes = [text, f"{missing:,} missing" if missing else ""]
        heads.append(
            {"name": name, "drawing": drawing, "text": ", ".join(one for one in notes if one)}
        )
    return heads


def _summary(feature: Mapping[str, Any]) -> tuple[Markup, str]:
    """Return a drawing of a feature's values, and in words what it shows."""
    common, distinct = feature.get("common"), feature["distinct"]
    if common and feature["distinct_exact"] and 2 <= distinct == len(common) <= _MOST_BARS:
        counts = {_value(one): one["count"] for one in common}
        if len(counts) == distinct:
            return drawings.columns(counts, height=_HEIGHT), human_count(distinct, "value")
    numbers = feature.get("values") or feature.get("bytes")
    if not numbers or not numbers["count"] or numbers["min"] is None:
        return Markup(""), ""
    histogram, unit = numbers["histogram"], "" if "values" in feature else " bytes"
    counts, edges = histogram["counts"], histogram["edges"]
    drawing = drawings.histogram(counts, edges, height=_HEIGHT, titles=True)
    low, high = (drawings.number(numbers[one]) for one in ("min", "max"))
    text = low if low == high else f"{low} to {high}"
    return drawing, f"{text}{unit}"


def _value(common: Mapping[str, Any]) -> str:
    """Return a value that ``inspect stats`` lists, as text."""
    value = common.get("name", common["value"])
    if isinstance(value, Mapping):
        value = value.get("text", f"({value['bytes']:,} bytes)")
    return short(printable(str(value)))
