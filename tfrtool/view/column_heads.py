"""What is above the columns of the table: how the values of all records are distributed.

A bar is a link to the records with these values. The next bar extends the range to it, a bar in the
range narrows it to this bar, and a bar that is the range removes it.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from tfrtool.errors import human_count, printable
from tfrtool.examples.arrow.columns import CONTEXT, LISTS
from tfrtool.inspection.stats.stats import StatsReport
from tfrtool.inspection.table.column_ranges import (
    INFINITE,
    LARGEST_EXACT,
    NAN,
    ColumnRange,
    ValueKind,
)
from tfrtool.inspection.table.long_values import LONGEST, LONGEST_TEXT
from tfrtool.inspection.table.record_query import ShownColumns
from tfrtool.view import drawings
from tfrtool.view.page_address import IS, IS_NULL, PageAddress, range_parameter
from tfrtool.view.pieces import short

_HEIGHT = 28
"""Pixels of a drawing."""

_MOST_BARS = 20
"""Values that have a bar each; as many as `inspect stats` lists."""


class _Column(NamedTuple):
    """A column of the table.

    Attributes:
        name: its name.
        kind: what its values are, or those in its lists; None for something else.
        is_class: whether its values are the classes of records.
        noun: what the bars count: records, or values if a record may have several.
    """

    name: str
    kind: ValueKind | None
    is_class: bool
    noun: str


def column_heads(
    statistics: StatsReport | None,
    names: Sequence[str],
    known: ShownColumns,
    label: str | None,
    asked: PageAddress,
) -> list[dict[str, Any]]:
    """Return the name of each column, with a drawing, the range of its values, and more links.

    These are the numbers of ``inspect stats``, which are there once everything has been read.
    """
    features = () if statistics is None else statistics.features
    by_name = {one["name"]: one for one in features}
    heads = []
    for name in names:
        stored = name.removeprefix(f"{CONTEXT}/").removeprefix(f"{LISTS}/")
        feature = by_name.get(name, by_name.get(stored))
        column = _Column(name, known.kinds.get(name), name == label, _noun(feature))
        drawing, text = (Markup(""), "") if feature is None else _summary(feature, column, asked)
        notes = [] if feature is None else _notes(feature, column, asked)
        heads.append({"name": name, "drawing": drawing, "text": text, "notes": notes})
    return heads


def _summary(feature: Mapping[str, Any], column: _Column, asked: PageAddress) -> tuple[Markup, str]:
    """Return a drawing of a feature's values, and in words what it shows."""
    common, distinct = feature.get("common") or (), feature["distinct"]
    has_all = feature["distinct_exact"] and 2 <= len(common) == distinct <= _MOST_BARS
    if has_all and len({*map(_value, common)}) == distinct:
        bars = [_value_bar(one, column, asked) for one in common]
        label = "; ".join(f"{_value(one)} {one['count']:,}" for one in common)
        drawing = drawings.columns(bars, f"bar chart: {label}", height=_HEIGHT)
        return drawing, human_count(distinct, "value")
    numbers = feature.get("values") or feature.get("bytes")
    if not numbers or not numbers["count"] or numbers["min"] is None:
        return Markup(""), ""
    in_bytes = "values" not in feature
    low, high = (drawings.number(numbers[one]) for one in ("min", "max"))
    text = (low if low == high else f"{low} to {high}") + " bytes" * in_bytes
    return _histogram(numbers, text, column, asked, in_bytes=in_bytes), text


def _histogram(
    numbers: Mapping[str, Any], text: str, column: _Column, asked: PageAddress, *, in_bytes: bool
) -> Markup:
    """Return a histogram of numbers, or of sizes in bytes, that range as a text says."""
    counts, edges = numbers["histogram"]["counts"], numbers["histogram"]["edges"]
    can_filter, last = _has_ranges(column, numbers, in_bytes=in_bytes), len(counts) - 1
    bars = []
    for n, count in enumerate(counts):
        bucket = _bucket(column, edges[n], edges[n + 1], is_last=n == last, in_bytes=in_bytes)
        title = f"{range_text(bucket)}: {human_count(count, column.noun)}"
        bar = drawings.ChartBar(count, title)
        bars.append(_range_bar(bar, bucket, asked) if can_filter else bar)
    label = f"histogram of {short(column.name)} from {text}, largest bar {max(counts):,}"
    return drawings.columns(bars, label, height=_HEIGHT)


def _noun(feature: Mapping[str, Any] | None) -> str:
    """Return what a bar counts: records, or values if a record may have several."""
    lengths = {} if feature is None else feature["lengths"]
    return "value" if (lengths.get("max") or 0) > 1 or (feature or {}).get("list") else "record"


