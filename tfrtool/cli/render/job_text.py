"""What a job has written, or would write, as text."""

from tfrtool.cli.output import human_bytes
from tfrtool.cli.render.page import Heading, Lines, Page, Tone, Toned
from tfrtool.cli.render.write_text import reasons
from tfrtool.convert.pipeline.job_report import JobReport
from tfrtool.errors import human_count, printable

_FAULTS_SHOWN = 10
_FILES_SHOWN = 8


def job_page(report: JobReport) -> Page:
    """Return what commands that copy or change records show."""
    head = f"{printable(str(report.dataset))}: {report.name}"
    if report.dry_run or report.complete:
        head += ", complete already" * report.complete + "; nothing is written"
    else:
        head += f", in {report.seconds:.1f} s"
    lines: list[str] = [
        f"{human_count(report.records_in, 'record')} in, {report.records_out:,} out",
    ]
    if not report.dry_run and int(report.digest_out, 16):  # a table has no payloads
        told = report.digest_in
        if report.digest_out != told:
            told += f" in, {report.digest_out} out"
        lines[0] += f", digest {told}"
    for name, split in report.splits.items():
        records, files = human_count(split.records, "record"), len(split.shards)
        size = human_bytes(split.bytes)
        lines.append(f"{name}: {records}, {human_count(files, 'file')}, {size}")
        shown = split.shards[:_FILES_SHOWN] if report.dry_run else ()
        lines += [f"  {shard.path}  {human_count(shard.records, 'record')}" for shard in shown]
        if report.dry_run and files > _FILES_SHOWN:
            lines.append(f"  and {files - _FILES_SHOWN:,} more")
    for rule, count in report.left_out.items():
        lines.append(f"left out by {rule}: {count:,}")
    if report.rejected:
        lines.append(Toned(f"left out: {human_count(len(report.rejected), 'image')}", Tone.BAD))
        lines += reasons((entry.key, entry.reason) for entry in report.rejected)
    if report.resumed and not report.complete:
        lines.append(f"resumed: {human_count(report.resumed, 'file')} had been done before")
    if report.corrupt:
        lines.append(Toned(f"damaged, and left out: {report.corrupt:,}", Tone.BAD))
        lines += [
            f"  {printable(str(one.path))}: {one.fault.title}: {one.fault.message}"
            for one in report.faults[:_FAULTS_SHOWN]
        ]
        if report.corrupt > _FAULTS_SHOWN:
            lines.append(f"  and {report.corrupt - _FAULTS_SHOWN:,} more; see write_report.json")
    return [Heading(head), Lines(lines)]
