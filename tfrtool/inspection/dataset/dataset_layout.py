"""Which files of a dataset are the shards of which split, by its metadata or by their names."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
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
    root = found.root
    if not found.shards and not (root / DATASET_INFO).is_file():
        raise found.nothing()
    info, sets = info_beside(root), group_shards(found.shards)
    splits = []
    for split in info.splits if info is not None else ():
        chosen = info.shards_of(split, sets) if info is not None else None
        others = [one for one in sets if one.split == split.name and one is not chosen]
        # An old dataset_info.json has no lengths.
        lengths = split.shard_lengths if split.shard_lengths or chosen is None else None
        splits.append(_split(split.name, [chosen] if chosen else [], lengths, others))
    if not splits:
        by_name: dict[str, list[ShardSet]] = {}
        for one in sets:
            by_name.setdefault(one.split_below(root) or UNSPLIT, []).append(one)
        splits = [_split(name, by_name[name]) for name in sorted(by_name)]
    return Layout(root=root, info=info, splits=tuple(splits), notes=found.notes)


def _split(
    name: str,
    sets: Sequence[ShardSet],
    lengths: Sequence[int] | None = None,
    others: Sequence[ShardSet] = (),
) -> SplitFiles:
    """Return the files of a split: those of its sets, up to the number that there should be."""
    shards: dict[Path, int | None] = {}
    for one in sets:
        count = one.count if lengths is None else len(lengths)
        for index, path in one.shards.items():
            if count is None or index < count:
                shards[path] = None if lengths is None else lengths[index]
    return SplitFiles(
        name=name,
        shards=shards,
        expected=None if lengths is None else sum(lengths),
        missing=sum(one.n_missing for one in sets)
        if lengths is None
        else len(lengths) - len(shards),
        extra=sum(len(one.paths) for one in (*sets, *others)) - len(shards),
    )
