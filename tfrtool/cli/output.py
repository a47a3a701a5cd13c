"""Printing, results on stdout and everything else on stderr; progress bars; and the exit codes."""

import enum
import io
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from tfrtool.cli.layout import render
from tfrtool.cli.process import Signals, StandardFile, collection_paused
from tfrtool.errors import UsageError, some_of
from tfrtool.page import Page
from tfrtool.storage.extras import KERAS_MODELS, require_tensorflow
from tfrtool.storage.progress import BYTES, Progress, activity

if TYPE_CHECKING:
    from tqdm import tqdm

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


class Bars:
    """Draws the `Progress` of a verb, a bar for each phase: ``with Bars() as bars:``.

    Pass it to verbs: ``verify(shards, on_progress=bars)``.
    """

    def __init__(self) -> None:
        context = click.get_current_context(silent=True)
        self._signals = None if context is None else context.find_object(Signals)
        if context is not None:
            context.meta[BARS] = self
        self._last = activity("preparing")
        self._bar: tqdm[Any] | None = None
        self._clock: _Clock | None = None
        self._file: io.TextIOWrapper | None = None

    def __enter__(self) -> "Bars":
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()
        if self._file is not None:
            self._file.close()
            self._file = None

    @contextmanager
    def loading_tensorflow(self) -> Iterator[None]:
        """Show that TensorFlow is being loaded, and hold back what its libraries log.

        It is printed after an error. TensorFlow 2.21 writes lines about devices straight to file
        descriptor 2, before any log level applies.

        Raises:
            UsageError: TensorFlow is not installed.
        """
        import tempfile  # imports much

        require_tensorflow(KERAS_MODELS)
        self(activity("loading TensorFlow"))
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        sys.stderr.flush()
        saved, lines = os.dup(2), b""
        with tempfile.TemporaryFile() as log:
            os.dup2(log.fileno(), 2)
            try:
                with collection_paused(exempt=self._signals is not None):
                    yield
            except Exception:
                log.seek(0)
                lines = log.read()
                raise
            finally:
                sys.stderr.flush()
                os.dup2(saved, 2)
                os.close(saved)
                with suppress(OSError):  # stderr may be on a full disk
                    os.write(2, lines)

    def __call__(self, progress: Progress) -> None:
        """Draw the progress of a phase; a new phase gets a new bar."""
        if self._signals is not None:
            self._signals.raise_if_interrupted()
        if not sys.stderr.isatty():
            return
        same = (progress.what, progress.unit) == (self._last.what, self._last.unit)
        if self._bar is None or not same or progress.done < self._last.done:
            self.remove()
            self._bar = self._draw(progress)
            self._clock = None if progress.unit else _Clock(self._bar)
        self._last = progress
        if progress.note:
            self._bar.set_postfix_str(progress.note, refresh=False)
        self._bar.update(progress.done - self._bar.n)

    def _draw(self, progress: Progress) -> "tqdm[Any]":
        from tqdm import tqdm  # takes 20 ms to import

        if self._file is None:
            # A copy, since stderr itself is held back while TensorFlow is loaded.
            raw = io.BufferedWriter(StandardFile(os.dup(2), "w"))
            self._file = io.TextIOWrapper(raw, encoding="utf-8", errors="replace")

        class Bar(tqdm):  # type: ignore[type-arg]
            monitor_interval = 0  # no thread of its own

        return Bar(
            initial=progress.done,
            total=progress.total,
            desc=progress.what,
            unit="iB" if progress.unit == BYTES else f" {progress.unit}",
            unit_scale=progress.unit == BYTES,
            unit_divisor=1024,  # as in the results
            leave=False,
            file=self._file,
            dynamic_ncols=True,
            miniters=0,
            smoothing=0,
            bar_format=None if progress.unit else "{desc}  {elapsed}",
        )

    def remove(self) -> None:
        """Remove the bar, for something else to be printed; the next progress draws it again."""
        if self._clock is not None:
            self._clock.stop()
            self._clock = None
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class _Clock:
    """Redraws a bar that counts nothing once a second: its time shows that work goes on."""

    def __init__(self, bar: "tqdm[Any]") -> None:
        self._bar, self._stopped = bar, threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True)
        self._thread.start()

    def _tick(self) -> None:
        while not self._stopped.wait(1):
            with suppress(OSError):  # the terminal is gone
                self._bar.refresh()

    def stop(self) -> None:
        """Redraw no more."""
        self._stopped.set()
        self._thread.join()
