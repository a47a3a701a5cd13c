"""Statistics of the features of shards, and how far they are from those of others."""

import difflib
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from tfrtool.engines.processes import map_shards
from tfrtool.errors import ShardError, UsageError
from tfrtool.examples.arrow.columns import CONTEXT, LISTS, Columns
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.example import PayloadKind, feature_name
from tfrtool.examples.inference import MAX_NAMES
from tfrtool.examples.roles import LabelNames
from tfrtool.inspection.first_of import FirstOf
from tfrtool.inspection.rows.batches import Batch, decode_records, in_batches
from tfrtool.inspection.schema.shard_schema import ShardLoss, no_examples, sample_shares
from tfrtool.inspection.stats.feature_fold import FeatureFold, FeatureKey, column_parts
from tfrtool.inspection.stats.feature_report import feature_distances, feature_stats
from tfrtool.inspection.stats.quantiles import EXACT_VALUES
from tfrtool.inspection.stats.string_fold import load_datasketches
from tfrtool.inspection.summary.shard_summary import EXAMPLES
from tfrtool.inspection.verify.payload_check import unparseable
from tfrtool.records.framing import Fault, Record
from tfrtool.records.reader import read_records
from tfrtool.records.shards import Locations, locate_shards
from tfrtool.records.stream import Stream, open_shard, path_of
from tfrtool.storage.progress import OnProgress, Progress, silent

_FAULTS_KEPT = 10
_HELD_VALUES = 2**23
"""Distinct values that all features together may hold before they become samples, roughly."""

