"""Comparing records: which are in one place only, which changed, and which changed their split."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfrtool.convert.convert_options import DiffOptions
from tfrtool.convert.feature_values import feature_values
from tfrtool.convert.source_records import OnFault, Rows, scan_records
from tfrtool.declare import takes
from tfrtool.engines.local_copies import local_copies
from tfrtool.errors import UsageError, suggestion
from tfrtool.examples.arrow.columns import PAYLOAD
from tfrtool.examples.dataset_files import DatasetFiles, SplitFiles, find_files
from tfrtool.examples.example import PayloadKind, decode_example, feature_name
from tfrtool.examples.fields import ListOf
from tfrtool.inspection.rows.batches import fold_columns
from tfrtool.records.count import as_error
from tfrtool.records.framing import FaultKind, LocatedFault, Record
from tfrtool.records.reader import read_shard
from tfrtool.records.tally import digest_text
from tfrtool.storage.arguments import Paths, as_paths
from tfrtool.storage.json_values import Shown, to_json_values
from tfrtool.writing.digests import DIGESTS, digest_halves

_HALVES = np.dtype(DIGESTS)
_KEYED = np.dtype([("payload", _HALVES), ("key", _HALVES), ("known", "?")])
"""Digests of a record's payload and of its key, and whether it has the key."""

Numbers = NDArray[np.int64]

