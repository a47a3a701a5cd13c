"""An extract's report as a page."""

from collections import Counter

from tfrtool.cli.output import human_bytes
from tfrtool.cli.render.page import (
    Block,
    Facts,
    Heading,
    Lines,
    Page,
    Table,
    Tone,
    Toned,
    shortened,
)
from tfrtool.errors import human_count, printable
from tfrtool.inspection.extract.extract import ExtractReport

_FOLDERS_SHOWN = 12
_LISTED = 5


def extract_page(report: ExtractReport) -> Page:
    """Return what ``extract`` prints."""
    by, names = f"by feature {report.by!r}", f"from feature {report.name!r}"
    if report.by is None:
        by = "none" if set(report.classes) == {"."} else "as in the names"
    if report.name is None:
        names = "from the shards' names and the records' numbers"
    facts = [
        ("files", f"{report.files:,} from feature {report.feature!r}"),
        ("size", human_bytes(report.bytes)),
        ("folders", by),
        ("names", names),
        ("others", f"{printable(str(report.metadata))}, a line for each record"),
    ]
    if report.unlabelled:
        facts.append(("no class", f"{human_count(report.unlabelled, 'file')}, in no class folder"))
    rows = [
        ("(DIR itself)" if name == "." else printable(f"{name}/"), f"{count:,}")
        for name, count in report.classes.items()
    ]
    more = len(rows) - _FOLDERS_SHOWN
    if more > 0:
        rest = sum([*report.classes.values()][_FOLDERS_SHOWN:])
        rows[_FOLDERS_SHOWN:] = [(f"... and {human_count(more, 'more folder')}", f"{rest:,}")]
    page: list[Block] = [
        Heading(printable(str(report.directory))),
        Facts(facts),
        Table(head=("folder", "files"), rows=rows, right=frozenset({1})),
    ]
    if report.renamed:
        renamed = [f"{one.recorded} -> {printable(one.file)}" for one in report.renamed]
        page.append(Heading(f"renamed: {report.renamed_count:,}"))
        page.append(Lines(shortened(renamed, _LISTED, report.renamed_count)))
    if report.left_out:
        first = {one.reason: one for one in reversed(report.left_out)}
        lines = [
            f"{reason}: record {first[reason].record} of {printable(first[reason].shard.name)}"
            + (f", the first of {count:,}" if count > 1 else "")
            for reason, count in Counter(one.reason for one in report.left_out).most_common(_LISTED)
        ]
        title = f"left out: {human_count(report.left_out_count, 'record')}"
        page += [Heading(Toned(title, Tone.BAD)), Lines(lines)]
    if report.faults:
        title = f"damaged: {human_count(report.fault_count, 'fault')}"
        faults = [f"{printable(str(one.path))}: {one.fault.title}" for one in report.faults]
        page.append(Heading(Toned(title, Tone.BAD)))
        page.append(Lines(shortened(faults, _LISTED, report.fault_count)))
    return page
