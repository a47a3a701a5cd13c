"""Where the splits and shards of a dataset are, held against what its metadata says."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfrtool.errors import DatasetError
from tfrtool.examples.tfds_metadata import (
    DATASET_INFO,
    DatasetInfo,
    read_dataset_info,
)
from tfrtool.records.dataset_folders import find_folders
from tfrtool.records.framing import Fault, FaultKind
from tfrtool.records.shard_sets import MISSING_NAMED, ShardSet, find_rivals, group_shards

__all__ = ["UNSPLIT", "Layout", "LocatedFault", "ShardFile", "SplitFiles", "find_layout"]

UNSPLIT = "all"
"""What the records are called whose files say no split; TFDS has no split of that name."""

_EXTRA_NAMED = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LocatedFault:
    """A fault with the file that it is in, or that is missing.

    Attributes:
        path: the file.
        fault: what is wrong with it.
    """

    path: Path
    fault: Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFile:
    """A shard that belongs to a split.

    Attributes:
        path: where it is.
        expected: how many records the metadata says that it has; None where it says nothing.
    """

    path: Path
    expected: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitFiles:
    """The files of a split.

    Attributes:
        name: its name.
        shards: the shards that are there, in order.
        expected: how many records the metadata says that it has; None where it says nothing.
        missing: how many shards are not there, though the names or the metadata count them.
        extra: how many files are left aside: they are not in the metadata, or come twice.
    """

    name: str
    shards: tuple[ShardFile, ...]
    expected: int | None = None
    missing: int = 0
    extra: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where a dataset is on disk.

    Attributes:
        root: the directory that was taken for it, at or below the one that was named.
        info: its metadata; None where there is none.
        splits: its splits; by name, if there is no metadata to give them an order.
        faults: missing, extra and doubled shards, and metadata that can't be read.
        notes: what was decided on the way, a sentence each.
    """

    root: Path
    info: DatasetInfo | None
    splits: tuple[SplitFiles, ...]
    faults: tuple[LocatedFault, ...]
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
    faults: list[LocatedFault] = []
    info = _info(root, faults)
    sets = group_shards(found.shards)
    if info is not None and info.splits:
        splits = _described(root, info, sets, faults)
    else:
        splits = _by_names(root, sets, faults)
    return Layout(
        root=root, info=info, splits=tuple(splits), faults=tuple(faults), notes=found.notes
    )


def _info(root: Path, faults: list[LocatedFault]) -> DatasetInfo | None:
    path = root / DATASET_INFO
    try:
        info = read_dataset_info(root)
    except DatasetError as error:
        faults.append(_fault(path, FaultKind.PARSE, f"the metadata can't be used: {error.what}"))
        return None
    if info is not None and len({split.name for split in info.splits}) < len(info.splits):
        faults.append(_fault(path, FaultKind.PARSE, "two splits have the same name"))
        return None
    return info


def _fault(path: Path, kind: FaultKind, message: str) -> LocatedFault:
    return LocatedFault(path=path, fault=Fault(kind=kind, offset=0, record=None, message=message))


def _described(
    root: Path, info: DatasetInfo, sets: Sequence[ShardSet], faults: list[LocatedFault]
) -> Iterator[SplitFiles]:
    """Yield the splits that the metadata describes; what is not in them is extra."""
    used: list[ShardSet] = []
    for split in info.splits:
        one = info.shards_of(split, sets)
        extra = _others(split.name, one, sets, faults)
        used += [other for other in sets if other.split == split.name]
        count = len(split.shard_lengths)
        if count == 0 and one is not None:  # an old dataset_info.json without lengths
            yield _undescribed(split.name, [one], faults, extra)
            continue
        there = {} if one is None else {i: p for i, p in one.shards.items() if i < count}
        named = 0
        for index in range(count):
            if index not in there and named < MISSING_NAMED:
                named += 1
                expected = split.shard_lengths[index]
                name = f"{info.name}-{split.name}.tfrecord-{index:05d}-of-{count:05d}"
                name = name if one is None else one.file_name(index)
                message = f"the shard is missing: expected {expected} records in it"
                faults.append(_fault(root / name, FaultKind.MISSING_SHARD, message))
        yield SplitFiles(
            name=split.name,
            shards=tuple(
                ShardFile(path=path, expected=split.shard_lengths[index])
                for index, path in there.items()
            ),
            expected=split.records,
            missing=count - len(there),
            extra=extra + (0 if one is None else _aside(one, faults)),
        )
    strangers = [one for one in sets if one not in used]
    for one in strangers:
        _name_extra(one.paths, faults, f"no split of {DATASET_INFO} has this file")


def _others(
    name: str, one: ShardSet | None, sets: Sequence[ShardSet], faults: list[LocatedFault]
) -> int:
    paths = [
        path for other in sets if other.split == name and other is not one for path in other.paths
    ]
    _name_extra(paths, faults, f"{DATASET_INFO} has no such shard in split {name!r}")
    return len(paths)


def _by_names(
    root: Path, sets: Sequence[ShardSet], faults: list[LocatedFault]
) -> Iterator[SplitFiles]:
    by_split: dict[str, list[ShardSet]] = {}
    for one in sets:
        by_split.setdefault(one.split_below(root) or UNSPLIT, []).append(one)
    for rivals in find_rivals(sets):
        names = " and ".join(one.name for one in rivals)
        message = f"shards of one split claim different numbers of shards: {names}"
        faults.append(_fault(rivals[0].directory, FaultKind.COUNT, message))
    for name in sorted(by_split):
        yield _undescribed(name, by_split[name], faults)


def _undescribed(
    name: str, sets: Sequence[ShardSet], faults: list[LocatedFault], extra: int = 0
) -> SplitFiles:
    for one in sets:
        for missing in one.missing:
            message = f"the shard is missing: its name is one of {one.count}"
            faults.append(_fault(one.directory / missing, FaultKind.MISSING_SHARD, message))
    return SplitFiles(
        name=name,
        shards=tuple(
            ShardFile(path=path, expected=None)
            for one in sets
            for index, path in one.shards.items()
            if one.count is None or index < one.count
        ),
        missing=sum(one.n_missing for one in sets),
        extra=extra + sum(_aside(one, faults) for one in sets),
    )


def _aside(one: ShardSet, faults: list[LocatedFault]) -> int:
    """Name the files of a set that are beyond its count or come twice; return how many."""
    _name_extra(one.extra, faults, f"there are {one.count} shards, by the names: from 0 on")
    twins = [path for paths in one.duplicates.values() for path in paths]
    _name_extra(twins, faults, "another file has the same number")
    return len(one.extra) + len(twins)


def _name_extra(paths: Sequence[Path], faults: list[LocatedFault], message: str) -> None:
    faults += [
        _fault(path, FaultKind.COUNT, f"an extra shard, left aside: {message}")
        for path in paths[:_EXTRA_NAMED]
    ]
