"""Planning: which record goes into which shard of which split, fixed by keys and a seed."""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from tfrtool.errors import WriteError
from tfrtool.images.recipe import ImageRecipe
from tfrtool.records.compression import Compression
from tfrtool.records.shard_sets import ShardName
from tfrtool.sources.items import Item, ItemReader, Source
from tfrtool.writing.cuts import Cut
from tfrtool.writing.scan.image_audit import Audit
from tfrtool.writing.write_options import SplitShare, WriteOptions

_FORMAT = 1
"""To be counted up when the same task is to give other bytes than before."""

_UNSPLIT = (SplitShare(name="train", fraction=1.0),)


@dataclass(frozen=True, kw_only=True)
class ShardTask:
    """All that is needed to write one shard, wherever it is done; it can be pickled.

    Attributes:
        name: the shard's name.
        path: the file to write.
        compression: of that file.
        items: its records, in order.
        positions: theirs in the source, which has them in the order of their keys.
        digests: of the bytes of each item, as they were when they were looked at; None where
            nobody has looked at any of them, and that is to be done on the way.
        convert: the places in the shard of those whose bytes can't be kept as they are.
        labels: the number of each class, in order.
        reader: reads the items.
        recipe: how images are encoded.
    """

    name: ShardName
    path: Path
    compression: Compression
    items: tuple[Item, ...]
    positions: Sequence[int]
    digests: Sequence[int] | None
    convert: frozenset[int]
    labels: Mapping[str, int]
    reader: ItemReader
    recipe: ImageRecipe

    @cached_property
    def fingerprint(self) -> str:
        """A digest of all that the shard's bytes depend on, if its items have been looked at."""
        if self.digests is None:
            raise ValueError("what the images hold is not known")
        digest = hashlib.blake2b(digest_size=16)
        facts = (_FORMAT, self.compression.value, self.recipe, tuple(self.labels))
        digest.update(repr(facts).encode("utf-8", "surrogateescape"))
        for place, (item, content) in enumerate(zip(self.items, self.digests, strict=True)):
            about = (item.key, item.label, content, place in self.convert)
            digest.update(repr(about).encode("utf-8", "surrogateescape"))
        return digest.hexdigest()

    def seen(self, shard: Audit) -> ShardTask:
        """Return the task as it would have been if its items had been looked at before."""
        return replace(self, digests=shard.digests, convert=frozenset(shard.converted))

    def result(self, *, bytes: int, payload_bytes: int, sha256: str) -> ShardResult:  # noqa: A002
        """Return what became of the shard, all of whose records are written."""
        labels = Counter(item.label for item in self.items)
        return ShardResult(
            name=self.name,
            records=len(self.items),
            bytes=bytes,
            payload_bytes=payload_bytes,
            sha256=sha256,
            labels=dict(sorted(labels.items())),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardResult:
    """What became of a shard, or would become of it.

    Attributes:
        name: the shard's name.
        records: how many records it has.
        bytes: the file's size.
        payload_bytes: the payloads' size, without frames and before compression.
        sha256: the file's digest, in hexadecimal; empty where it is only planned.
        labels: how many records of each class.
        audit: what was found of the items, where the task said that they are to be looked at.
    """

    name: ShardName
    records: int
    bytes: int
    payload_bytes: int
    sha256: str
    labels: Mapping[str, int]
    audit: Audit | None = None


class BadImage(Exception):  # noqa: N818 - it never leaves this room
    """An image that nobody had looked at before can't be written.

    Attributes:
        name: the name of its shard.
        audit: what was found of the shard's items up to that one.
    """

    def __init__(self, name: ShardName, audit: Audit) -> None:
        super().__init__(name, audit)
        self.name = name
        self.audit = audit


def plan_shards(
    source: Source, audit: Audit, options: WriteOptions, directory: Path, cut: Cut
) -> list[ShardTask]:
    """Distribute the items that passed the audit over splits and shards in a directory.

    The plan depends on the keys, sizes and contents of the items, the options and the seed, and on
    nothing else. Exact copies go where the one of them with the smallest key goes; but where the
    source itself has splits, it is not contradicted.

    Raises:
        WriteError: a split would get no image.
        UsageError: a split would get fewer images than shards.
    """
    if source.splits:
        by_split = _by_source(source, audit.good)
    else:
        shares = options.splits or _UNSPLIT
        by_split = {share.name: [] for share in shares}
        split_of = splitter(shares, options.seed)
        for position in audit.good:
            by_split[split_of(source.items[audit.leaders[position]].key)].append(position)
    return _tasks(source, by_split, options, directory, cut, audit)


def plan_unseen(
    source: Source, options: WriteOptions, directory: Path, cut: Cut
) -> list[ShardTask] | None:
    """Distribute all items over shards before anybody has looked at them.

    If all of them turn out to be good, it is the plan that `plan_shards` would have made. That is
    not known where copies of images are to be kept out of different splits, or left out; then
    there is none.
    """
    everything = list(range(len(source.items)))
    if options.dedupe or (len(options.splits) > 1 and not source.splits):
        return None
    name = (options.splits or _UNSPLIT)[0].name
    by_split = _by_source(source, everything) if source.splits else {name: everything}
    return _tasks(source, by_split, options, directory, cut, None)


def plan_digest(tasks: Iterable[ShardTask], version: str) -> str:
    """Return a digest of all that the files of a dataset of some version depend on."""
    facts = (version, sorted((str(task.name), task.fingerprint) for task in tasks))
    return hashlib.blake2b(repr(facts).encode(), digest_size=16).hexdigest()


def _tasks(
    source: Source,
    by_split: Mapping[str, list[int]],
    options: WriteOptions,
    directory: Path,
    cut: Cut,
    audit: Audit | None,
) -> list[ShardTask]:
    """Return tasks for the positions of items of each split."""
    items, tasks = source.items, []
    numbers = {label: number for number, label in enumerate(source.labels)}
    order: Callable[[str], Any] = _hasher("order", options.seed) if options.shuffle else str
    converted = audit.converted if audit is not None else {}
    for split, members in by_split.items():
        if not members:
            raise WriteError(
                f"split {split!r} would get none of the images",
                hint="give it a larger fraction, or another seed",
            )
        members.sort(key=lambda position: order(items[position].key))
        bounds = cut(split, members)
        for index, (start, end) in enumerate(pairwise(bounds)):
            name = ShardName(dataset=options.name, split=split, index=index, count=len(bounds) - 1)
            positions = array("Q", members[start:end])
            digests = array("Q", map(audit.digests.__getitem__, positions)) if audit else None
            places = (place for place, at in enumerate(positions) if at in converted)
            task = ShardTask(
                name=name,
                path=directory / str(name),
                compression=options.compression,
                items=tuple(map(items.__getitem__, positions)),
                positions=positions,
                digests=digests,
                convert=frozenset(places),
                labels=numbers,
                reader=source.reader,
                recipe=options.recipe,
            )
            tasks.append(task)
    return tasks


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
