"""``tfrtool reshard``."""

from typing import Any

import click

from tfrtool.cli.jobs import run_job
from tfrtool.cli.output import Outcome
from tfrtool.cli.parameters import INPUT, OUTPUT_OR_URL, command
from tfrtool.convert.convert_options import ReshardOptions


@command(
    "tfrtool reshard shards/pets fewer --shards 4",
    "tfrtool reshard part-1.tfrecord part-2.tfrecord merged --shuffle",
    "tfrtool reshard shards/pets resplit --split train=0.9 --split test=0.1 --stratify label",
    options=ReshardOptions,
)
@click.argument("source", metavar="SOURCE...", nargs=-1, required=True, type=INPUT)
@click.argument("dataset", metavar="TARGET", type=OUTPUT_OR_URL)
def reshard_command(source: tuple[str, ...], dataset: str, **words: Any) -> Outcome:
    """Change the number, size, order or splits of shards.

    SOURCE is one or more dataset directories, shards or quoted globs, which become one dataset.
    TARGET gets the records unchanged, with the TFDS metadata. The CRCs of every record are checked.

    Exit code 3 means that damaged records were skipped.
    """
    from tfrtool.convert.reshard import reshard

    return run_job(reshard, source, dataset, **words)
