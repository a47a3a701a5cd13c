"""``tfrtool train``."""

import click

train_command = click.Command("train")
