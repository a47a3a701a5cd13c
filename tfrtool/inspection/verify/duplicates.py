"""The same image in more than one record: within a split, in two splits, under two labels."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tfrtool.errors import ShardError
from tfrtool.examples.content import decode_text
from tfrtool.examples.example import PayloadKind, decode_example
from tfrtool.examples.roles import LabelNames, Roles
from tfrtool.records.compression import Compression, detect_compression
from tfrtool.records.framing import Record
from tfrtool.records.reader import read_records
from tfrtool.records.stream import Stream, folder_of, open_shard, path_of, size_of
from tfrtool.storage.remote_path import AnyPath

GROUPS_KEPT = 1000  # groups that are listed of each sort; all are counted
COPIES_KEPT = 100  # copies that are listed of one group: a black frame may occur a million times

_FETCHED = 64 * 1024
"""Bytes that are read at least to see one record."""

ImageShard = tuple[AnyPath | Stream, str | None, Roles, bytes | bytearray]
"""A shard, its split if known, the roles of its features, and the fingerprints of its images."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A record with an image that other records have, too."""

    path: AnyPath
    split: str | None
    record: int
    name: str | None
    label: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateGroup:
    """Records with the same image, byte for byte."""

    count: int
    across_splits: bool
    across_labels: bool
    copies: tuple[Copy, ...]  # at least two; the first `COPIES_KEPT`

    @property
    def is_fault(self) -> bool:
        """Whether it spoils a result, rather than only weighing an image twice."""
        return self.across_splits or self.across_labels


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicates:
    """All images that occur more than once, and the number of groups of each sort."""

    groups: tuple[DuplicateGroup, ...] = ()  # faults first; the first `GROUPS_KEPT` of either sort
    spoiled: int = 0  # across splits or labels
    across_splits: int = 0
    across_labels: int = 0
    within: int = 0  # in one split, with one label


def find_duplicates(shards: Sequence[ImageShard]) -> Duplicates:
    """Find the images that are in more than one record; read these again for names and labels."""
    import numpy as np  # for this alone

    if not shards:
        return Duplicates()
    split_codes = {split: code for code, split in enumerate(dict.fromkeys(s[1] for s in shards))}
    # An entry of FINGERPRINT.
    numbers = [(name, "<u8") for name in ("label", "record", "offset")]
    fields = [("high", ">u8"), ("low", ">u8"), *numbers]
    parts = [np.frombuffer(found, fields) for *_, found in shards]
    prints, shard = np.concatenate(parts), np.repeat(np.arange(len(parts)), [*map(len, parts)])
    order = np.lexsort((prints["record"], shard, prints["low"], prints["high"]))
    prints, shard = prints[order], shard[order]
    new_image = np.ones(len(prints), np.bool_)
    new_image[1:] = (np.diff(prints["high"].astype("u8")) != 0) | (
        np.diff(prints["low"].astype("u8")) != 0
    )
    new_record = new_image.copy()
    new_record[1:] |= (np.diff(shard) != 0) | (np.diff(prints["record"]) != 0)
    # A record that lists one image twice is not a copy of itself.
    prints, shard = prints[new_record], shard[new_record]
    starts = np.flatnonzero(new_image[new_record])
    counts = np.diff(np.append(starts, len(prints)))
    if not len(starts):
        return Duplicates()
    splits = np.array([split_codes[split] for _, split, *_ in shards])[shard]
    unknown = splits == split_codes.get(None, -1)
    across_splits = _differ(splits.astype(np.uint64), unknown, starts)
    across_labels = _differ(prints["label"], prints["label"] == 0, starts)
    spoiled, several = across_splits | across_labels, counts > 1
    group_ids = [np.flatnonzero(spoiled & several), np.flatnonzero(~spoiled & several)]
    places: list[tuple[int, Any]] = []
    for group in np.append(group_ids[0][:GROUPS_KEPT], group_ids[1][:GROUPS_KEPT]).tolist():
        rows = starts[group] + np.arange(min(counts[group], COPIES_KEPT))
        places.append((group, rows))
    wanted: dict[int, dict[int, int]] = {}
    for _, rows in places:
        for row in rows.tolist():
            offset = int(prints["offset"][row])
            wanted.setdefault(int(shard[row]), {})[int(prints["record"][row])] = offset
    copies = {
        (number, copy.record): copy
        for number, records in wanted.items()
        for copy in _copies(shards[number], records)
    }
    return Duplicates(
        groups=tuple(
            DuplicateGroup(
                count=int(counts[group]),
                across_splits=bool(across_splits[group]),
                across_labels=bool(across_labels[group]),
                copies=tuple(copies[int(shard[r]), int(prints["record"][r])] for r in rows),
            )
            for group, rows in places
        ),
        spoiled=len(group_ids[0]),
        across_splits=int((across_splits & several).sum()),
        across_labels=int((across_labels & several).sum()),
        within=len(group_ids[1]),
    )


def _differ(codes: Any, unknown: Any, starts: Any) -> Any:
    """Return whether the rows of each group have different codes, unknown ones apart."""
    import numpy as np

    least = np.minimum.reduceat(np.where(unknown, np.uint64(2**64 - 1), codes), starts)
    most = np.maximum.reduceat(np.where(unknown, np.uint64(0), codes), starts)
    known = np.add.reduceat(~unknown, starts, dtype=np.int64) > 0
    return known & (least != most)


def _copies(shard: ImageShard, wanted: Mapping[int, int]) -> Iterator[Copy]:
    """Read the names and labels of records, given with their offsets."""
    source, split, roles, _ = shard
    path, left = path_of(source), set(wanted)
    names = LabelNames.read(folder_of(source), roles.label)
    # If the file is gone by now, its copies lack their names, no more.
    with suppress(ShardError):
        for index, payload in _payloads(source, wanted):
            example = decode_example(payload, PayloadKind.SEQUENCE_EXAMPLE)
            name = next(iter(example.values(roles.name)), None)
            yield Copy(
                path=path,
                split=split,
                record=index,
                name=decode_text(name) if isinstance(name, bytes) else None,
                label=names.text(example.values(roles.label)),
            )
            left.remove(index)
    for record in left:
        yield Copy(path=path, split=split, record=record, name=None, label=None)


def _payloads(source: AnyPath | Stream, wanted: Mapping[int, int]) -> Iterator[tuple[int, bytes]]:
    """Yield records by their offsets, or by reading all up to the last where that is less work."""
    with open_shard(source) as file:
        is_plain = detect_compression(file) is Compression.NONE
        if is_plain and len(wanted) * _FETCHED < size_of(source, file):
            for index, offset in sorted(wanted.items()):
                file.seek(offset)
                item = next(read_records(file, compression=Compression.NONE), None)
                if isinstance(item, Record):
                    yield index, item.payload
            return
        last = max(wanted)
        for item in read_records(file):
            if isinstance(item, Record) and item.index in wanted:
                yield item.index, item.payload
            if item.offset >= wanted[last]:
                return
