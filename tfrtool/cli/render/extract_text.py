"""An extract's report as a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tfrtool.cli.output import human_bytes, human_count
from tfrtool.cli.render.page import Block, Facts, Heading, Lines, Page, Table, Tone, Toned
from tfrtool.errors import printable
from tfrtool.inspection.extract.extract_report import ExtractReport, LeftOutRecord

_FOLDERS_SHOWN = 12
_LISTED = 5


def extract_page(report: ExtractReport) -> Page:
    """Return what ``extract`` prints."""
    facts = [
        ("files", f"{report.files:,} from feature {report.feature!r}"),
        ("size", human_bytes(report.bytes)),
        ("folders", _by(report)),
        ("names", _names(report.name)),
        ("others", f"{printable(str(report.metadata))}, a line for each record"),
    ]
    if report.unlabelled:
        facts.append(("no class", f"{human_count(report.unlabelled, 'file')}, in no class folder"))
    blocks: list[Block] = [
        Heading(printable(str(report.directory))),
        Facts(facts),
        _folders(report.classes),
    ]
    if report.renamed_count:
        blocks += [
            Heading(f"named anew: {report.renamed_count:,}"),
            Lines(
                [
                    f"{printable(entry.recorded)} -> {printable(entry.file)}: {entry.reason}"
                    for entry in report.renamed[:_LISTED]
                ]
                + _more(report.renamed_count)
            ),
        ]
    if report.left_out_count:
        blocks += [
            Heading(Toned(f"left out: {human_count(report.left_out_count, 'record')}", Tone.BAD)),
            Lines(_reasons(report.left_out)),
        ]
    if report.fault_count:
        blocks += [
            Heading(Toned(f"damaged: {human_count(report.fault_count, 'fault')}", Tone.BAD)),
            Lines(
                [
                    f"{printable(str(entry.path))}: {entry.fault.kind.value} "
                    f"at offset {entry.fault.offset}"
                    + ("" if entry.fault.record is None else f" (record {entry.fault.record})")
                    for entry in report.faults[:_LISTED]
                ]
                + _more(report.fault_count)
            ),
        ]
    return blocks


def _by(report: ExtractReport) -> str:
    if report.by is None:
        return "none" if set(report.classes) == {"."} else "as in the names"
    return f"by feature {report.by!r}"


def _names(name: str | None) -> str:
    if name is None:
        return "from the shards' names and the records' numbers"
    return f"from feature {name!r}"


def _folders(classes: Mapping[str, int]) -> Table:
    rows = [
        ("(DIR itself)" if name == "." else printable(f"{name}/"), f"{count:,}")
        for name, count in list(classes.items())[:_FOLDERS_SHOWN]
    ]
    more = len(classes) - _FOLDERS_SHOWN
    if more > 0:
        rest = sum(list(classes.values())[_FOLDERS_SHOWN:])
        rows.append((f"... and {human_count(more, 'more folder')}", f"{rest:,}"))
    return Table(head=("folder", "files"), rows=rows, right=frozenset({1}))


def _reasons(entries: Sequence[LeftOutRecord]) -> list[str]:
    """Return a line for each reason, the most frequent first, with its first record."""
    first: dict[str, LeftOutRecord] = {}
    for entry in entries:
        first.setdefault(entry.reason, entry)
    lines = []
    for reason, count in Counter(entry.reason for entry in entries).most_common(_LISTED):
        entry = first[reason]
        times = "" if count == 1 else f", the first of {count:,}"
        lines.append(f"{reason}: record {entry.record} of {printable(entry.shard.name)}{times}")
    return lines


def _more(count: int) -> list[str]:
    return [f"... and {count - _LISTED:,} more; --json lists them"] if count > _LISTED else []
