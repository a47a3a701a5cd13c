"""A trace of some steps, for TensorBoard's profiler."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import tensorflow as tf

__all__ = ["Profiler"]

_WARM_UP = 2
"""Steps before the trace: the first ones build graphs, and are like no others."""

_TRACED = 10
"""Steps in the trace. Each takes some hundred kB in it."""


class Profiler:
    """Traces a few steps of all that are taken; a context manager.

    Steps are marked with a number and ``_r=1``, as TensorFlow's guide to the profiler says: without
    that, TensorBoard's profiler finds no step times. Waiting for the next batch is part of a step.

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
        self._marked = ExitStack()

    def __enter__(self) -> Profiler:
        self._start_or_stop()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def step(self, *, last: bool = False) -> None:
        """Count a step that was taken; the next one begins, unless something else comes first.

        Args:
            last: whether it was the last one of its epoch.
        """
        self._done += 1
        self._start_or_stop(marked=not last)

    def _start_or_stop(self, *, marked: bool = True) -> None:
        self._marked.close()
        if self._directory is not None and self._done == self._first and not self._running:
            tf.profiler.experimental.start(str(self._directory))
            self._running = True
        elif self._done >= self._first + _TRACED:
            self._stop()
        if self._running and marked:
            mark = tf.profiler.experimental.Trace("train", step_num=self._done, _r=1)
            self._marked.enter_context(mark)

    def _stop(self) -> None:
        self._marked.close()
        if self._running:
            self._running = False
            self._directory = None
            tf.profiler.experimental.stop()
