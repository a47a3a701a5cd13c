"""The report of a write, done or planned, and the metadata of its dataset."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_type_hints

import msgspec

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
from tfrtool.images.audit import Depth
from tfrtool.images.recipe import Encode, ImageRecipe
from tfrtool.sources.items import AnnotationAccount, LeftOut, Source
from tfrtool.storage.json_values import reading_metadata, to_json_values
from tfrtool.writing.image_findings import SharedImage, SourceFindings
from tfrtool.writing.image_task import ImageAccount, ShardResult
from tfrtool.writing.job_report import (
    RunReport,
    ShardReport,
    SplitReport,
    dataset_texts,
    json_text,
    split_infos,
)

_OF_PLANS = ("dry_run", "bytes_estimated_from")
_OF_WRITES = ("resumed", "plan", "options")
_AT_TIMES = ("annotations", "metadata")
_KEYS = (
    "dataset", "name", "version", "dry_run", "bytes_estimated_from", "splits", "rejected",
    "converted", "ignored", "duplicates", "across_splits", "truncated", "annotations", "metadata",
    "resumed", "notices", "seconds", "plan", "options",
)  # fmt: skip
"""The keys of a report, in the order in which people read them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationReport:
    """Counts of annotated objects.

    Attributes:
        read: number of objects; each is written, or skipped.
        written: number of objects in the records.
        of_rejected_images: number of objects of skipped images.
        rejected: objects that are skipped themselves, by the keys of their images.
        clipped: objects whose part outside of the image is cut off.
        dropped: number of objects that the options dropped.
        truncated: number of objects that are in neither list, because these are full.
    """

    read: int
    written: int
    of_rejected_images: int
    rejected: tuple[LeftOut, ...]
    clipped: tuple[LeftOut, ...]
    dropped: int = 0
    truncated: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class WriteReport(RunReport):
    """Result of writing a dataset, or the plan of a dry run.

    It has the attributes of `RunReport`, and these:

    Attributes:
        version: version of the dataset.
        bytes_estimated_from: number of images converted to estimate the sizes in a dry run. None if
            the sizes are known.
        rejected: skipped images, with the reason.
        converted: re-encoded images: ``key``, ``from`` (the original format), ``reason``.
        ignored: files that are not images.
        duplicates: number of images that are exact duplicates of another one.
        across_splits: images that appear in several of the source's own splits, as keys by split.
        truncated: by name of a list, the number of entries that do not fit in it. None if every
            list is complete.
        annotations: result for the objects in the images, or None if there are none.
        notices: how the source was interpreted, where that is not obvious, and that TensorFlow is
            not installed.
        is_16_bit: whether PNG images have 16 bits per channel. Not in the JSON output.
    """

    version: str
    bytes_estimated_from: int | None = None
    rejected: tuple[LeftOut, ...] = ()
    converted: tuple[Mapping[str, str], ...]
    ignored: tuple[LeftOut, ...]
    duplicates: int
    across_splits: tuple[SharedImage, ...]
    truncated: Mapping[str, int] | None = field(default=None, compare=False)
    annotations: AnnotationReport | None = None
    notices: tuple[str, ...]
    is_16_bit: bool = False

    def count(self, name: str) -> int:
        """Return the full length of a list, including the entries that it does not contain.

        Args:
            name: attribute name of the list, such as "rejected".
        """
        return len(getattr(self, name)) + (self.truncated or {}).get(name, 0)

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``write --json`` prints and write_report.json contains."""
        hidden = {*(_OF_WRITES if self.dry_run else _OF_PLANS)}
        hidden |= {name for name in _AT_TIMES if getattr(self, name) is None}
        # By its name: the lists of objects and of images have the same ones.
        values = to_json_values(replace(self, annotations=None)) | {
            "annotations": to_json_values(self.annotations)
        }
        return {key: values[key] for key in _KEYS if key in values and key not in hidden}


def report_on(
    source: Source,
    results: Iterable[ShardResult],
    skipped: ImageAccount,
    findings: SourceFindings,
    facts: Mapping[str, Any],
) -> WriteReport:
    """Return the report of a write or a plan.

    Args:
        source: the images.
        results: all shards, written or planned.
        skipped: images that are in no shard of the plan.
        findings: the results of checking the images.
        facts: further fields.
    """
    shards: dict[str, list[ShardReport]] = {}
    images: dict[str, ImageAccount] = {}
    total, shared = ImageAccount(), findings.shared(source)
    for split, shard, account in results:
        shards.setdefault(split, []).append(shard)
        images.setdefault(split, ImageAccount()).merge(account)
        total.merge(account)
    splits = {
        split: SplitReport.of_shards(
            shards[split], dict.fromkeys(source.labels, 0) | account.labels
        )
        for split, account in images.items()
    }
    total.merge(skipped)
    bad = {key for key, _ in total.rejected}
    total.rejected += ((entry.key, entry.reason) for entry in source.rejected)
    for name in ("rejected", "converted"):
        total.trim(name)
    beyond = {
        "rejected": total.more["rejected"] + source.more_rejected,
        "converted": total.more["converted"],
        "ignored": source.more_ignored,
        "across_splits": shared.more,
    }
    usual = source.features == RecordFeatures()
    return WriteReport(
        splits=splits,
        rejected=_shown(LeftOut(key=key, reason=why) for key, why in total.rejected),
        converted=tuple(
            {"key": printable(key), "from": kind, "reason": why}
            for key, kind, why in total.converted
        ),
        ignored=_shown(source.ignored),
        across_splits=tuple(shared.entries),
        truncated={name: count for name, count in beyond.items() if count} or None,
        annotations=None
        if source.annotations is None
        else _annotations(source.annotations, total, bad),
        metadata=None if usual else (*_label_texts(source), FEATURES, DATASET_INFO, REPORT),
        notices=(*source.notices, *(_depth_notices(total) if total.depths else ())),
        is_16_bit=Depth.KEPT in total.depths,
        duplicates=findings.duplicates,
        **facts,
    )


def _depth_notices(account: ImageAccount) -> Iterator[str]:
    """Yield notes on images that lost bits."""
    keeping = "--encode png keeps 16 bits of gray images, and of RGB PNG files without --resize"
    scaling = "use --encode png to keep the values, or scale them first"
    dark = "16 bits became 8 and nearly black, because the highest bits are unused,"
    for depth, what, advice in (
        (Depth.REDUCED, "16 bits per channel became 8", keeping),
        (Depth.DARK, dark, scaling),
    ):
        if count := account.depths.get(depth):
            images = f"{count:,} image{'' if count == 1 else 's'}"
            yield f"{what} in {images}, such as {printable(account.deep[depth])}; {advice}"


def _annotations(
    account: AnnotationAccount, images: ImageAccount, skipped: Collection[str]
) -> AnnotationReport:
    """Return the counts of objects; a `WriteError` if not every one is accounted for."""
    written, lost = sum(images.labels.values()), images.lost
    listed = len(account.rejected) + account.more_rejected
    if account.read != written + listed + lost + account.dropped:
        raise WriteError(
            "annotations would be lost",
            expected=f"{account.read:,} as read",
            found=f"{written:,} written, {listed:,} listed, {lost:,} of skipped images, "
            f"{account.dropped:,} dropped",
        )
    return AnnotationReport(
        read=account.read,
        written=written,
        of_rejected_images=lost,
        rejected=_shown(account.rejected),
        clipped=_shown(one for one in account.clipped if one.key not in skipped),
        dropped=account.dropped,
        truncated=account.more_rejected + account.more_clipped,
    )


def _shown(entries: Iterable[LeftOut]) -> tuple[LeftOut, ...]:
    return tuple(LeftOut(key=printable(entry.key), reason=entry.reason) for entry in entries)


def metadata_texts(report: WriteReport, source: Source, recipe: ImageRecipe) -> dict[str, str]:
    """Return the files that make shards a dataset of TFDS, by their names."""
    splits = split_infos(report.splits)
    features = source.features
    image = "image" if features.layout is Layout.TFDS else "image/encoded"
    trains = features.label is not LabelKind.NONE
    info = DatasetInfo(
        name=report.name,
        version=report.version,
        splits=splits,
        image_feature=image if trains else None,
        label_feature=features.label_feature if trains else None,
    )
    encode, size = recipe.encode, recipe.resize
    encoding = "jpeg" if encode is Encode.KEEP else encode.value
    sides = (size.height, size.width) if size and size.height and size.width else None
    dtype = "uint16" if report.is_16_bit else "uint8"
    described = features.features_json(len(source.labels), encoding, sides, dtype)
    return dataset_texts(_label_texts(source), described, info.to_json())


def _label_texts(source: Source) -> dict[str, str]:
    """Return the files that say the names of classes."""
    features, labels = source.features, source.labels
    names = "".join(f"{label}\n" for label in labels)
    if features.label is LabelKind.NUMBER or not labels:
        return {}
    skeletons = {name: one.to_json() for name, one in features.skeletons if name in labels}
    points = {KEYPOINTS: json_text(skeletons)} if skeletons else {}
    if features.layout is Layout.TFDS:
        return {OBJECT_LABELS if features.has_objects else LABELS: names} | points
    ids = [features.class_id(number) for number in range(len(labels))]
    return {LABEL_MAP: label_map_text(dict(zip(ids, labels, strict=True)))} | points


def complete_report(
    before: Mapping[str, Any], facts: Mapping[str, Any], *, resumed: int
) -> WriteReport:
    """Return the report of a write that an earlier run has done; its images are not read again.

    Args:
        before: the report that the earlier run has written.
        facts: fields of this run.
        resumed: number of files that were finished before.
    """
    dataset, kinds = facts["dataset"], get_type_hints(WriteReport)
    values = {**before, "seconds": facts["seconds"], "resumed": resumed, "complete": True}
    with reading_metadata(dataset / REPORT, "tfrtool"):
        values = {
            name: msgspec.convert(values[name], kinds[name])
            for name in kinds
            if name in values and name != "dataset"
        }
        return WriteReport(dataset=dataset, **values)
