"""``tfrtool diff``."""

from typing import TYPE_CHECKING, Any

import click

from tfrtool.cli.output import Bars, Outcome, emit, note
from tfrtool.cli.parameters import INPUT, command
from tfrtool.convert.convert_options import DiffOptions
from tfrtool.errors import human_count, named_record, printable
from tfrtool.examples.feature_text import name_text
from tfrtool.page import Heading, Page, Table, findings, shortened

if TYPE_CHECKING:
    from tfrtool.convert.diff import DiffReport

_SORTS = {
    "only_a": "only in SOURCE",
    "only_b": "only in TARGET",
    "changed": "changed",
    "moved": "moved to another split",
}
_SIDES = ("SOURCE", "TARGET")


@command(
    "tfrtool diff shards/pets shards/shuffled",
    "tfrtool diff shards/pets shards/edited --key image/filename --limit 3",
    "tfrtool diff train.tfrecord 'train-*.tfrecord.gz' --json",
    options=DiffOptions,
)
@click.argument("a", metavar="SOURCE", type=INPUT)
@click.argument("b", metavar="TARGET", type=INPUT)
def diff_command(a: str, b: str, as_json: bool, **words: Any) -> Outcome:
    """Compare the records of two datasets.

    SOURCE and TARGET are files, quoted globs or directories. Their order, number of shards and
    compression don't matter. Lists features whose types differ, and records that are only in one
    of the two, changed, or in another split.

    Exit code 3 means that they differ, or that damaged records couldn't be compared.
    """
    from tfrtool.convert.diff import diff

    with Bars() as bars:
        report = diff(a, b, on_progress=bars, **words)
    for text in report.notes:
        note(text)
    emit(report.to_json() if as_json else _page(report))
    return Outcome.FINE if report.same else Outcome.DAMAGE


def _page(report: "DiffReport") -> Page:
    """Return what ``diff`` shows."""
    counts = {sort: getattr(report, sort) for sort in _SORTS}
    found = [f"{counts[sort]:,} {name}" for sort, name in _SORTS.items() if counts[sort]]
    if report.schema:
        found.append(human_count(len(report.schema), "different feature"))
    title = "SOURCE and TARGET have the same records"
    if report.differs:
        title = f"SOURCE and TARGET differ: {', '.join(found)}"
    elif report.corrupt:
        count = human_count(report.corrupt, "fault")
        title = f"SOURCE and TARGET have the same intact records; {count} could not be compared"
    rows = [
        ("records", *(f"{count:,}" for count in report.records)),
        *(
            (f"split {printable(one)}", *(f"{n:,}" for n in of))
            for one, of in report.splits.items()
        ),
    ]
    rows.append(("digest", *report.digests))
    if any(report.without_key):
        rows.append(("without key", *(f"{count:,}" for count in report.without_key)))
    page: list[str | Table] = [
        Heading(title),
        Table(head=("", *_SIDES), rows=rows, right=(1, 2)),
    ]
    if report.schema:
        types = [(name_text(one), *(it or "-" for it in of)) for one, of in report.schema.items()]
        page.append(Table(head=("feature", *_SIDES), rows=types))
    if report.features:
        changed = [(name_text(one), f"{n:,}") for one, n in report.features.items()]
        page.append(Table(head=("feature", "changed"), rows=changed, right=(1,)))
    for sort, examples in report.examples.items():
        if counts[sort] and examples:
            lines = [
                " and ".join(named_record(str(at.shard), at.record) for at in one.values())
                for one in examples
            ]
            more = shortened(
                [*map(printable, lines)], len(lines), counts[sort], "use --limit to list more"
            )
            page += [Heading(_SORTS[sort]), *more]
    if report.faults:
        faults = [(printable(one.title), printable(one.fault.message)) for one in report.faults]
        page += [Heading("damaged, not compared"), *findings(faults, report.corrupt)]
    return page
