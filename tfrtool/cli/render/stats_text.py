"""Statistics for people."""

from collections.abc import Mapping, Sequence
from typing import Any

from tfrtool.cli.render.page import Block, Heading, Lines, Page, Table, Tone, Toned
from tfrtool.errors import human_count, printable
from tfrtool.examples.feature_text import name_text
from tfrtool.inspection.stats.stats import StatsReport

_BARS = " ▁▂▃▄▅▆▇█"
_FEW = 100
"""Distinct integers that may be classes, whose commonest are shown."""

_SHOWN = 3
_TEXT = 24

Feature = Mapping[str, Any]


def stats_page(report: StatsReport, threshold: float | None) -> Page:
    """Return what ``inspect stats`` shows; what is farther than ``threshold`` stands out."""
    records, features = report.records, report.features
    counts = human_count(records, "record"), human_count(report.shards, "shard")
    page: list[Block] = [Heading(f"{' of '.join(counts)}, {report.payload.title}")]
    numbers = [(one, one["values"]) for one in features if one.get("values")]
    lists = [(one, one["lengths"]) for one in features if _varies(one["lengths"])]
    stepped = [(one, one["steps"]) for one in features if one.get("steps")]
    images = [(one, one["images"]) for one in features if "images" in one]
    valued = [one for one in features if "images" not in one and _has_classes(one)]
    page += _numbers("numbers", [(one, held) for one, held in numbers if held["count"]], records)
    page += _numbers("list lengths", lists, records)
    page += _numbers("steps", stepped, records)
    if valued:
        head = ("values", "present", "distinct", "commonest")
        cells = [_class_row(one, records) for one in valued]
        page.append(Table(head=head, rows=cells))
    if images:
        rows = [(_name(one), *_image(held)) for one, held in images]
        page.append(Table(head=("images", "formats", "channels", "width", "height"), rows=rows))
    if notes := _notes(report):
        page += [Heading("To note"), Lines(notes)]
    if report.against is not None:
        page += _against(report.against, threshold)
    return page


def bars(counts: Sequence[int]) -> str:
    """Return a histogram in a line; a bucket with anything in it has a bar."""
    most = max(counts, default=0)
    return "".join(_BARS[-(-8 * count // most)] if most else _BARS[0] for count in counts)


def _numbers(title: str, rows: Sequence[tuple[Feature, Feature]], records: int) -> list[Block]:
    if not rows:
        return []
    head = (title, "present", "mean", "std", "min", "median", "max", "zeros", "histogram")
    cells = []
    for one, held in rows:
        middle = (held["mean"], held["std"], held["min"], held["quantiles"]["0.5"], held["max"])
        shown = map(_number, middle)
        drawn = bars(held["histogram"]["counts"])
        cells.append((_name(one), _present(one, records), *shown, f"{held['zeros']:,}", drawn))
    return [Table(head=head, rows=cells, right=frozenset(range(1, 8)))]


def _varies(lengths: Feature) -> bool:
    return bool(lengths["count"]) and (lengths["min"], lengths["max"]) != (1, 1)


def _has_classes(feature: Feature) -> bool:
    if "bytes" in feature or any("name" in one for one in feature.get("common", ())):
        return True
    return bool(feature.get("common")) and feature["distinct"] <= _FEW


def _name(feature: Feature) -> str:
    return name_text(feature["name"])


def _number(value: float) -> str:
    if isinstance(value, int) and abs(value) < 10**9:
        return f"{value:,}"
    return f"{value + 0.0:.4g}"  # no negative zero


def _present(feature: Feature, records: int) -> str:
    return "all" if feature["present"] == records else f"{feature['present']:,}"


def _distinct(feature: Feature) -> str:
    about = "" if feature["distinct_exact"] else "about "
    return f"{about}{feature['distinct']:,}"


def _class_row(feature: Feature, records: int) -> tuple[str, ...]:
    return _name(feature), _present(feature, records), _distinct(feature), _commonest(feature)


def _commonest(feature: Feature) -> str:
    held = feature.get("values") or feature["bytes"]
    parts = []
    for one in feature["common"][:_SHOWN]:
        value = one.get("name", one["value"])
        if isinstance(value, Mapping):
            value = value.get("text", f"({value['bytes']:,} bytes)")
        text = printable(str(value))
        text = text if len(text) <= _TEXT else f"{text[: _TEXT - 3]}..."
        parts.append(f"{text} {one['count'] / held['count']:.1%}")
    return ", ".join(parts)


def _image(images: Feature) -> tuple[str, ...]:
    formats = (f"{name.partition('/')[2]} {n:,}" for name, n in images["formats"].items())
    sides = []
    for side in (images["width"], images["height"]):
        middle = side["quantiles"].get("0.5")
        spread = f"{side['min']} to {side['max']}, median {middle}"
        sides.append("unknown" if middle is None else spread if _varies_side(side) else str(middle))
    return ", ".join(formats), ", ".join(images["channels"]), *sides


def _varies_side(side: Feature) -> bool:
    return bool(side["min"] != side["max"])


def _notes(report: StatsReport) -> list[str]:
    notes = []
    if report.sampled:
        notes.append("this is a sample: the first records of each shard in equal shares")
    if report.left_out:
        notes.append("there are too many names: some features are not in")
    for one in report.features:
        held = one.get("values") or one.get("bytes") or one["lengths"]
        odd = [f"{held[name]:,} {name}" for name in ("nan", "infinite") if held[name]]
        if one.get("images", {}).get("unreadable"):
            odd.append(f"{one['images']['unreadable']:,} images whose header says no size")
        if held["rank_error"]:
            odd.append(f"ranks in its histogram are off by {held['rank_error']:.2%} at most")
        if odd:
            notes.append(f"{_name(one)}: {', '.join(odd)}")
    return notes


def _against(against: Mapping[str, Any], threshold: float | None) -> list[Block]:
    counts = human_count(against["records"], "record"), human_count(against["shards"], "shard")
    page: list[Block] = [Heading(f"Against {' of '.join(counts)}")]
    lines = [
        *(f"only here: {printable(name)}" for name in against["only_here"]),
        *(f"only there: {printable(name)}" for name in against["only_there"]),
    ]
    found = sorted(against["distances"], key=lambda one: -one["distance"])
    apart = [one for one in found if one["distance"] > 0]
    if len(apart) < len(found):
        lines.append(f"{len(found) - len(apart)} of {len(found)} distances are 0")
    rows = []
    for one in apart:
        text = f"{one['distance']:.4f}"
        if threshold is not None and one["distance"] > threshold:
            text = Toned(f"{text} too far", Tone.BAD)
        rows.append((name_text(one["feature"]), one["of"], text, one["measure"]))
    page.append(Lines(lines))
    if rows:
        page.append(Table(head=("feature", "of", "distance", "measure"), rows=rows))
    return page
