"""The account of a write, planned or done: every record, every image left out or converted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
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
from tfrtool.sources.items import LeftOut, Source
from tfrtool.writing.scan.copies import Shared, shared_images
from tfrtool.writing.scan.image_audit import Audit, Verdict
from tfrtool.writing.write_options import WriteOptions
from tfrtool.writing.write_plan import ShardResult


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitReport:
    """A split, as written or planned.

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
    """What was written, or would be, and what was not.

    Attributes:
        dataset: the directory.
        name: the dataset's name.
        version: its version.
        splits: its splits.
        rejected: images that were left out.
        converted: images that were encoded anew: their keys, and what was found of them.
        ignored: files that were not taken for images.
        duplicates: how many images are exact copies of another one.
        across_splits: images whose copies are in several of the source's own splits.
        notices: how the source was understood, where that is not plain.
        options: those that decide what the files hold.
        dry_run: whether nothing was written.
        estimated_from: of a dry run, how many images were tried to estimate the sizes; None where
            these are known.
        resumed: how many shards an earlier write had done.
        complete: whether it had done all, so that nothing was written.
        seconds: how long it took.
        plan: a digest of all that the files depend on.
        warnings: what the user should know, a sentence each.
    """

    dataset: Path
    name: str
    version: str
    splits: tuple[SplitReport, ...]
    rejected: tuple[LeftOut, ...]
    converted: Mapping[str, Verdict]
    ignored: tuple[LeftOut, ...]
    duplicates: int
    across_splits: tuple[Shared, ...]
    notices: tuple[str, ...]
    options: Mapping[str, Any]
    dry_run: bool = False
    estimated_from: int | None = None
    resumed: int = 0
    complete: bool = False
    seconds: float = 0.0
    plan: str = ""
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``write --json`` prints and write_report.json holds."""
        planned = {"dry_run": True, "bytes_estimated_from": self.estimated_from}
        done = {
            "seconds": round(self.seconds, 3),
            "plan": self.plan,
            "options": dict(self.options),
        }
        return {
            "dataset": printable(str(self.dataset)),
            "name": self.name,
            "version": self.version,
            **(planned if self.dry_run else {}),
            "splits": {split.name: self._split_json(split) for split in self.splits},
            "rejected": _left_out_json(self.rejected),
            "converted": [
                {"key": printable(key), "from": verdict.format or "", "reason": verdict.conversion}
                for key, verdict in self.converted.items()
            ],
            "ignored": _left_out_json(self.ignored),
            "duplicates": self.duplicates,
            "across_splits": [
                {split: list(map(printable, keys)) for split, keys in image.items()}
                for image in self.across_splits
            ],
            **({} if self.dry_run else {"resumed": self.resumed}),
            "notices": list(self.notices),
            **({} if self.dry_run else done),
        }

    def _split_json(self, split: SplitReport) -> dict[str, Any]:
        shards: list[dict[str, Any]] = []
        for shard in split.shards:
            facts = {"path": str(shard.name), "records": shard.records, "bytes": shard.bytes}
            known = {"payload_bytes": shard.payload_bytes, "sha256": shard.sha256}
            shards.append(facts if self.dry_run else facts | known)
        return {
            "records": split.records,
            "bytes": split.bytes,
            "shards": shards,
            "labels": dict(split.labels),
        }


def _left_out_json(entries: Iterable[LeftOut]) -> list[dict[str, str]]:
    return [{"key": printable(entry.key), "reason": entry.reason} for entry in entries]


def report_on(
    source: Source, audit: Audit, options: WriteOptions, shards: Iterable[ShardResult], **more: Any
) -> WriteReport:
    """Return the report of a write or a plan; more fields depend on which of both it is."""
    by_split: dict[str, list[ShardResult]] = {}
    for shard in shards:
        by_split.setdefault(shard.name.split, []).append(shard)
    splits = []
    for name, group in by_split.items():
        counts = Counter(dict.fromkeys(source.labels, 0))
        for shard in group:
            counts.update(shard.labels)
        splits.append(SplitReport(name=name, shards=tuple(group), labels=dict(counts)))
    bad = (LeftOut(key=source.items[at].key, reason=why) for at, why in audit.problems.items())
    return WriteReport(
        dataset=options.dataset,
        name=options.name,
        version=options.version,
        splits=tuple(splits),
        rejected=tuple(sorted((*source.rejected, *bad), key=lambda entry: entry.key)),
        converted={source.items[at].key: verdict for at, verdict in audit.converted.items()},
        ignored=source.ignored,
        duplicates=audit.copies,
        across_splits=shared_images(source, audit),
        notices=source.notices,
        options=options.to_json(),
        **more,
    )


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
    encoding = "jpeg" if recipe.encode is Encode.KEEP else recipe.encode.value
    size = recipe.resize
    sides = (size.height, size.width) if size and size.height and size.width else None
    return {
        FEATURES: _json_text(image_features_json(len(labels), encoding, sides)),
        DATASET_INFO: _json_text(info.to_json()),
        LABELS: "".join(f"{label}\n" for label in labels),
        REPORT: _json_text(report.to_json()),
    }


def _json_text(data: object) -> str:
    return json.dumps(data, indent=2) + "\n"