_WORTH_A_PROCESS = 16 * 1024 * 1024
"""Bytes that are looked at in the time that a process takes to start, roughly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsReport:
    """Statistics of the features of some shards, as ``inspect stats --json`` prints them.

    Attributes:
        shards: how many shards were looked into.
        records: how many records are in.
        payload: what they are: SequenceExamples where one of them has feature lists.
        sampled: whether there are records that were not looked at.
        features: what was seen of each feature; one whose records disagree on its type is there
            for each type. docs/json.md describes what is in it.
        left_out: how many features of batches are not in, for there are too many names.
        losses: what is missing, by shard.
        against: the others, if there are some to compare with: ``shards``, ``records``,
            ``only_here`` and ``only_there`` (features that came or went), ``distances``.
    """

    shards: int
    records: int
    payload: PayloadKind
    sampled: bool
    features: tuple[Mapping[str, Any], ...]
    left_out: int
    losses: tuple[ShardLoss, ...]
    against: Mapping[str, Any] | None

    def farther_than(self, threshold: float) -> list[Mapping[str, Any]]:
        """Return the distances that are greater, those of features that came or went, too."""
        found = [] if self.against is None else self.against["distances"]
        return [one for one in found if one["distance"] > threshold]


@dataclass(slots=True)
class StatsFold:
    """A fold over records."""

    records: int = 0
    sequences: bool = False
    left_out: int = 0
    names: set[str] = field(default_factory=set)  # of all features, those that aren't folded, too
    features: dict[FeatureKey, FeatureFold] = field(default_factory=dict)

    def add(self, batch: Batch, columns: Columns) -> None:
        """Take in records and their columns."""
        self.records += len(batch.records)
        self.sequences |= columns.kind is PayloadKind.SEQUENCE_EXAMPLE
        arrays = batch.table.columns
        if columns.kind is PayloadKind.SEQUENCE_EXAMPLE:
            context, lists = batch.table.column(CONTEXT), batch.table.column(LISTS)
            arrays = [*context.flatten(), *lists.flatten()]
        for column, array in zip((*columns.context, *columns.lists), arrays, strict=True):
            for part in column_parts(column, array):
                fold = self._find(FeatureKey(column.key, column.is_list, part.dtype))
                if fold is not None:
                    fold.add(part, self._room)

    def merge(self, other: "StatsFold") -> None:
        """Take in what another fold has seen; what comes out depends on the order."""
        self.records += other.records
        self.sequences |= other.sequences
        self.left_out += other.left_out
        self.names |= other.names
        for key, feature in other.features.items():
            fold = self._find(key)
            if fold is not None:
                fold.merge(feature, self._room)

    @property
    def _room(self) -> int:
        return max(256, min(EXACT_VALUES, _HELD_VALUES // len(self.features)))

    def _find(self, key: FeatureKey) -> FeatureFold | None:
        if key not in self.features and len(self.features) >= MAX_NAMES:
            self.left_out += 1
            return None
        return self.features.setdefault(key, FeatureFold())

    def known(self) -> list[FeatureKey]:
        """Return the features in order; without a type those that never have one."""
        typed = {key[:2] for key in self.features if key.dtype is not None}
        found = (key for key in self.features if key.dtype is not None or key[:2] not in typed)
        return sorted(found, key=lambda key: (key.is_list, key.key, str(key.dtype)))


@dataclass(frozen=True, slots=True)
class _Side:
    fold: StatsFold
    sources: tuple[Path | Stream, ...]
    sampled: bool
    losses: tuple[ShardLoss, ...]


def stats(
    shards: Locations,
    *,
    against: Locations | None = None,
    select: Iterable[str] | None = None,
    sample: int | None = None,
    workers: int | None = None,
    on_progress: OnProgress = silent,
) -> StatsReport:
    """Take statistics of the features of all shards together.

    They are the same on any number of workers. Memory is bounded by a batch of 16 MiB or the
    longest record, and by some hundred MiB for the values of very many features.

    Args:
        shards: files, patterns and directories, one or several; or one binary stream.
        against: others, to compare with.
        select: the names of features, if not all.
        sample: how many records at most, the first ones of each shard in equal shares.
        workers: how many processes at most; None takes the cores.
        on_progress: called after each shard.

    Raises:
        ShardError: a file can't be read, or none of them holds Examples or SequenceExamples.
        UsageError: DataSketches is not installed; no record has a feature that was asked for.
    """
    load_datasketches()
    names = None if select is None else frozenset(select)
    here = _fold_all(shards, names, sample, workers, on_progress)
    there = None
    if against is not None:
        there = _fold_all(against, names, sample, workers, on_progress)
    _check_names(names, [here, *([] if there is None else [there])])
    sides = [here] if there is None else [here, there]
    labels = {key: _label_names(sides, key) for side in sides for key in side.fold.features}
    fold = here.fold
    return StatsReport(
        shards=len(here.sources),
        records=fold.records,
        payload=PayloadKind.SEQUENCE_EXAMPLE if fold.sequences else PayloadKind.EXAMPLE,
        sampled=here.sampled,
        features=tuple(
            feature_stats(key, fold.features[key], fold.records, labels[key])
            for key in fold.known()
        ),
        left_out=fold.left_out,
        losses=tuple(loss for side in sides for loss in side.losses),
        against=None if there is None else _compare(here, there, labels),
    )


def _fold_all(
    shards: Locations,
    names: frozenset[str] | None,
    sample: int | None,
    workers: int | None,
    on_progress: OnProgress,
) -> _Side:
    sources = locate_shards(shards).sources
    shares = sample_shares(sources, sample)
    chosen = [source for source, share in shares.items() if share != 0]
    if not sources:
        raise ShardError("no shards")
    total, losses, sampled = StatsFold(), [], len(chosen) < len(sources)
    function = partial(_fold_shard, names=names, shares=shares)
    found = map_shards(function, chosen, workers, _WORTH_A_PROCESS)
    for done, (fold, loss, cut) in enumerate(found, start=1):
        total.merge(pickle.loads(fold))
        losses += [] if loss is None else [loss]
        sampled |= cut
        on_progress(Progress(what="reading", done=done, total=len(chosen), unit="shards"))
    if not total.records:
        raise no_examples(losses[0].path, losses[0].content)
    return _Side(total, sources, sampled, tuple(losses))


def _fold_shard(
    source: Path | Stream,
    names: frozenset[str] | None,
    shares: Mapping[Path | Stream, int | None],
) -> tuple[bytes, ShardLoss | None, bool]:
    """Return a fold, pickled in this process, too: sketches may come out in another order."""
    share, path = shares[source], path_of(source)
    fold, faults, content = StatsFold(), FirstOf[Fault](_FAULTS_KEPT), None
    with open_shard(source) as file:
        items = _Items(read_records(file), share)
        for records in in_batches(items, faults.add):
            seen = ColumnsFold()
            seen.add([record.payload for record in records])
            fold.left_out += seen.left_out
            columns = seen.columns()
            if columns.kind not in EXAMPLES:
                content = columns.kind.title
                for record in records:
                    faults.add(unparseable(record))
                continue
            if names is not None:
                fold.names.update(feature_name(one.key) for one in columns.columns)
                kept = [one for one in columns.columns if feature_name(one.key) in names]
                columns = replace(columns, columns=tuple(kept))
            for batch in decode_records(path, records, columns, faults.add):
                fold.add(batch, columns)
    if not fold.records and content is None:
        content = faults.kept[0].message if faults.kept else None
    loss = None
    if faults.count:
        content = None if fold.records else content
        loss = ShardLoss(path=path, content=content, count=faults.count, faults=tuple(faults.kept))
    return pickle.dumps(fold), loss, items.cut


class _Items:
    """What is in a shard up to a number of records, and whether there was more."""

    def __init__(self, items: Iterator[Record | Fault], share: int | None) -> None:
        self._items, self._left, self.cut = items, share, False

    def __iter__(self) -> Iterator[Record | Fault]:
        for item in self._items:
            if isinstance(item, Record) and self._left is not None:
                if not self._left:
                    self.cut = True
                    return
                self._left -= 1
            yield item


def _check_names(names: frozenset[str] | None, sides: Sequence[_Side]) -> None:
    known = {name for side in sides for name in side.fold.names}
    for name in sorted((names or frozenset()) - known):
        near = difflib.get_close_matches(name, known, n=3) or sorted(known)[:10]
        expected = f"one of {', '.join(near)}" if near else None
        raise UsageError(f"no record has a feature {name!r}", expected=expected)


def _label_names(sides: Sequence[_Side], key: FeatureKey) -> LabelNames:
    """Return the class names of a feature that stand beside the shards."""
    for side in sides:
        for folder in dict.fromkeys(path_of(source).parent for source in side.sources):
            found = LabelNames.beside(folder, feature_name(key.key))
            if found.names:
                return found
    return LabelNames()


def _compare(here: _Side, there: _Side, labels: Mapping[FeatureKey, LabelNames]) -> dict[str, Any]:
    first, second = here.fold, there.fold
    known = dict.fromkeys([*first.known(), *second.known()])
    distances = []
    for key in known:
        some, others = (side.features.get(key) or FeatureFold() for side in (first, second))
        records = first.records, second.records
        distances += feature_distances(key, some, others, records, labels[key])
    return {
        "shards": len(there.sources),
        "records": second.records,
        "only_here": [_title(key) for key in known if key not in second.features],
        "only_there": [_title(key) for key in known if key not in first.features],
        "distances": distances,
    }


def _title(key: FeatureKey) -> str:
    return f"{feature_name(key.key)}: {'never set' if key.dtype is None else key.dtype.value}"
