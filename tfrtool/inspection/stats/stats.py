"""Statistics of the features of shards, and how far they are from those of others."""

import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfrtool.engines.engine import Engine
from tfrtool.engines.pool import engine_of
from tfrtool.engines.split_shards import later, map_folds
from tfrtool.errors import ShardError
from tfrtool.examples.arrow.columns import Columns
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.example import DType, PayloadKind
from tfrtool.examples.roles import LabelNames
from tfrtool.examples.schema_fold import MAX_NAMES
from tfrtool.inspection.rows.batches import Batch, decode_records, in_batches
from tfrtool.inspection.schema.shard_schema import ShardLoss, no_examples
from tfrtool.inspection.stats.feature_fold import FeatureFold, FeatureKey, column_parts
from tfrtool.inspection.stats.number_fold import EXACT_VALUES
from tfrtool.inspection.verify.payload_check import unparseable
from tfrtool.records.framing import Fault, Record
from tfrtool.records.shards import Locations, locate_shards
from tfrtool.records.stream import Stream, path_of, total_bytes
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.progress import BYTES, Meter, OnProgress, no_progress

_FAULTS_KEPT = 10
_HELD_VALUES = 2**23
"""Distinct values that all features together may hold before they become samples, roughly."""

_WORTH_A_PROCESS = 16 * 1024 * 1024
"""Bytes that are looked at in the time that a process takes to start, roughly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsReport:
    """Statistics of the features of one or more shards, as ``inspect stats --json`` prints them.

    Attributes:
        shards: number of shards read.
        records: number of records included.
        payload: type of the payloads: SequenceExample if any record has feature lists.
        features: statistics of each feature, described in docs/json.md. A feature whose type
            differs between records is listed once for each type.
        skipped: number of features, counted once per batch, that are not included because there are
            too many different names.
        losses: what is missing, for each shard that is not fully included.
        against: comparison with other shards, if there is one: ``shards``, ``records``,
            ``only_here`` and ``only_there`` (features present on one side only), and ``distances``.
    """

    shards: int
    records: int
    payload: PayloadKind
    features: tuple[Mapping[str, Any], ...]
    skipped: int
    losses: tuple[ShardLoss, ...]
    against: Mapping[str, Any] | None

    def farther_than(self, threshold: float) -> list[Mapping[str, Any]]:
        """Return the distances above a threshold, including features present on one side only."""
        found = [] if self.against is None else self.against["distances"]
        return [one for one in found if one["distance"] > threshold]


@dataclass(slots=True)
class StatsFold:
    """A fold over the records of shards."""

    paths: list[Path] = field(default_factory=list)
    records: int = 0
    sequences: bool = False
    skipped: int = 0
    losses: list[ShardLoss] = field(default_factory=list)
    features: dict[FeatureKey, FeatureFold] = field(default_factory=dict)

    def add(self, batch: Batch, columns: Columns) -> None:
        """Take in records and their columns."""
        self.records += len(batch.records)
        self.sequences |= columns.kind is PayloadKind.SEQUENCE_EXAMPLE
        room = self._room(len(columns.columns))
        for column, array in zip(columns.columns, columns.arrays(batch.table), strict=True):
            for part in column_parts(column, array):
                fold = self._find(FeatureKey(column.key, column.is_list, part[0]))
                if fold is not None:
                    fold.add(part, room)

    def merge(self, other: "StatsFold") -> None:
        """Take in what another fold has seen; what comes out depends on the order."""
        self.paths += other.paths
        self.records += other.records
        self.sequences |= other.sequences
        self.skipped += other.skipped
        self.losses += other.losses
        room = self._room(len(other.features))
        for key, feature in other.features.items():
            fold = self._find(key)
            if fold is not None:
                fold.merge(feature, room)

    def _room(self, features: int) -> int:
        """Return how many different values each feature may hold."""
        return min(EXACT_VALUES, _HELD_VALUES // max(1, features, len(self.features)))

    def _find(self, key: FeatureKey) -> FeatureFold | None:
        if key not in self.features:
            if len(self.features) >= MAX_NAMES:
                self.skipped += 1
                return None
            self.features[key] = FeatureFold()
        return self.features[key]

    def known(self) -> list[FeatureKey]:
        """Return the features in order; without a type those that never have one."""
        typed = {key[:2] for key in self.features if key.dtype is not None}
        found = (key for key in self.features if key.dtype is not None or key[:2] not in typed)
        return sorted(found, key=lambda key: (key.is_list, key.key, str(key.dtype)))


def stats(
    shards: Locations,
    *,
    against: Locations | None = None,
    workers: int | None = None,
    engine: str = "local",
    engine_address: str | None = None,
    on_progress: OnProgress = no_progress,
) -> StatsReport:
    """Compute statistics of every feature over all shards.

    The result does not depend on the number of workers. Memory is bounded by a batch of 16 MiB or
    the longest record, plus a few hundred MiB for the values if there are very many features.

    Args:
        shards: files, glob patterns and directories, one or several; or a binary stream.
        against: other shards to compare with, in the same form.
        workers: maximum number of worker processes. None uses one per core.
        engine: "local", or "ray" to run on a Ray cluster.
        engine_address: address of the cluster, HOST:PORT. None uses RAY_ADDRESS.
        on_progress: called with the number of bytes read.

    Raises:
        ShardError: a file can't be read, or no file contains Examples or SequenceExamples.
    """
    with engine_of(engine, engine_address, workers) as pool:
        here = _fold_all(shards, pool, on_progress)
        there = None if against is None else _fold_all(against, pool, on_progress)
    folders = dict.fromkeys(path.parent for path in here.paths + (there.paths if there else []))

    def labels(key: FeatureKey) -> tuple[str, ...]:
        """Return the class names of a feature that stand beside the shards."""
        where = folders if key.dtype is DType.INT64 else ()
        found = (LabelNames.beside(folder, key.name).names for folder in where)
        return next(filter(None, found), ())

    features = [here.features[key].to_json(key, here.records, labels(key)) for key in here.known()]
    compared = None
    if there is not None:
        known = dict.fromkeys([*here.known(), *there.known()])
        records = here.records, there.records
        distances = []
        for key in known:
            some, others = (fold.features.get(key) or FeatureFold() for fold in (here, there))
            distances += some.distances(others, key, records, labels(key))
        compared = {
            "shards": len(there.paths),
            "records": there.records,
            "only_here": [str(key) for key in known if key not in there.features],
            "only_there": [str(key) for key in known if key not in here.features],
            "distances": distances,
        }
    return StatsReport(
        shards=len(here.paths),
        records=here.records,
        payload=PayloadKind.SEQUENCE_EXAMPLE if here.sequences else PayloadKind.EXAMPLE,
        features=tuple(features),
        skipped=here.skipped,
        losses=(*here.losses, *(there.losses if there else ())),
        against=compared,
    )


def _fold_all(shards: Locations, pool: Engine, on_progress: OnProgress) -> StatsFold:
    sources = locate_shards(shards).sources
    if not sources:
        raise ShardError("no shards")
    total = StatsFold()
    meter = Meter(on_progress, "reading", BYTES, total_bytes(sources))
    for fold in map_folds(ShardStats, sources, pool, _WORTH_A_PROCESS, on_counts=meter.add):
        total.merge(pickle.loads(fold))
    meter.finish()
    if not total.records:
        raise no_examples(total.losses[0].path, total.losses[0].content)
    return total


class ShardStats:
    """A fold over what is read of one shard."""

    def __init__(self, source: Path | Stream, *, part: bool = False) -> None:
        """Begin with nothing."""
        self._path = path_of(source)
        self._fold = StatsFold([] if part else [self._path])
        self._faults = CappedList[Fault](_FAULTS_KEPT)
        self._content: str | None = None

    def read(self, items: Iterable[Record | Fault]) -> None:
        """Take in what is read, in batches."""
        for records in in_batches(items, self._faults.add):
            found = _take(self._fold, self._path, records, self._faults)
            self._content = found or self._content

    def merge(self, other: "ShardStats", index: int) -> bool:
        """Take in a fold over a part, as `ShardFold` has it; what comes out is that of parts."""
        self._fold.merge(other._fold)
        self._faults.merge(later(other._faults, index))
        self._content = other._content or self._content
        return True

    def found(self) -> bytes:
        """Return a fold, pickled in this process, too: sketches may come out in another order."""
        fold, faults = self._fold, self._faults
        if faults.count:
            kept = tuple(faults.kept)
            content = None
            if not fold.records:
                content = self._content or f"no intact records ({kept[0].message})"
            loss = ShardLoss(path=self._path, content=content, count=faults.count, faults=kept)
            fold.losses.append(loss)
        return pickle.dumps(fold)


def _take(
    fold: StatsFold, path: Path, records: list[Record], faults: CappedList[Fault]
) -> str | None:
    """Take in records of a shard; if they are no Examples, return what they are."""
    seen = ColumnsFold()
    seen.add([record.payload for record in records])
    columns = seen.columns()
    if len(records) > columns.batch_records:  # a half of them may have fewer columns
        half = len(records) // 2
        content = _take(fold, path, records[:half], faults)
        return _take(fold, path, records[half:], faults) or content
    fold.skipped += seen.skipped
    if not columns.parsed:
        for record in records:
            faults.add(unparseable(record))
        return columns.kind.title
    for batch in decode_records(path, records, columns, faults.add):
        fold.add(batch, columns)
    return None
