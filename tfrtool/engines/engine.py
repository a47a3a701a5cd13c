"""Where tasks run: on the cores of this machine, or on a cluster."""

import abc
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

from tfrtool.declare import option
from tfrtool.storage.progress import OnCounts, OnProgress
from tfrtool.storage.remote_path import RemotePath

Result = TypeVar("Result")
Task = TypeVar("Task")


class Engine(AbstractContextManager["Engine"]):
    """Runs tasks; a context manager, which may be entered again inside itself.

    Tasks don't depend on each other, and a task that was begun may be run again.
    """

    def __exit__(self, *error: object) -> None:
        """Release what is kept for them."""
        return

    @abc.abstractmethod
    def map(
        self,
        function: Callable[[Task], Result],
        tasks: Iterable[Task],
        *,
        worth: int,
        size: int | None,
        in_order: bool,
        on_counts: OnCounts | None,
        short: bool = False,
    ) -> Iterator[Result]:
        """Yield the results of tasks, in their order or as they are done; an error cancels all.

        A process is worth its start for ``worth`` bytes, of ``size`` in all. ``on_counts`` gets
        what tasks count with `count_work`, in the thread that takes the results. ``short`` is as
        for `map_shards`.
        """

    def hold(
        self,
        paths: Sequence[RemotePath],  # noqa: ARG002
        on_progress: OnProgress,  # noqa: ARG002
    ) -> AbstractContextManager[None]:
        """Download objects once for all tasks in the body, if the engine can keep them."""
        return nullcontext()


Workers = int | Engine | None
"""How many processes of this machine, where None takes the cores; or another engine."""


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def busy_seconds() -> float | None:
    """Return for how long the cores of `cores` have been busy, for any program; Linux only.

    The difference of two calls is in seconds of one core, and good to about 0.02 of them.
    """
    try:
        text = Path("/proc/stat").read_text("ascii")
        usable = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    except (OSError, AttributeError):
        return None
    lines = [line.split() for line in text.splitlines()]
    # proc(5): user, nice, system, idle, iowait, irq, softirq and steal.
    counts = [list(map(int, line[1:9])) for line in lines if line and line[0] in usable]
    return sum(sum(core) - core[3] - core[4] for core in counts) / os.sysconf("SC_CLK_TCK")


def workers_option(kind: str = "worker processes", group: str = "Options") -> Any:
    """Declare the option ``--workers N``; None takes the cores."""
    text = f"Maximum number of {kind}.  [default: number of cores]"
    return option(None, text, metavar="N", group=group, least=1)
