"""``tfrtool filter``."""

from typing import Any

import click

from tfrtool.cli.jobs import run_job
from tfrtool.cli.output import Outcome
from tfrtool.cli.parameters import INPUT, OUTPUT_OR_URL, command
from tfrtool.convert.convert_options import FilterOptions


@command(
    'tfrtool filter shards/pets cats --where "label = 0"',
    "tfrtool filter shards/pets clean --drop bad.txt --dedupe",
    "tfrtool filter shards/pets small --sample 1000 --seed 7",
    options=FilterOptions,
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
