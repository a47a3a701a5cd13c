"""The filters beside the records, with the number of records for each value."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tfrtool.errors import human_bytes
from tfrtool.inspection.table.record_query import BYTES, PIXELS, Answer
from tfrtool.view.column_heads import range_text
from tfrtool.view.live import Live
from tfrtool.view.page_address import IS, IS_NULL, PageAddress, range_parameter
from tfrtool.view.pieces import NO_SPLIT, named_class, short

_FACET = 12
"""Values of a facet, unless all are asked for."""

_FACETS = {"prediction": "Prediction", "tagged": "Tags", "split": "Split", "label": "Class",
           "predicted": "Predicted class", "confidence": "Confidence", "shard": "Shard",
           "fault": "Faults", "copies": "Duplicates", "size": "Size"}  # fmt: skip

_SHOWN_ALONE = ("prediction", "tagged", "fault", "copies")
"""Facets that are shown with one value, too."""


_PREDICTIONS = {
    "right": "\N{CHECK MARK} right",
    "wrong": "\N{BALLOT X} wrong",
    "none": "no prediction",
}


def list_facets(live: Live, asked: PageAddress, result: Answer) -> list[dict[str, Any]]:
    """Return the filters with their counts; those with one value only if it is chosen."""
    shown = []
    for name, title in _FACETS.items():
        chosen = asked.parameters.get(name)
        counts = {str(value): count for value, count in result.facets.get(name, ()) if count}
        if name == "fault" and counts:
            counts = {"any": sum(counts.values()), **counts}
        elif name == "confidence":
            counts = dict(sorted(counts.items(), reverse=True))
        elif name in ("shard", "size"):
            counts = dict(
                sorted(counts.items(), key=lambda entry: int(entry[0]) or 10**9 * (name == "size"))
            )
        if name not in _SHOWN_ALONE and len(counts) < 2 and chosen is None:
            continue
        values = [
            _FacetValue(_facet_value(live, name, value), name, value, counts.get(value))
            for value in [*counts, *([chosen] if chosen is not None else ())]
        ]
        shown.append(_facet(asked, name, title, values))
    for name, found in result.value_facets.items():
        values = [
            _FacetValue("no value", f"{IS_NULL}{name}", "1", count)
            if text is None
            else _FacetValue(short(text) or "(empty)", f"{IS}{name}", text, count)
            for text, count in found
        ]
        for parameter, name_of in (
            (f"{IS}{name}", short),
            (f"{IS_NULL}{name}", lambda _: "no value"),
        ):
            if (text := asked.parameters.get(parameter)) is not None:
                values.append(_FacetValue(name_of(text), parameter, text, None))
        shown.append(_facet(asked, name, short(name), values))
    return [one for one in shown if one["items"]]


def list_conditions(asked: PageAddress, result: Answer) -> list[dict[str, str]]:
    """Return what is asked of columns that have no facet, with the links that remove it."""
    shown = {}
    for one in asked.question.ranges:
        shown[range_parameter(one)] = f"{short(one.name)}: {range_text(one)}"
    for name, text in asked.question.values:
        if name not in result.value_facets:
            parameter = f"{IS_NULL if text is None else IS}{name}"
            value = "no value" if text is None else short(text) or "(empty)"
            shown[parameter] = f"{short(name)}: {value}"
    return [{"text": text, "href": asked.url(**{name: None})} for name, text in shown.items()]


@dataclass(frozen=True, slots=True)
class _FacetValue:
    """A value of a facet.

    Attributes:
        text: what people see.
        parameter: the parameter of an address that asks for it.
        value: the value of this parameter.
        count: number of records; None if it isn't counted.
    """

    text: str
    parameter: str
    value: str
    count: int | None


def _facet(
    asked: PageAddress, name: str, title: str, values: Sequence[_FacetValue]
) -> dict[str, Any]:
    """Return the first values of a facet with their links, and the chosen one."""
    by_value = dict[tuple[str, str], _FacetValue]()
    for one in values:
        by_value.setdefault((one.parameter, one.value), one)
    known, most = [*by_value.values()], None if asked.parameters.get("all") == name else _FACET
    chosen = [one for one in known if asked.parameters.get(one.parameter) == one.value]
    listed = [*known[:most], *(one for one in chosen if one not in known[:most])]
    items = [
        {
            "name": one.text,
            "count": one.count,
            "chosen": one in chosen,
            "href": asked.url(**{one.parameter: None if one in chosen else one.value}),
        }
        for one in listed
    ]
    more = asked.url(all=name)
    return {"title": title, "items": items, "left": len(known) - len(listed), "more": more}


def _facet_value(live: Live, name: str, value: str) -> str:
    names = live.found.names
    if name == "label":
        return short(named_class(live.found, value))
    if name == "shard":
        return names[int(value)] if int(value) < len(names) else value
    if name == "size":
        bounds = PIXELS if live.found.has_images else BYTES
        bound = int(value) or bounds[-1]
        text = f"{bound} px" if live.found.has_images else human_bytes(bound)
        return f"{'up to' if int(value) else 'over'} {text}"
    if name == "copies":
        return "same image more than once" if value == "any" else f"same image as {short(value)}"
    if name == "confidence":
        return f"{10 * int(value)} to {10 * int(value) + 10} %"
    known = {"split": {"": NO_SPLIT}, "prediction": _PREDICTIONS}
    return known.get(name, {"any": "all with a fault"}).get(value) or short(value)
