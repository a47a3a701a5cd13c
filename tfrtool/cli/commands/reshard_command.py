"""``tfrtool reshard``."""

from typing import Any

import click

from tfrtool.cli.job_options import COPY_OPTIONS, parse_splits, run_job
from tfrtool.cli.output import Outcome
from tfrtool.cli.parameters import INPUT, OUTPUT_OR_URL, command


@command(
    "tfrtool reshard shards/pets fewer --shards 4",
    "tfrtool reshard part-1.tfrecord part-2.tfrecord merged --shuffle",
    "tfrtool reshard shards/pets resplit --split train=0.9 --split test=0.1 --stratify label",
    options={
        "Splits and order": {
            "--split NAME=FRACTION ...": "Put this fraction of all records into a split. Repeat "
            "for each split.  [default: the splits of SOURCE]",
            "--stratify FEATURE": "Keep the proportions of this feature's values the same in every "
            "split.",
            "--group-by FEATURE": "Keep records in the same split if they share a value of this "
            "feature.",
            "--shuffle": "Write the records of each split in random order.",
            "--seed N=0": "Random seed for --shuffle and --split.",
        },
        **COPY_OPTIONS,
    },
)
@click.argument("source", metavar="SOURCE...", nargs=-1, required=True, type=INPUT)
@click.argument("dataset", metavar="TARGET", type=OUTPUT_OR_URL)
def reshard_command(
    source: tuple[str, ...], dataset: str, split: tuple[str, ...], **words: Any
) -> Outcome:
    """Change the number, size, order or splits of shards.

    SOURCE is one or more dataset directories, shards or quoted globs, which become one dataset.
    TARGET gets the records unchanged, with the TFDS metadata. The CRCs of every record are checked.

    Exit code 3 means that damaged records were skipped.
    """
    from tfrtool.convert.reshard import reshard

    return run_job(reshard, source, dataset, splits=parse_splits(split), **words)
