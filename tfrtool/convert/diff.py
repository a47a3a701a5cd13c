"""Comparing records: which are in one place only, which changed, and which changed their split."""

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfrtool.convert.formats.registry import in_batches
from tfrtool.convert.pipeline.tally import Tally, digest_text, payload_key
from tfrtool.engines.processes import map_shards
from tfrtool.errors import UsageError
from tfrtool.examples.arrow.columns import CONTEXT, PAYLOAD, Column, Columns, Form
from tfrtool.examples.arrow.decode_batch import MisfitError, decode_batch
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.example import PayloadKind, decode_example, feature_key, feature_name
from tfrtool.inspection.first_of import FirstOf
from tfrtool.records.count import as_error
from tfrtool.records.framing import FaultKind, LocatedFault, Record
from tfrtool.records.reader import read_shard
from tfrtool.records.shard_sets import group_shards
from tfrtool.records.shards import Locations, locate_shards
from tfrtool.storage.plain import plain
from tfrtool.storage.progress import OnProgress, Progress, silent
from tfrtool.storage.words import check_least

_FAULTS_KEPT = 10
_WORTH_A_PROCESS = 64 * 1024 * 1024

Words = NDArray[np.uint64]
Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a record is."""

    shard: Path
    record: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffReport:
    """How two sets of records, A and B, differ; pairs are of A and of B.

    Attributes:
        records: how many whole records there are.
        digests: of the multisets of their payloads (`Tally`), 16 hexadecimal digits.
        splits: how many records of each split.
        schema: the features that differ, with their types; None where there is no such feature.
        only_a: how many records are in A alone; what is there twice counts twice.
        only_b: how many are in B alone.
        changed: how many have the same key and another payload.
        moved: how many are the same in another split.
        features: in how many of the changed ones each feature differs.
        without_key: how many have no key, and are compared by their payloads.
        examples: the first of each of the four sorts: where they are, by side.
        corrupt: how many faults were found; damaged records are not compared.
        faults: the first of them.
    """

    records: tuple[int, int]
    digests: tuple[str, str]
    splits: Mapping[str, tuple[int, int]]
    schema: Mapping[str, tuple[str | None, str | None]]
    only_a: int
    only_b: int
    changed: int
    moved: int
    features: Mapping[str, int]
    without_key: tuple[int, int]
    examples: Mapping[str, Sequence[Mapping[str, Place]]]
    corrupt: int
    faults: Sequence[LocatedFault]

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not (self.only_a or self.only_b or self.changed or self.moved or self.schema)

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints."""
        return {"same": self.same, **plain(self)}


class _Shard(NamedTuple):
    """What is kept of a shard: 20 bytes a record, 36 with a key."""

    words: Words  # a row a record: the digests of its payload, and of its key
    numbers: NDArray[np.uint32]  # of the records in the shard
    tally: Tally
    fold: ColumnsFold
    faults: FirstOf[LocatedFault]
    without_key: int


