"""``tfrtool filter``."""

from typing import Any

import click

from tfrtool.cli.job_options import JOB_OPTIONS, run_job
from tfrtool.cli.output import Outcome
from tfrtool.cli.parameters import INPUT, OUTPUT_OR_URL, command


@command(
    'tfrtool filter shards/pets cats --where "label = 0"',
    "tfrtool filter shards/pets clean --drop bad.txt --dedupe",
    "tfrtool filter shards/pets small --sample 1000 --seed 7",
    options={
        "--where EXPR": 'Keep records for which an SQL condition holds: "label = 1 AND height > '
        '64".',
        "--keep FILE": "Keep the records of a list only: lines with a shard and an index.",
        "--drop FILE": "Leave out the records of a list.",
        "--dedupe": "Leave out exact copies, all but the first: of the image where there is one, "
        "else of the record.",
        "--sample SIZE": "Keep so many records at random, of those that the other options keep: a "
        "number, or a share such as 5% or 0.05.",
        "--seed N=0": "Seed of the sample.",
        **JOB_OPTIONS,
    },
)
@click.argument("source", type=INPUT)
@click.argument("dataset", metavar="TARGET", type=OUTPUT_OR_URL)
def filter_command(source: str, dataset: str, **words: Any) -> Outcome:
    """Write some of the records of SRC to DST.

    Records are copied as they are, their CRCs checked, and metadata of TFDS goes along; what left
    out how many is told. Exit code 3 means that damaged records were left out.
    """
    from tfrtool.convert.filter_records import filter_records

    return run_job(filter_records, source, dataset, **words)
