"""The filters beside the records, with the number of records for each value."""

from typing import Any

from tfrtool.errors import human_bytes
from tfrtool.inspection.table.record_query import BYTES, PIXELS, Answer
from tfrtool.view.live import Live
from tfrtool.view.page_address import PageAddress
from tfrtool.view.pieces import NO_SPLIT, named_class, short

_FACET = 12
"""Values of a facet, unless all are asked for."""

_FACETS = {"split": "Split", "label": "Class", "shard": "Shard", "fault": "Faults",
           "copies": "Duplicates", "size": "Size", "marked": "Marks"}  # fmt: skip


def list_facets(live: Live, asked: PageAddress, result: Answer) -> list[dict[str, Any]]:
    """Return the filters with their counts; those with one value only if it is chosen."""
    shown = []
    for name, title in _FACETS.items():
        chosen = asked.parameters.get(name)
        counts = {str(value): count for value, count in result.facets.get(name, ()) if count}
        if name == "fault" and counts:
            counts = {"any": sum(counts.values()), **counts}
        elif name == "marked":
            counts = {"1": counts["True"]} if "True" in counts else {}
        elif name in ("shard", "size"):
            counts = dict(
                sorted(counts.items(), key=lambda entry: int(entry[0]) or 10**9 * (name == "size"))
            )
        if name not in ("fault", "copies", "marked") and len(counts) < 2 and chosen is None:
            continue
        most = None if asked.parameters.get("all") == name else _FACET
        listed = [*counts][:most]
        if chosen is not None and chosen not in listed:
            listed.append(chosen)
        items = [
            {
                "name": _facet_value(live, name, value),
                "count": counts.get(value),
                "chosen": value == chosen,
                "href": asked.url(**{name: None if value == chosen else value}),
            }
            for value in listed
        ]
        left = len(counts) - len(listed)
        if items:
            more = asked.url(all=name)
            shown.append({"title": title, "items": items, "left": left, "more": more})
    return shown


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
    known = {"split": {"": NO_SPLIT}, "marked": {"1": "marked"}}
    return known.get(name, {"any": "all with a fault"}).get(value) or short(value)
