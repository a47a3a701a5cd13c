"""``tfrtool edit``."""

from typing import Any

import click

from tfrtool.cli.jobs import run_job
from tfrtool.cli.output import Outcome
from tfrtool.cli.parameters import INPUT, OUTPUT_OR_URL, command
from tfrtool.convert.convert_options import EditOptions


@command(
    "tfrtool edit shards/pets small --resize 64 --drop image/filename",
    "tfrtool edit shards/pets renamed --rename label=class --add source=kaggle",
    "tfrtool edit raw typed --cast height=int64 --add weight:float32=1 --on-error skip",
    options=EditOptions,
)
@click.argument("source", type=INPUT)
@click.argument("target", type=OUTPUT_OR_URL)
def edit_command(source: str, target: str, **words: Any) -> Outcome:
    """Change the features of every record.

    SOURCE is a dataset directory, a shard or a quoted glob. TARGET gets one shard for each shard
    of SOURCE. Changes are made in this order: encode and resize images, select or drop features,
    cast, rename, add. All names refer to SOURCE.

    A value that doesn't fit its new type is an error; values never change silently. Exit code 3
    means that records were skipped.
    """
    from tfrtool.convert.edit import edit

    return run_job(edit, source, target, **words)
