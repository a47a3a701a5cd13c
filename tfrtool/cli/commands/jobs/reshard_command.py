"""``tfrtool reshard``."""

from typing import Any

import click

from tfrtool.cli.job_options import JOB_OPTIONS, run_job, splits_of
from tfrtool.cli.output import Outcome
from tfrtool.cli.parameters import INPUT, OUTPUT_OR_URL, command


@command(
    "tfrtool reshard shards/pets fewer --shards 4",
    "tfrtool reshard part-1.tfrecord part-2.tfrecord whole --shuffle",
    "tfrtool reshard shards/pets anew --split train=0.9 --split test=0.1 --stratify label",
    options={
        "--split NAME=FRACTION ...": "A new split and its share of all records; repeat for each. "
        "The default keeps the splits of SRC.",
        "--stratify FEATURE": "Give each split its share of each value of a feature, to rounding.",
        "--group-by FEATURE": "Keep records with the same value of a feature in one split.",
        "--shuffle": "Put the records of each split in a random order.",
        "--seed N=0": "Random seed for --shuffle and --split.",
        **JOB_OPTIONS,
    },
)
@click.argument("source", metavar="SOURCE...", nargs=-1, required=True, type=INPUT)
@click.argument("dataset", metavar="TARGET", type=OUTPUT_OR_URL)
def reshard_command(
    source: tuple[str, ...], dataset: str, split: tuple[str, ...], **words: Any
) -> Outcome:
    """Write the records of SRC as other shards.

    More or fewer shards, of another size, compressed or not, shuffled, in other splits; several SRC
    become one dataset. Records are copied as they are, their CRCs checked, and metadata of TFDS
    goes along. Exit code 3 means that damaged records were left out.
    """
    from tfrtool.convert.reshard import reshard

    return run_job(reshard, source, dataset, splits=splits_of(split), **words)
