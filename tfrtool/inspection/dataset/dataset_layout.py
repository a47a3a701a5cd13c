"""Which files of a dataset are the shards of which split, by its metadata or by their names."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfrtool.examples.roles import info_beside
from tfrtool.examples.tfds_metadata import DATASET_INFO, DatasetInfo
from tfrtool.records.dataset_folders import find_folders
from tfrtool.records.shard_sets import ShardSet, group_shards

UNSPLIT = "all"
"""What the records are called whose files say no split; TFDS has no split of that name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitFiles:
    """The files of a split.

    Attributes:
        name: its name.
        shards: the shards that are there, in order, and how many records the metadata says that
            each of them has; None where it says nothing.
        expected: how many records the metadata says that it has; None where it says nothing.
        missing: how many shards are not there, though the names or the metadata count them.
        extra: how many files are left aside: they are not in the metadata, or come twice.
    """

    name: str
    shards: Mapping[Path, int | None]
    expected: int | None
    missing: int
    extra: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where a dataset is on disk.

    Attributes:
        root: the directory that was taken for it, at or below the one that was named.
        info: its metadata; None where there is none that can be used.
        splits: its splits; by name, if there is no metadata to give them an order.
        notes: what was decided on the way, a sentence each.
    """

    root: Path
    info: DatasetInfo | None
    splits: tuple[SplitFiles, ...]
    notes: tuple[str, ...]


def find_layout(directory: str | os.PathLike[str]) -> Layout:
    """Find the splits and shards of a dataset.

    DATASET may hold the shards itself; or versions of a dataset (``1.0.0``), of which the newest
    is taken; or a folder for each split, as TFX writes them.

    Raises:
        DatasetError: there is no such directory, or there are no shards in it.
    """
    found = find_folders(directory)
    if not found.shards and not (found.root / DATASET_INFO).is_file():
        raise found.nothing()
    info, sets = info_beside(found.root), group_shards(found.shards)
    described = info is not None and info.splits
    splits = _described(info, sets) if info and described else _by_names(found.root, sets)
    return Layout(root=found.root, info=info, splits=tuple(splits), notes=found.notes)


def _described(info: DatasetInfo, sets: Sequence[ShardSet]) -> Iterator[SplitFiles]:
    for split in info.splits:
        chosen = info.shards_of(split, sets)
        others = [one for one in sets if one.split == split.name and one is not chosen]
        extra = sum(len(one.paths) for one in others)
        lengths = split.shard_lengths
        if not lengths and chosen is not None:  # an old dataset_info.json without lengths
            yield _undescribed(split.name, [chosen], extra)
            continue
        there = {} if chosen is None else chosen.shards
        shards = {path: lengths[index] for index, path in there.items() if index < len(lengths)}
        extra += 0 if chosen is None else len(chosen.paths) - len(shards)
        yield SplitFiles(
            name=split.name,
            shards=shards,
            expected=split.records,
            missing=len(lengths) - len(shards),
            extra=extra,
        )


def _by_names(root: Path, sets: Sequence[ShardSet]) -> Iterator[SplitFiles]:
    by_split: dict[str, list[ShardSet]] = {}
    for one in sets:
        by_split.setdefault(one.split_below(root) or UNSPLIT, []).append(one)
    for name in sorted(by_split):
        yield _undescribed(name, by_split[name])


def _undescribed(name: str, sets: Sequence[ShardSet], extra: int = 0) -> SplitFiles:
    shards = [
        path
        for one in sets
        for index, path in one.shards.items()
        if one.count is None or index < one.count
    ]
    return SplitFiles(
        name=name,
        shards=dict.fromkeys(shards),
        expected=None,
        missing=sum(one.n_missing for one in sets),
        extra=extra + sum(len(one.paths) for one in sets) - len(shards),
    )