class _ComparedRecords:
    """All records of A, or of B."""

    def __init__(
        self, location: Locations, key: str | None, workers: int | None, on_progress: OnProgress
    ) -> None:
        sets = group_shards(locate_shards(location).paths)
        files = [(path, one.split_below(path.parent)) for one in sets for path in one.paths]
        self.paths, self.tally, self.fold = [path for path, _ in files], Tally(), ColumnsFold()
        self.faults = list[FirstOf[LocatedFault]]()
        self.without_key, numbers, words = 0, [np.zeros(0, np.uint32)], [_words((), key)]
        shards = map_shards(partial(_look, key=key), self.paths, workers, _WORTH_A_PROCESS)
        for shard in shards:
            self.tally.merge(shard.tally)
            self.fold.merge(shard.fold)
            self.faults.append(shard.faults)
            self.without_key += shard.without_key
            numbers.append(shard.numbers)
            words.append(shard.words)
            done, total = len(self.faults), len(files)
            on_progress(Progress(what="reading", done=done, total=total, unit="shards"))
        self.ends = np.cumsum([len(one) for one in numbers])[1:]
        self.numbers, self.words = np.concatenate(numbers), np.concatenate(words)
        self.splits = Counter[str | None]()
        for (_, split), count in zip(files, np.diff(self.ends, prepend=0).tolist(), strict=True):
            self.splits[split] += count
        self._shard_splits = [split for _, split in files]

    def codes(self, names: Mapping[str | None, int]) -> Rows:
        """Return a number for the split of each record."""
        held = np.array([names[one] for one in self._shard_splits], np.int64)
        return np.repeat(held, np.diff(self.ends, prepend=0))

    def place(self, row: int) -> Place:
        """Return where a record is."""
        shard = self.paths[int(np.searchsorted(self.ends, row, "right"))]
        return Place(shard=shard, record=int(self.numbers[row]))

    def types(self) -> dict[str, str]:
        """Return the type of each feature by its name."""
        columns = self.fold.columns()
        if columns.kind not in (PayloadKind.EXAMPLE, PayloadKind.SEQUENCE_EXAMPLE):
            return {PAYLOAD: columns.kind.title}
        return {
            feature_name(one.key): f"{one.dtype.value if one.dtype else 'mixed'}"
            + "[]" * ((one.form is Form.LIST) + one.is_list)
            for one in columns.columns
        }

    def features(self, rows: Rows, names: Mapping[str, int]) -> Words:
        """Return digests of the features of some records, a row for each and a column a name."""
        found = np.zeros((len(rows), len(names)), np.uint64)
        for shard in np.unique(np.searchsorted(self.ends, rows, "right")).tolist():
            start = int(self.ends[shard - 1]) if shard else 0
            inside = np.flatnonzero((rows >= start) & (rows < self.ends[shard]))
            wanted = {int(self.numbers[rows[one]]): int(one) for one in inside}
            for record in read_shard(self.paths[shard]):
                if isinstance(record, Record) and record.index in wanted:
                    for name, feature in _features(record.payload).items():
                        word = blake2b(repr(feature).encode(), digest_size=8).digest()
                        found[wanted[record.index], names[name]] = int.from_bytes(word, "little")
        return found


def diff(
    a: Locations,
    b: Locations,
    *,
    key: str | None = None,
    limit: int = 10,
    workers: int | None = None,
    on_progress: OnProgress = silent,
) -> DiffReport:
    """Compare the records of two sets of shards, in whatever order and number of shards they are.

    Memory grows by about 100 bytes a record; with a key by 32 more, and by 8 for each feature of
    those that changed.

    Args:
        a: files, patterns and directories, one or several.
        b: the same, to compare with.
        key: the feature that tells which records are the same one, such as ``image/filename``;
            without one, a record that changed is one of A alone and one of B alone.
        limit: how many examples of each sort are named.
        workers: processes to read shards with; None takes the cores.
        on_progress: called after each shard.

    Raises:
        ShardError: a file can't be read, or is no TFRecord file.
        UsageError: no record has the key.
    """
    check_least({"limit": limit}, {"limit": 0})
    sides = one, other = [_ComparedRecords(side, key, workers, on_progress) for side in (a, b)]
    total = one.tally.records + other.tally.records
    if key and one.without_key + other.without_key == total:
        raise UsageError(f"no record has a feature {key!r}, which was to be the key")
    names = dict.fromkeys([*one.splits, *other.splits])
    known = None not in names  # else a split is nothing to go by
    codes = {name: known * number for number, name in enumerate(names)}
    splits = np.concatenate([one.codes(codes), other.codes(codes)])
    words = list(np.concatenate([one.words, other.words]).T)
    middle, rest = one.tally.records, np.arange(total)
    _, rest = _paired([*words[:2], splits], rest, middle)
    moved, rest = _paired(words[:2], rest, middle)
    changed, rest = _paired(words[2:], rest, middle) if key else (moved[:, :0], rest)
    changed[1] -= middle
    types = [side.types() for side in sides]
    every = {name: number for number, name in enumerate(sorted({*types[0], *types[1]}))}
    differ = np.zeros(len(every), np.int64)
    if key:
        told = [side.features(rows, every) for side, rows in zip(sides, changed, strict=True)]
        differ = np.count_nonzero(told[0] != told[1], axis=0)
    sorts = {
        "only_a": {"a": rest[rest < middle]},
        "only_b": {"b": rest[rest >= middle] - middle},
        "changed": {"a": changed[0], "b": changed[1]},
        "moved": {"a": moved[0], "b": moved[1] - middle},
    }
    by_name = dict(zip("ab", sides, strict=True))
    faults = [fault for side in sides for some in side.faults for fault in some.kept]
    return DiffReport(
        records=(one.tally.records, other.tally.records),
        digests=(digest_text(one.tally.digest), digest_text(other.tally.digest)),
        splits={str(name): (one.splits[name], other.splits[name]) for name in names if known},
        schema={
            name: (types[0].get(name), types[1].get(name))
            for name in every
            if types[0].get(name) != types[1].get(name)
        },
        **{sort: len(next(iter(rows.values()))) for sort, rows in sorts.items()},
        features={name: int(differ[at]) for name, at in every.items() if differ[at]},
        without_key=(one.without_key, other.without_key),
        examples={
            sort: [
                {name: by_name[name].place(int(rows[name][at])) for name in rows}
                for at in range(min(limit, len(next(iter(rows.values())))))
            ]
            for sort, rows in sorts.items()
        },
        corrupt=sum(some.count for side in sides for some in side.faults),
        faults=faults[:_FAULTS_KEPT],
    )


