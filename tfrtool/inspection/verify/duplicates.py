"""The same image in more than one record: within a split, in two splits, under two labels."""

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from tfrtool.errors import ShardError
from tfrtool.examples.content import decode_text
from tfrtool.examples.example import PayloadKind, decode_example
from tfrtool.examples.roles import LabelNames
from tfrtool.inspection.verify.image_check import FINGERPRINT, ImageFindings
from tfrtool.records.compression import Compression, detect_compression
from tfrtool.records.framing import Record
from tfrtool.records.reader import read_records, read_shard
from tfrtool.records.stream import Stream, folder_of, open_shard, path_of
from tfrtool.storage.opening import size_of_file

GROUPS_KEPT = 1000  # groups that are told of each sort; all are counted
COPIES_KEPT = 100  # copies that are told of one group: a black frame may be there a million times
_UNLABELLED = bytes(8)

ImageShard = tuple[Path | Stream, str | None, ImageFindings]
"""A shard, or a stream that was kept; its split, if that is known; and what its images are."""

_Entry = tuple[bytes, bytes, int, int, int]  # image digest, label digest, shard, record, offset
_Place = tuple[int, int, int]  # shard, record, offset

_FETCHED = 64 * 1024
"""Bytes that are read at least to see one record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A record with an image that others have, too; what isn't known of it is None."""

    path: Path
    split: str | None
    record: int
    name: str | None
    label: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateGroup:
    """Records with one and the same image, byte for byte."""

    count: int
    across_splits: bool  # whether they are in several splits: what is tested was trained on
    across_labels: bool  # whether their labels contradict each other
    copies: tuple[Copy, ...]  # at least two; the first `COPIES_KEPT`, and of each split and label

    @property
    def is_fault(self) -> bool:
        """Whether it spoils a result, rather than only weighing an image twice."""
        return self.across_splits or self.across_labels


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicates:
    """All images that are there more than once, and how many groups there are of each sort."""

    groups: tuple[DuplicateGroup, ...] = ()  # faults first; the first `GROUPS_KEPT` of either sort
    spoiled: int = 0  # across splits or labels
    across_splits: int = 0
    across_labels: int = 0
    within: int = 0  # in one split, with one label


def find_duplicates(shards: Sequence[ImageShard]) -> Duplicates:
    """Find the images that are in more than one record.

    Sorted fingerprints of all shards are merged, so that nothing beyond them is held. The records
    that are found are then read again, for names and labels.
    """
    counts = Counter[str]()
    kept: dict[bool, list[tuple[int, bool, bool, list[_Place]]]] = {True: [], False: []}
    wanted: dict[int, dict[int, int]] = {}
    splits = [split for _, split, _ in shards]
    merged = heapq.merge(*(_entries(number, found) for number, (_, _, found) in enumerate(shards)))
    for _, entries in groupby(merged, key=itemgetter(0)):
        count, across_splits, across_labels, places = _group(entries, splits)
        if count == 1:
            continue
        spoiled = across_splits or across_labels
        counts["spoiled" if spoiled else "within"] += 1
        counts["across_splits"] += across_splits
        counts["across_labels"] += across_labels
        if len(kept[spoiled]) < GROUPS_KEPT:
            kept[spoiled].append((count, across_splits, across_labels, sorted(places)))
            for shard, record, offset in places:
                wanted.setdefault(shard, {})[record] = offset
    copies = {
        (shard, copy.record): copy
        for shard, records in wanted.items()
        for copy in _copies(shards[shard], records)
    }
    groups = tuple(
        DuplicateGroup(
            count=count,
            across_splits=across_splits,
            across_labels=across_labels,
            copies=tuple(copies[place[:2]] for place in places),
        )
        for count, across_splits, across_labels, places in kept[True] + kept[False]
    )
    return Duplicates(groups=groups, **counts)


def _entries(number: int, found: ImageFindings) -> Iterator[_Entry]:
    before = None
    for digest, label, record, offset in FINGERPRINT.iter_unpack(found.fingerprints):
        # A record that lists one image twice is no copy of itself.
        if before != (digest, record):
            yield digest, label, number, record, offset
        before = digest, record


def _group(
    entries: Iterator[_Entry], splits: Sequence[str | None]
) -> tuple[int, bool, bool, list[_Place]]:
    """Keep the first copies of a group, and the first of each split and label in any case."""
    kept: list[_Place] = []
    known: set[tuple[str | None, bytes]] = set()
    count = 0
    for _, label, shard, record, offset in entries:
        count += 1
        sort = splits[shard], label
        if len(kept) < COPIES_KEPT or (sort not in known and len(known) < COPIES_KEPT):
            known.add(sort)
            kept.append((shard, record, offset))
    across_splits = len({split for split, _ in known} - {None}) > 1
    return count, across_splits, len({label for _, label in known} - {_UNLABELLED}) > 1, kept


def _copies(shard: ImageShard, wanted: Mapping[int, int]) -> Iterator[Copy]:
    """Read what records of a shard, given with their offsets, say of their images."""
    source, split, found = shard
    path, left = path_of(source), set(wanted)
    names = LabelNames.beside(folder_of(source), found.roles.label)
    # A file that has gone by now was there before: its copies lack their names, no more.
    with suppress(ShardError):
        for index, payload in _payloads(source, wanted):
            example = decode_example(payload, PayloadKind.SEQUENCE_EXAMPLE)
            name = next(iter(example.values(found.roles.name)), None)
            yield Copy(
                path=path,
                split=split,
                record=index,
                name=decode_text(name) if isinstance(name, bytes) else None,
                label=names.text(example.values(found.roles.label)),
            )
            left.remove(index)
    for record in left:
        yield Copy(path=path, split=split, record=record, name=None, label=None)


def _payloads(source: Path | Stream, wanted: Mapping[int, int]) -> Iterator[tuple[int, bytes]]:
    """Yield records by their offsets, or by reading all up to the last where that is less work."""
    if isinstance(source, Path):
        with open_shard(source) as file:
            plain = detect_compression(file) is Compression.NONE
            if plain and len(wanted) * _FETCHED < size_of_file(file):
                for index, offset in sorted(wanted.items()):
                    file.seek(offset)
                    item = next(read_records(file, compression=Compression.NONE), None)
                    if isinstance(item, Record):
                        yield index, item.payload
                return
    left = len(wanted)
    for item in read_shard(source):
        if isinstance(item, Record) and item.index in wanted:
            yield item.index, item.payload
            left -= 1
            if not left:
                return
