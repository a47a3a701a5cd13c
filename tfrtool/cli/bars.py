"""Progress bars, on a terminal only."""

import io
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click

from tfrtool.cli.output import BARS
from tfrtool.cli.process import Signals, StandardFile, starting_tensorflow
from tfrtool.storage.progress import Progress, activity

if TYPE_CHECKING:
    from tqdm import tqdm

_FIRST, _EVERY = 0.3, 0.5
"""Seconds until the elapsed time is first shown, and between two updates."""

_NO_COUNT = "{desc} [{elapsed}]"


class Bars:
    """Draws the `Progress` of a verb, a bar for each phase: ``with Bars() as bars:``.

    Pass it to verbs: ``verify(shards, on_progress=bars)``. Between phases, and in phases that
    count nothing, a thread updates the elapsed time. It ends as soon as a phase begins, because
    worker processes may only be forked while there is no other thread.
    """

    def __init__(self) -> None:
        context = click.get_current_context(silent=True)
        self._signals = None if context is None else context.find_object(Signals)
        if context is not None:
            context.meta[BARS] = self
        self._last = activity("preparing")
        self._bar: tqdm[Any] | None = None
        self._file: io.TextIOWrapper | None = None
        self._ticker: threading.Thread | None = None
        self._stop = threading.Event()

    def __enter__(self) -> "Bars":
        if sys.stderr.isatty():
            self._start_ticker()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def loading_tensorflow(self) -> Iterator[None]:
        """Show that TensorFlow is being loaded, and hold back its log lines."""
        self(activity("loading TensorFlow"))
        with starting_tensorflow():
            yield

    def __call__(self, progress: Progress) -> None:
        """Draw the progress of a phase; a new phase gets a new bar."""
        if self._signals is not None:
            self._signals.heed()
        if not sys.stderr.isatty():
            return
        self._stop_ticker()
        same = (progress.what, progress.unit) == (self._last.what, self._last.unit)
        if self._bar is None or not same or progress.done < self._last.done:
            self._remove_bar()
            self._bar = self._draw(progress)
        self._last = progress
        if progress.note:
            self._bar.set_postfix_str(progress.note, refresh=False)
        self._bar.update(progress.done - self._bar.n)
        if not progress.unit or progress.done == progress.total:
            self._start_ticker()

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Hide the bar while something else is printed."""
        ticking = self._ticker is not None
        self._stop_ticker()
        self._remove_bar()
        yield
        if ticking:
            self._start_ticker()

    def _draw(self, progress: Progress) -> "tqdm[Any]":
        from tqdm import tqdm  # takes 20 ms to import

        if self._file is None:
            # A copy, since stderr itself is held back while TensorFlow is loaded.
            raw = StandardFile(os.dup(2), "w")
            self._file = io.TextIOWrapper(
                io.BufferedWriter(raw), encoding="utf-8", errors="replace"
            )

        class Bar(tqdm):  # type: ignore[type-arg]
            monitor_interval = 0  # no thread of its own

        return Bar(
            initial=progress.done,
            total=progress.total,
            desc=progress.what,
            unit=progress.unit if progress.unit == "B" else f" {progress.unit}",
            unit_scale=progress.unit == "B",
            leave=False,
            file=self._file,
            dynamic_ncols=True,
            miniters=0,
            smoothing=0,
            bar_format=None if progress.unit else _NO_COUNT,
        )

    def _start_ticker(self) -> None:
        self._stop.clear()
        self._ticker = threading.Thread(target=self._tick, daemon=True)
        self._ticker.start()

    def _stop_ticker(self) -> None:
        if self._ticker is not None:
            self._stop.set()
            self._ticker.join()
            self._ticker = None

    def _tick(self) -> None:
        pause = _FIRST
        while not self._stop.wait(pause):
            with suppress(OSError, ValueError):  # the terminal is gone
                if self._bar is None:
                    self._bar = self._draw(self._last)
                self._bar.refresh()
            pause = _EVERY

    def _remove_bar(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def close(self) -> None:
        """Remove the bar."""
        self._stop_ticker()
        self._remove_bar()
        if self._file is not None:
            self._file.close()
            self._file = None
