"""A write's report as text that can be read in five seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tfrtool.cli.output import human_bytes, human_count
from tfrtool.errors import printable
from tfrtool.sources.items import LeftOut
from tfrtool.writing.report import SplitReport, WriteReport

__all__ = ["render_report"]

_KEYS_SHOWN = 5
_LABELS_SHOWN = 10


def render_report(report: WriteReport) -> str:
    """Return the text that ``write`` prints, without a final newline."""
    records = sum(split.records for split in report.splits)
    seconds = f"{report.seconds:.1f} s"
    lines = [
        f"{printable(str(report.dataset))}: {report.name} {report.version}, "
        f"{human_count(records, 'record')} in {seconds}"
    ]
    lines += [_split(split) for split in report.splits]
    if report.converted:
        lines.append(f"  converted to JPEG: {len(report.converted):,}")
        lines += _reasons((entry.key, entry.reason) for entry in report.converted)
    if report.rejected:
        lines.append(f"  left out: {len(report.rejected):,}")
        lines += _reasons(_pairs(report.rejected))
    if report.ignored:
        lines.append(f"  no images by their names: {human_count(len(report.ignored), 'file')}")
    return "\n".join(lines)


def _split(split: SplitReport) -> str:
    labels = ", ".join(
        f"{count:,} {printable(name)}" for name, count in list(split.labels.items())[:_LABELS_SHOWN]
    )
    if len(split.labels) > _LABELS_SHOWN:
        labels += f" and {len(split.labels) - _LABELS_SHOWN:,} more classes"
    return (
        f"  {split.name}: {human_count(split.records, 'record')} ({labels}), "
        f"{human_count(len(split.shards), 'shard')}, {human_bytes(split.bytes)}"
    )


def _pairs(entries: Iterable[LeftOut]) -> Iterable[tuple[str, str]]:
    return ((entry.key, entry.reason) for entry in entries)


def _reasons(entries: Iterable[tuple[str, str]]) -> list[str]:
    """Return a line for each reason, the most frequent first, with some of its files."""
    keys: dict[str, list[str]] = {}
    for key, reason in entries:
        keys.setdefault(reason, []).append(printable(key))
    lines = []
    for reason, count in Counter({reason: len(k) for reason, k in keys.items()}).most_common():
        named = ", ".join(keys[reason][:_KEYS_SHOWN])
        more = f" and {count - _KEYS_SHOWN:,} more" if count > _KEYS_SHOWN else ""
        lines.append(f"    {printable(reason)}: {named}{more}")
    return lines
