"""What was written, or would be, as text that can be read in five seconds."""

from collections.abc import Iterable

from tfrtool.cli.output import human_bytes
from tfrtool.cli.render.page import Bad, Heading, Page, shortened
from tfrtool.errors import human_count, printable, some_of
from tfrtool.writing.image_audit import Shared
from tfrtool.writing.write_report import SplitReport, WriteReport

_KEYS_SHOWN = 5
_LABELS_SHOWN = 10
_REASONS_SHOWN = 12
FILES_SHOWN = 8


def write_page(report: WriteReport) -> Page:
    """Return what ``write`` shows, done or planned."""
    records = human_count(sum(split.records for split in report.splits.values()), "record")
    head = f"{printable(str(report.dataset))}: {report.name} {report.version}, {records}"
    if report.dry_run:
        head += "; nothing is written"
    elif report.complete:
        head += ", complete already; nothing is written"
    else:
        head += f" in {report.seconds:.1f} s"
    lines: list[str] = [Heading(head)]
    about = "" if report.bytes_estimated_from is None else "about "
    for name, split in report.splits.items():
        lines.append(_split(name, split, about))
        if report.dry_run:
            shards = [
                f"  {one.path}  {human_count(one.records, 'record')}, "
                f"{about}{human_bytes(one.bytes)}"
                for one in split.shards
            ]
            lines += shortened(shards, FILES_SHOWN)
    if report.bytes_estimated_from is not None:
        tried = human_count(report.bytes_estimated_from, "image")
        lines.append(f"sizes and numbers of shards are estimated, from {tried}")
    if report.resumed and not report.complete:
        lines.append(f"resumed: {human_count(report.resumed, 'shard')} had been done before")
    if report.converted:
        lines.append(f"converted: {len(report.converted):,}")
        lines += reasons((entry["key"], entry["reason"]) for entry in report.converted)
    if report.rejected:
        lines.append(Bad(f"left out: {len(report.rejected):,}"))
        lines += reasons((entry.key, entry.reason) for entry in report.rejected)
    if report.duplicates:
        where = "" if report.across_splits else ", kept in the same split"
        lines.append(f"exact copies of others: {report.duplicates:,}{where}")
    if report.across_splits:
        count = human_count(len(report.across_splits), "image")
        lines.append(Bad(f"in more than one split: {count}"))
        lines += shortened([f"  {shared_text(one)}" for one in report.across_splits], _KEYS_SHOWN)
    if report.ignored:
        lines.append(f"no images by their names: {human_count(len(report.ignored), 'file')}")
    return lines


def shared_text(image: Shared) -> str:
    """Return where the copies of an image are, those of one split by the first of them."""
    return " = ".join(f"{keys[0]} ({split})" for split, keys in image.items())


def _split(name: str, split: SplitReport, about: str) -> str:
    counts = [f"{count:,} {printable(label)}" for label, count in split.labels.items()]
    text = some_of(counts, _LABELS_SHOWN)
    records, shards = human_count(split.records, "record"), human_count(len(split.shards), "shard")
    return f"{name}: {records} ({text}), {shards}, {about}{human_bytes(split.bytes)}"


def reasons(entries: Iterable[tuple[str, str]]) -> list[str]:
    """Return a line for each reason, the most frequent first, with some of its files."""
    keys: dict[str, list[str]] = {}
    for key, reason in entries:
        keys.setdefault(reason, []).append(key)
    found = sorted(keys.items(), key=lambda entry: -len(entry[1]))
    lines = []
    for reason, those in found[:_REASONS_SHOWN]:
        lines.append(f"  {printable(reason)}: {some_of(those, _KEYS_SHOWN)}")
    if rest := sum(len(those) for _, those in found[_REASONS_SHOWN:]):
        lines.append(f"  and {rest:,} more for other reasons; write_report.json lists all")
    return lines