def _has_ranges(column: _Column, numbers: Mapping[str, Any], *, in_bytes: bool) -> bool:
    """Return whether the table has these values, or these lengths, of all records."""
    kind = column.kind
    if kind is None or kind.is_number == in_bytes:
        return False
    longest = LONGEST_TEXT if kind is ValueKind.TEXT else LONGEST
    return not in_bytes or numbers["max"] <= longest


def _bucket(
    column: _Column, low: float, high: float, *, is_last: bool, in_bytes: bool
) -> ColumnRange:
    """Return the range of a bar; of whole numbers, the first and the last one in it."""
    is_whole = in_bytes or column.kind in (ValueKind.INTEGER, ValueKind.BOOLEAN)
    if not is_whole or max(abs(low), abs(high)) > LARGEST_EXACT:
        return ColumnRange(column.name, low, high, is_closed=is_last, in_bytes=in_bytes)
    last = math.floor(high) if is_last else math.ceil(high) - 1
    return ColumnRange(column.name, math.ceil(low), last, in_bytes=in_bytes)


def _range_bar(
    bar: drawings.ChartBar, bucket: ColumnRange, asked: PageAddress
) -> drawings.ChartBar:
    """Return a bar with the link that chooses, extends or removes its range."""
    parameter, action = range_parameter(bucket), "show only these"
    chosen = next((one for one in asked.question.ranges if range_parameter(one) == parameter), None)
    is_chosen = chosen is not None and chosen.contains(bucket)
    changes: dict[str, str | None] = {parameter: bucket.text}
    if chosen == bucket:
        changes, action = {parameter: None}, "remove the filter"
    elif chosen is not None and not is_chosen and not chosen.special:
        extended = chosen.extended(bucket)
        changes, action = {parameter: extended.text}, f"extend the filter to {range_text(extended)}"
    title = f"{bar.title}; {action}"
    return bar._replace(title=title, href=asked.url(**changes), is_chosen=is_chosen)


def _value_bar(common: Mapping[str, Any], column: _Column, asked: PageAddress) -> drawings.ChartBar:
    """Return the bar of one of few values, with the link that chooses or removes it."""
    count = common["count"]
    title = f"{_value(common)}: {human_count(count, column.noun)}"
    text = _exact_text(common, column)
    if text is None:
        return drawings.ChartBar(count, title)
    parameter = "label" if column.is_class else f"{IS}{column.name}"
    is_chosen = asked.parameters.get(parameter) == text
    action = "remove the filter" if is_chosen else "show only these"
    href = asked.url(**{parameter: None if is_chosen else text})
    return drawings.ChartBar(count, f"{title}; {action}", href, is_chosen)


def _exact_text(common: Mapping[str, Any], column: _Column) -> str | None:
    """Return a value as filters compare it; None if they don't know it."""
    value, kind = common["value"], column.kind
    if isinstance(value, Mapping):
        return value.get("text") if kind is ValueKind.TEXT else None
    if column.is_class:
        return str(common.get("name", value))
    if kind is ValueKind.BOOLEAN:
        return str(bool(value)).lower()
    return str(value) if kind is ValueKind.INTEGER else None


def _notes(
    feature: Mapping[str, Any], column: _Column, asked: PageAddress
) -> list[dict[str, str | None]]:
    """Return how many records have no value, and how many values are not in a histogram."""
    values = feature.get("values") or {}
    is_number_column = column.kind is not None and column.kind.is_number
    notes = list[dict[str, str | None]]()
    for count, what, parameter, text, is_known in (
        (feature["missing"], "missing", f"{IS_NULL}{column.name}", "1", column.kind is not None),
        (values.get("nan", 0), "NaN", "", NAN, is_number_column),
        (values.get("infinite", 0), "infinite", "", INFINITE, is_number_column),
    ):
        if count:
            name = parameter or range_parameter(ColumnRange(column.name))
            chosen = asked.parameters.get(name) == text
            href = asked.url(**{name: None if chosen else text}) if is_known else None
            notes.append(
                {"text": f"{count:,} {what}", "href": href, "chosen": "true" if chosen else None}
            )
    return notes


def range_text(values: ColumnRange) -> str:
    """Return a range for people."""
    if values.special:
        return {NAN: "NaN"}.get(values.special, values.special)
    low, high = drawings.number(values.low), drawings.number(values.high)
    unit = " bytes" if values.in_bytes else ""
    if values.low == values.high:
        return f"{low}{unit}"
    return f"{low} to {'' if values.is_closed else 'below '}{high}{unit}"


def _value(common: Mapping[str, Any]) -> str:
    """Return a value that ``inspect stats`` lists, as text."""
    value = common.get("name", common["value"])
    if isinstance(value, Mapping):
        value = value.get("text", f"({value['bytes']:,} bytes)")
    return short(printable(str(value)))
