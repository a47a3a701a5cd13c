"""The account of a write, planned or done: every record, every image left out or converted."""

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tfrtool.errors import WriteError, printable
from tfrtool.examples.objects.label_map import label_map_text
from tfrtool.examples.objects.record_features import LabelKind, Layout, RecordFeatures
from tfrtool.examples.tfds_metadata import (
    DATASET_INFO,
    FEATURES,
    KEYPOINTS,
    LABEL_MAP,
    LABELS,
    OBJECT_LABELS,
    REPORT,
    DatasetInfo,
)
from tfrtool.images.recipe import Encode
from tfrtool.sources.items import LeftOut
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.limits import (
    MAX_LISTED,
)
from tfrtool.storage.plain import plain
from tfrtool.storage.scratch.external_sort import forgetting, rising
from tfrtool.writing.image_audit import Audit, Shared
from tfrtool.writing.job_report import ShardReport, SplitReport, json_text, split_infos
from tfrtool.writing.record_values import labels_of
from tfrtool.writing.write_options import WriteOptions
from tfrtool.writing.write_plan import PlannedShard

_OF_PLANS = ("dry_run", "bytes_estimated_from")
_OF_WRITES = ("resumed", "plan", "options")
_UNWRITTEN = ("complete", "warnings")
_AT_TIMES = ("annotations", "metadata")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationReport:
    """What became of the objects that annotations tell of.

    Attributes:
        read: how many there are; each is written, or left out.
        written: how many are in the records.
        of_rejected_images: how many belong to images that are left out.
        rejected: those that are left out themselves, by the keys of their images.
        clipped: those whose part outside of the image is cut off, likewise.
        truncated: how many more there are of both lists.
    """

    read: int
    written: int
    of_rejected_images: int
    rejected: tuple[LeftOut, ...]
    clipped: tuple[LeftOut, ...]
    truncated: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteReport:
    """Result of writing a dataset, or the plan of a dry run.

    Attributes:
        dataset: directory of the dataset.
        name: name of the dataset.
        version: version of the dataset.
        dry_run: whether nothing was written.
        bytes_estimated_from: number of images converted to estimate the sizes in a dry run. None if
            the sizes are known.
        splits: splits by name.
        rejected: skipped images, with the reason.
        converted: re-encoded images: ``key``, ``from`` (the original format), ``reason``.
        ignored: files that are not images.
        duplicates: number of images that are exact duplicates of another one.
        across_splits: images that appear in several of the source's own splits, as keys by split.
        truncated: by name of a list, the number of entries that do not fit in it. None if every
            list is complete.
        annotations: result for the objects in the images, or None if there are none.
        metadata: names of the metadata files, if they differ from the usual ones.
        resumed: number of shards taken from an interrupted write.
        notices: how the source was interpreted, where that is not obvious.
        seconds: duration, in seconds.
        plan: digest of everything that the files depend on.
        options: options that determine what the files contain.
        complete: whether an earlier write had finished, so nothing was written.
        warnings: warnings, one sentence each.
    """

    dataset: Path
    name: str
    version: str
    dry_run: bool = False
    bytes_estimated_from: int | None = None
    splits: Mapping[str, SplitReport]
    rejected: tuple[LeftOut, ...]
    converted: tuple[Mapping[str, str], ...]
    ignored: tuple[LeftOut, ...]
    duplicates: int
    across_splits: tuple[Shared, ...]
    truncated: Mapping[str, int] | None = field(default=None, compare=False)
    annotations: AnnotationReport | None = None
    metadata: tuple[str, ...] | None = None
    resumed: int = 0
    notices: tuple[str, ...]
    seconds: float = 0.0
    plan: str = ""
    options: Mapping[str, Any]
    complete: bool = False
    warnings: tuple[str, ...] = ()

    def count(self, name: str) -> int:
        """Return the full length of a list, including the entries that it does not contain.

        Args:
            name: attribute name of the list, such as "rejected".
        """
        return len(getattr(self, name)) + (self.truncated or {}).get(name, 0)

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``write --json`` prints and write_report.json contains."""
        hidden = {*_UNWRITTEN, *(_OF_WRITES if self.dry_run else _OF_PLANS)}
        hidden |= {name for name in _AT_TIMES if getattr(self, name) is None}
        # By its name: the lists of objects and of images have the same ones.
        told = plain(replace(self, annotations=None)) | {"annotations": plain(self.annotations)}
        return {key: value for key, value in told.items() if key not in hidden}


def report_on(
    audit: Audit,
    options: WriteOptions,
    planned: Sequence[PlannedShard],
    shards: Sequence[ShardReport],
    **more: Any,
) -> WriteReport:
    """Return the report of a write or a plan; more fields depend on which of both it is.

    The shards are those that there are, or would be, and may be cut otherwise than was planned.
    """
    items, labels = audit.source.items, audit.source.labels
    counts = {plan.name.split: Counter(dict.fromkeys(labels, 0)) for plan in planned}
    splits = {}
    for split, count in counts.items():
        groups = (plan.positions for plan in planned if plan.name.split == split)
        for _, position in rising(groups):
            count.update(labels_of(audit.source, position))
        start = f"{options.name}-{split}."
        own = [shard for shard in shards if shard.path.startswith(start)]
        splits[split] = SplitReport.of_shards(own, count)
    rejected, ignored = CappedList[LeftOut](MAX_LISTED), audit.source.ignored
    listed = sorted(audit.source.rejected, key=lambda entry: entry.key)
    for entry in heapq.merge(listed, audit.skipped(), key=lambda entry: entry.key):
        rejected.add(entry)
    converted, shared = CappedList[Mapping[str, str]](MAX_LISTED), audit.shared()
    for at, verdict in audit.converted():
        reason = verdict.conversion or ""
        converted.add(
            {"key": printable(items[at].key), "from": verdict.format or "", "reason": reason}
        )
    beyond = {
        "rejected": rejected.more + audit.source.more_rejected,
        "converted": converted.more,
        "ignored": audit.source.more_ignored,
        "across_splits": shared.more,
    }
    truncated = {name: count for name, count in beyond.items() if count}
    usual = audit.source.features == RecordFeatures()
    return WriteReport(
        dataset=options.dataset,
        name=options.name,
        version=options.version,
        splits=splits,
        rejected=_shown(rejected.kept),
        converted=tuple(converted.kept),
        ignored=_shown(ignored),
        duplicates=sum(map(bool, forgetting(audit.leaders, audit.leaders))),
        across_splits=tuple(shared.kept),
        truncated=truncated or None,
        annotations=_annotations(audit, sum(sum(count.values()) for count in counts.values())),
        metadata=None if usual else (*_label_texts(audit), FEATURES, DATASET_INFO, REPORT),
        notices=audit.source.notices,
        options=options.to_json(),
        **more,
    )


def _annotations(audit: Audit, written: int) -> AnnotationReport | None:
    """Return what became of annotations; a `WriteError` if not every one is accounted for."""
    account, source = audit.source.annotations, audit.source
    if account is None:
        return None
    lost, skipped = 0, set[str]()
    for position, _ in audit.problems():
        lost += len(labels_of(source, position))
        skipped.add(source.items[position].key)
    listed = len(account.rejected) + account.more_rejected
    if account.read != written + listed + lost:
        raise WriteError(
            "annotations would be lost",
            expected=f"{account.read:,} as read",
            found=f"{written:,} written, {listed:,} listed, {lost:,} of skipped images",
        )
    return AnnotationReport(
        read=account.read,
        written=written,
        of_rejected_images=lost,
        rejected=_shown(account.rejected),
        clipped=_shown(one for one in account.clipped if one.key not in skipped),
        truncated=account.more_rejected + account.more_clipped,
    )


def _shown(entries: Iterable[LeftOut]) -> tuple[LeftOut, ...]:
    return tuple(LeftOut(key=printable(entry.key), reason=entry.reason) for entry in entries)


def metadata_texts(report: WriteReport, audit: Audit) -> dict[str, str]:
    """Return the files that make shards a dataset of TFDS, and the report, by their names."""
    splits = split_infos(report.splits)
    features = audit.source.features
    image = "image" if features.layout is Layout.TFDS else "image/encoded"
    trains = features.label is not LabelKind.NONE
    info = DatasetInfo(
        name=report.name,
        version=report.version,
        splits=splits,
        image_feature=image if trains else None,
        label_feature=features.label_feature if trains else None,
    )
    encode, size = audit.recipe.encode, audit.recipe.resize
    encoding = "jpeg" if encode is Encode.KEEP else encode.value
    sides = (size.height, size.width) if size and size.height and size.width else None
    labels = audit.source.labels
    return {
        **_label_texts(audit),
        FEATURES: json_text(features.features_json(len(labels), encoding, sides)),
        DATASET_INFO: json_text(info.to_json()),
        REPORT: json_text(report.to_json()),
    }


def _label_texts(audit: Audit) -> dict[str, str]:
    """Return the files that say the names of classes."""
    features, labels = audit.source.features, audit.source.labels
    names = "".join(f"{label}\n" for label in labels)
    if features.label is LabelKind.NUMBER or not labels:
        return {}
    skeletons = {name: one.to_json() for name, one in features.skeletons if name in labels}
    points = {KEYPOINTS: json_text(skeletons)} if skeletons else {}
    if features.layout is Layout.TFDS:
        return {OBJECT_LABELS if features.has_objects else LABELS: names} | points
    ids = [features.class_id(number) for number in range(len(labels))]
    return {LABEL_MAP: label_map_text(dict(zip(ids, labels, strict=True)))} | points
