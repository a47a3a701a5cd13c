"""Statistics of the features of shards, and how far they are from those of others."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfrtool.declare import takes
from tfrtool.errors import UsageError, suggestion
from tfrtool.examples.example import DType, PayloadKind
from tfrtool.examples.fields import Struct
from tfrtool.examples.roles import LabelNames
from tfrtool.features.type_spelling import parse_types
from tfrtool.inspection.inspect_options import StatsOptions
from tfrtool.inspection.profile import ProfileRequest, ShardProfile, profile_shards
from tfrtool.inspection.schema.shard_schema import ShardLoss, no_examples, shard_loss
from tfrtool.inspection.stats.stats_fold import FeatureFold, FeatureKey, StatsFold
from tfrtool.inspection.verify.feature_findings import DeclaredFolders
from tfrtool.records.shards import Locations, locate_shards
from tfrtool.records.stream import path_of
from tfrtool.storage.html_tables import html_table, one_line
from tfrtool.storage.json_values import Shown
from tfrtool.storage.remote_path import AnyPath

_MIN_BYTES_PER_PROCESS = 16 * 1024 * 1024
"""Bytes that are looked at in the time that a process takes to start, roughly."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StatsReport(Shown):
    """Statistics of the features of one or more shards, as ``inspect stats --json`` prints them.

    Attributes:
        shards: number of shards read.
        records: number of records included.
        payload: type of the payloads: SequenceExample if any record has feature lists.
        features: statistics of each feature, see docs/commands/inspect.md. A feature whose type
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

    def _repr_html_(self) -> str:
        """Return a row for each feature, in HTML."""
        head = ("feature", "type", "present", "min", "median", "mean", "max", "distinct", "common")
        return html_table(head, map(_summary_row, self.features))


def _summary_row(feature: Mapping[str, Any]) -> tuple[Any, ...]:
    values = feature.get("values") or {}
    middle = values.get("quantiles", {}).get("0.5")
    common = [one.get("name", one["value"]) for one in feature.get("common", ())]
    return (
        *(feature["name"], feature["dtype"], feature["present"]),
        *(values.get("min"), middle, values.get("mean"), values.get("max")),
        *(feature.get("distinct"), ", ".join(map(one_line, common))),
    )


@takes(StatsOptions)
def stats(shards: Locations, options: StatsOptions) -> StatsReport:
    """Compute statistics of every feature over all shards.

    The result does not depend on the number of workers. Memory is bounded by a batch of 16 MiB or
    the longest record, plus a few hundred MiB for the values if there are very many features.

    Args:
        shards: files, glob patterns and directories, one or several; or a binary stream.

    Raises:
        ShardError: a file can't be read, or no file contains Examples or SequenceExamples.
        UsageError: no record has a feature of ``types``.
    """
    total = _total(_profiles(shards, options))
    names = {key.name for key in total.fold.features}
    for name in options.types or ():
        if name not in names:
            raise UsageError(
                f"no feature {name!r}", hint=suggestion(name, sorted(names), "features")
            )
    against = None if options.against is None else _total(_profiles(options.against, options))
    return _report(total, against)


def _profiles(shards: Locations, options: StatsOptions) -> Iterable[ShardProfile]:
    sources = locate_shards(shards).sources
    declared, chosen = DeclaredFolders.read(sources).roots, parse_types(options.types)
    typed = {}
    for folder in {path_of(source).parent for source in sources}:
        fields = declared[folder].fields if folder in declared else {}
        typed[folder] = Struct({**fields, **chosen})
    request = ProfileRequest(statistics=True, typed=typed)
    return profile_shards(sources, request, options, _MIN_BYTES_PER_PROCESS)


def stats_report(profiles: Iterable[ShardProfile]) -> StatsReport:
    """Return the statistics of profiles that were asked for them."""
    return _report(_total(profiles), None)


@dataclass(slots=True)
class _Total:
    fold: StatsFold
    paths: list[AnyPath]
    losses: list[ShardLoss]


def _total(profiles: Iterable[ShardProfile]) -> _Total:
    total = _Total(StatsFold(), [], [])
    for profile in profiles:
        loss, fold = shard_loss(profile), profile.fold(StatsFold)
        total.paths.append(profile.path)
        total.losses += [] if loss is None else [loss]
        if fold is not None and profile.holds_examples:
            total.fold.merge(fold, 0)
    if not total.fold.records:
        raise no_examples(total.losses)
    return total


def _report(total: _Total, against: _Total | None) -> StatsReport:
    paths = [*total.paths, *(against.paths if against else [])]
    folders = dict.fromkeys(path.parent for path in paths)

    def labels(key: FeatureKey) -> Sequence[str]:
        """Return the class names of a feature, from files next to the shards."""
        where = folders if key.dtype is DType.INT64 else ()
        found = (LabelNames.read(folder, key.name).names for folder in where)
        return next(filter(None, found), ())

    mine, records = total.fold.features, total.fold.records
    compared = None
    if against is not None:
        others = against.fold.features
        known = dict.fromkeys([*total.fold.known(), *against.fold.known()])
        whole_features = [key for key in known if key.component is None]
        compared = {
            "shards": len(against.paths),
            "records": against.fold.records,
            "only_here": [str(key) for key in whole_features if key not in others],
            "only_there": [str(key) for key in whole_features if key not in mine],
            "distances": [
                distance
                for key in known
                for distance in (mine.get(key) or FeatureFold()).distances(
                    others.get(key) or FeatureFold(),
                    key,
                    (records, against.fold.records),
                    is_class=bool(labels(key)),
                )
            ],
        }
    return StatsReport(
        shards=len(total.paths),
        records=records,
        payload=PayloadKind.SEQUENCE_EXAMPLE if total.fold.sequences else PayloadKind.EXAMPLE,
        features=tuple(mine[key].to_json(key, records, labels(key)) for key in total.fold.known()),
        skipped=total.fold.skipped,
        losses=(*total.losses, *(against.losses if against else ())),
        against=compared,
    )
