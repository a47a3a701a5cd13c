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
            such as a compressed copy.
    """

    directory: Path
    prefix: str
    suffix: str = ""
    split: str | None = None
    count: int | None = None
    shards: Mapping[int, Path]
    duplicates: Mapping[int, tuple[Path, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.shards or (self.count is None and set(self.shards) != {0}):
            raise ValueError("a set has at least one shard; a file without a number is number 0")
        if min(self.shards) < 0 or (self.count or 0) < 0:
            raise ValueError("the numbers of shards are at least 0")
        if not set(self.duplicates) <= set(self.shards):
            raise ValueError("duplicates stand beside a shard")

    @property
    def name(self) -> str:
        """What the set is called in messages: ``train-*-of-00008``, or the file's name."""
        return self.prefix if self.count is None else self._named("*")

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
        count = self.count
        return tuple(p for index, p in self.shards.items() if count is not None and index >= count)

    @property
    def n_missing(self) -> int:
        """How many shards the names say that there are, and there are not."""
        return 0 if self.count is None else self.count - len(self.shards) + len(self.extra)

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of the files that are missing, the first `MISSING_NAMED` of them."""
        numbers = range(self.count or 0) if self.n_missing else ()
        absent = (index for index in numbers if index not in self.shards)
        return tuple(self.file_name(index) for index in islice(absent, MISSING_NAMED))

    def file_name(self, index: int) -> str:
        """Return the name that the shard of this number has, or would have."""
        if self.count is None:
            return self.prefix
        if index in self.shards:
            return self.shards[index].name
        match = self._match
        padded = match["index"].startswith("0") or len(match["index"]) == len(match["count"])
        return self._named(f"{index:0{len(match['index']) if padded else 1}}")

    def _named(self, number: str) -> str:
        return f"{self.prefix}{number}{self._match['of']}{self._match['count']}{self.suffix}"

    @property
    def _match(self) -> re.Match[str]:
        match = _NUMBERED.fullmatch(next(iter(self.shards.values())).name)
        if match is None:
            raise ValueError("the shards of a set with a count have numbers in their names")
        return match


def group_shards(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
) -> tuple[ShardSet, ...]:
    """Group files into the sets that their names say, in the order in which they first come.

    Files belong together if they are in one folder and their names differ in the number alone; a
    compression's ending (``.gz``) makes no difference. ``train-00000-of-00002`` and
    ``train-00000-of-00004`` are of two sets: `find_conflicts` tells that both can't be meant.
    """
    groups: dict[tuple[Path, str, int | None, str], list[tuple[int, str, Path, str]]] = {}
    for path in dict.fromkeys(as_paths(paths)):
        match = _NUMBERED.fullmatch(path.name)
        if match is None:
            groups.setdefault((path.parent, path.name, None, ""), []).append((0, "", path, ""))
            continue
        suffix = match["suffix"]
        key = (path.parent, match["prefix"], int(match["count"]), COMPRESSED_NAME.sub("", suffix))
        groups.setdefault(key, []).append((int(match["index"]), path.name, path, suffix))
    sets = []
    for (directory, prefix, count, _), members in groups.items():
        members.sort()
        shards: dict[int, Path] = {}
        duplicates: dict[int, tuple[Path, ...]] = {}
        for index, _, path, _ in members:
            if shards.setdefault(index, path) is not path:
                duplicates[index] = (*duplicates.get(index, ()), path)
        sets.append(
            ShardSet(
                directory=directory,
                prefix=prefix,
                suffix=members[0][3],
                split=_split(directory, prefix),
                count=count,
                shards=shards,
                duplicates=duplicates,
            )
        )
    return tuple(sets)


def find_conflicts(sets: Iterable[ShardSet]) -> tuple[tuple[ShardSet, ...], ...]:
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
