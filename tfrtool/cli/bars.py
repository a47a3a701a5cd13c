"""Progress bars, on a terminal only."""

import io
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click

from tfrtool.cli.output import BARS
from tfrtool.cli.process import Signals, StandardFile
from tfrtool.storage.extras import KERAS_MODELS, require_tensorflow
from tfrtool.storage.progress import BYTES, Progress, activity

if TYPE_CHECKING:
    from tqdm import tqdm


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
        """Show that TensorFlow is being loaded, and hold back its log lines.

        Raises:
            UsageError: TensorFlow is not installed.
        """
        require_tensorflow(KERAS_MODELS)
        self(activity("loading TensorFlow"))
        with starting_tensorflow():
            yield

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


@contextmanager
def starting_tensorflow() -> Iterator[None]:
    """Hold back what TensorFlow's libraries log while they are loaded; print it after an error.

    TensorFlow 2.21 writes lines about devices straight to file descriptor 2, before any log level
    applies.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.stderr.flush()
    saved, lines = os.dup(2), b""
    with tempfile.TemporaryFile() as log:
        os.dup2(log.fileno(), 2)
        try:
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
