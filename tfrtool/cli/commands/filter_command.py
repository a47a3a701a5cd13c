"""``tfrtool filter``."""

from typing import Any

import click

from tfrtool.cli.job_options import COPY_OPTIONS, run_job
from tfrtool.cli.output import Outcome
from tfrtool.cli.parameters import INPUT, OUTPUT_OR_URL, command


@command(
    'tfrtool filter shards/pets cats --where "label = 0"',
    "tfrtool filter shards/pets clean --drop bad.txt --dedupe",
    "tfrtool filter shards/pets small --sample 1000 --seed 7",
    options={
        "Selection": {
            "--where EXPR": "Keep records that match an SQL condition, such as "
            '"label = 1 AND height > 64".',
            "--keep FILE": "Keep only the records listed in FILE, one SHARD and RECORD per line.",
            "--drop FILE": "Drop the records listed in FILE.",
            "--dedupe": "Drop exact duplicates: of the image, or of the record if it has none.",
            "--sample SIZE": "Keep a random sample of what the other options keep: a number, or a "
            "share such as 5% or 0.05.",
            "--seed N=0": "Random seed for --sample.",
        },
        **COPY_OPTIONS,
    },
)
@click.argument("source", type=INPUT)
@click.argument("dataset", metavar="TARGET", type=OUTPUT_OR_URL)
def filter_command(source: str, dataset: str, **words: Any) -> Outcome:
    """Copy selected records to a new dataset.

    SOURCE is a dataset directory, a shard or a quoted glob. TARGET gets the records that pass
    every option, unchanged and in their order and splits, with the TFDS metadata.

    Exit code 3 means that damaged records were skipped.
    """
    from tfrtool.convert.filter_records import filter_records

    return run_job(filter_records, source, dataset, **words)
