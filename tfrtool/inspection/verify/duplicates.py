"""The same image in more than one record: within a split, in two splits, under two labels."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path

from tfrtool.engines.processes import map_shards
from tfrtool.errors import ShardError
from tfrtool.examples.content import decode_text
from tfrtool.examples.example import PayloadKind, Value, decode_example
from tfrtool.examples.roles import LabelNames, Roles
from tfrtool.inspection.verify.image_check import FINGERPRINT
from tfrtool.records.framing import Record
from tfrtool.records.reader import read_records
from tfrtool.records.stream import Stream, folder_of, open_shard, path_of

__all__ = ["Copy", "DuplicateGroup", "Duplicates", "ImageShard", "find_duplicates"]

GROUPS_KEPT = 1000
"""Groups that are told of each sort; all are counted."""

COPIES_KEPT = 100
"""Copies that are told of one group: a black frame may be there a million times."""


_UNLABELLED = bytes(8)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageShard:
    """A shard whose images are compared with those of others.

    Attributes:
        source: where it is, or a stream that was kept.
        split: its split; None where that isn't known.
        roles: its image, label and name features.
        fingerprints: of its images, sorted (`ImageFindings.fingerprints`).
    """

    source: Path | Stream
    split: str | None
    roles: Roles
    fingerprints: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A record with an image that others have, too.

    Attributes:
        path: its shard.
        split: the shard's split; None where that isn't known.
        record: its index in the shard.
        name: what the record calls the image; None if nothing.
        label: its class, by name if names are known; None if it has none.
    """

    path: Path
    split: str | None
    record: int
    name: str | None = None
    label: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateGroup:
    """Records with one and the same image, byte for byte.

    Attributes:
        copies: the records, at least two; the first `COPIES_KEPT` of each split and label.
        n_copies: how many there are in all.
        across_splits: whether they are in more than one split: what is tested was trained on.
        across_labels: whether their labels contradict each other.
    """

    copies: tuple[Copy, ...]
    n_copies: int
    across_splits: bool
    across_labels: bool

    def __post_init__(self) -> None:
        if not 2 <= len(self.copies) <= self.n_copies:
            raise ValueError("a group of duplicates has at least two copies")

    @property
    def is_fault(self) -> bool:
        """Whether it spoils a result, rather than only weighing an image twice."""
        return self.across_splits or self.across_labels


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicates:
    """All images that are there more than once.

    Attributes:
        groups: those across splits or labels first; the first `GROUPS_KEPT` of either sort.
        spoiled: how many groups are across splits or labels.
        across_splits: how many groups are in more than one split.
        across_labels: how many groups have contradicting labels.
        within: how many groups are in one split, with one label.
        spare: how many records are in `within` beyond the first of each group.
    """

    groups: tuple[DuplicateGroup, ...] = ()
    spoiled: int = 0
    across_splits: int = 0
    across_labels: int = 0
    within: int = 0
    spare: int = 0


_Entry = tuple[bytes, bytes, int, int]  # image digest, label digest, shard, record


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    kept: list[_Entry]
    size: int
    across_splits: bool
    across_labels: bool


def find_duplicates(shards: Sequence[ImageShard], workers: int = 1) -> Duplicates:
    """Find the images that are in more than one record.

    Sorted fingerprints of all shards are merged, so that nothing beyond them is held. The shards
    of what is found are then read again, for names and labels.
    """
    bad: list[_Group] = []
    good: list[_Group] = []
    spoiled = across_splits = across_labels = within = spare = 0
    merged = heapq.merge(*(_entries(number, shard) for number, shard in enumerate(shards)))
    for _, entries in groupby(merged, key=lambda entry: entry[0]):
        group = _sample(entries, shards)
        if group.size == 1:
            continue
        if not group.across_splits and not group.across_labels:
            within += 1
            spare += group.size - 1
            good += [group] if len(good) < GROUPS_KEPT else []
            continue
        spoiled += 1
        across_splits += group.across_splits
        across_labels += group.across_labels
        bad += [group] if len(bad) < GROUPS_KEPT else []
    groups = [*bad, *good]
    copies = _describe(groups, shards, workers)
    return Duplicates(
        groups=tuple(
            DuplicateGroup(
                copies=tuple(copies[entry[2], entry[3]] for entry in group.kept),
                n_copies=group.size,
                across_splits=group.across_splits,
                across_labels=group.across_labels,
            )
            for group in groups
        ),
        spoiled=spoiled,
        across_splits=across_splits,
        across_labels=across_labels,
        within=within,
        spare=spare,
    )


def _entries(number: int, shard: ImageShard) -> Iterator[_Entry]:
    before = None
    for digest, label, _, record in FINGERPRINT.iter_unpack(shard.fingerprints):
        # A record that lists one image twice is no copy of itself.
        if before != (digest, record):
            yield digest, label, number, record
        before = digest, record


def _sample(entries: Iterator[_Entry], shards: Sequence[ImageShard]) -> _Group:
    """Keep the first copies of a group, and the first of each split and label in any case."""
    kept: list[_Entry] = []
    known: set[tuple[str | None, bytes]] = set()
    size = 0
    for entry in entries:
        size += 1
        sort = shards[entry[2]].split, entry[1]
        if len(kept) < COPIES_KEPT or (sort not in known and len(known) < COPIES_KEPT):
            known.add(sort)
            kept.append(entry)
    return _Group(
        kept=sorted(kept, key=lambda entry: entry[2:]),
        size=size,
        across_splits=len({split for split, _ in known} - {None}) > 1,
        across_labels=len({label for _, label in known} - {_UNLABELLED}) > 1,
    )


def _describe(
    groups: Sequence[_Group], shards: Sequence[ImageShard], workers: int
) -> dict[tuple[int, int], Copy]:
    wanted: dict[int, list[int]] = {}
    for _, _, number, record in (entry for group in groups for entry in group.kept):
        wanted.setdefault(number, []).append(record)
    numbers = sorted(wanted)
    tasks = {shards[number].source: (shards[number], wanted[number]) for number in numbers}
    found = map_shards(partial(_read_copies, tasks), list(tasks), workers)
    return {
        (number, copy.record): copy
        for number, copies in zip(numbers, found, strict=True)
        for copy in copies
    }


def _read_copies(
    tasks: dict[Path | Stream, tuple[ImageShard, list[int]]], source: Path | Stream
) -> list[Copy]:
    shard, records = tasks[source]
    path, wanted = path_of(source), set(records)
    names = LabelNames.beside(folder_of(source), shard.roles.label)
    copies = []
    # A file that has gone by now was there before: its copies lack their names, no more.
    with suppress(ShardError), open_shard(source) as file:
        for item in read_records(file):
            if isinstance(item, Record) and item.index in wanted:
                wanted.discard(item.index)
                copies.append(_copy(shard, item, names))
                if not wanted:
                    break
    copies += [Copy(path=path, split=shard.split, record=record) for record in wanted]
    return copies


def _copy(shard: ImageShard, record: Record, names: LabelNames) -> Copy:
    features = decode_example(record.payload, PayloadKind.SEQUENCE_EXAMPLE).features

    def values(role: str | None) -> Sequence[Value]:
        return features[role].values if role is not None and role in features else ()

    name = next(iter(values(shard.roles.name)), None)
    return Copy(
        path=path_of(shard.source),
        split=shard.split,
        record=record.index,
        name=decode_text(name) if isinstance(name, bytes) else None,
        label=names.text(values(shard.roles.label)),
    )
