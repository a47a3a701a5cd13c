"""Planning: which record goes into which shard of which split, fixed by keys and a seed."""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path

from tfrtool.errors import WriteError
from tfrtool.images.recipe import ImageRecipe
from tfrtool.records.compression import Compression
from tfrtool.records.names import ShardName
from tfrtool.sources.items import Item, ItemReader, Source
from tfrtool.writing.cuts import Cut
from tfrtool.writing.scan.findings import Audit, ShardFindings
from tfrtool.writing.write_options import SplitShare, WriteOptions

__all__ = [
    "ShardResult",
    "ShardTask",
    "plan_digest",
    "plan_shards",
    "plan_unseen",
    "splitter",
    "with_fingerprint",
]

_FORMAT = 1
"""To be counted up when the same task is to give other bytes than before."""

_UNSPLIT = (SplitShare(name="train", fraction=1.0),)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardTask:
    """All that is needed to write one shard, wherever it is done; it can be pickled.

    Attributes:
        name: the shard's name.
        path: the file to write.
        compression: of that file.
        items: its records, in order.
        positions: theirs in the source, which has them in the order of their keys.
        convert: the places in the shard of those whose bytes can't be kept as they are; None where
            nobody has looked at any of them, and that is to be done on the way.
        digests: of the bytes of each item, as they were when they were looked at.
        labels: the number of each class.
        reader: reads the items.
        recipe: how images are encoded.
        fingerprint: a digest of everything that the shard's bytes depend on; empty where nobody
            has looked at the items.
    """

    name: ShardName
    path: Path
    compression: Compression
    items: tuple[Item, ...]
    positions: Sequence[int]
    convert: frozenset[int] | None
    digests: Sequence[int]
    labels: Mapping[str, int]
    reader: ItemReader
    recipe: ImageRecipe
    fingerprint: str


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
        findings: of the items, where the task said that they are to be looked at.
    """

    name: ShardName
    records: int
    bytes: int
    payload_bytes: int
    sha256: str
    labels: Mapping[str, int]
    findings: ShardFindings | None = None


def plan_shards(
    source: Source, audit: Audit, options: WriteOptions, directory: Path, cut: Cut
) -> tuple[ShardTask, ...]:
    """Distribute the items that passed the audit over splits and shards.

    The plan depends on the keys, sizes and contents of the items, the options and the seed, and on
    nothing else.

    Args:
        source: where the items are from.
        audit: which of them are written, and which of these are copies of each other.
        options: splits, seed, order.
        directory: where the shards are to be written.
        cut: where one shard ends and the next starts.

    Raises:
        WriteError: a split would get no image.
        UsageError: a split would get fewer images than shards.
    """
    tasks = []
    for task in _tasks(source, _by_split(source, audit, options), options, directory, cut):
        convert = frozenset(
            place for place, position in enumerate(task.positions) if position in audit.converted
        )
        digests = array("Q", (audit.digests[position] for position in task.positions))
        looked_at = replace(task, convert=convert, digests=digests)
        tasks.append(with_fingerprint(looked_at, digests, convert, source, options))
    return tuple(tasks)


def plan_unseen(
    source: Source, options: WriteOptions, directory: Path, cut: Cut
) -> tuple[ShardTask, ...] | None:
    """Distribute all items over shards before anybody has looked at them.

    If all of them turn out to be good, it is the plan that `plan_shards` would have made. That is
    not known where copies of images are to be kept out of different splits, or left out.

    Returns:
        Tasks to look at the items on the way; None where that won't do.

    Raises:
        UsageError: a split would get fewer images than shards.
    """
    if options.dedupe:
        return None
    if source.splits:
        by_split = _by_source(source, range(len(source.items)))
    elif len(shares := options.splits or _UNSPLIT) == 1:
        by_split = {shares[0].name: list(range(len(source.items)))}
    else:
        return None
    return tuple(_tasks(source, by_split, options, directory, cut))


def with_fingerprint(
    task: ShardTask,
    digests: Sequence[int],
    convert: Container[int],
    source: Source,
    options: WriteOptions,
) -> ShardTask:
    """Return a task with its fingerprint: what its bytes depend on, contents of images included.

    Args:
        task: without one.
        digests: of its items.
        convert: the places of those whose bytes are not kept.
        source: where the items are from.
        options: how they are written.
    """
    digest = hashlib.blake2b(digest_size=16)
    facts = (_FORMAT, options.compression.value, options.recipe, source.labels)
    digest.update(repr(facts).encode("utf-8", "surrogateescape"))
    for place, (item, content) in enumerate(zip(task.items, digests, strict=True)):
        about = (item.key, item.label, content, place in convert)
        digest.update(repr(about).encode("utf-8", "surrogateescape"))
    return replace(task, fingerprint=digest.hexdigest())


def plan_digest(tasks: Iterable[ShardTask], version: str) -> str:
    """Return a digest of all that a dataset's files depend on.

    Args:
        tasks: its shards, with their fingerprints, in any order.
        version: the dataset's version.
    """
    facts = (version, sorted((str(task.name), task.fingerprint) for task in tasks))
    return hashlib.blake2b(repr(facts).encode(), digest_size=16).hexdigest()


def _tasks(
    source: Source,
    by_split: Mapping[str, list[int]],
    options: WriteOptions,
    directory: Path,
    cut: Cut,
) -> Iterator[ShardTask]:
    """Yield tasks for the positions of items of each split, without any finding."""
    items = source.items
    numbers = {label: number for number, label in enumerate(source.labels)}
    for split, members in by_split.items():
        if not members:
            raise WriteError(
                f"split {split!r} would get none of the images",
                hint="give it a larger fraction, or another seed",
            )
        if options.shuffle:
            order = _hasher("order", options.seed)
            members.sort(key=lambda position: order(items[position].key))
        else:
            members.sort(key=lambda position: items[position].key)
        bounds = cut(split, members)
        for index, (start, end) in enumerate(pairwise(bounds)):
            name = ShardName(dataset=options.name, split=split, index=index, count=len(bounds) - 1)
            yield ShardTask(
                name=name,
                path=directory / str(name),
                compression=options.compression,
                items=tuple(items[position] for position in members[start:end]),
                positions=array("Q", members[start:end]),
                convert=None,
                digests=(),
                labels=numbers,
                reader=source.reader,
                recipe=options.recipe,
                fingerprint="",
            )


def _by_split(source: Source, audit: Audit, options: WriteOptions) -> dict[str, list[int]]:
    """Return the positions of the items of each split.

    Exact copies go where the one of them with the smallest key goes. Where the source itself has
    splits, it is not contradicted.
    """
    if source.splits:
        return _by_source(source, audit.good)
    shares = options.splits or _UNSPLIT
    by_split: dict[str, list[int]] = {share.name: [] for share in shares}
    split_of = splitter(shares, options.seed)
    for position in audit.good:
        leader = source.items[audit.leaders[position]]
        by_split[split_of(leader.key)].append(position)
    return by_split


def _by_source(source: Source, positions: Iterable[int]) -> dict[str, list[int]]:
    """Return the positions of items by the splits that the source itself has."""
    by_split: dict[str, list[int]] = {split: [] for split in source.splits}
    for position in positions:
        by_split[source.items[position].split or source.splits[0]].append(position)
    return {split: members for split, members in by_split.items() if members}


def splitter(splits: Sequence[SplitShare], seed: int) -> Callable[[str], str]:
    """Return what tells the name of the split that a key belongs to.

    The key and the seed alone decide, so that an image that is added moves no other into another
    split. Each key is a draw of its own, even over the fractions for names of any kind: n images
    give a split n * fraction, with a standard deviation of sqrt(n * fraction * (1 - fraction)).
    """
    digest = _hasher("splits", seed)
    ends = list(accumulate(share.fraction for share in splits[:-1]))

    def split_of(key: str) -> str:
        place = int.from_bytes(digest(key), "big") / 2**64
        return splits[bisect_right(ends, place)].name

    return split_of


def _hasher(purpose: str, seed: int) -> Callable[[str], bytes]:
    """Return what makes 8 bytes of a key that look random, and are the same on every machine."""
    start = hashlib.blake2b(
        digest_size=8, key=seed.to_bytes(8, "little", signed=True), person=purpose.encode()
    )

    def digest(key: str) -> bytes:
        state = start.copy()
        state.update(key.encode("utf-8", "surrogateescape"))
        return state.digest()

    return digest
