"""What was saved of a damaged shard, as text for people."""

from tfrtool.cli.render.page import Bad, Good, Heading, Page, Table, facts, shortened
from tfrtool.errors import human_bytes, human_count, printable
from tfrtool.records.compression import Compression
from tfrtool.records.repair import RepairReport

_SHOWN = 10


def repair_page(report: RepairReport) -> Page:
    """Return what ``repair`` shows."""
    packed = "" if report.compression is Compression.NONE else f", {report.compression.value}"
    saved = f"{human_count(report.records, 'record')}{packed}, read back and compared"
    lost: str = Good("nothing")
    if not report.is_whole:
        size, places = human_bytes(report.lost_bytes), human_count(report.lost_count, "place")
        lost = Bad(f"{size} in {places}, {human_count(report.fault_count, 'fault')}")
    page: list[str | Table] = [
        Heading(printable(str(report.out))),
        facts(("recovered", saved), ("lost", lost)),
    ]
    ranges = [
        (f"{part.bytes:,}", f"{part.offset:,}", f"{part.offset + part.bytes:,}")
        for part in report.lost[:_SHOWN]
    ]
    if ranges:
        head = ("lost bytes", "start", "end")
        page.append(Table(head=head, rows=ranges, right=(0, 1, 2)))
    titles = [fault.title for fault in report.faults]
    return [*page, *shortened(titles, _SHOWN, max(report.lost_count, report.fault_count))]
