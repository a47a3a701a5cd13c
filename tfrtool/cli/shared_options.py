"""Options that commands share, as decorators."""

from __future__ import annotations

import click

DEBUG = "--debug"
"""It may stand before or after the command's name; `tfrtool.cli.app.run` looks for it."""

debug_option = click.option(
    DEBUG, is_flag=True, expose_value=False, help="Show a traceback with an error."
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON Lines on stdout, and nothing else."
)
workers_option = click.option(
    "--workers",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many processes at most.  [default: the cores]",
)
