"""Looking into a dataset: its splits and shards, its labels, and how well they are shuffled."""

from __future__ import annotations

import contextlib
import os
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

from tfrtool.engines.processes import cores, map_shards
from tfrtool.errors import DatasetError, UsageError
from tfrtool.examples.example import PayloadKind
from tfrtool.examples.roles import LabelNames
from tfrtool.examples.tfds_metadata import DATASET_INFO, read_written_shards
from tfrtool.inspection.dataset.dataset_layout import Layout, SplitFiles, find_layout
from tfrtool.inspection.dataset.label_mix import MixDistance, describe_balance, mix_distance
from tfrtool.inspection.dataset.record_labels import (
    MAX_LABELS,
    FirstRecords,
    Label,
    ShardLabels,
    look_for_label,
    read_labels,
)
from tfrtool.inspection.dataset.shuffle import ShuffleQuality, measure_order
from tfrtool.inspection.verify.dataset_check import check_directory
from tfrtool.inspection.verify.verify_shard import ShardVerdict
from tfrtool.records.dataset_folders import find_folders
from tfrtool.records.framing import Fault, FaultKind, LocatedFault
from tfrtool.records.shards import Shard
from tfrtool.storage.progress import OnProgress, Progress, silent
from tfrtool.storage.publishing import reading

