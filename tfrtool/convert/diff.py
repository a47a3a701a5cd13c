"""Comparing records: which are in one place only, which changed, and which changed their split."""

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

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
from tfrtool.storage.json_values import to_json_values
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
        return {"same": self.same, **to_json_values(self)}


class _ShardRecords(NamedTuple):
    """The records of a shard.

    Attributes:
        numbers: the index of each record.
        digests: 16 bytes for the payload of each record; and for its key, if there is a key.
        features: what the records hold.
        faults: the damage.
        tally: the count of the payloads.
        without_key: number of records without the key.
    """

    numbers: NDArray[np.uint32]
    digests: bytes
    features: ColumnsFold
    faults: Faults
    tally: Tally
    without_key: int


class _ComparedRecords:
    """All records of A, or of B: 20 bytes for each, 36 with a key."""

    def __init__(
        self, location: Paths, key: str | None, workers: int | None, on_progress: OnProgress
    ) -> None:
        split_of: dict[Path, str | None] = {}
        self.notes: list[str] = []
        for path in as_paths(location):
            found = find_files(path)
            self.notes += found.notes
            for shards in found.sets:
                root = found.folders[0] if path.is_dir() else shards.directory
                split_of |= dict.fromkeys(shards.paths, shards.split_below(root))
        self.paths, self.shard_splits = [*split_of], [*split_of.values()]
        self.fold, self.faults, self.tally = ColumnsFold(), Faults(), Tally()
        meter = Meter(on_progress, "reading", BYTES, total_bytes(self.paths))
        read = partial(_read_shard, key=key)
        numbers, digests, self.without_key = [np.zeros(0, np.uint32)], [b""], 0
        for shard in map_shards(read, self.paths, workers, _WORTH_A_PROCESS, on_counts=meter.add):
            numbers.append(shard.numbers)
            digests.append(shard.digests)
            self.fold.merge(shard.features)
            self.faults.merge(shard.faults)
            self.tally.merge(shard.tally)
            self.without_key += shard.without_key
        meter.finish()
        self.lengths = np.array([len(one) for one in numbers[1:]], np.int64)
        self.ends = np.cumsum(self.lengths)
        self.numbers, self.digests = np.concatenate(numbers), b"".join(digests)

    def split_counts(self) -> Counter[str | None]:
        """Return the number of records in each split."""
        counts = Counter[str | None]()
        for split, length in zip(self.shard_splits, self.lengths.tolist(), strict=True):
            counts[split] += length
        return counts

    def locate(self, row: int) -> Place:
        """Return where a record is."""
        shard = self.paths[int(np.searchsorted(self.ends, row, "right"))]
        return Place(shard=shard, record=int(self.numbers[row]))

    def types(self) -> dict[str, str]:
        """Return the type of each feature by its name."""
        columns = self.fold.columns()
        if columns.kind not in (PayloadKind.EXAMPLE, PayloadKind.SEQUENCE_EXAMPLE):
            return {PAYLOAD: columns.kind.title}
        return {
            feature_name(column.key): f"{column.dtype.value if column.dtype else 'mixed'}"
            + "[]" * ((column.form is Form.LIST) + column.is_list)
            for column in columns.columns
        }

    def feature_digests(self, rows: Rows, names: Mapping[str, int]) -> NDArray[np.uint64]:
        """Return digests of features: a row for each of these records, a column for each name."""
        digests = np.zeros((len(rows), len(names)), np.uint64)
        shards = np.searchsorted(self.ends, rows, "right")
        for shard in np.unique(shards).tolist():
            at = np.flatnonzero(shards == shard)
            wanted = dict(zip(self.numbers[rows[at]].tolist(), at.tolist(), strict=True))
            for item in read_shard(self.paths[shard]):
                if isinstance(item, Record) and item.index in wanted:
                    for name, feature in _features(item.payload).items():
                        word = blake2b(repr(feature).encode(), digest_size=8).digest()
                        digests[wanted[item.index], names[name]] = int.from_bytes(word, "little")
        return digests


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
    sides = [_ComparedRecords(location, key, workers, on_progress) for location in (a, b)]
    side_a, side_b = sides
    middle, total = len(side_a.numbers), sum(len(side.numbers) for side in sides)
    types = [side.types() for side in sides]
    if key and side_a.without_key + side_b.without_key == total:
        hint = suggestion(key, types[0], "features")
        raise UsageError(f"no feature {key!r} for --key", hint=hint)
    counts = [side.split_counts() for side in sides]
    splits = list(dict.fromkeys(name for one in counts for name in one))
    comparable = None not in splits
    split_codes = np.concatenate(
        [np.repeat([*map(splits.index, side.shard_splits)], side.lengths) for side in sides]
    ).astype(np.int64)
    payloads, *keys = _codes(side_a.digests + side_b.digests, 2 if key else 1)
    rest: Rows = np.arange(total)
    in_split = payloads * len(splits) + split_codes if comparable else payloads
    _, rest = _paired(in_split, rest, middle)
    moved, rest = _paired(payloads, rest, middle)
    changed, rest = _paired(keys[0], rest, middle) if key else (moved[:, :0], rest)
    moved[1] -= middle
    changed[1] -= middle
    names = {name: number for number, name in enumerate(sorted({*types[0], *types[1]}))}
    digests = [side.feature_digests(rows, names) for side, rows in zip(sides, changed, strict=True)]
    differing = np.count_nonzero(digests[0] != digests[1], axis=0)
    rows = {
        "only_a": {"a": rest[rest < middle]},
        "only_b": {"b": rest[rest >= middle] - middle},
        "changed": dict(zip("ab", changed, strict=True)),
        "moved": dict(zip("ab", moved, strict=True)),
    }
    locate = {"a": side_a.locate, "b": side_b.locate}
    return DiffReport(
        records=(middle, total - middle),
        digests=(digest_text(side_a.tally.digest), digest_text(side_b.tally.digest)),
        splits={str(name): (counts[0][name], counts[1][name]) for name in splits if comparable},
        schema={
            name: (types[0].get(name), types[1].get(name))
            for name in names
            if types[0].get(name) != types[1].get(name)
        },
        **{kind: len(next(iter(found.values()))) for kind, found in rows.items()},
        features={name: int(differing[at]) for name, at in names.items() if differing[at]},
        without_key=(side_a.without_key, side_b.without_key),
        examples={
            kind: [
                {side: locate[side](int(row)) for side, row in zip(found, pair, strict=True)}
                for pair in islice(zip(*found.values(), strict=True), limit)
            ]
            for kind, found in rows.items()
        },
        corrupt=sum(side.faults.count for side in sides),
        faults=[fault for side in sides for fault in side.faults.kept],
        notes=[*dict.fromkeys(side_a.notes + side_b.notes)],
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


def _read_shard(path: Path, key: str | None) -> _ShardRecords:
    features, faults, tally, numbers = ColumnsFold(), Faults(), Tally(), array("I")
    digests, without_key = bytearray(), 0

    def report(fault: Fault) -> None:
        if fault.kind is FaultKind.NOT_TFRECORD:
            raise as_error(path, fault)
        if fault.kind is not FaultKind.EMPTY:
            faults.add(LocatedFault(path=path, fault=fault))

    for records in in_batches(read_shard(path), report):
        numbers.extend(record.index for record in records)
        payloads = [record.payload for record in records]
        features.add(payloads)
        tally.add_keys([payload_key(one.payload_crc, len(one.payload)) for one in records])
        for payload, value in zip(payloads, _keys(payloads, key), strict=True):
            digest = blake2b(payload, digest_size=16).digest()
            digests += digest
            if key is not None:
                without_key += value is None
                content = digest if value is None else repr(value).encode()
                digests += blake2b(content, digest_size=16).digest()
    all_numbers = np.array(numbers, np.uint32)
    return _ShardRecords(all_numbers, bytes(digests), features, faults, tally, without_key)


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
