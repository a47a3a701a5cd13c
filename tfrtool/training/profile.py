"""A trace of some steps, for TensorBoard's profiler."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

import tensorflow as tf

__all__ = ["Profiler"]

_WARM_UP = 2
"""Steps before the trace: the first ones build graphs, and are like no others."""

_TRACED = 10
"""Steps in the trace. Each takes some hundred kB in it."""


class Profiler:
    """Traces a few steps of all that are taken; a context manager.

    The trace is ``plugins/profile/TIME/HOST.xplane.pb`` below the directory, which is where
    TensorBoard's profiler looks for it.
    """

    def __init__(self, directory: Path | None, steps: int) -> None:
        """Get ready.

        Args:
            directory: where the trace goes; None traces nothing.
            steps: how many steps there will be. The trace ends with them if they are few.
        """
        self._directory = directory
        self._first = max(min(_WARM_UP, steps - 1), 0)
        self._done = 0
        self._running = False

    def __enter__(self) -> Profiler:
        self._start_or_stop()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def step(self) -> None:
        """Count a step that was taken."""
        self._done += 1
        self._start_or_stop()

    def _start_or_stop(self) -> None:
        if self._directory is not None and self._done == self._first and not self._running:
            tf.profiler.experimental.start(str(self._directory))
            self._running = True
        elif self._done >= self._first + _TRACED:
            self._stop()

    def _stop(self) -> None:
        if self._running:
            self._running = False
            self._directory = None
            tf.profiler.experimental.stop()
