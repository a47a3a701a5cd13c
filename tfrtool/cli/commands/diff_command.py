"""``tfrtool diff``."""

from dataclasses import dataclass
from typing import Any

import click

from tfrtool.cli.bars import Bars
from tfrtool.cli.output import Outcome, emit, note
from tfrtool.cli.parameters import INPUT, command
from tfrtool.declare import Options, option
from tfrtool.engines.engine import workers_option


@dataclass(frozen=True, kw_only=True)
class _DiffOptions(Options):
    key: str | None = option(
        None,
        "Feature that identifies a record, such as image/filename. Without it, a changed record is "
        "listed as one only in SOURCE and one only in TARGET.",
        metavar="FEATURE",
    )
    limit: int = option(
        10, "Maximum number of records to list for each kind of difference.", metavar="N", least=0
    )
    workers: int | None = workers_option()


@command(
    "tfrtool diff shards/pets shards/shuffled",
    "tfrtool diff shards/pets shards/edited --key image/filename --limit 3",
    "tfrtool diff train.tfrecord 'train-*.tfrecord.gz' --json",
    options=_DiffOptions,
)
@click.argument("a", metavar="SOURCE", type=INPUT)
@click.argument("b", metavar="TARGET", type=INPUT)
def diff_command(a: str, b: str, as_json: bool, **words: Any) -> Outcome:
    """Compare the records of two datasets.

    SOURCE and TARGET are files, quoted globs or directories. Their order, number of shards and
    compression don't matter. Lists features whose types differ, and records that are only in one
    of the two, changed, or in another split.

    Exit code 3 means that they differ, or that damaged records couldn't be compared.
    """
    from tfrtool.cli.render.diff_text import diff_page
    from tfrtool.convert.diff import diff

    with Bars() as bars:
        report = diff(a, b, on_progress=bars, **words)
    for text in report.notes:
        note(text)
    emit(report.to_json() if as_json else diff_page(report))
    return Outcome.FINE if report.same else Outcome.DAMAGE