_RowsByKind = dict[str, dict[str, Numbers]]
"""Numbers of records on each side, by the kind of difference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a record is."""

    shard: Path
    record: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DiffReport(Shown):
    """Differences between two sets of records, A and B. Pairs are (A, B).

    Attributes:
        records: number of intact records on each side.
        digests: order-independent digest of the payloads of each side, 16 hexadecimal digits.
        splits: number of records in each split, on each side.
        schema: features that differ, with their types. None means that the feature is missing.
        only_a: number of records only in A. Duplicates count separately.
        only_b: number of records only in B.
        changed: number of records with the same key or position and a different payload.
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


class _ComparedRecords:
    """All records of A, or of B."""

    def __init__(self, location: Paths, options: DiffOptions, copies: ExitStack) -> None:
        workers, on_progress, key = options.workers, options.on_progress, options.key
        files = DatasetFiles()
        for path in as_paths(location):
            found = find_files(path)
            files.notes += found.notes
            for shards in found.sets:
                root = found.folders[0] if path.is_dir() else shards.directory
                split = files.splits.setdefault(shards.split_below(root) or "", SplitFiles())
                split.shards |= dict.fromkeys(shards.paths)
        self.notes, self.paths = files.notes, files.paths
        copies.enter_context(local_copies(self.paths, workers, on_progress))
        self.table = scan_records(
            files,
            None,
            workers=workers,
            on_progress=on_progress,
            marker=partial(_digest, key=key),
            dtype=_HALVES if key is None else _KEYED,
        )
        for entry in self.table.faults.entries:
            if entry.fault.kind is FaultKind.NOT_TFRECORD:
                raise as_error(entry.path, entry.fault)
        self.without_key = int(np.count_nonzero(~self.table.marks["known"])) if key else 0
        self.columns = fold_columns(self.paths, workers=workers).columns()

    def locate(self, row: int) -> Place:
        """Return where a record is."""
        shard, _, index, _ = self.table.rows(np.array([row]))[0].tolist()
        return Place(shard=self.paths[shard], record=index)

    def types(self) -> dict[str, str]:
        """Return the type of each feature by its name."""
        if self.columns.kind not in (PayloadKind.EXAMPLE, PayloadKind.SEQUENCE_EXAMPLE):
            return {PAYLOAD: self.columns.kind.title}
        return {
            feature_name(column.key): f"{column.dtype.value if column.dtype else 'mixed'}"
            + "[]" * (isinstance(column.item, ListOf) + column.is_list)
            for column in self.columns.columns
        }

    def feature_digests(self, rows: Numbers, names: Mapping[str, int]) -> NDArray[np.uint64]:
        """Return digests of features: a row for each of these records, a column for each name."""
        digests = np.zeros((len(rows), len(names)), np.uint64)
        found = self.table.rows(rows)
        for shard in np.unique(found["shard"]).tolist():
            at = np.flatnonzero(found["shard"] == shard)
            wanted = dict(zip(found["index"][at].tolist(), at.tolist(), strict=True))
            for item in read_shard(self.paths[shard]):
                if isinstance(item, Record) and item.index in wanted:
                    for name, feature in _features(item.payload).items():
                        word = blake2b(repr(feature).encode(), digest_size=8).digest()
                        digests[wanted[item.index], names[name]] = int.from_bytes(word, "little")
        return digests


@takes(DiffOptions)
def diff(a: Paths, b: Paths, options: DiffOptions) -> DiffReport:
    """Compare the records of two sets of shards, regardless of order and number of shards.

    Memory grows by about 65 bytes per record, by 90 with a key, and by 8 bytes for each feature of
    a changed record.

    Args:
        a: files, glob patterns and directories, one or several.
        b: shards to compare with, in the same form.

    Raises:
        ShardError: a file can't be read, or is not a TFRecord file.
        UsageError: no record has the key.
    """
    if options.key and options.by_position:
        raise UsageError("--key and --by-position can't be used together")
    with ExitStack() as copies:
        sides = [_ComparedRecords(location, options, copies) for location in (a, b)]
        side_a, side_b = sides
        types = [side.types() for side in sides]
        if options.key and all(side.without_key == len(side.table) for side in sides):
            hint = suggestion(options.key, types[0], "features")
            raise UsageError(f"no feature {options.key!r} for --key", hint=hint)
        rows = _match_records(sides, options)
        names = {name: number for number, name in enumerate(sorted({*types[0], *types[1]}))}
        digests = [
            side.feature_digests(numbers, names)
            for side, numbers in zip(sides, rows["changed"].values(), strict=True)
        ]
    differing = np.count_nonzero(digests[0] != digests[1], axis=0)
    counts, splits = [side.table.split_sizes for side in sides], _split_names(sides)
    splits = [] if "" in splits else splits
    return DiffReport(
        records=(len(side_a.table), len(side_b.table)),
        digests=(digest_text(side_a.table.read.digest), digest_text(side_b.table.read.digest)),
        splits={name: (counts[0].get(name, 0), counts[1].get(name, 0)) for name in splits},
        schema={
            name: (types[0].get(name), types[1].get(name))
            for name in names
            if types[0].get(name) != types[1].get(name)
        },
        **{kind: len(next(iter(numbers.values()))) for kind, numbers in rows.items()},
        features={name: int(differing[at]) for name, at in names.items() if differing[at]},
        without_key=(side_a.without_key, side_b.without_key),
        examples=_examples(sides, rows, options.limit),
        corrupt=sum(side.table.faults.count for side in sides),
        faults=[fault for side in sides for fault in side.table.faults.entries],
        notes=[*dict.fromkeys(side_a.notes + side_b.notes)],
    )


def _split_names(sides: Sequence[_ComparedRecords]) -> list[str]:
    """Return the splits of both sides; "" is that of records without one."""
    return list(dict.fromkeys(name for side in sides for name in side.table.split_sizes))


def _match_records(sides: Sequence[_ComparedRecords], options: DiffOptions) -> _RowsByKind:
    """Find the records that differ."""
    middle, splits = len(sides[0].table), _split_names(sides)
    counts = [side.table.split_sizes for side in sides]
    split_codes = np.concatenate(
        [
            np.repeat(np.array([*map(splits.index, one)], np.uint16), [*one.values()])
            for one in counts
        ]
    )
    marks = [side.table.marks for side in sides]
    payloads = marks if options.key is None else [one["payload"] for one in marks]
    _, rest = _paired(payloads, None, middle, None if "" in splits else split_codes)
    moved, rest = _paired(payloads, rest, middle)
    changed = moved[:, :0]
    if options.key:
        changed, rest = _paired([one["key"] for one in marks], rest, middle)
    elif options.by_position:
        changed, rest = _paired_by_position(rest, middle, split_codes, len(splits))
    moved[1] -= middle
    changed[1] -= middle
    return {
        "only_a": {"a": rest[rest < middle]},
        "only_b": {"b": rest[rest >= middle] - middle},
        "changed": dict(zip("ab", changed, strict=True)),
        "moved": dict(zip("ab", moved, strict=True)),
    }


def _examples(
    sides: Sequence[_ComparedRecords], rows: _RowsByKind, limit: int
) -> dict[str, list[dict[str, Place]]]:
    """Return where the first records of each kind are, on each side."""
    locate = {"a": sides[0].locate, "b": sides[1].locate}
    return {
        kind: [
            {side: locate[side](int(row)) for side, row in zip(numbers, pair, strict=True)}
            for pair in islice(zip(*numbers.values(), strict=True), limit)
        ]
        for kind, numbers in rows.items()
    }


def _paired(
    digests: Sequence[Rows],
    rows: Numbers | None,
    middle: int,
    splits: NDArray[np.uint16] | None = None,
) -> tuple[Numbers, Numbers]:
    """Pair rows of A, those below the middle, with rows of B that have the same digest.

    With ``splits``, they must have the same of these, too, and no pairs are returned.

    Returns:
        The pairs, A's rows over B's; and the rows that are left, in order.
    """
    order, first = _grouped(digests, rows, splits)
    kind: Any = order.dtype.type
    order = order if rows is None else rows[order]
    of_b = order >= middle
    starts: Any = np.flatnonzero(first).astype(kind)
    sizes = np.diff(starts, append=kind(len(order)))
    count_b = np.add.reduceat(of_b, starts, dtype=kind) if len(starts) else starts
    count_a = sizes - count_b
    rank: Any = np.arange(len(order), dtype=kind)
    rank -= np.repeat(starts, sizes)
    rank -= of_b * np.repeat(count_a, sizes)
    paired = rank < np.repeat(np.minimum(count_a, count_b), sizes)
    del rank
    rest = np.sort(order[~paired])
    if splits is not None:
        return np.zeros((2, 0), np.int64), rest
    pairs = np.stack([order[paired & ~of_b], order[paired & of_b]])
    return pairs[:, pairs[0].argsort()], rest


def _grouped(
    digests: Sequence[Rows], rows: Numbers | None, splits: NDArray[np.uint16] | None
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return an order of rows in which equal ones follow each other, and which are the first."""

    def part(name: str, order: Numbers | None = None) -> NDArray[np.uint64]:
        column = np.concatenate([one[name] for one in digests])
        column = column if rows is None else column[rows]
        return column if order is None else column[order]

    order = np.argsort(part("high"), kind="stable")
    kind: Any = np.int32 if len(order) < 2**31 else np.int64
    order = order.astype(kind)
    first, low = np.diff(part("high", order), prepend=0) != 0, part("low", order)
    same = ~first[1:] & (low[1:] != low[:-1])  # half a digest is the same by chance
    if splits is not None:
        row_splits = (splits if rows is None else splits[rows])[order]
        same |= ~first[1:] & (row_splits[1:] != row_splits[:-1])
    if same.any():
        keys: list[Any] = [low] if splits is None else [row_splits, low]
        group = np.cumsum(first)
        mixed = np.isin(group, group[1:][same])
        mixed_rows = np.flatnonzero(mixed)
        inner = np.lexsort([*(key[mixed_rows] for key in keys), group[mixed_rows]])
        order[mixed_rows] = order[mixed_rows[inner]]
        for key in keys:
            key[mixed_rows] = key[mixed_rows[inner]]
            first[1:] |= key[1:] != key[:-1]
    else:
        first[1:] |= low[1:] != low[:-1]
    first[:1] = True
    return order, first


