"""``tfrtool inspect stats``."""

from dataclasses import dataclass
from typing import Any

from tfrtool.cli.output import Bars, Outcome, emit, warn
from tfrtool.cli.parameters import (
    SHARDS,
    command,
    resolve_shards,
    resolve_sources,
)
from tfrtool.declare import Options, option
from tfrtool.errors import UsageError
from tfrtool.inspection.inspect_options import StatsOptions


@dataclass(frozen=True, kw_only=True)
class _InspectStatsOptions(Options):
    threshold: float | None = option(
        None,
        "Exit with code 3 if the distance to --against exceeds X for any feature; 0 is identical, "
        "1 disjoint.",
        metavar="X",
        least=0,
        most=1,
    )


@command(
    "tfrtool inspect stats 'data/train*.tfrecord*'",
    "tfrtool inspect stats new.tfrecord --against old.tfrecord --threshold 0.1",
    "tfrtool inspect stats data --json",
    options=(StatsOptions, _InspectStatsOptions),
)
@SHARDS
def inspect_stats_command(
    shards: tuple[str, ...],
    against: tuple[str, ...],
    threshold: float | None,
    as_json: bool,
    **words: Any,
) -> Outcome:
    """Show how the values of each feature are distributed.

    SHARDS are files, quoted globs and directories, or - for a shard on standard input. Shows:

    - all features: number of records and of values
    - numbers: mean, standard deviation, quantiles, histogram
    - strings and labels: the most common values
    - images: sizes and formats

    Exit code 3 means that records were skipped, or that a distance exceeds --threshold.
    """
    if threshold is not None and not against:
        raise UsageError(
            "--threshold requires --against", hint="use --against SHARDS to name what to compare"
        )
    from tfrtool.cli.schema_text import loss_text
    from tfrtool.inspection.stats.stats import stats
    from tfrtool.inspection.stats.stats_page import stats_page
    from tfrtool.storage.json_values import to_json_values

    with Bars() as bars:
        report = stats(
            resolve_sources(shards),
            against=resolve_shards(against) if against else None,
            on_progress=bars,
            **words,
        )
    for loss in report.losses:
        warn(loss_text(loss))
    emit(to_json_values(report) if as_json else stats_page(report, threshold))
    far = threshold is not None and bool(report.farther_than(threshold))
    return Outcome.DAMAGE if report.losses or report.skipped or far else Outcome.FINE
