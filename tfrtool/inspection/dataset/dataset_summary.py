"""Looking into a dataset: its splits and shards, its labels, and how well they are shuffled."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tfrtool.engines.processes import cores, map_shards
from tfrtool.errors import DatasetError, UsageError
from tfrtool.examples.example import PayloadKind
from tfrtool.examples.roles import LabelNames
from tfrtool.examples.tfds_metadata import DATASET_INFO
from tfrtool.examples.written import REPORT, read_written_shards
from tfrtool.inspection.dataset.dataset_fold import DatasetFold, ReadShard
from tfrtool.inspection.dataset.dataset_layout import Layout, LocatedFault, SplitFiles, find_layout
from tfrtool.inspection.dataset.record_labels import FirstRecords, look_for_label, read_labels
from tfrtool.inspection.dataset.shuffle import (
    MixDistance,
    ShuffleQuality,
    measure_order,
    mix_distance,
)
from tfrtool.inspection.verify.verify_shard import digest_of
from tfrtool.records.dataset_folders import find_folders
from tfrtool.records.framing import Fault, FaultKind
from tfrtool.records.shards import Shard
from tfrtool.storage.publishing import reading

__all__ = [
    "DatasetShard",
    "DatasetSummary",
    "InspectDatasetOptions",
    "SplitSummary",
    "inspect_dataset",
]

Progress = Callable[[int, int], None]

_FIRST_SHARDS = 3
"""Shards of a split whose first records are looked at for a label: the first may be empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectDatasetOptions:
    """How a dataset is looked at.

    Attributes:
        label: the name of the label feature; None finds it out.
        workers: processes to read shards with; None takes the cores.
    """

    label: str | None = None
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise ValueError(f"workers is at least 1, not {self.workers}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetShard:
    """A shard of a split.

    Attributes:
        shard: the file, its size and its compression.
        records: how many whole records it has.
        expected: how many the metadata says it has; None where it says nothing.
        labels: how many records of each label that occurs in it.
        unlabelled: how many of its records have no label.
        mix: how far its mix of labels is from that of the split; None without labels.
    """

    shard: Shard
    records: int
    expected: int | None
    labels: Mapping[str, int]
    unlabelled: int
    mix: MixDistance | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitSummary:
    """A split of a dataset.

    Attributes:
        name: its name.
        shards: the shards that are there, in order.
        expected: how many records the metadata says that it has; None where it says nothing.
        missing: how many shards are not there.
        extra: how many files were left aside as not belonging to it.
        labels: how many records of each label; labels that only other splits have are in it.
        mix: how far its mix of labels is from that of all splits; None where there is one split.
        shuffle: how well it is shuffled; None without labels.
        longest_label: the label of the longest run; None without labels.
    """

    name: str
    shards: tuple[DatasetShard, ...]
    expected: int | None
    missing: int
    extra: int
    labels: Mapping[str, int]
    mix: MixDistance | None
    shuffle: ShuffleQuality | None
    longest_label: str | None

    @property
    def records(self) -> int:
        """How many whole records its shards have."""
        return sum(shard.records for shard in self.shards)

    @property
    def bytes(self) -> int:
        """The size of its shards on disk, in bytes."""
        return sum(shard.shard.bytes for shard in self.shards)

    @property
    def unlabelled(self) -> int:
        """How many of its records have no label."""
        return sum(shard.unlabelled for shard in self.shards)

    @property
    def absent(self) -> tuple[str, ...]:
        """The labels of the dataset that none of its records has."""
        return tuple(label for label, count in self.labels.items() if not count)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSummary:
    """What a dataset holds.

    Attributes:
        directory: where it is.
        name: its name, by its metadata or else by its directory.
        version: its version; None where no metadata says one.
        described: whether there is metadata to hold its counts against.
        payload: what the records are, by the first one.
        label: the feature that is the label; None where there is none, or it can't be told.
        candidates: the features that could be it, where it can't be told.
        distinct: how many different labels there are; None if they are too many to be told apart.
        splits: its splits.
        faults: all that is wrong with it, file by file.
        more_faults: how many faults there are beyond those, in files with very many.
        notes: what was decided on the way, a clause each.
    """

    directory: Path
    name: str
    version: str | None
    described: bool
    payload: PayloadKind
    label: str | None
    candidates: tuple[str, ...]
    distinct: int | None
    splits: tuple[SplitSummary, ...]
    faults: tuple[LocatedFault, ...]
    more_faults: int
    notes: tuple[str, ...]

    @property
    def records(self) -> int:
        """How many whole records it has."""
        return sum(split.records for split in self.splits)


def inspect_dataset(
    directory: str | os.PathLike[str],
    options: InspectDatasetOptions = InspectDatasetOptions(),
    progress: Progress | None = None,
) -> DatasetSummary:
    """Read all shards of a dataset, and tell what is in it.

    Memory grows by two bytes a record, for the order of the labels, and with the number of
    different labels in each shard.

    Args:
        directory: the dataset's directory, with TFDS metadata or without.
        options: the label, and how many processes.
        progress: called with the number of shards that are read, and that of all.

    Raises:
        DatasetError: there are no shards, or they are being replaced.
        ShardError: a shard can't be read. Damage is no error: it is in the faults.
        UsageError: no record has the label feature that was asked for.
    """
    with reading(find_folders(directory).root, DATASET_INFO):
        return _inspect(find_layout(directory), options, progress)


def _inspect(
    layout: Layout, options: InspectDatasetOptions, progress: Progress | None
) -> DatasetSummary:
    files = [file for split in layout.splits for file in split.shards]
    first = _first(layout)
    label = options.label or first.label
    examples = first.payload in (PayloadKind.EXAMPLE, PayloadKind.SEQUENCE_EXAMPLE)
    named = label is not None and label.isprintable()  # it is a part of a file's name
    fold = DatasetFold(LabelNames.beside(layout.root, label) if named else LabelNames())
    workers = cores() if options.workers is None else options.workers
    read_one = partial(read_labels, label=label if examples else None)
    read = map_shards(read_one, [file.path for file in files], workers)
    for number, (file, found) in enumerate(zip(files, read, strict=True)):
        if progress is not None:
            progress(number + 1, len(files))
        fold.add(file, found)
    if options.label is not None and not fold.labelled:
        raise UsageError(
            f"no record has a label in a feature {options.label!r}",
            path=layout.root,
            expected="one whole number or short text",
            hint=f"it may be one of these: {', '.join(first.candidates)}"
            if first.candidates
            else None,
        )
    summary = _summary(layout, first, label, fold)
    return replace(summary, faults=(*summary.faults, *_changed(layout, fold, workers)))


def _changed(layout: Layout, fold: DatasetFold, workers: int) -> Iterator[LocatedFault]:
    """Tell shards that are whole, and are not the files that the report of a write names."""
    try:
        written = read_written_shards(layout.root)
    except DatasetError as error:
        yield _located(layout.root / REPORT, FaultKind.PARSE, error.what)
        return
    faulty = {located.path for located in fold.faults}
    paths = [layout.root / name for name in written]
    paths = [path for path in paths if path in fold.shards and path not in faulty]
    for path, digest in zip(paths, map_shards(digest_of, paths, workers), strict=True):
        expected = written[path.name].sha256
        if digest is not None and digest != expected:
            message = (
                f"is not the file that was written: {REPORT} says SHA-256 {expected[:12]}..., "
                f"found {digest[:12]}..."
            )
            yield _located(path, FaultKind.COUNT, message)


def _located(path: Path, kind: FaultKind, message: str) -> LocatedFault:
    return LocatedFault(path=path, fault=Fault(kind=kind, offset=0, record=None, message=message))


def _first(layout: Layout) -> FirstRecords:
    """Return what the first shard says that has a label; else what the first one says at all."""
    firsts = []
    for split in layout.splits:
        for file in split.shards[:_FIRST_SHARDS]:
            first = look_for_label(file.path, layout.info)
            if first.label is not None:
                return first
            firsts.append(first)
    known = [first for first in firsts if first.payload is not PayloadKind.EMPTY]
    return next(iter(known or firsts), FirstRecords(payload=PayloadKind.EMPTY))


def _summary(
    layout: Layout, first: FirstRecords, label: str | None, fold: DatasetFold
) -> DatasetSummary:
    texts = fold.texts()
    parts = [fold.counts(file.path for file in split.shards) for split in layout.splits]
    whole: Counter[int] = Counter()
    for part in parts:
        whole.update(part)
    several = sum(map(bool, parts)) > 1
    splits = []
    for split, counts in zip(layout.splits, parts, strict=True):
        mix = mix_distance(counts, whole, parts=len(parts)) if several and counts else None
        reads = [fold.shards[file.path] for file in split.shards]
        splits.append(_split_summary(split, reads, texts, counts, mix))
    info = layout.info
    label = label if fold.labelled else None
    return DatasetSummary(
        directory=layout.root,
        name=layout.root.resolve().name if info is None else info.name,
        version=None if info is None else info.version,
        described=info is not None,
        payload=first.payload,
        label=label,
        candidates=() if label is not None else first.candidates,
        distinct=None if fold.overflowed else len(whole),
        splits=tuple(splits),
        faults=(*layout.faults, *fold.faults),
        more_faults=fold.more_faults,
        notes=layout.notes,
    )


def _split_summary(
    split: SplitFiles,
    reads: Sequence[ReadShard],
    texts: Mapping[int, str],
    counts: Counter[int],
    mix: MixDistance | None,
) -> SplitSummary:
    quality = measure_order([read.codes for read in reads])
    return SplitSummary(
        name=split.name,
        shards=tuple(_shard(read, counts, len(reads), texts) for read in reads),
        expected=split.expected,
        missing=split.missing,
        extra=split.extra,
        labels={text: counts[code] for code, text in texts.items()},
        mix=mix,
        shuffle=quality,
        longest_label=None if quality is None else texts[quality.longest_label],
    )


def _shard(
    read: ReadShard, whole: Counter[int], parts: int, texts: Mapping[int, str]
) -> DatasetShard:
    counts = Counter(read.codes)
    return DatasetShard(
        shard=read.shard,
        records=read.records,
        expected=read.expected,
        labels={texts[code]: counts[code] for code in sorted(counts)},
        unlabelled=read.unlabelled,
        mix=mix_distance(counts, whole, parts=parts) if counts else None,
    )
