"""Options that commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

DEBUG = "--debug"


def debug_option(command: Command) -> Command:
    """Add ``--debug``, which may stand before or after the command's name; `main` looks for it."""
    return click.option(
        DEBUG, is_flag=True, expose_value=False, help="Show a traceback with an error."
    )(command)


def json_option(command: Command) -> Command:
    """Add ``--json``."""
    return click.option(
        "--json", "as_json", is_flag=True, help="Print JSON Lines on stdout, and nothing else."
    )(command)


def workers_option(command: Command) -> Command:
    """Add ``--workers``: None, where it is not given, takes the cores."""
    return click.option(
        "--workers",
        type=click.IntRange(min=1),
        metavar="N",
        help="How many processes at most.  [default: the cores]",
    )(command)
