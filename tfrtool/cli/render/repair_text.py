"""What was saved of a damaged shard, as text for people."""

from __future__ import annotations

from tfrtool.cli.output import human_bytes, human_count
from tfrtool.cli.render.page import Facts, Heading, Lines, Page, Table, Tone, Toned
from tfrtool.errors import printable
from tfrtool.records.compression import Compression
from tfrtool.records.repair import RepairReport

_SHOWN = 10


def repair_page(report: RepairReport) -> Page:
    """Return what ``repair`` shows."""
    packed = "" if report.compression is Compression.NONE else f", {report.compression.value}"
    lost = sum(part.bytes for part in report.lost)
    said = (
        Toned(
            f"{human_bytes(lost)} in {human_count(len(report.lost), 'place')}, "
            f"{human_count(len(report.faults), 'fault')}",
            Tone.BAD,
        )
        if report.lost or report.faults
        else Toned("nothing", Tone.GOOD)
    )
    page: list[Heading | Facts | Table | Lines] = [
        Heading(printable(str(report.out))),
        Facts(
            [
                ("saved", f"{human_count(report.records, 'record')}{packed}, read back and whole"),
                ("lost", said),
            ]
        ),
    ]
    if report.faults:
        page.append(
            Table(
                head=("offset", "record", "what"),
                rows=[
                    (
                        f"{fault.offset:,}",
                        "" if fault.record is None else f"{fault.record:,}",
                        fault.kind.value,
                    )
                    for fault in report.faults[:_SHOWN]
                ],
                right=frozenset({0, 1}),
            )
        )
    if report.lost:
        page.append(
            Table(
                head=("bytes lost", "from offset", "to"),
                rows=[
                    (f"{part.bytes:,}", f"{part.offset:,}", f"{part.offset + part.bytes:,}")
                    for part in report.lost[:_SHOWN]
                ],
                right=frozenset({0, 1, 2}),
            )
        )
    if max(len(report.lost), len(report.faults)) > _SHOWN:
        page.append(Lines(["... and more; --json lists all"]))
    return page
