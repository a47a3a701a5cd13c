"""What was written, or would be, as text that can be read in five seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from tfrtool.cli.output import human_bytes, human_count
from tfrtool.cli.render.page import Block, Heading, Lines, Page, Tone, Toned
from tfrtool.errors import printable
from tfrtool.sources.items import LeftOut
from tfrtool.writing.scan.copies import Shared
from tfrtool.writing.scan.findings import Conversion
from tfrtool.writing.write_report import PlanReport, WriteReport

__all__ = ["shared_text", "write_page"]

_KEYS_SHOWN = 5
_LABELS_SHOWN = 10
_REASONS_SHOWN = 12
_SHARDS_SHOWN = 8


def write_page(report: WriteReport | PlanReport) -> Page:
    """Return what ``write`` shows, done or planned."""
    name = f"{printable(str(report.dataset))}: {report.name} {report.version}"
    if isinstance(report, WriteReport):
        records = sum(split.records for split in report.splits)
        took = f" in {report.seconds:.1f} s"
        done = ", complete already; nothing is written" if report.complete else took
        head = f"{name}, {human_count(records, 'record')}{done}"
        lines = [
            _split(split.name, split.labels, len(split.shards), human_bytes(split.bytes))
            for split in report.splits
        ]
        if report.resumed and not report.complete:
            lines.append(f"resumed: {human_count(report.resumed, 'shard')} had been done before")
    else:
        records = sum(shard.records for shard in report.shards)
        head = f"{name}, {human_count(records, 'record')}; nothing is written"
        lines = _planned(report)
    lines += _account(report.converted, report.rejected)
    if report.duplicates:
        where = "" if report.across_splits else ", kept in the same split"
        lines.append(f"exact copies of others: {report.duplicates:,}{where}")
    if report.across_splits:
        count = human_count(len(report.across_splits), "image")
        lines.append(Toned(f"in more than one split: {count}", Tone.BAD))
        lines += [f"  {shared_text(image)}" for image in report.across_splits[:_KEYS_SHOWN]]
        if len(report.across_splits) > _KEYS_SHOWN:
            lines.append(f"  and {len(report.across_splits) - _KEYS_SHOWN:,} more")
    if report.ignored:
        lines.append(f"no images by their names: {human_count(len(report.ignored), 'file')}")
    page: list[Block] = [Heading(head), Lines(lines)]
    return page


def shared_text(image: Shared) -> str:
    """Return where the copies of an image are, those of one split by the first of them."""
    return " = ".join(f"{printable(keys[0])} ({split})" for split, keys in image.items())


def _planned(report: PlanReport) -> list[str]:
    lines = []
    about = "" if report.estimated_from is None else "about "
    for split, labels in report.labels.items():
        shards = [shard for shard in report.shards if shard.name.split == split]
        size = f"{about}{human_bytes(sum(shard.bytes for shard in shards))}"
        lines.append(_split(split, labels, len(shards), size))
        for shard in shards[:_SHARDS_SHOWN]:
            size = human_bytes(shard.bytes)
            lines.append(f"  {shard.name}  {human_count(shard.records, 'record')}, {about}{size}")
        if len(shards) > _SHARDS_SHOWN:
            lines.append(f"  and {len(shards) - _SHARDS_SHOWN:,} more shards")
    if report.estimated_from is not None:
        tried = human_count(report.estimated_from, "image")
        lines.append(f"sizes and numbers of shards are estimated, from {tried}")
    return lines


def _split(name: str, labels: Mapping[str, int], shards: int, size: str) -> str:
    some = list(labels.items())[:_LABELS_SHOWN]
    text = ", ".join(f"{count:,} {printable(label)}" for label, count in some)
    if len(labels) > _LABELS_SHOWN:
        text += f" and {len(labels) - _LABELS_SHOWN:,} more classes"
    records = human_count(sum(labels.values()), "record")
    return f"{name}: {records} ({text}), {human_count(shards, 'shard')}, {size}"


def _account(converted: Sequence[Conversion], rejected: Sequence[LeftOut]) -> list[str]:
    lines: list[str] = []
    if converted:
        lines.append(f"converted: {len(converted):,}")
        lines += _reasons((entry.key, entry.reason) for entry in converted)
    if rejected:
        lines.append(Toned(f"left out: {len(rejected):,}", Tone.BAD))
        lines += _reasons((entry.key, entry.reason) for entry in rejected)
    return lines


def _reasons(entries: Iterable[tuple[str, str]]) -> list[str]:
    """Return a line for each reason, the most frequent first, with some of its files."""
    keys: dict[str, list[str]] = {}
    for key, reason in entries:
        keys.setdefault(reason, []).append(printable(key))
    counts = Counter({reason: len(those) for reason, those in keys.items()}).most_common()
    lines = []
    for reason, count in counts[:_REASONS_SHOWN]:
        named = ", ".join(keys[reason][:_KEYS_SHOWN])
        more = f" and {count - _KEYS_SHOWN:,} more" if count > _KEYS_SHOWN else ""
        lines.append(f"  {printable(reason)}: {named}{more}")
    if len(counts) > _REASONS_SHOWN:
        rest = sum(count for _, count in counts[_REASONS_SHOWN:])
        lines.append(f"  and {rest:,} more for other reasons; write_report.json lists all")
    return lines