_FIRST_SHARDS = 3
"""Shards of a split whose first records are looked at for a label: the first may be empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetShard:
    """A shard of a split.

    Attributes:
        shard: the file, its size and its compression.
        records: how many whole records it has.
        expected_records: how many the metadata says it has; None where it says nothing.
        labels: how many records of each label that occurs in it.
        unlabelled: how many of its records have no label.
        mix_distance: how far its mix of labels is from that of the split; None without labels.
    """

    shard: Shard
    records: int
    expected_records: int | None
    labels: Mapping[str, int]
    unlabelled: int
    mix_distance: MixDistance | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitSummary:
    """A split of a dataset.

    Attributes:
        records: how many whole records its shards have.
        expected_records: how many the metadata says that it has; None where it says nothing.
        bytes: the size of its shards on disk, in bytes.
        missing_shards: how many shards are not there.
        extra_shards: how many files were left aside as not belonging to it.
        labels: how many records of each label; labels that only other splits have are in it.
        absent_labels: the labels of the dataset that none of its records has.
        unlabelled: how many of its records have no label.
        balance: how its records are spread over the labels, in words; None without labels.
        mix_distance: how far its mix of labels is from that of all splits; None where there is one.
        shuffle: how well it is shuffled; None without labels.
        shards: the shards that are there, in order.
    """

    records: int
    expected_records: int | None
    bytes: int
    missing_shards: int
    extra_shards: int
    labels: Mapping[str, int]
    absent_labels: tuple[str, ...]
    unlabelled: int
    balance: str | None
    mix_distance: MixDistance | None
    shuffle: ShuffleQuality | None
    shards: tuple[DatasetShard, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSummary:
    """What a dataset holds.

    Attributes:
        dataset: the directory of the dataset.
        name: its name, by its metadata or else by its directory.
        version: its version; None where no metadata says one.
        described: whether there is metadata to hold its counts against.
        payload: what the records are, by the first one.
        label: the feature that is the label; None where there is none, or it is not clear which.
        label_candidates: the features that could be it, where it is not clear.
        distinct_labels: how many different labels there are; None if too many to keep apart.
        records: how many whole records it has.
        splits: its splits, by name.
        notes: what was decided on the way, a clause each.
        faults: all that is wrong with it, file by file.
        more_faults: how many faults there are beyond those, in files with very many.
    """

    dataset: Path
    name: str
    version: str | None
    described: bool
    payload: PayloadKind
    label: str | None
    label_candidates: tuple[str, ...]
    distinct_labels: int | None
    records: int
    splits: Mapping[str, SplitSummary]
    notes: tuple[str, ...]
    faults: tuple[LocatedFault, ...]
    more_faults: int


def inspect_dataset(
    dataset: str | os.PathLike[str],
    *,
    label: str | None = None,
    workers: int | None = None,
    on_progress: OnProgress = silent,
) -> DatasetSummary:
    """Read all shards of a dataset, and return what is in it.

    Memory grows by two bytes a record, for the order of the labels, and with the number of
    different labels.

    Args:
        dataset: the dataset's directory, with TFDS metadata or without.
        label: the name of the label feature; None finds it out.
        workers: processes to read shards with; None takes the cores.
        on_progress: called after each shard.

    Raises:
        DatasetError: there are no shards, or they are being replaced.
        ShardError: a shard can't be read. Damage is no error: it is in the faults.
        UsageError: no record has the label feature that was asked for.
    """
    if workers is not None and workers < 1:
        raise UsageError("impossible number of workers", expected="at least 1", found=workers)
    with reading(find_folders(dataset).root, DATASET_INFO):
        layout = find_layout(dataset)
        first = _first(layout)
        if first.payload in (PayloadKind.EXAMPLE, PayloadKind.SEQUENCE_EXAMPLE):
            first = replace(first, label=label or first.label)
        fold = _LabelFold()
        written: Iterable[str] = ()
        with contextlib.suppress(DatasetError):  # a fault of the directory
            written = read_written_shards(layout.root)
        hashed = frozenset(layout.root / name for name in written)
        paths = [path for split in layout.splits for path in split.shards]
        read_one = partial(read_labels, label=first.label, hashed=hashed)
        for path, found in zip(paths, map_shards(read_one, paths, workers or cores()), strict=True):
            fold.add(path, found)
            on_progress(
                Progress(what="reading", done=len(fold.read), total=len(paths), unit="shards")
            )
        if label is not None and not fold.labelled:
            listed = ", ".join(first.candidates)
            raise UsageError(
                f"no record has a label in a feature {label!r}",
                path=layout.root,
                expected="one whole number or short text",
                hint=f"it may be one of these: {listed}" if listed else None,
            )
        return _summary(layout, first, fold)


def _first(layout: Layout) -> FirstRecords:
    """Return what the first shard says that has a label; else what the first one says at all."""
    firsts = []
    for split in layout.splits:
        for path in list(split.shards)[:_FIRST_SHARDS]:
            first = look_for_label(path, layout.info)
            if first.label is not None:
                return first
            firsts.append(first)
    known = [first for first in firsts if first.payload is not PayloadKind.EMPTY]
    return next(iter(known or firsts), FirstRecords(payload=PayloadKind.EMPTY))


class _LabelFold:
    """The shards that were read, with one numbering for the labels of all of them."""

    def __init__(self) -> None:
        self.read: dict[Path, ShardLabels] = {}
        self.overflowed = False
        self._codes: dict[Label, int] = {}

    @property
    def labelled(self) -> bool:
        return self.overflowed or bool(self._codes)

    def add(self, path: Path, found: ShardLabels) -> None:
        codes = array("H")
        if not (self.overflowed or found.overflowed):
            table = [self._codes.setdefault(label, len(self._codes)) for label in found.labels]
            codes = array("H", map(table.__getitem__, found.codes))
        self.overflowed |= found.overflowed or len(self._codes) > MAX_LABELS
        self.read[path] = replace(found, codes=codes, labels=())

    def codes(self, path: Path) -> array[int]:
        """Return the labels of a shard's records in order; none if there are too many labels."""
        return array("H") if self.overflowed else self.read[path].codes

    def texts(self, names: LabelNames) -> dict[int, str]:
        """Return each label as text by its code, in the order of their values; no two are alike.

        Class names that the metadata has, and that no record has, come last, below zero.
        """
        texts: dict[int, str] = {}
        taken: set[str] = set()
        codes = {} if self.overflowed else self._codes
        for label in sorted(codes, key=lambda label: (isinstance(label, bytes), label)):
            text = names.text([label])
            if text is None:
                text = repr(label)
            if text in taken:
                text = f"{text} ({label!r})"
            taken.add(text)
            texts[codes[label]] = text
        unused = [name for name in dict.fromkeys(names.names) if name not in taken]
        if codes and len(texts) + len(unused) <= MAX_LABELS:
            texts |= {-1 - number: name for number, name in enumerate(unused)}
        return texts


