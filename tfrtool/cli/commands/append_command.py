"""``tfrtool append``."""

from typing import Any

import click

from tfrtool.cli.jobs import run_job
from tfrtool.cli.output import Outcome
from tfrtool.cli.parameters import INPUT, command
from tfrtool.convert.convert_options import AppendOptions


@command(
    "tfrtool append ~/tensorflow_datasets/pets/1.0.0 shards/new_pets",
    "tfrtool append shards/pets shards/new_pets --out shards/more_pets --split train",
    "tfrtool append ~/tensorflow_datasets/pets/1.0.0 'new/*.tfrecord' --version 2.0.0",
    options=AppendOptions,
)
@click.argument("dataset", type=INPUT)
@click.argument("source", type=INPUT)
def append_command(dataset: str, source: str, **words: Any) -> Outcome:
    """Add records to a dataset, as a new version of it.

    DATASET is a dataset directory. It stays unchanged: the new version has hard links to its
    shards. SOURCE consists of shards, such as a dataset directory. Existing records keep their
    split.

    Exit code 3 means that damaged records were skipped.
    """
    from tfrtool.convert.append import append

    return run_job(append, dataset, source, **words)
