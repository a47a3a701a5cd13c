"""What was converted, or would be, as text."""

from tfrtool.cli.output import human_bytes
from tfrtool.cli.render.page import Heading, Lines, Page, Tone, Toned
from tfrtool.convert.formats.conversion import ConvertReport
from tfrtool.errors import human_count, printable

_SHOWN = 10


def convert_page(report: ConvertReport) -> Page:
    """Return what ``convert`` shows, done or planned."""
    job, lines = report.job, list[str]()
    did = "; nothing is written" if job.dry_run else f" in {job.seconds:.1f} s"
    did = ", complete already; nothing is written" if job.complete else did
    records = human_count(job.records_out, "record")
    head = f"{printable(str(job.dataset))}: {records}, {report.source} to {report.target}{did}"
    for name, split in job.splits.items():
        size = "" if job.dry_run else f", {human_bytes(split.bytes)}"
        files = human_count(len(split.shards), "file")
        lines.append(f"{name}: {human_count(split.records, 'record')}, {files}{size}")
    if job.dry_run:
        lines += [f"  {printable(name)}: {kind}" for name, kind in report.columns.items()]
        lines += [f"not kept: {printable(text)}" for text in report.losses]
        lines += [printable(text) for text in report.notes]
    if job.corrupt:
        lines.append(Toned(f"damaged: {job.corrupt:,}", Tone.BAD))
        places = [f"  {printable(str(one.path))}: {one.fault.title}" for one in job.faults]
        lines += places[:_SHOWN]
    return [Heading(head), Lines(lines)]
