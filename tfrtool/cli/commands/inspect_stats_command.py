"""``tfrtool inspect stats``."""

from typing import Any

from tfrtool.cli.bars import Bars
from tfrtool.cli.output import Outcome, emit, warn
from tfrtool.cli.parameters import (
    ENGINE,
    INPUT,
    SHARDS,
    WORKERS,
    Number,
    command,
    shards_of,
    sources_of,
)
from tfrtool.errors import UsageError


@command(
    "tfrtool inspect stats 'data/train*.tfrecord*'",
    "tfrtool inspect stats today.tfrecord --against yesterday.tfrecord --threshold 0.1",
    "tfrtool inspect stats data --json",
    options={
        "--against OTHER ...": "Compare with these shards.",
        "--threshold X": "Exit code 3 where a distance is greater; from 0, alike, to 1.",
        **WORKERS,
        **ENGINE,
    },
    kinds={"OTHER": INPUT, "X": Number(0, 1)},
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

    Presence, lengths, mean, standard deviation, quantiles, zeros, NaN and a histogram of numbers;
    the commonest strings and labels; sizes and formats of images. SHARDS: files, quoted globs and
    directories; or -, a shard on standard input. Exit code 3 means that something is not in it, or
    that the others are farther than the threshold.
    """
    if threshold is not None and not against:
        raise UsageError("a threshold is for distances", hint="--against says from what")
    from tfrtool.cli.render.schema_text import loss_text
    from tfrtool.cli.render.stats_text import stats_page
    from tfrtool.inspection.stats.stats import stats
    from tfrtool.storage.plain import plain

    with Bars() as bars:
        report = stats(
            sources_of(shards),
            against=shards_of(against) if against else None,
            on_progress=bars,
            **words,
        )
    for loss in report.losses:
        warn(loss_text(loss))
    emit(plain(report) if as_json else stats_page(report, threshold))
    far = threshold is not None and bool(report.farther_than(threshold))
    return Outcome.DAMAGE if report.losses or report.skipped or far else Outcome.FINE
