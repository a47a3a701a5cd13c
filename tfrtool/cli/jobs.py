"""Jobs that write datasets: how commands run them, and show their reports."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tfrtool.cli.output import Bars, Outcome, emit, warn
from tfrtool.errors import human_bytes, human_count, printable, some_of
from tfrtool.page import Bad, Heading, Page, shortened

if TYPE_CHECKING:
    from tfrtool.writing.job_report import JobReport
    from tfrtool.writing.write_report import WriteReport

_FAULTS_SHOWN = 10
_FILES_SHOWN = 8
KEYS_SHOWN = 5
_LABELS_SHOWN = 10
_REASONS_SHOWN = 12


def run_job(
    verb: Callable[..., "JobReport"],
    *paths: Any,
    as_json: bool,
    **words: Any,
) -> Outcome:
    """Run a job with the options of its command, and show its report."""
    with Bars() as bars:
        report = verb(*paths, on_progress=bars, **words)
    return show_job(report, as_json=as_json)


def show_job(
    report: "JobReport", *, as_json: bool, data: Any = None, more: Iterable[str] = ()
) -> Outcome:
    """Show the report of a job, with ``more`` lines or as other ``data``; return its outcome."""
    emit((data or report.to_json()) if as_json else [*_page(report), *more])
    for warning in report.warnings:
        warn(warning)
    return outcome_of(report)


def outcome_of(report: "JobReport") -> Outcome:
    """Return how a command ends that ran this job."""
    return Outcome.DAMAGE if report.corrupt else Outcome.FINE


def _page(report: "JobReport") -> Page:
    """Return what commands that copy or change records show."""
    summary = f"{human_count(report.records_in, 'record')} in, {report.records_out:,} out"
    if report.records_out and None not in (report.digest_in, report.digest_out):
        summary += f", digest {report.digest_in}"
        if report.digest_out != report.digest_in:
            summary += f" in, {report.digest_out} out"
    lines = [head_text(report), summary, *splits_lines(report, "file")]
    lines += [f"skipped by --{rule}: {count:,}" for rule, count in report.skipped.items()]
    if dropped := report.dropped:
        left = human_count(dropped.get("images_without_objects", 0), "image")
        objects = f"objects dropped by --class-map: {dropped.get('objects', 0):,}"
        lines.append(f"{objects}, which left {left} without objects")
    if report.corrupt:
        lines.append(Bad(f"damaged and skipped: {report.corrupt:,}"))
        faults = [f"  {one}" for one in report.faults]
        lines += shortened(faults, _FAULTS_SHOWN, report.corrupt, "see write_report.json")
    return lines


def head_text(report: "WriteReport | JobReport", about: str = "") -> Heading:
    """Return what was written where, and how long it took."""
    how = f" in {report.seconds:.1f} s"
    if report.dry_run or report.complete:
        how = f"; {'already complete' if report.complete else 'dry run'}, nothing written"
    return Heading(f"{printable(str(report.dataset))}: {report.name}{about}{how}")


def splits_lines(report: "WriteReport | JobReport", noun: str, about: str = "") -> Iterator[str]:
    """Yield the records, classes, shards and bytes of each split."""
    of_objects = "objects: " if getattr(report, "annotations", None) else ""
    for name, split in report.splits.items():
        counts = [f"{count:,} {printable(label)}" for label, count in split.labels.items()]
        text = f"{name}: {human_count(split.records, 'record')}"
        if counts and not of_objects and not any(split.labels.values()):
            text += " (no labels)"
        elif counts:
            text += f" ({of_objects}{some_of(counts, _LABELS_SHOWN)})"
        yield f"{text}, {human_count(len(split.shards), noun)}, {about}{human_bytes(split.bytes)}"
        if report.dry_run:
            shards = [
                f"  {one.path}  {human_count(one.records, 'record')}, "
                f"{about}{human_bytes(one.bytes)}"
                for one in split.shards
            ]
            yield from shortened(shards, _FILES_SHOWN)
    if report.resumed and not report.complete:
        yield f"resumed: {human_count(report.resumed, noun)} already done"


def reasons_lines(entries: Iterable[tuple[str, str]]) -> list[str]:
    """Return a line for each reason, the most frequent first, with some of its files."""
    keys: dict[str, list[str]] = {}
    for key, reason in entries:
        keys.setdefault(reason, []).append(key)
    found = sorted(keys.items(), key=lambda entry: -len(entry[1]))
    lines = []
    for reason, those in found[:_REASONS_SHOWN]:
        lines.append(f"  {printable(reason)}: {some_of(those, KEYS_SHOWN)}")
    if rest := sum(len(those) for _, those in found[_REASONS_SHOWN:]):
        lines.append(f"  and {rest:,} more for other reasons; see write_report.json")
    return lines