def _paired_by_position(
    rows: Numbers, middle: int, split_codes: NDArray[np.uint16], splits: int
) -> tuple[Numbers, Numbers]:
    """Pair rows of A with rows of B that have the same position in the same split."""
    sides, places = [rows[rows < middle], rows[rows >= middle]], list[Any]()
    for side, codes in zip(sides, np.split(split_codes, [middle]), strict=True):
        first = middle if side is sides[1] else 0
        firsts = np.array(
            [int((codes == code).argmax()) if len(codes) else 0 for code in range(splits)]
        )
        split = codes[side - first].astype(np.int64)
        places.append(split << 40 | side - first - firsts[split])
    a, b = places
    _, at_a, at_b = np.intersect1d(a, b, assume_unique=True, return_indices=True)
    pairs = np.stack([sides[0][at_a], sides[1][at_b]])
    return pairs, np.setdiff1d(rows, pairs, assume_unique=True)


def _digest(
    path: Path,  # noqa: ARG001
    records: list[Record],
    report: OnFault,  # noqa: ARG001
    key: str | None,
) -> Iterator[tuple[list[Record], Rows]]:
    payloads = [record.payload for record in records]
    marks: Rows = digest_halves(payloads)
    if key is not None:
        values, halves = feature_values(payloads, key), marks
        keys = [
            digest.tobytes() if value is None else repr(value).encode()
            for digest, value in zip(halves, values, strict=True)
        ]
        marks = np.zeros(len(payloads), _KEYED)
        marks["payload"], marks["key"] = halves, digest_halves(keys)
        marks["known"] = [value is not None for value in values]
    yield records, marks


def _features(payload: bytes) -> dict[str, Any]:
    """Return the features of a payload by name; of one that is not an Example, itself."""
    try:
        example = decode_example(payload, PayloadKind.SEQUENCE_EXAMPLE)
    except ValueError:
        return {PAYLOAD: payload}
    return {**example.features, **example.feature_lists}
