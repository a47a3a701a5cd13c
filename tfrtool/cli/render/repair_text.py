"""What was saved of a damaged shard, as text for people."""

from tfrtool.cli.output import human_bytes
from tfrtool.cli.render.page import Block, Facts, Heading, Lines, Page, Table, Tone, Toned
from tfrtool.errors import human_count, printable
from tfrtool.records.compression import Compression
from tfrtool.records.repair import RepairReport

_SHOWN = 10


def repair_page(report: RepairReport) -> Page:
    """Return what ``repair`` shows."""
    packed = "" if report.compression is Compression.NONE else f", {report.compression.value}"
    saved = f"{human_count(report.records, 'record')}{packed}, read back and whole"
    lost = Toned("nothing", Tone.GOOD)
    if report.lost or report.faults:
        size = human_bytes(sum(part.bytes for part in report.lost))
        places = human_count(len(report.lost), "place")
        lost = Toned(f"{size} in {places}, {human_count(len(report.faults), 'fault')}", Tone.BAD)
    facts = Facts([("saved", saved), ("lost", lost)])
    page: list[Block] = [Heading(printable(str(report.out))), facts]
    ranges = [
        (f"{part.bytes:,}", f"{part.offset:,}", f"{part.offset + part.bytes:,}")
        for part in report.lost[:_SHOWN]
    ]
    if ranges:
        head = ("bytes lost", "from offset", "to")
        page.append(Table(head=head, rows=ranges, right=frozenset({0, 1, 2})))
    if report.faults:
        page.append(Lines([fault.title for fault in report.faults[:_SHOWN]]))
    if max(len(report.lost), len(report.faults)) > _SHOWN:
        page.append(Lines(["... and more; --json lists all"]))
    return page
