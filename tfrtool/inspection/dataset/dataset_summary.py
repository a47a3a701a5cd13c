"""Looking into a dataset: its splits and shards, its labels, and how well they are shuffled."""

import os
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from tfrtool.declare import takes
from tfrtool.engines.pool import MIN_BYTES_PER_PROCESS
from tfrtool.errors import UsageError, suggestion
from tfrtool.examples.dataset_files import DatasetFiles, SplitFiles, find_files
from tfrtool.examples.example import PayloadKind
from tfrtool.examples.objects.label_map import object_names
from tfrtool.examples.roles import FirstRecords, Label, LabelNames
from tfrtool.examples.tfds_metadata import DATASET_INFO
from tfrtool.inspection.dataset.object_counts import ObjectCounts, ObjectSummary
from tfrtool.inspection.dataset.record_labels import (
    MAX_LABELS,
    LabelCounts,
)
from tfrtool.inspection.dataset.shuffle import ShuffleQuality, measure_order
from tfrtool.inspection.inspect_options import DatasetOptions
from tfrtool.inspection.profile import LabelRequest, ProfileRequest, ShardProfile, profile_shards
from tfrtool.inspection.verify.dataset_check import (
    DatasetFindings,
    check_directory,
    name_notes,
    written_shards,
)
from tfrtool.inspection.verify.feature_faults import FeatureFault
from tfrtool.inspection.verify.feature_findings import (
    DeclaredFolders,
    FeatureFindings,
    find_mismatches,
)
from tfrtool.inspection.verify.payload_check import EXAMPLES
from tfrtool.records.framing import Fault, FaultKind, LocatedFault
from tfrtool.records.shards import Shard, find_folders
from tfrtool.storage.commit import unchanged_while_read
from tfrtool.storage.json_values import Shown
from tfrtool.storage.remote_path import AnyPath

UNSPLIT = "all"
"""What the records are called whose files say no split; TFDS has no split of that name."""

