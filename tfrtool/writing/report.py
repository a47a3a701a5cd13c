"""The account of a write: every record, every image that was left out or converted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfrtool.errors import printable
from tfrtool.sources.items import LeftOut
from tfrtool.writing.plan import ShardResult

__all__ = ["Conversion", "SplitReport", "WriteReport", "split_reports"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """An image whose bytes were not kept.

    Attributes:
        key: its path below the source.
        format: what it truly was, by Pillow's name.
        reason: why it was encoded anew.
    """

    key: str
    format: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitReport:
    """A split as written.

    Attributes:
        name: its name.
        shards: its shards, in order.
        labels: how many records of each class, classes without any included.
    """

    name: str
    shards: tuple[ShardResult, ...]
    labels: Mapping[str, int]

    @property
    def records(self) -> int:
        """How many records it has."""
        return sum(shard.records for shard in self.shards)

    @property
    def bytes(self) -> int:
        """The size of its files, in bytes."""
        return sum(shard.bytes for shard in self.shards)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteReport:
    """What was written, and what was not.

    Attributes:
        dataset: the directory.
        name: the dataset's name.
        version: its version.
        splits: its splits.
        rejected: images that were left out.
        converted: images that were encoded anew.
        ignored: files that were not taken for images.
        seconds: how long it took.
    """

    dataset: Path
    name: str
    version: str
    splits: tuple[SplitReport, ...]
    rejected: tuple[LeftOut, ...]
    converted: tuple[Conversion, ...]
    ignored: tuple[LeftOut, ...]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``write --json`` prints and write_report.json holds."""
        return {
            "dataset": printable(str(self.dataset)),
            "name": self.name,
            "version": self.version,
            "splits": {split.name: _split_json(split) for split in self.splits},
            "rejected": [_left_out_json(entry) for entry in self.rejected],
            "converted": [
                {"key": printable(entry.key), "from": entry.format, "reason": entry.reason}
                for entry in self.converted
            ],
            "ignored": [_left_out_json(entry) for entry in self.ignored],
            "seconds": round(self.seconds, 3),
        }


def _split_json(split: SplitReport) -> dict[str, Any]:
    return {
        "records": split.records,
        "bytes": split.bytes,
        "shards": [
            {
                "path": str(shard.name),
                "records": shard.records,
                "bytes": shard.bytes,
                "sha256": shard.sha256,
            }
            for shard in split.shards
        ],
        "labels": dict(split.labels),
    }


def _left_out_json(entry: LeftOut) -> dict[str, str]:
    return {"key": printable(entry.key), "reason": entry.reason}


def split_reports(results: Iterable[ShardResult], labels: Sequence[str]) -> tuple[SplitReport, ...]:
    """Gather the results of shards, in the order of the plan, by split."""
    by_split: dict[str, list[ShardResult]] = {}
    for result in results:
        by_split.setdefault(result.name.split, []).append(result)
    reports = []
    for name, shards in by_split.items():
        counts: Counter[str] = Counter(dict.fromkeys(labels, 0))
        for shard in shards:
            counts.update(shard.labels)
        reports.append(SplitReport(name=name, shards=tuple(shards), labels=dict(counts)))
    return tuple(reports)
