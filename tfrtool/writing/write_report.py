"""The account of a write, planned or done: every record, every image left out or converted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfrtool.errors import printable
from tfrtool.examples.tfds_metadata import (
    DATASET_INFO,
    FEATURES,
    LABELS,
    REPORT,
    DatasetInfo,
    SplitInfo,
    image_features_json,
)
from tfrtool.images.recipe import Encode, ImageRecipe
from tfrtool.records.compression import Compression
from tfrtool.records.names import ShardName
from tfrtool.sources.items import LeftOut, Source
from tfrtool.writing.scan.copies import Shared, shared_images
from tfrtool.writing.scan.findings import Audit, Conversion
from tfrtool.writing.scan.sizes import RecordSizes
from tfrtool.writing.write_options import WriteOptions
from tfrtool.writing.write_plan import ShardResult, ShardTask

__all__ = [
    "PlanReport",
    "PlannedShard",
    "SplitReport",
    "WriteReport",
    "metadata_texts",
    "plan_report",
    "split_reports",
]


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
        duplicates: how many images are exact copies of another one.
        across_splits: images whose copies are in several of the source's own splits.
        resumed: how many shards an earlier write had done.
        complete: whether it had done all, so that nothing was written.
        notices: how the source was understood, where that is not plain.
        seconds: how long it took.
        plan: a digest of all that the files depend on.
        options: those that decide what the files hold.
        warnings: what the user should know, a sentence each.
    """

    dataset: Path
    name: str
    version: str
    splits: tuple[SplitReport, ...]
    rejected: tuple[LeftOut, ...]
    converted: tuple[Conversion, ...]
    ignored: tuple[LeftOut, ...]
    duplicates: int = 0
    across_splits: tuple[Shared, ...] = ()
    resumed: int = 0
    complete: bool = False
    notices: tuple[str, ...] = ()
    seconds: float
    plan: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def labels(self) -> Mapping[str, Mapping[str, int]]:
        """How many records of each class, by split."""
        return {split.name: split.labels for split in self.splits}

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``write --json`` prints and write_report.json holds."""
        return {
            "dataset": printable(str(self.dataset)),
            "name": self.name,
            "version": self.version,
            "splits": {split.name: _split_json(split) for split in self.splits},
            "rejected": [_left_out_json(entry) for entry in self.rejected],
            "converted": [_conversion_json(entry) for entry in self.converted],
            "ignored": [_left_out_json(entry) for entry in self.ignored],
            "duplicates": self.duplicates,
            "across_splits": _shared_json(self.across_splits),
            "resumed": self.resumed,
            "notices": list(self.notices),
            "seconds": round(self.seconds, 3),
            "plan": self.plan,
            "options": dict(self.options),
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
                "payload_bytes": shard.payload_bytes,
                "sha256": shard.sha256,
            }
            for shard in split.shards
        ],
        "labels": dict(split.labels),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedShard:
    """A shard as it would be written.

    Attributes:
        name: its name.
        records: how many records it would have.
        bytes: its size; about, where the plan was estimated.
    """

    name: ShardName
    records: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReport:
    """What would be written.

    Attributes:
        dataset: the directory.
        name: the dataset's name.
        version: its version.
        shards: the shards of all splits.
        labels: by split, how many records of each class.
        rejected: images that would be left out.
        converted: images that would be encoded anew.
        ignored: files that were not taken for images.
        duplicates: how many images are exact copies of another one.
        across_splits: images whose copies are in several of the source's own splits.
        estimated_from: how many images were tried to estimate the sizes; None where these are
            known.
        notices: how the source was understood, where that is not plain.
    """

    dataset: Path
    name: str
    version: str
    shards: tuple[PlannedShard, ...]
    labels: Mapping[str, Mapping[str, int]]
    rejected: tuple[LeftOut, ...]
    converted: tuple[Conversion, ...]
    ignored: tuple[LeftOut, ...]
    duplicates: int
    across_splits: tuple[Shared, ...]
    estimated_from: int | None
    notices: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``write --dry-run --json`` prints."""
        return {
            "dataset": printable(str(self.dataset)),
            "name": self.name,
            "version": self.version,
            "dry_run": True,
            "bytes_estimated_from": self.estimated_from,
            "splits": {
                split: {
                    "records": sum(labels.values()),
                    "bytes": sum(s.bytes for s in self.shards if s.name.split == split),
                    "shards": [
                        {"path": str(s.name), "records": s.records, "bytes": s.bytes}
                        for s in self.shards
                        if s.name.split == split
                    ],
                    "labels": dict(labels),
                }
                for split, labels in self.labels.items()
            },
            "rejected": [_left_out_json(entry) for entry in self.rejected],
            "converted": [_conversion_json(entry) for entry in self.converted],
            "ignored": [_left_out_json(entry) for entry in self.ignored],
            "duplicates": self.duplicates,
            "across_splits": _shared_json(self.across_splits),
            "notices": list(self.notices),
        }


def plan_report(
    options: WriteOptions,
    tasks: Sequence[ShardTask],
    rejected: tuple[LeftOut, ...],
    audit: Audit,
    source: Source,
    sizes: RecordSizes,
) -> PlanReport:
    """Tell what tasks would write."""
    known = sizes.exact and not audit.converted and options.compression is Compression.NONE
    labels: dict[str, Counter[str]] = {}
    shards = []
    for task in tasks:
        counts = labels.setdefault(task.name.split, Counter(dict.fromkeys(source.labels, 0)))
        counts.update(item.label for item in task.items)
        size = sum(sizes.records[position] for position in task.positions)
        planned = PlannedShard(
            name=task.name, records=len(task.items), bytes=round(size * sizes.compressed)
        )
        shards.append(planned)
    return PlanReport(
        dataset=options.dataset,
        name=options.name,
        version=options.version,
        shards=tuple(shards),
        labels=labels,
        rejected=rejected,
        converted=tuple(audit.converted.values()),
        ignored=source.ignored,
        duplicates=audit.copies,
        across_splits=shared_images(source, audit),
        estimated_from=None if known else sizes.tried,
        notices=source.notices,
    )


def _conversion_json(entry: Conversion) -> dict[str, str]:
    return {"key": printable(entry.key), "from": entry.format, "reason": entry.reason}


def _shared_json(images: tuple[Shared, ...]) -> list[dict[str, list[str]]]:
    return [{split: list(map(printable, keys)) for split, keys in i.items()} for i in images]


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


def metadata_texts(
    report: WriteReport, labels: Sequence[str], recipe: ImageRecipe
) -> dict[str, str]:
    """Return the files that make shards a dataset of TFDS, and the report, by their names."""
    info = DatasetInfo(
        name=report.name,
        version=report.version,
        splits=tuple(
            SplitInfo(
                name=split.name,
                shard_lengths=tuple(shard.records for shard in split.shards),
                bytes=sum(shard.payload_bytes for shard in split.shards),
            )
            for split in report.splits
        ),
    )
    return {
        FEATURES: _json_text(_features(len(labels), recipe)),
        DATASET_INFO: _json_text(info.to_json()),
        LABELS: "".join(f"{label}\n" for label in labels),
        REPORT: _json_text(report.to_json()),
    }


def _features(class_count: int, recipe: ImageRecipe) -> dict[str, Any]:
    encoding = "jpeg" if recipe.encode is Encode.KEEP else recipe.encode.value
    size = recipe.resize
    if size is None or size.height is None or size.width is None:
        return image_features_json(class_count, encoding)
    return image_features_json(class_count, encoding, (size.height, size.width))


def _json_text(data: object) -> str:
    return json.dumps(data, indent=2) + "\n"
