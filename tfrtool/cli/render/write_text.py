"""What was written, or would be, as text that can be read in five seconds."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tfrtool.cli.render.page import Bad, Heading, Page, shortened
from tfrtool.errors import human_bytes, human_count, printable, some_of

if TYPE_CHECKING:
    from tfrtool.writing.image_findings import SharedImage
    from tfrtool.writing.job_report import JobReport
    from tfrtool.writing.write_report import WriteReport

_FAULTS_SHOWN = 10
_FILES_SHOWN = 8
_KEYS_SHOWN = 5
_LABELS_SHOWN = 10
_REASONS_SHOWN = 12


def write_page(report: "WriteReport") -> Page:
    """Return what ``write`` shows, done or planned."""
    records = human_count(sum(split.records for split in report.splits.values()), "record")
    about = "" if report.bytes_estimated_from is None else "about "
    lines = [_head(report, f" {report.version}, {records}"), *_splits(report, "shard", about)]
    if report.bytes_estimated_from is not None:
        tried = human_count(report.bytes_estimated_from, "image")
        lines.append(f"sizes and shard counts are estimated from {tried}")
    if report.converted:
        lines.append(f"converted: {report.count('converted'):,}")
        lines += _reasons((entry["key"], entry["reason"]) for entry in report.converted)
    lines += _rejected(report, report.count("rejected"))
    if report.duplicates:
        where = "" if report.across_splits else ", kept in the same split"
        lines.append(f"exact duplicates: {report.duplicates:,}{where}")
    if report.across_splits:
        count = human_count(report.count("across_splits"), "image")
        lines.append(Bad(f"in more than one split: {count}"))
        lines += shortened([f"  {shared_text(one)}" for one in report.across_splits], _KEYS_SHOWN)
    lines += _objects(report)
    if report.ignored:
        what = "not images by name" if report.annotations is None else "not used"
        lines.append(f"{what}: {human_count(report.count('ignored'), 'file')}")
        if report.annotations is not None:
            lines += _reasons((entry.key, entry.reason) for entry in report.ignored)
    return lines


def job_page(report: "JobReport") -> Page:
    """Return what commands that copy or change records show."""
    summary = f"{human_count(report.records_in, 'record')} in, {report.records_out:,} out"
    if report.records_out and None not in (report.digest_in, report.digest_out):
        summary += f", digest {report.digest_in}"
        if report.digest_out != report.digest_in:
            summary += f" in, {report.digest_out} out"
    lines = [_head(report), summary, *_splits(report, "file")]
    lines += [f"skipped by --{rule}: {count:,}" for rule, count in report.skipped.items()]
    lines += _rejected(report, len(report.rejected))
    if report.corrupt:
        lines.append(Bad(f"damaged and skipped: {report.corrupt:,}"))
        faults = [f"  {one}" for one in report.faults]
        lines += shortened(faults, _FAULTS_SHOWN, report.corrupt, "see write_report.json")
    return lines


def shared_text(image: "SharedImage") -> str:
    """Return where the copies of an image are, those of one split by the first of them."""
    return " = ".join(f"{keys[0]} ({split})" for split, keys in image.items())


def _head(report: "WriteReport | JobReport", about: str = "") -> Heading:
    how = f" in {report.seconds:.1f} s"
    if report.dry_run or report.complete:
        how = f"; {'already complete' if report.complete else 'dry run'}, nothing written"
    return Heading(f"{printable(str(report.dataset))}: {report.name}{about}{how}")


def _splits(report: "WriteReport | JobReport", noun: str, about: str = "") -> Iterator[str]:
    of_objects = "objects: " if getattr(report, "annotations", None) else ""
    for name, split in report.splits.items():
        counts = [f"{count:,} {printable(label)}" for label, count in split.labels.items()]
        text = f"{name}: {human_count(split.records, 'record')}"
        text += f" ({of_objects}{some_of(counts, _LABELS_SHOWN)})" if counts else ""
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


def _rejected(report: "WriteReport | JobReport", count: int) -> list[str]:
    entries = [(entry.key, entry.reason) for entry in report.rejected]
    return [Bad(f"skipped: {count:,}"), *_reasons(entries)] if entries else []


def _objects(report: "WriteReport") -> Iterator[str]:
    """Yield what became of annotated objects."""
    if (found := report.annotations) is None:
        return
    yield f"objects: {found.read:,} read, {found.written:,} written"
    if found.of_rejected_images:
        yield Bad(f"objects of skipped images: {found.of_rejected_images:,}")
    rejected = found.read - found.written - found.of_rejected_images
    if rejected:
        yield Bad(f"skipped objects: {rejected:,}")
        parts = [(entry.key, *entry.reason.partition(": ")) for entry in found.rejected]
        yield from _reasons((f"{key}, {what}", why) for key, what, _, why in parts)
    if found.clipped:
        count = len(found.clipped) + found.truncated - (rejected - len(found.rejected))
        yield Bad(f"boxes clipped to their images: {count:,}")
        cut = [printable(f"  {entry.key}, {entry.reason}") for entry in found.clipped]
        yield from shortened(cut, _KEYS_SHOWN, count, "see write_report.json")


def _reasons(entries: Iterable[tuple[str, str]]) -> list[str]:
    """Return a line for each reason, the most frequent first, with some of its files."""
    keys: dict[str, list[str]] = {}
    for key, reason in entries:
        keys.setdefault(reason, []).append(key)
    found = sorted(keys.items(), key=lambda entry: -len(entry[1]))
    lines = []
    for reason, those in found[:_REASONS_SHOWN]:
        lines.append(f"  {printable(reason)}: {some_of(those, _KEYS_SHOWN)}")
    if rest := sum(len(those) for _, those in found[_REASONS_SHOWN:]):
        lines.append(f"  and {rest:,} more for other reasons; see write_report.json")
    return lines
