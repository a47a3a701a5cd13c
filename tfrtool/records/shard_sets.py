"""Shard sets: which files belong together, told from their names, and which of them are missing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from tfrtool.records.names import COMPRESSED_NAME
from tfrtool.storage.locations import as_paths

__all__ = ["MISSING_NAMED", "ShardSet", "find_rivals", "group_shards"]

MISSING_NAMED = 1000
"""Missing files that are named at most: the count in a name is whatever somebody wrote there."""

# TensorFlow's "-00000-of-00008" with any number of digits, and its variant with underscores. A
# file name has at most 255 bytes; 18 digits fit 64 bits.
_NUMBERED = re.compile(
    r"(?P<prefix>.*)(?<!\d)(?P<index>\d{1,18})(?P<of>[-_]of[-_])(?P<count>\d{1,18})"
    r"(?P<suffix>(?:\D.*)?)",
    re.ASCII | re.DOTALL,
)
_TFDS = re.compile(r"[a-zA-Z]\w*-(?P<split>\w+)\.[a-z_]+-", re.ASCII)
_TFX_FOLDER = "Split-"
_SPLITS = frozenset(
    ("train", "training", "test", "testing", "validation", "valid", "val", "eval", "dev")
)
"""Names of splits in common use: a name without TFDS' form says its split by one of these words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSet:
    """Shards that belong together by their names (``train-00000-of-00008`` and so on).

    Attributes:
        directory: the folder that they are in.
        prefix: what stands before the number, ``mnist-test.tfrecord-``; the whole name of a file
            without a number.
        suffix: what stands after the count, ``.gz`` or ``.tfrecord.gz``; of the first shard,
            where some are compressed and some are not. Usually empty.
        split: the split that the names or the folder say; None where they say none.
        count: how many shards the names say that there are; None where they have no numbers.
            It is what a name claims, and may be absurd.
        shards: a file by its number, from 0, in order; a file without a number is number 0.
        duplicates: by number, the files beside the one in `shards` that claim the same number,
            such as a compressed twin.
    """

    directory: Path
    prefix: str
    suffix: str = ""
    split: str | None = None
    count: int | None = None
    shards: Mapping[int, Path]
    duplicates: Mapping[int, tuple[Path, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.shards:
            raise ValueError("a shard set has at least one shard")
        if min(self.shards) < 0 or (self.count is not None and self.count < 0):
            raise ValueError("the numbers of shards are at least 0")
        if self.count is None and set(self.shards) != {0}:
            raise ValueError("a file without a number is a set of its own, and number 0")
        if not set(self.duplicates) <= set(self.shards):
            raise ValueError("duplicates stand beside a shard")

    @property
    def name(self) -> str:
        """What the set is called in messages: ``train-*-of-00008``, or the file's name."""
        if self.count is None:
            return self.prefix
        of, count = self._ending
        return f"{self.prefix}*{of}{count}{self.suffix}"

    def split_below(self, root: Path) -> str | None:
        """Return its split: that of the names, or else of a folder in a dataset's directory."""
        if self.split is None and self.directory != root:
            return self.directory.name.removeprefix(_TFX_FOLDER)
        return self.split

    @property
    def paths(self) -> tuple[Path, ...]:
        """All files of the set in the order of their numbers, duplicates included."""
        return tuple(
            path
            for index, shard in self.shards.items()
            for path in (shard, *self.duplicates.get(index, ()))
        )

    @property
    def extra(self) -> tuple[Path, ...]:
        """The files whose number is too high for the count: ``train-00009-of-00008``."""
        if self.count is None:
            return ()
        return tuple(path for index, path in self.shards.items() if index >= self.count)

    @property
    def n_missing(self) -> int:
        """How many shards the names say that there are, and there are not."""
        if self.count is None:
            return 0
        return self.count - sum(index < self.count for index in self.shards)

    @property
    def missing_indices(self) -> tuple[int, ...]:
        """The numbers of the shards that are missing, the first `MISSING_NAMED` of them."""
        absent = (index for index in range(self.count or 0) if index not in self.shards)
        return tuple(islice(absent, MISSING_NAMED if self.n_missing else 0))

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of the files that are missing, the first `MISSING_NAMED` of them."""
        return tuple(self.file_name(index) for index in self.missing_indices)

    def file_name(self, index: int) -> str:
        """Return the name that the shard of this number has, or would have."""
        if self.count is None:
            return self.prefix
        if index in self.shards:
            return self.shards[index].name
        match = self._match
        padded = match["index"].startswith("0") or len(match["index"]) == len(match["count"])
        width = len(match["index"]) if padded else 1
        of, count = self._ending
        return f"{self.prefix}{index:0{width}}{of}{count}{self.suffix}"

    @property
    def _match(self) -> re.Match[str]:
        match = _NUMBERED.fullmatch(next(iter(self.shards.values())).name)
        if match is None:
            raise ValueError("the shards of a set with a count have numbers in their names")
        return match

    @property
    def _ending(self) -> tuple[str, str]:
        return self._match["of"], self._match["count"]


def group_shards(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
) -> tuple[ShardSet, ...]:
    """Group files into the sets that their names say, in the order in which they first come.

    Files belong together if they are in one folder and their names differ in the number alone; a
    compression's ending (``.gz``) makes no difference. ``train-00000-of-00002`` and
    ``train-00000-of-00004`` are of two sets: `find_rivals` tells that both can't be meant.
    """
    groups: dict[tuple[Path, str, int | None, str], list[tuple[int, Path, str]]] = {}
    for path in dict.fromkeys(as_paths(paths)):
        match = _NUMBERED.fullmatch(path.name)
        if match is None:
            groups.setdefault((path.parent, path.name, None, ""), []).append((0, path, ""))
            continue
        suffix = match["suffix"]
        key = (path.parent, match["prefix"], int(match["count"]), COMPRESSED_NAME.sub("", suffix))
        groups.setdefault(key, []).append((int(match["index"]), path, suffix))
    return tuple(
        _shard_set(directory, prefix, count, members)
        for (directory, prefix, count, _), members in groups.items()
    )


def _shard_set(
    directory: Path, prefix: str, count: int | None, members: list[tuple[int, Path, str]]
) -> ShardSet:
    members = sorted(members, key=lambda member: (member[0], member[1].name))
    shards: dict[int, Path] = {}
    duplicates: dict[int, tuple[Path, ...]] = {}
    for index, path, _ in members:
        if index in shards:
            duplicates[index] = (*duplicates.get(index, ()), path)
        else:
            shards[index] = path
    return ShardSet(
        directory=directory,
        prefix=prefix,
        suffix=members[0][2],
        split=_split(directory, prefix),
        count=count,
        shards=shards,
        duplicates=duplicates,
    )


def find_rivals(sets: Iterable[ShardSet]) -> tuple[tuple[ShardSet, ...], ...]:
    """Return the sets that can't all be meant: alike in all but their counts.

    An earlier write with another number of shards leaves such files behind, and a glob takes both.
    """
    groups: dict[tuple[Path, str, str], list[ShardSet]] = {}
    for one in sets:
        if one.count is not None:
            key = (one.directory, one.prefix, COMPRESSED_NAME.sub("", one.suffix))
            groups.setdefault(key, []).append(one)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)


def _split(directory: Path, prefix: str) -> str | None:
    match = _TFDS.fullmatch(prefix)
    if match is not None:
        return match["split"]
    folder = directory.name
    if folder.startswith(_TFX_FOLDER) and len(folder) > len(_TFX_FOLDER):
        return folder.removeprefix(_TFX_FOLDER)
    words = [word for word in re.split(r"[-_.]", prefix) if word.lower() in _SPLITS]
    if len(words) == 1:
        return words[0]
    return folder if not words and folder.lower() in _SPLITS else None
