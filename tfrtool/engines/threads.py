"""Work in threads, in order, and only in as many as pay."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

_A_MOMENT = 0.005
"""Seconds that mean nothing: another process may have had the core."""

_A_FEW = 4
"""Times that a thread may wait for something without it meaning much."""


def run_in_order(
    function: Callable[[Task], Result], tasks: Iterable[Task], workers: int, *, computes: bool
) -> Iterator[Result]:
    """Yield the results of tasks in the tasks' order; the first error calls off the rest.

    Work that ``computes`` in the interpreter is done in this thread alone, for threads would only
    take the interpreter from each other; unless its first task has mostly waited. Only a few tasks
    are taken out of ``tasks`` before they are worked on, and only a few results wait to be taken.
    """
    tasks = iter(tasks)
    if computes:
        wall, cpu, gave_up = time.perf_counter(), time.thread_time(), _times_given_up()
        results = [function(task) for task in islice(tasks, 1)]
        waited = time.perf_counter() - wall > 2 * (time.thread_time() - cpu) + _A_MOMENT
        # On a busy machine a thread that computes loses its core, and looks as if it waited.
        if not waited or (gave_up is not None and (_times_given_up() or 0) - gave_up <= _A_FEW):
            workers = 1
        yield from results
    if workers == 1:
        yield from map(function, tasks)
        return
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
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _times_given_up() -> int | None:
    """Return how often this thread has waited for something; None where nobody counts that."""
    try:
        import resource
    except ImportError:
        return None
    this = getattr(resource, "RUSAGE_THREAD", None)
    return None if this is None else resource.getrusage(this).ru_nvcsw
