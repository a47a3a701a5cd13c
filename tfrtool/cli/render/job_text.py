"""What a job has written, or would write, as text."""

from tfrtool.cli.output import human_bytes
from tfrtool.cli.render.page import Bad, Heading, Page, shortened
from tfrtool.cli.render.write_text import FILES_SHOWN, reasons
from tfrtool.convert.pipeline.job_report import JobReport
from tfrtool.errors import human_count, printable

_FAULTS_SHOWN = 10


def job_page(report: JobReport) -> Page:
    """Return what commands that copy or change records show."""
    head = f"{printable(str(report.dataset))}: {report.name}"
    if report.dry_run or report.complete:
        head += ", complete already" * report.complete + "; nothing is written"
    else:
        head += f", in {report.seconds:.1f} s"
    told = f"{human_count(report.records_in, 'record')} in, {report.records_out:,} out"
    if not report.dry_run and int(report.digest_out, 16):  # a table has no payloads
        told += f", digest {report.digest_in}"
        if report.digest_out != report.digest_in:
            told += f" in, {report.digest_out} out"
    lines = [Heading(head), told]
    for name, split in report.splits.items():
        records, files = human_count(split.records, "record"), len(split.shards)
        lines.append(f"{name}: {records}, {human_count(files, 'file')}, {human_bytes(split.bytes)}")
        if report.dry_run:
            shards = [f"  {one.path}  {human_count(one.records, 'record')}" for one in split.shards]
            lines += shortened(shards, FILES_SHOWN)
    lines += [f"left out by {rule}: {count:,}" for rule, count in report.left_out.items()]
    if report.rejected:
        lines.append(Bad(f"left out: {human_count(len(report.rejected), 'image')}"))
        lines += reasons((entry.key, entry.reason) for entry in report.rejected)
    if report.resumed and not report.complete:
        lines.append(f"resumed: {human_count(report.resumed, 'file')} had been done before")
    if report.corrupt:
        lines.append(Bad(f"damaged, and left out: {report.corrupt:,}"))
        faults = [f"  {one}" for one in report.faults]
        lines += shortened(faults, _FAULTS_SHOWN, report.corrupt, "see write_report.json")
    return lines
