"""How far a verb is: reported to its caller, by the tasks in worker processes too."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

BYTES, RECORDS = "B", "records"

_INTERVAL = 0.25
"""Seconds between two reports of a task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a function is.

    Attributes:
        what: the current phase, such as "checking".
        done: amount of work done in this phase.
        total: total amount of work in this phase, or None if unknown. The last report of a phase
            has it as `done`.
        unit: "records", "images", "steps" or "B" for bytes; "" if nothing is counted.
        note: further information, such as "loss 0.31".
    """

    what: str
    done: int
    total: int | None
    unit: str
    note: str = ""


OnProgress = Callable[[Progress], None]
"""What takes it: called from the thread that called the verb, some times a second."""

Counts = Mapping[str, int]
"""Work done since the last report of a task, by unit."""

OnCounts = Callable[[Counts], None]
"""Takes the counts of tasks; empty ones show that workers are busy."""


def no_progress(_progress: Progress) -> None:
    """Do nothing: the default of ``on_progress``."""


def activity(what: str) -> Progress:
    """Return the progress of a phase that counts nothing."""
    return Progress(what=what, done=0, total=None, unit="")


@dataclass(slots=True)
class _TaskCounts:
    """What a task has counted, passed on now and then."""

    on_counts: OnCounts
    counts: dict[str, int] = field(default_factory=dict)
    next: float = 0.0  # when they are passed on

    def flush(self) -> None:
        counts, self.counts = self.counts, {}
        if counts:
            self.on_counts(counts)


_task: ContextVar[_TaskCounts | None] = ContextVar("task", default=None)


def count_work(amount: int, unit: str) -> None:
    """Count work done by the current task; does nothing outside `counting`."""
    task = _task.get()
    if task is not None:
        task.counts[unit] = task.counts.get(unit, 0) + amount
        if time.monotonic() >= task.next:
            task.flush()
            task.next = time.monotonic() + _INTERVAL


@contextmanager
def counting(on_counts: OnCounts) -> Iterator[None]:
    """Pass on what `count_work` counts in this thread: first at once, then now and then."""
    counts = _TaskCounts(on_counts)
    token = _task.set(counts)
    try:
        yield
        counts.flush()
    finally:
        _task.reset(token)


class Meter:
    """Adds up one unit of the counts of tasks, and reports the sum as the progress of a phase."""

    def __init__(
        self, on_progress: OnProgress, what: str, unit: str, total: int | None, *, done: int = 0
    ) -> None:
        """Begin the phase."""
        self._on_progress, self._what, self._unit = on_progress, what, unit
        self._total, self._done = total, done
        self._report()

    def add(self, counts: Counts) -> None:
        """Add what a task has counted."""
        self._done += counts.get(self._unit, 0)
        self._report()

    def finish(self) -> None:
        """End the phase: what its tasks skipped counts as done."""
        self._done = self._done if self._total is None else self._total
        self._report()

    def _report(self) -> None:
        done = self._done if self._total is None else min(self._done, self._total)
        progress = Progress(what=self._what, done=done, total=self._total, unit=self._unit)
        self._on_progress(progress)
