"""``tfrtool write``."""

import click

write_command = click.Command("write")
