"""Comparing records: which are in one place only, which changed, and which changed their split."""

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tfrtool.engines.pool import map_shards
from tfrtool.errors import UsageError, suggestion
from tfrtool.examples.arrow.columns import CONTEXT, PAYLOAD, Column, Columns, Form
from tfrtool.examples.arrow.decode_batch import MisfitError, decode_batch
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.dataset_files import find_files
from tfrtool.examples.example import PayloadKind, decode_example, feature_key, feature_name
from tfrtool.inspection.rows.batches import in_batches
from tfrtool.records.count import as_error
from tfrtool.records.framing import Fault, FaultKind, LocatedFault, Record
from tfrtool.records.reader import read_shard
from tfrtool.records.stream import total_bytes
from tfrtool.records.tally import Tally, digest_text, payload_key
from tfrtool.storage.arguments import Paths, as_paths, check_least
from tfrtool.storage.plain import plain
from tfrtool.storage.progress import BYTES, Meter, OnProgress, no_progress
from tfrtool.writing.job_report import Faults

_WORTH_A_PROCESS = 64 * 1024 * 1024

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a record is."""

    shard: Path
    record: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffReport:
    """Differences between two sets of records, A and B. Pairs are (A, B).

    Attributes:
        records: number of intact records on each side.
        digests: order-independent digest of the payloads of each side, 16 hexadecimal digits.
        splits: number of records in each split, on each side.
        schema: features that differ, with their types. None means that the feature is missing.
        only_a: number of records only in A. Duplicates count separately.
        only_b: number of records only in B.
        changed: number of records with the same key and a different payload.
        moved: number of identical records in a different split.
        features: for each feature, the number of changed records in which it differs.
        without_key: number of records without a key on each side, which are compared by payload.
        examples: locations of the first records only in A, only in B, changed and moved, by side.
        corrupt: number of faults found. Damaged records are not compared.
        faults: the first faults.
        notes: how the shards were found, one sentence each.
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
    notes: Sequence[str]

    @property
    def differs(self) -> bool:
        """Whether intact records or their features differ."""
        return bool(self.only_a or self.only_b or self.changed or self.moved or self.schema)

    @property
    def same(self) -> bool:
        """Whether nothing differs and nothing is damaged."""
        return not self.differs and not self.corrupt

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints."""
        return {"same": self.same, **plain(self)}


class _ComparedRecords:
    """All records of A, or of B: 20 bytes for each, 36 with a key."""

    def __init__(
        self, location: Paths, key: str | None, workers: int | None, on_progress: OnProgress
    ) -> None:
        files: dict[Path, str | None] = {}
        self.notes: list[str] = []
        for place in as_paths(location):
            found = find_files(place)
            self.notes += found.notes
            for one in found.sets:
                root = found.folders[0] if place.is_dir() else one.directory
                files |= dict.fromkeys(one.paths, one.split_below(root))
        self.paths, self.shard_splits = [*files], [*files.values()]
        self.fold, self.faults, self.tally, self.without_key = ColumnsFold(), Faults(), Tally(), 0
        shards, digests, counts = [np.zeros(0, np.uint32)], [b""], Counter[str | None]()
        meter = Meter(on_progress, "reading", BYTES, total_bytes(self.paths))
        look = partial(_look, key=key)
        looked = map_shards(look, self.paths, workers, _WORTH_A_PROCESS, on_counts=meter.add)
        for done, (numbers, words, fold, faults, tally, without_key) in enumerate(looked, 1):
            shards.append(numbers)
            digests.append(words)
            counts[self.shard_splits[done - 1]] += len(numbers)
            self.fold.merge(fold)
            self.faults.merge(faults)
            self.tally.merge(tally)
            self.without_key += without_key
        meter.finish()
        self.lengths = np.array([len(one) for one in shards[1:]], np.int64)
        self.ends, self.splits = np.cumsum(self.lengths), counts
        self.numbers, self.digests = np.concatenate(shards), b"".join(digests)

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

    def features(self, rows: Rows, names: Mapping[str, int]) -> NDArray[np.uint64]:
        """Return digests of the features of some records, a row for each and a column a name."""
        found = np.zeros((len(rows), len(names)), np.uint64)
        shards = np.searchsorted(self.ends, rows, "right")
        for shard in np.unique(shards).tolist():
            places = np.flatnonzero(shards == shard)
            wanted = dict(zip(self.numbers[rows[places]].tolist(), places.tolist(), strict=True))
            for item in read_shard(self.paths[shard]):
                if isinstance(item, Record) and item.index in wanted:
                    for name, feature in _features(item.payload).items():
                        word = blake2b(repr(feature).encode(), digest_size=8).digest()
                        found[wanted[item.index], names[name]] = int.from_bytes(word, "little")
        return found


def diff(
    a: Paths,
    b: Paths,
    *,
    key: str | None = None,
    limit: int = 10,
    workers: int | None = None,
    on_progress: OnProgress = no_progress,
) -> DiffReport:
    """Compare the records of two sets of shards, regardless of order and number of shards.

    Memory grows by about 170 bytes per record. A key adds 32 bytes per record, and 8 for each
    feature of a changed record.

    Args:
        a: files, glob patterns and directories, one or several.
        b: shards to compare with, in the same form.
        key: feature that identifies a record, such as ``image/filename``. Without a key, a changed
            record counts as one only in A and one only in B.
        limit: maximum number of examples of each kind of difference.
        workers: maximum number of worker processes. None uses one per core.
        on_progress: called with the number of bytes read.

    Raises:
        ShardError: a file can't be read, or is not a TFRecord file.
        UsageError: no record has the key.
    """
    check_least({"limit": limit}, {"limit": 0})
    one, other = sides = [_ComparedRecords(side, key, workers, on_progress) for side in (a, b)]
    middle = len(one.numbers)
    total = middle + len(other.numbers)
    if key and one.without_key + other.without_key == total:
        hint = suggestion(key, one.types(), "features")
        raise UsageError(f"no feature {key!r} for --key", hint=hint)
    names = list(dict.fromkeys([*one.splits, *other.splits]))
    known = None not in names  # else a split is nothing to go by
    splits = np.concatenate(
        [np.repeat([*map(names.index, side.shard_splits)], side.lengths) for side in sides]
    ).astype(np.int64)
    payloads, *keys = _codes(one.digests + other.digests, 2 if key else 1)
    rest: Rows = np.arange(total)
    _, rest = _paired(payloads * len(names) + splits if known else payloads, rest, middle)
    moved, rest = _paired(payloads, rest, middle)
    changed, rest = _paired(keys[0], rest, middle) if key else (moved[:, :0], rest)
    moved[1] -= middle
    changed[1] -= middle
    types = [side.types() for side in sides]
    every = {name: number for number, name in enumerate(sorted({*types[0], *types[1]}))}
    told = [side.features(rows, every) for side, rows in zip(sides, changed, strict=True)]
    differ = np.count_nonzero(told[0] != told[1], axis=0)
    sorts = {
        "only_a": {"a": rest[rest < middle]},
        "only_b": {"b": rest[rest >= middle] - middle},
        "changed": {"a": changed[0], "b": changed[1]},
        "moved": {"a": moved[0], "b": moved[1]},
    }
    by_name = dict(zip("ab", sides, strict=True))
    return DiffReport(
        records=(middle, total - middle),
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
                {name: by_name[name].place(int(row)) for name, row in zip(rows, pair, strict=True)}
                for pair in islice(zip(*rows.values(), strict=True), limit)
            ]
            for sort, rows in sorts.items()
        },
        corrupt=sum(side.faults.count for side in sides),
        faults=[fault for side in sides for fault in side.faults.kept],
        notes=[*dict.fromkeys(one.notes + other.notes)],
    )


def _codes(digests: bytes, columns: int) -> list[Rows]:
    """Return numbers of digests, the same for the same one: an array for each column of them."""
    whole = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(16), len(digests) // 16, [None, pa.py_buffer(digests)]
    )
    codes = whole.dictionary_encode().indices.to_numpy().astype(np.int64)
    return list(codes.reshape(-1, columns).T)


def _paired(codes: Rows, rows: Rows, middle: int) -> tuple[Rows, Rows]:
    """Pair rows of A, those below the middle, with rows of B that have the same code.

    Returns:
        The pairs, A's rows over B's; and the rows that are left, in order.
    """
    order = rows[np.argsort(codes[rows], kind="stable")]
    of_b, first = order >= middle, np.diff(codes[order], prepend=-1) != 0
    group = np.cumsum(first) - 1
    count_b = np.bincount(group, of_b).astype(np.int64)
    count_a = np.bincount(group) - count_b
    rank = np.arange(len(order)) - np.flatnonzero(first)[group] - of_b * count_a[group]
    paired = rank < np.minimum(count_a, count_b)[group]
    return np.stack([order[paired & ~of_b], order[paired & of_b]]), np.sort(order[~paired])


def _look(
    path: Path, key: str | None
) -> tuple[NDArray[np.uint32], bytes, ColumnsFold, Faults, Tally, int]:
    """Read a shard.

    Returns:
        The numbers of its records, the digests of each one's payload and of its key, if one is
        asked for; its features, its faults, its tally, and how many records have no key.
    """
    fold, faults, tally, numbers = ColumnsFold(), Faults(), Tally(), array("I")
    digests, without_key = bytearray(), 0

    def tell(fault: Fault) -> None:
        if fault.kind is FaultKind.NOT_TFRECORD:
            raise as_error(path, fault)
        if fault.kind is not FaultKind.EMPTY:
            faults.add(LocatedFault(path=path, fault=fault))

    for records in in_batches(read_shard(path), tell):
        numbers.extend(record.index for record in records)
        batch = [record.payload for record in records]
        fold.add(batch)
        tally.add_keys([payload_key(one.payload_crc, len(one.payload)) for one in records])
        for payload, held in zip(batch, _keys(batch, key), strict=True):
            digest = blake2b(payload, digest_size=16).digest()
            digests += digest
            if key is not None:
                without_key += held is None
                told = digest if held is None else repr(held).encode()
                digests += blake2b(told, digest_size=16).digest()
    return np.array(numbers, np.uint32), bytes(digests), fold, faults, tally, without_key


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


def _features(payload: bytes) -> dict[str, Any]:
    """Return the features of a payload by name; of one that is no Example, itself."""
    try:
        example = decode_example(payload, PayloadKind.SEQUENCE_EXAMPLE)
    except ValueError:
        return {PAYLOAD: payload}
    return {**example.features, **example.feature_lists}