def _summary(layout: Layout, first: FirstRecords, fold: _LabelFold) -> DatasetSummary:
    names = LabelNames()
    if first.label is not None and first.label.isprintable():  # it is a part of a file's name
        names = LabelNames.beside(layout.root, first.label)
    texts = fold.texts(names)
    parts = [Counter(chain.from_iterable(map(fold.codes, one.shards))) for one in layout.splits]
    whole: Counter[int] = Counter()
    for part in parts:
        whole.update(part)
    several = sum(map(bool, parts)) > 1
    splits = {}
    for split, part in zip(layout.splits, parts, strict=True):
        mix = mix_distance(part, whole, parts=len(parts)) if several and part else None
        splits[split.name] = _split(split, fold, texts, part, mix)
    label = first.label if fold.labelled else None
    info = layout.info
    return DatasetSummary(
        dataset=layout.root,
        name=layout.root.resolve().name if info is None else info.name,
        version=None if info is None else info.version,
        described=info is not None,
        payload=first.payload,
        label=label,
        label_candidates=() if label is not None else first.candidates,
        distinct_labels=None if fold.overflowed else len(whole),
        records=sum(split.records for split in splits.values()),
        splits=splits,
        notes=layout.notes,
        faults=tuple(_faults(layout, [found.verdict for found in fold.read.values()])),
        more_faults=sum(
            found.verdict.n_faults - len(found.verdict.faults) for found in fold.read.values()
        ),
    )


def _split(
    split: SplitFiles,
    fold: _LabelFold,
    texts: Mapping[int, str],
    whole: Counter[int],
    mix: MixDistance | None,
) -> SplitSummary:
    shards = []
    for path, expected in split.shards.items():
        found, part = fold.read[path], Counter(fold.codes(path))
        shards.append(
            DatasetShard(
                shard=found.shard,
                records=found.verdict.records,
                expected_records=expected,
                labels={texts[code]: part[code] for code in sorted(part)},
                unlabelled=found.unlabelled,
                mix_distance=mix_distance(part, whole, parts=len(split.shards)) if part else None,
            )
        )
    quality = measure_order([fold.codes(path) for path in split.shards], texts)
    labels = {text: whole[code] for code, text in texts.items()}
    return SplitSummary(
        records=sum(shard.records for shard in shards),
        expected_records=split.expected,
        bytes=sum(shard.shard.bytes for shard in shards),
        missing_shards=split.missing,
        extra_shards=split.extra,
        labels=labels,
        absent_labels=tuple(label for label, count in labels.items() if not count),
        unlabelled=sum(shard.unlabelled for shard in shards),
        balance=None if quality is None else describe_balance(labels),
        mix_distance=mix,
        shuffle=quality,
        shards=tuple(shards),
    )


def _faults(layout: Layout, verdicts: Iterable[ShardVerdict]) -> Iterator[LocatedFault]:
    by_folder: dict[Path, dict[Path, ShardVerdict]] = {layout.root: {}}
    for verdict in verdicts:
        by_folder.setdefault(verdict.path.parent, {})[verdict.path] = verdict
    miscounted: set[Path] = set()
    for folder, inside in by_folder.items():
        for fault in check_directory(folder, inside).faults:
            if fault.path not in miscounted:  # whose digest is another one then is no news
                found = Fault(kind=fault.kind, offset=0, record=None, message=fault.message)
                yield LocatedFault(path=fault.path, fault=found)
            if fault.kind is FaultKind.COUNT:
                miscounted.add(fault.path)
    for split in layout.splits:
        for path, expected in split.shards.items():
            for found in by_folder[path.parent][path].faults:
                # A shard may be empty, if that is what the metadata says.
                if found.kind is not FaultKind.EMPTY or expected != 0:
                    yield LocatedFault(path=path, fault=found)
