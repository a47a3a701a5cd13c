"""Where the splits and shards of a dataset are, held against what its metadata says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfrtool.errors import DatasetError, TfrtoolError, os_reason, printable
from tfrtool.examples.tfds_metadata import (
    DATASET_INFO,
    DatasetInfo,
    SplitInfo,
    read_dataset_info,
)
from tfrtool.records.framing import Fault, FaultKind
from tfrtool.records.names import check_version, is_shard_name
from tfrtool.records.shard_sets import MISSING_NAMED, ShardSet, find_rivals, group_shards
from tfrtool.records.shards import find_shards

__all__ = ["UNSPLIT", "Layout", "LocatedFault", "ShardFile", "SplitFiles", "find_layout"]

UNSPLIT = "all"
"""What the records are called whose files say no split; TFDS has no split of that name."""

_TFX_FOLDER = "Split-"
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


def find_layout(directory: Path) -> Layout:
    """Find the splits and shards of a dataset.

    DATASET may hold the shards itself; or versions of a dataset (``1.0.0``), of which the newest
    is taken; or a folder for each split, as TFX writes them.

    Raises:
        DatasetError: there is no such directory, or there are no shards in it.
    """
    if not directory.is_dir():
        what = "not a directory" if directory.exists() else "no such directory"
        raise DatasetError(what, path=directory, expected="a directory with shards")
    notes: list[str] = []
    root, folders = _descend(directory, notes)
    faults: list[LocatedFault] = []
    info = _info(root, faults)
    sets = [one for folder in folders for one in group_shards(find_shards([str(folder)]))]
    if info is not None and info.splits:
        splits = _described(root, info, sets, faults)
    else:
        splits = _by_names(root, sets, faults)
    return Layout(
        root=root, info=info, splits=tuple(splits), faults=tuple(faults), notes=tuple(notes)
    )


def _descend(directory: Path, notes: list[str]) -> tuple[Path, Sequence[Path]]:
    """Return the directory of the dataset itself, and the folders that its shards are in."""
    if _has_shards(directory):
        return directory, [directory]
    folders = _folders(directory)
    versions = {number: path for path in folders if (number := _version(path.name)) is not None}
    if versions:
        newest = versions[max(versions)]
        if len(versions) > 1:
            names = ", ".join(versions[number].name for number in sorted(versions))
            notes.append(f"version {newest.name}, the newest of {names}")
        else:
            notes.append(f"version {newest.name}, the only one")
        if _has_shards(newest):
            return newest, [newest]
        folders = _folders(newest)
        directory = newest
    holding = [path for path in folders if _has_shards(path)]
    if holding:
        notes.append("a folder for each split")
        return directory, holding
    configs = [
        path
        for path in folders
        if any(_version(below.name) is not None for below in _folders(path))
    ]
    if len(configs) == 1 and not versions:
        notes.append(f"configuration {printable(configs[0].name)}, the only one")
        return _descend(configs[0], notes)
    if configs:
        names = ", ".join(printable(path.name) for path in configs)
        raise DatasetError("holds several datasets; name one of them", path=directory, found=names)
    if (directory / DATASET_INFO).is_file():
        return directory, []
    raise DatasetError("no shard files in this directory or in a folder in it", path=directory)


def _folders(directory: Path) -> list[Path]:
    try:
        return sorted(
            path for path in directory.iterdir() if path.is_dir() and not path.name.startswith(".")
        )
    except OSError as error:
        raise DatasetError(f"can't be read: {os_reason(error)}", path=directory) from error


def _has_shards(directory: Path) -> bool:
    try:
        return any(is_shard_name(path.name) and path.is_file() for path in directory.iterdir())
    except OSError as error:
        raise DatasetError(f"can't be read: {os_reason(error)}", path=directory) from error


def _version(name: str) -> tuple[int, ...] | None:
    try:
        return tuple(int(part) for part in check_version(name).split("."))
    except (TfrtoolError, ValueError):
        return None


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
        one = _set_of(split, info, sets)
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


def _set_of(split: SplitInfo, info: DatasetInfo, sets: Sequence[ShardSet]) -> ShardSet | None:
    fitting = [one for one in sets if one.split == split.name]
    count = len(split.shard_lengths)
    fitting = [one for one in fitting if not count or (one.count or 1) == count]
    named = [one for one in fitting if one.prefix.startswith(f"{info.name}-")]
    return next(iter(named or fitting), None)


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
        name = one.split
        if name is None and one.directory != root:
            name = one.directory.name.removeprefix(_TFX_FOLDER)
        by_split.setdefault(name or UNSPLIT, []).append(one)
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
