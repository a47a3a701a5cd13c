"""Printing, results on stdout and everything else on stderr; and the exit codes."""

import enum
import json
import shutil
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

import click

from tfrtool.cli.layout import render
from tfrtool.errors import UsageError, some_of
from tfrtool.page import Page

BARS = "tfrtool.bars"
"""The key of a command's progress bars in click's context."""

_LETTERS = 10
"""Number of letters that a warning names."""

_BLOCK_CHARACTERS, _BLOCK_SECONDS = 64 * 1024, 0.1
"""Lines are printed together until they have this length, or the last ones are this old."""


class Outcome(enum.IntEnum):
    """How a command ended; the values are the exit codes of every command."""

    FINE = 0
    FAILED = 1
    USAGE = 2
    DAMAGE = 3
    """Finished, but damage was found or something was skipped."""
    INTERRUPTED = 130


def emit(result: str | Mapping[str, Any] | Page) -> None:
    """Print a result: a text, an object as a line of JSON in ASCII, or a page for people."""
    if isinstance(result, Mapping):
        result = json.dumps(result, allow_nan=False)
    if not isinstance(result, str):
        result = render(result, terminal=sys.stdout.isatty())
    _echo(result)


class LineBlocks:
    """Lines on standard output, printed several at a time.

    The first line is printed at once, and on a terminal each. Call `flush` before whatever may
    take long; the end of a ``with`` does it, too.
    """

    def __init__(self) -> None:
        """Begin without a line."""
        self._seconds = 0.0 if sys.stdout.isatty() else _BLOCK_SECONDS
        self._lines: list[str] = []
        self._characters, self._due = 0, 0.0

    def __enter__(self) -> None:
        """Do nothing yet."""

    def __exit__(self, *_: object) -> None:
        """Print the lines that wait, after an error, too."""
        self.flush()

    def add(self, line: str) -> None:
        """Print a line, now or with those that follow."""
        self._lines.append(line)
        self._characters += len(line)
        if self._characters >= _BLOCK_CHARACTERS or time.monotonic() >= self._due:
            self.flush()

    def flush(self) -> None:
        """Print the lines that wait."""
        if self._lines:
            block = "\n".join(self._lines)
            self._lines.clear()  # before it is printed: an interrupt must not print it twice
            self._characters = 0
            _echo(block)
            self._due = time.monotonic() + self._seconds


def emit_pieces(pieces: Iterable[str]) -> None:
    """Print a line piece by piece, without holding it in memory."""
    for piece in pieces:
        click.echo(piece, nl=False)
    click.echo()


def warn(message: str) -> None:
    """Print a warning."""
    _echo(f"tfrtool: warning: {message}", err=True)


def warn_of_letters(undrawn: str) -> None:
    """Warn about letters that an image shows as escapes because no font has them."""
    if undrawn:
        from tfrtool.images.letters import ADVICE

        warn(f"no installed font has {some_of(undrawn, _LETTERS)}: drawn as escapes; {ADVICE}")


def note(message: str) -> None:
    """Print a note that needs no action."""
    _echo(f"tfrtool: {message}", err=True)


def binary_output() -> BinaryIO:
    """Return standard output for bytes; `UsageError` if it is a terminal."""
    if sys.stdout.isatty():
        hint = "redirect it to a file or a program"
        raise UsageError("binary output can't be shown in a terminal", hint=hint)
    return sys.stdout.buffer


def emit_file(file: BinaryIO) -> None:
    """Copy a file to standard output."""
    shutil.copyfileobj(file, sys.stdout.buffer)
    sys.stdout.buffer.flush()


def _echo(text: str, *, err: bool = False) -> None:
    """Print a text without breaking a progress bar."""
    context = click.get_current_context(silent=True)
    bars = None if context is None else context.meta.get(BARS)
    if bars is not None:
        bars.remove()
    click.echo(text, err=err)
