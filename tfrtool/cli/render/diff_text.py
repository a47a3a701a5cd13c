"""How records differ, as text."""

from tfrtool.cli.render.page import Heading, Page, Table, findings, shortened
from tfrtool.convert.diff import DiffReport
from tfrtool.errors import human_count, printable
from tfrtool.examples.feature_text import name_text

_SORTS = {
    "only_a": "only in A",
    "only_b": "only in B",
    "changed": "changed",
    "moved": "in another split",
}


def diff_page(report: DiffReport) -> Page:
    """Return what ``diff`` shows."""
    counts = {sort: getattr(report, sort) for sort in _SORTS}
    found = [f"{counts[sort]:,} {name}" for sort, name in _SORTS.items() if counts[sort]]
    found += [human_count(len(report.schema), "feature") + " of other types"] * bool(report.schema)
    title = "A and B hold the same records"
    if report.differs:
        title = f"A and B differ: {', '.join(found)}"
    elif report.corrupt:
        count = human_count(report.corrupt, "fault")
        title = f"A and B hold the same intact records, but {count} could not be compared"
    rows = [
        ("records", *(f"{count:,}" for count in report.records)),
        *((f"of {printable(one)}", *(f"{n:,}" for n in of)) for one, of in report.splits.items()),
    ]
    rows.append(("digest", *report.digests))
    if any(report.without_key):
        rows.append(("without the key", *(f"{count:,}" for count in report.without_key)))
    page: list[str | Table] = [
        Heading(title),
        Table(head=("", "A", "B"), rows=rows, right=(1, 2)),
    ]
    if report.schema:
        types = [(name_text(one), *(it or "-" for it in of)) for one, of in report.schema.items()]
        page.append(Table(head=("feature", "A", "B"), rows=types))
    if report.features:
        changed = [(name_text(one), f"{n:,}") for one, n in report.features.items()]
        page.append(Table(head=("feature", "changed"), rows=changed, right=(1,)))
    for sort, examples in report.examples.items():
        if counts[sort] and examples:
            lines = [
                " and ".join(f"{printable(str(at.shard))} {at.record}" for at in one.values())
                for one in examples
            ]
            title = f"{_SORTS[sort][0].upper()}{_SORTS[sort][1:]} (shard, record)"
            more = shortened(lines, len(lines), counts[sort], "--limit names more")
            page += [Heading(title), *more]
    if report.faults:
        told = [
            (f"{printable(str(one.path))}: {one.fault.title}", printable(one.fault.message))
            for one in report.faults
        ]
        page += [Heading("Damaged, and not compared"), *findings(told, report.corrupt)]
    return page
