"""``tfrtool append``."""

from typing import Any

import click

from tfrtool.cli.jobs import run_job
from tfrtool.cli.output import Outcome
from tfrtool.cli.parameters import INPUT, command
from tfrtool.convert.convert_options import AppendOptions


@command(
    "tfrtool append ~/tensorflow_datasets/pets/1.0.0 more_photos --dedupe",
    "tfrtool append shards/pets more_photos --out shards/more_pets --split train",
    "tfrtool append ~/tensorflow_datasets/pets/1.0.0 'new/*.tfrecord' --version 2.0.0",
    options=AppendOptions,
)
@click.argument("dataset", type=INPUT)
@click.argument("source", type=INPUT)
def append_command(dataset: str, source: str, **words: Any) -> Outcome:
    """Add images or records to a dataset, as a new version of it.

    DATASET is a dataset directory. It stays unchanged: the new version has hard links to its
    shards. SOURCE holds images, as for tfrtool write, or shards. Existing records keep their split,
    and classes their number.

    Exit code 3 means that images or records were skipped.
    """
    from tfrtool.convert.append import append

    return run_job(append, dataset, source, loads_tensorflow=True, **words)
