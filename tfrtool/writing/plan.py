"""Planning: which record goes into which shard of which split, fixed by keys and a seed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

from tfrtool.errors import UsageError, WriteError
from tfrtool.records.compression import Compression
from tfrtool.records.names import ShardName
from tfrtool.sources.items import Item
from tfrtool.writing.options import SplitShare, WriteOptions

__all__ = ["PlannedItem", "ShardResult", "ShardTask", "plan_shards", "shard_boundaries", "split_of"]

_GOLDEN = 0x9E3779B97F4A7C15
"""2**64 divided by the golden ratio, made odd."""

_LAST_NUMBER = re.compile(r"(?P<before>.*?)(?P<number>[0-9]{1,18})(?P<after>[^0-9]*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedItem:
    """An item that passed the audit.

    Attributes:
        item: the item.
        conversion: why its bytes are to be encoded anew; None keeps them.
    """

    item: Item
    conversion: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardTask:
    """All that is needed to write one shard, wherever it is done.

    Attributes:
        name: the shard's name.
        path: the file to write.
        compression: of that file.
        items: its records, in order.
        labels: the number of each class.
    """

    name: ShardName
    path: Path
    compression: Compression
    items: tuple[PlannedItem, ...]
    labels: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardResult:
    """What became of a shard.

    Attributes:
        name: the shard's name.
        records: how many records it has.
        bytes: the file's size.
        payload_bytes: the payloads' size, without frames and before compression.
        sha256: the file's digest, in hexadecimal.
        labels: how many records of each class.
    """

    name: ShardName
    records: int
    bytes: int
    payload_bytes: int
    sha256: str
    labels: Mapping[str, int]


def plan_shards(
    items: Sequence[PlannedItem], labels: Sequence[str], options: WriteOptions, directory: Path
) -> tuple[ShardTask, ...]:
    """Distribute items over splits and shards.

    The plan depends on the keys, their sizes, the options and the seed, and on nothing else.

    Args:
        items: what is to be written, in any order.
        labels: the class names, in the order of their numbers.
        options: splits, number or size of shards, seed, order.
        directory: where the shards are to be written.

    Raises:
        WriteError: a split would get no image.
        UsageError: a split would get fewer images than shards.
    """
    numbers = {label: number for number, label in enumerate(labels)}
    tasks: list[ShardTask] = []
    by_split: dict[str, list[PlannedItem]] = {share.name: [] for share in options.splits}
    for planned in items:
        by_split[split_of(planned.item.key, options.splits, options.seed)].append(planned)
    for share in options.splits:
        members = by_split[share.name]
        if not members:
            raise WriteError(
                f"split {share.name!r} would get none of the {len(items)} images",
                hint="give it a larger fraction, or another seed",
            )
        if options.shuffle:
            members.sort(key=lambda planned: _hash("order", options.seed, planned.item.key))
        else:
            members.sort(key=lambda planned: planned.item.key)
        bounds = shard_boundaries(len(members), _shard_count(share, members, options))
        for index, (start, end) in enumerate(pairwise(bounds)):
            name = ShardName(
                dataset=options.name, split=share.name, index=index, count=len(bounds) - 1
            )
            tasks.append(
                ShardTask(
                    name=name,
                    path=directory / str(name),
                    compression=options.compression,
                    items=tuple(members[start:end]),
                    labels=numbers,
                )
            )
    return tuple(tasks)


def split_of(key: str, splits: Sequence[SplitShare], seed: int) -> str:
    """Return the name of the split that a key belongs to.

    The key and the seed alone decide, so that an image that is added moves no other into another
    split. Each key has a place on a circle that the fractions divide. Chance alone would miss
    the fractions by much where images are few: of 200, a fifth would be 29 to 51. So only what
    a series of files has in common, such as ``cat/cat-`` and ``.jpg``, is hashed, and its
    numbers step around the circle by the golden ratio, which spreads any run of them evenly
    (Knuth, The Art of Computer Programming, volume 3, section 6.4, theorem S). A class is
    therefore shared out by the fractions to within an image or two, if its files are numbered.
    """
    before, number, after = _series(key)
    start = int.from_bytes(_hash("split", seed, f"{before}\0{after}"), "big")
    position = (start + number * _GOLDEN) % 2**64 / 2**64
    for share, end in zip(splits, accumulate(share.fraction for share in splits), strict=True):
        if position < end:
            return share.name
    return splits[-1].name


def _series(key: str) -> tuple[str, int, str]:
    """Return a key's last number, and what stands before and after it; 0 where it has none."""
    match = _LAST_NUMBER.fullmatch(key)
    if match is None:
        return key, 0, ""
    return match["before"], int(match["number"]), match["after"]


def shard_boundaries(records: int, shards: int) -> list[int]:
    """Return where each shard starts, and the end: ``round(records * i / shards)``, as in TFDS."""
    return [round(records * index / shards) for index in range(shards + 1)]


def _shard_count(share: SplitShare, members: Sequence[PlannedItem], options: WriteOptions) -> int:
    if options.shards is None:
        size = sum(planned.item.bytes for planned in members)
        return min(max(-(-size // options.shard_bytes), 1), len(members))
    if options.shards > len(members):
        raise UsageError(
            f"split {share.name!r} has too few images for its shards",
            expected=f"at most {len(members)} shards",
            found=options.shards,
        )
    return options.shards


def _hash(purpose: str, seed: int, key: str) -> bytes:
    """Return 8 bytes that look random, and are the same on every machine."""
    return hashlib.blake2b(
        key.encode("utf-8", "surrogateescape"),
        digest_size=8,
        key=seed.to_bytes(8, "little", signed=True),
        person=purpose.encode(),
    ).digest()
