"""``tfrtool inspect``: the group."""

from __future__ import annotations

import click

from tfrtool.cli.commands.inspect_dataset_command import inspect_dataset_command
from tfrtool.cli.commands.inspect_images_command import inspect_images_command
from tfrtool.cli.commands.inspect_schema_command import inspect_schema_command
from tfrtool.cli.commands.inspect_shard_command import inspect_shard_command


@click.group(
    name="inspect", epilog="\b\nExample:\n  tfrtool inspect shard 'data/*.tfrecord*' --limit 1"
)
def inspect_group() -> None:
    """Look into TFRecord files. TensorFlow is not needed, and not loaded."""


inspect_group.add_command(inspect_shard_command)
inspect_group.add_command(inspect_schema_command)
inspect_group.add_command(inspect_images_command)
inspect_group.add_command(inspect_dataset_command)