def _paired(words: Sequence[NDArray[Any]], rows: Rows, middle: int) -> tuple[Rows, Rows]:
    """Pair rows of A, those below the middle, with rows of B that have the same words.

    Returns:
        The pairs, A's rows over B's; and the rows that are left, in order.
    """
    order = rows[np.lexsort([rows >= middle, *(word[rows] for word in words)])]
    of_b = order >= middle
    first = np.ones(len(order), np.bool_)  # of those that have the same words
    for number, word in enumerate(words):
        held = word[order]
        new = held[1:] != held[:-1]
        first[1:] = new if number == 0 else first[1:] | new
    group = np.cumsum(first) - 1
    count_b = np.bincount(group, of_b).astype(np.int64)
    count_a = np.bincount(group) - count_b
    rank = np.arange(len(order)) - np.flatnonzero(first)[group] - of_b * count_a[group]
    paired = rank < np.minimum(count_a, count_b)[group]
    return np.stack([order[paired & ~of_b], order[paired & of_b]]), np.sort(order[~paired])


def _look(path: Path, key: str | None) -> _Shard:
    """Read a shard."""
    tally, fold, faults = Tally(), ColumnsFold(), FirstOf[LocatedFault](_FAULTS_KEPT)
    numbers, crcs, digests, without_key = array("I"), array("Q"), list[bytes](), 0

    def payloads() -> Iterator[bytes]:
        for item in read_shard(path):
            if isinstance(item, Record):
                numbers.append(item.index)
                crcs.append(payload_key(item.payload_crc, len(item.payload)))
                yield item.payload
            elif item.kind is FaultKind.NOT_TFRECORD:
                raise as_error(path, item)
            elif item.kind is not FaultKind.EMPTY:
                faults.add(LocatedFault(path=path, fault=item))

    for batch in in_batches(payloads()):
        fold.add(batch)
        for payload, held in zip(batch, _keys(batch, key), strict=True):
            digest = blake2b(payload, digest_size=16).digest()
            digests.append(digest)
            if key is not None:
                without_key += held is None
                told = digest if held is None else repr(held).encode()
                digests.append(blake2b(told, digest_size=16).digest())
    tally.add_keys(crcs)
    words = _words(digests, key)
    return _Shard(words, np.array(numbers, np.uint32), tally, fold, faults, without_key)


def _keys(payloads: Sequence[bytes], key: str | None) -> Sequence[Any]:
    """Return the key of each record; None where it has none."""
    if key is None:
        return [None] * len(payloads)
    column = Column(key=feature_key(key), form=Form.FEATURE, dtype=None)
    try:
        rows = decode_batch(payloads, Columns(PayloadKind.SEQUENCE_EXAMPLE, (column,)))
        return list(rows.column(CONTEXT).field(0).to_pylist())
    except MisfitError:
        return [_keys([one], key)[0] for one in payloads] if len(payloads) > 1 else [None]


def _words(digests: Sequence[bytes], key: str | None) -> Words:
    """Return digests as numbers: a row a record, its payload's two words and its key's two."""
    return np.frombuffer(b"".join(digests), np.uint64).reshape(-1, 4 if key else 2)


def _features(payload: bytes) -> dict[str, Any]:
    """Return the features of a payload by name; of one that is no Example, itself."""
    try:
        example = decode_example(payload, PayloadKind.SEQUENCE_EXAMPLE)
    except ValueError:
        return {PAYLOAD: payload}
    return {**example.features, **example.feature_lists}
