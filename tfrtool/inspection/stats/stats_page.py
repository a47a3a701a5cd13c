"""Statistics for people, on the terminal and in HTML pages."""

from collections.abc import Mapping
from typing import Any

from tfrtool.errors import human_count, printable
from tfrtool.examples.feature_text import name_text
from tfrtool.inspection.stats.stats import StatsReport
from tfrtool.page import Bad, Heading, Histogram, Page, Table

_SHOWN = 3
_TEXT = 24
Feature = Mapping[str, Any]


def stats_page(
    report: StatsReport, threshold: float | None = None, most: int | None = None
) -> Page:
    """Return statistics for people; distances above ``threshold`` stand out.

    Args:
        report: the statistics.
        threshold: of ``inspect stats``.
        most: maximum number of features to show.
    """
    records, features = report.records, report.features[:most]
    page: list[str | Table] = [Heading(f"{_of(records, report.shards)}, {report.payload.title}")]
    for title, name in (("numbers", "values"), ("list lengths", "lengths"), ("steps", "steps")):
        rows = []
        for feature in features:
            summary = feature.get(name)
            scalar = name == "lengths" and summary and (summary["min"], summary["max"]) == (1, 1)
            of_component = "component" in feature and name != "values"
            if summary and summary["count"] and not scalar and not of_component:
                rows.append((*_titles(feature, records), *_numbers(summary)))
        if rows:
            head = (title, "present", "mean", "std", "min", "median", "max", "zeros", "histogram")
            page.append(Table(head=head, rows=rows, right=frozenset(range(1, 8))))
    if rows := [
        (*_titles(feature, records), *_commonest(feature))
        for feature in features
        if "images" not in feature
        and "component" not in feature
        and (feature.get("common") or "bytes" in feature)
    ]:
        page.append(Table(head=("values", "present", "distinct", "most common"), rows=rows))
    if rows := [(name_text(one["name"]), *_image(one)) for one in features if "images" in one]:
        page.append(Table(head=("images", "formats", "channels", "width", "height"), rows=rows))
    if notes := _notes(report):
        page += [Heading("notes"), *notes]
    if report.against is not None:
        page += _against(report.against, threshold)
    return page


def _of(records: int, shards: int) -> str:
    return f"{human_count(records, 'record')} in {human_count(shards, 'shard')}"


def _titles(feature: Feature, records: int) -> tuple[str, str]:
    present: int = feature["present"]
    return name_text(feature["name"]), "all" if present == records else f"{present:,}"


def _numbers(summary: Feature) -> tuple[str, ...]:
    middle = (
        summary["mean"],
        summary["std"],
        summary["min"],
        summary["quantiles"]["0.5"],
        summary["max"],
    )
    drawn = Histogram(summary["histogram"]["counts"], summary["histogram"]["edges"])
    return *map(_number, middle), f"{summary['zeros']:,}", drawn


def _number(value: float) -> str:
    if abs(value) < 10**9 and (isinstance(value, int) or abs(value) >= 10**4):
        return f"{value:,.0f}"
    return f"{value + 0.0:.4g}"  # no negative zero


def _commonest(feature: Feature) -> tuple[str, str]:
    values = feature.get("values") or feature["bytes"]
    parts = []
    for one in feature["common"][:_SHOWN]:
        value = one.get("name", one["value"])
        if isinstance(value, Mapping):
            value = value.get("text", f"({value['bytes']:,} bytes)")
        text = printable(str(value))
        text = text if len(text) <= _TEXT else f"{text[: _TEXT - 3]}..."
        parts.append(f"{text} {one['count'] / values['count']:.1%}")
    about = "" if feature["distinct_exact"] else "about "
    return f"{about}{feature['distinct']:,}", ", ".join(parts)


def _image(feature: Feature) -> tuple[str, ...]:
    images = feature["images"]
    formats = (f"{name.partition('/')[2]} {n:,}" for name, n in images["formats"].items())
    sides = []
    for side in (images["width"], images["height"]):
        low, high = side["min"], side["max"]
        spread = f"{low} to {high}, median {side['quantiles'].get('0.5')}"
        sides.append("unknown" if low is None else str(low) if low == high else spread)
    return ", ".join(formats), ", ".join(images["channels"]), *sides


def _notes(report: StatsReport) -> list[str]:
    notes = ["too many feature names; some were skipped"] if report.skipped else []
    for feature in report.features:
        values = feature.get("values") or feature.get("bytes") or feature["lengths"]
        counts = ((values["nan"], "NaN"), (values["infinite"], "infinite"))
        remarks = [f"{count:,} {what}" for count, what in counts if count]
        if feature.get("images", {}).get("unreadable"):
            remarks.append(
                f"{feature['images']['unreadable']:,} images without a size in their header"
            )
        if values["rank_error"]:
            remarks.append(
                f"approximate quantiles and histogram (rank error up to {values['rank_error']:.2%})"
            )
        if remarks:
            notes.append(f"{name_text(feature['name'])}: {', '.join(remarks)}")
    return notes


def _against(against: Mapping[str, Any], threshold: float | None) -> list[str | Table]:
    lines = [f"only in SHARDS: {printable(name)}" for name in against["only_here"]]
    lines += [f"only in --against: {printable(name)}" for name in against["only_there"]]
    rows = []
    for one in sorted(against["distances"], key=lambda found: -found["distance"]):
        text = f"{one['distance']:.4f}"
        if threshold is not None and one["distance"] > threshold:
            text = Bad(f"{text} above threshold")
        if one["distance"] > 0:
            rows.append((name_text(one["feature"]), one["of"], text, one["measure"]))
    if same := len(against["distances"]) - len(rows):
        lines.append(f"{same} of {len(against['distances'])} distances are 0")
    title = f"against {_of(against['records'], against['shards'])}"
    page: list[str | Table] = [Heading(title), *lines]
    if rows:
        page.append(Table(head=("feature", "compared", "distance", "measure"), rows=rows))
    return page