_CANDIDATES = 8
_FIRST_SHARDS = 3
"""Shards of a split whose first records are looked at for a label: the first may be empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetShard:
    """A shard of a split."""

    shard: Shard
    records: int
    labels: Mapping[str, int]  # how many records of each label that occurs in it
    unlabelled: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitSummary:
    """A split of a dataset."""

    records: int
    expected_records: int | None  # what the metadata says; None where it says nothing
    bytes: int  # of its shards, on disk
    missing_shards: int
    extra_shards: int  # files that are left aside: not in the metadata, or there twice
    labels: Mapping[str, int]  # how many records of each label of the dataset, also of none
    unlabelled: int
    shuffle: ShuffleQuality | None  # None without labels or if records are too few
    shards: tuple[DatasetShard, ...]  # those that are there, in order
    objects: ObjectSummary | None = field(default=None, compare=False)  # None without objects


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DatasetSummary(Shown):
    """Contents of a dataset.

    Attributes:
        dataset: directory of the dataset.
        name: name of the dataset, from its metadata or else its directory.
        version: version of the dataset, or None without metadata.
        payload: type of the first record's payload.
        label: the label feature. None if there is none, or if it is ambiguous.
        label_candidates: features that could be the label, if it is ambiguous.
        distinct_labels: number of different labels, or None if there are too many to count.
        records: total number of intact records.
        splits: splits by name.
        notes: decisions made while reading, one clause each.
        faults: faults, file by file. Of a file with very many, only the first are listed.
        features_checked: number of records that were compared with features.json, or None without
            one.
    """

    dataset: AnyPath
    name: str
    version: str | None
    payload: PayloadKind
    label: str | None
    label_candidates: tuple[str, ...]
    distinct_labels: int | None
    records: int
    splits: Mapping[str, SplitSummary]
    notes: tuple[str, ...]
    faults: tuple[LocatedFault, ...]
    features_checked: int | None = None


@takes(DatasetOptions)
def inspect_dataset(dataset: str | os.PathLike[str], options: DatasetOptions) -> DatasetSummary:
    """Read all shards of a dataset and summarize its contents.

    Memory grows by two bytes per record, for the order of the labels, and with the number of
    different labels.

    Args:
        dataset: dataset directory, with or without TFDS metadata. It may also contain versions
            (such as ``1.0.0``; the newest is used), or one directory per split, as TFX writes them.

    Raises:
        DatasetError: no shards were found, or they are being replaced.
        ShardError: a shard can't be read. Damage is not an error: it is reported in ``faults``.
        UsageError: no record has the feature ``label``.
    """
    return read_dataset(dataset, options)[0]


def read_dataset(
    dataset: str | os.PathLike[str], options: DatasetOptions, *, described: bool = False
) -> tuple[DatasetSummary, list[ShardProfile]]:
    """Do what `inspect_dataset` does; if ``described``, find features and SHA-256, too."""
    with unchanged_while_read(find_folders(dataset).root, DATASET_INFO):
        found = find_files(dataset, lambda name: name or UNSPLIT)
        declared = DeclaredFolders.read(found.paths)
        first, labels = label_request(found, declared, options.label)
        hashed = {*found.paths} if described else written_shards(found.paths)
        request = ProfileRequest(
            labels=labels, features=described, declared=declared.roots, hashed=hashed
        )
        profiles = [*profile_shards(found.paths, request, options, MIN_BYTES_PER_PROCESS)]
        must_have = options.label is not None
        report = dataset_report(
            found, first, labels.label, profiles, declared=declared, must_have=must_have
        )
        return report, profiles


def label_request(
    found: DatasetFiles, declared: DeclaredFolders, label: str | None = None
) -> tuple[FirstRecords, LabelRequest]:
    """Return what the first records of a dataset hold, and what to find in the others."""
    root, label_in_info = found.folders[0], found.info.label_feature if found.info else None
    first = FirstRecords()
    shards = (path for one in found.splits.values() for path in islice(one.shards, _FIRST_SHARDS))
    for _ in first.read(shards):
        if first.roles.label is not None:
            break
    first.features.clear()  # a value may be as large as its record
    is_list = declared.is_list(root, label or label_in_info)
    if label is None or first.payload not in EXAMPLES:
        label = first.roles.label or (label_in_info if is_list else None)
    return first, LabelRequest(label, is_list, object_names(root) if first.has_boxes else None)


def dataset_report(
    found: DatasetFiles,
    first: FirstRecords,
    label: str | None,
    profiles: Sequence[ShardProfile],
    *,
    declared: DeclaredFolders | None = None,
    must_have: bool = False,
) -> DatasetSummary:
    """Return the summary of a dataset, from profiles that were asked for `label_request`.

    Raises:
        UsageError: no label was found, and the dataset ``must_have`` one.
    """
    root, info = found.folders[0], found.info
    read = {profile.path: profile for profile in profiles}
    counts, codes = _label_codes(profiles)
    overflowed = len(codes) > MAX_LABELS or any(one.overflowed for one in counts.values())
    labelled = bool(codes)
    candidates = () if first.roles.label else tuple(first.labels)[:_CANDIDATES]
    if must_have and not labelled:
        raise UsageError(
            f"no labels in feature {label!r}",
            path=root,
            expected="one integer or short string per record",
            hint=suggestion(str(label), candidates, "label candidates"),
        )
    codes = {} if overflowed else codes
    for label_counts in counts.values():
        table = [codes[value] for value in label_counts.labels] if codes else []
        label_counts.codes = array("H", map(table.__getitem__, label_counts.codes if codes else ()))
        label_counts.more = array("H", map(table.__getitem__, label_counts.more if codes else ()))
    texts = _texts(codes, LabelNames.read(root, label))
    features = find_mismatches(declared or DeclaredFolders(), profiles)
    directories = _directories(root, profiles)
    splits = {name: _summary(split, read, counts, texts) for name, split in found.splits.items()}
    return DatasetSummary(
        dataset=root,
        name=root.resolve().name if info is None else info.name,
        version=None if info is None else info.version,
        payload=first.payload,
        label=label if labelled else None,
        label_candidates=() if labelled else candidates,
        distinct_labels=None if overflowed else sum(code >= 0 for code in texts.values()),
        records=sum(split.records for split in splits.values()),
        splits=splits,
        notes=(*found.notes, *name_notes(directories), *features.notes),
        faults=(
            *_faults(directories, found.splits.values(), read),
            *_feature_faults(features),
        ),
        features_checked=features.checked,
    )


def _label_codes(
    profiles: Iterable[ShardProfile],
) -> tuple[dict[AnyPath, LabelCounts], dict[Label, int]]:
    """Return the labels of each shard, and one numbering for the labels of all shards."""
    counts: dict[AnyPath, LabelCounts] = {}
    codes: dict[Label, int] = {}
    for profile in profiles:
        if profile.failure is not None:
            raise profile.failure
        label_counts = profile.fold(LabelCounts) or LabelCounts(None, False, None)
        counts[profile.path] = label_counts
        for value in label_counts.labels:
            codes.setdefault(value, len(codes))
    return counts, codes


def _feature_faults(features: FeatureFindings) -> Iterator[LocatedFault]:
    """Yield how records differ from features.json, once for each feature."""
    for one in features.faults:
        message = one.text if isinstance(one, FeatureFault) else one.message
        found = Fault(kind=one.kind, offset=one.offset or 0, record=one.record, message=message)
        yield LocatedFault(path=one.path, fault=found)


def _texts(codes: Mapping[Label, int], names: LabelNames) -> dict[str, int]:
    """Return the code of each label by its text, in the order of their values; no two are alike.

    Class names that the metadata has, and that no record has, come last, below zero. If there are
    class names, -1 means that a record has no label, as in TFDS.
    """
    texts: dict[str, int] = {}
    labels = {label for label in codes if label != -1 or not names.names}
    for label in sorted(labels, key=lambda label: (isinstance(label, bytes), label)):
        text = names.text([label]) or repr(label)
        texts[f"{text} ({label!r})" if text in texts else text] = codes[label]
    for name in filter(None, names.names if codes else ()):
        texts.setdefault(name, -1)
    return texts


def _summary(
    split: SplitFiles,
    read: Mapping[AnyPath, ShardProfile],
    counts: Mapping[AnyPath, LabelCounts],
    texts: Mapping[str, int],
) -> SplitSummary:
    by_code = {code: text for text, code in texts.items()}
    total: Counter[int] = Counter()
    shards, objects = [], ObjectCounts()
    for path in split.shards:
        profile, found = read[path], counts[path]
        if found.objects is not None:
            objects.merge(found.objects)
        part = Counter(found.codes) + Counter(found.more)
        total.update(part)
        shards.append(
            DatasetShard(
                shard=profile.shard or Shard.at(path),
                records=profile.records,
                labels={by_code[code]: part[code] for code in sorted(part) if code in by_code},
                unlabelled=found.unlabelled
                + sum(part[code] for code in part if code not in by_code),
            )
        )
    return SplitSummary(
        records=sum(shard.records for shard in shards),
        expected_records=split.expected,
        bytes=sum(shard.shard.bytes for shard in shards),
        missing_shards=split.n_missing,
        extra_shards=len(split.extra),
        labels={text: total[code] for text, code in texts.items()},
        unlabelled=sum(shard.unlabelled for shard in shards),
        shuffle=measure_order([counts[path].codes for path in split.shards]),
        shards=tuple(shards),
        objects=objects.summary(),
    )


def _directories(root: AnyPath, profiles: Iterable[ShardProfile]) -> tuple[DatasetFindings, ...]:
    """Compare the shards of each folder with its metadata and their names."""
    by_folder: dict[AnyPath, dict[AnyPath, ShardProfile]] = {root: {}}
    for profile in profiles:
        by_folder.setdefault(profile.path.parent, {})[profile.path] = profile
    return tuple(check_directory(folder, found) for folder, found in by_folder.items())


def _faults(
    directories: Iterable[DatasetFindings],
    splits: Iterable[SplitFiles],
    read: Mapping[AnyPath, ShardProfile],
) -> Iterator[LocatedFault]:
    for findings in directories:
        for fault in findings.faults:
            found = Fault(kind=fault.kind, offset=0, record=None, message=fault.message)
            yield LocatedFault(path=fault.path, fault=found)
    for split in splits:
        for path, expected in split.shards.items():
            for found in read[path].faults:
                # A shard may be empty, if that is what the metadata says.
                if found.kind is not FaultKind.EMPTY or expected != 0:
                    yield LocatedFault(path=path, fault=found)
