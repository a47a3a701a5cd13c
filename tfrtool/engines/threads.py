"""A pool of threads that stops at the first error, and at once."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

_REPORT_EVERY = 0.05
"""Seconds between two reports of progress; a person sees no more."""


class Cancelled(Exception):  # noqa: N818 - it never leaves this room
    """The work was called off."""


class Tally:
    """Counts what several threads have done, and stops them once it is cancelled."""

    def __init__(self, report: Callable[[int], None]) -> None:
        self._report = report
        self._lock = threading.Lock()
        self._done = 0
        self._next = 0.0
        self.cancelled = False

    def count(self, things: int) -> None:
        """Count some things of ``size`` bytes together; raise if the work is called off."""
        if self.cancelled:
            raise Cancelled
        with self._lock:
            self._done += things
            now = time.monotonic()
            if now >= self._next:
                self._next = now + _REPORT_EVERY
                self._report(self._done)

    def finish(self) -> None:
        """Report the whole."""
        self._report(self._done)


def run_in_order(
    function: Callable[[Task], Result], tasks: Iterable[Task], workers: int, tally: Tally
) -> Iterator[Result]:
    """Yield the results of tasks in the tasks' order; the first error calls off the rest.

    Only a few tasks are taken out of ``tasks`` before they are worked on, and only a few results
    wait to be taken.
    """
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(max_workers=workers, thread_name_prefix="tfrtool") as pool:
        try:
            for task in tasks:
                waiting.append(pool.submit(function, task))
                if len(waiting) > 2 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BaseException:
            tally.cancelled = True
            pool.shutdown(wait=True, cancel_futures=True)
            raise
