"""Work of this machine: in processes, each for a task at a time, or in threads."""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, nullcontext, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import NamedTuple, TypeVar, cast

from tfrtool.engines.engine import Engine, Workers, cores
from tfrtool.errors import ShardError, UsageError
from tfrtool.records.stream import Stream
from tfrtool.storage.child import Child, ChildDied, send_to_parent
from tfrtool.storage.progress import Counts, OnCounts, counting
from tfrtool.storage.remote_path import RemotePath, with_copies

Result = TypeVar("Result")
Task = TypeVar("Task")

MIN_BYTES_PER_PROCESS = 256 * 1024 * 1024
"""Bytes that are read and checked in the time that a process takes to start."""

_HEARTBEAT = 1.0  # seconds after which workers that count nothing are reported as busy
_SOON = 0.25  # seconds after which what threads have counted is passed on
_MOMENT = 0.005  # seconds that don't show that a task waits


class _Counted(NamedTuple):
    counts: Counts


def engine_of(engine: str, address: str | None, workers: int | None) -> Engine:
    """Return the engine with this name, at an address, with a number of workers.

    Raises:
        UsageError: there is no such engine, or it has no address.
    """
    if engine == "ray":
        from tfrtool.engines.ray_cluster import RayCluster

        return RayCluster(address, workers)
    if engine != "local":
        raise UsageError(f"invalid --engine {engine!r}"[:100], expected="local or ray")
    if address is not None:
        raise UsageError("--engine-address requires --engine ray")
    return Processes(workers)


def map_shards(
    function: Callable[[Task], Result],
    tasks: Iterable[Task],
    workers: Workers = 1,
    worth: int = MIN_BYTES_PER_PROCESS,
    size: int | None = None,
    *,
    in_order: bool = True,
    on_counts: OnCounts | None = None,
    short: bool = False,
) -> Iterator[Result]:
    """Yield the results of a function of each task, such as the path of a shard.

    The function is in a module that can be imported; it, its arguments and results can be pickled.
    Processes are started afresh and don't load the main module, so that this is safe in a program
    with threads and in a script without a main guard.

    Args:
        function: called for each task.
        tasks: the tasks.
        workers: how many processes at most, where None takes the cores; or an engine.
        worth: bytes for which a process is worth its start.
        size: bytes of all tasks; None looks at the files, if they are paths.
        in_order: whether results come in the order of the tasks, or as they are done.
        on_counts: gets what tasks count with `count_work` while they run.
        short: whether each task takes a second at most. This process then does some of them
            itself, which saves the start of another one; an error waits for the end of its task.

    Raises:
        ShardError: a process died.
    """
    engine = workers if isinstance(workers, Engine) else Processes(workers)
    if isinstance(tasks, Sequence) and any(isinstance(task, Stream) for task in tasks[:1]):
        engine = Processes(1)  # it is open here
    yield from engine.map(
        function,
        tasks,
        worth=worth,
        size=size,
        in_order=in_order,
        on_counts=on_counts,
        short=short,
    )


class Processes(Engine):
    """Processes of this machine, as many as are worth their start."""

    def __init__(self, workers: int | None = None, ready: Sequence[Child] = ()) -> None:
        """Set the most processes, where None takes the cores, and give some that have started."""
        self._workers = cores() if workers is None else workers
        self._ready = ready
        if self._workers < 1:
            raise UsageError(f"--workers must be at least 1, got {workers}")

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
        """Yield the results of tasks; if they are paths, the size is that of the files."""
        tasks = [*tasks]
        if size is None:
            size = sum(
                p.stat().st_size for p in tasks if isinstance(p, Path | RemotePath) and p.is_file()
            )
        short = short or bool(self._ready)
        worth_it = max(size // max(worth, 1), len(self._ready))
        workers = min(self._workers, len(tasks), 1 + worth_it)
        # A frozen program's executable is not a Python that could be started.
        if workers <= 1 or getattr(sys, "frozen", False):
            for task in tasks:
                with nullcontext() if on_counts is None else counting(on_counts):
                    result = function(task)
                yield result
            return
        function = with_copies(function)
        run = function if on_counts is None else partial(_run_counted, function)
        # In `idle`, None stands for this process.
        idle, events = SimpleQueue[Child | None](), SimpleQueue[Future[Result] | Counts]()

        def call(task: Task) -> Result:
            child = idle.get()
            try:
                if child is None:
                    with nullcontext() if on_counts is None else counting(events.put):
                        return function(task)
                child.send(run, task)
                while isinstance(answer := child.receive(), _Counted):
                    events.put(answer.counts)
                return cast(Result, answer)
            except ChildDied as error:
                raise ShardError(
                    "a worker process died",
                    path=str(task),
                    hint="check whether it ran out of memory, or use fewer --workers",
                ) from error
            finally:
                idle.put(child)

        with ThreadPoolExecutor(workers) as threads, ExitStack() as children:
            if short:
                idle.put(None)
            ready = self._ready[: workers - short]
            for child in ready:
                idle.put(child)
                children.push(partial(_kill_after_error, child))
            for _ in range(workers - short - len(ready)):
                idle.put(children.enter_context(Child()))
            waiting = deque(threads.submit(call, task) for task in tasks)
            # After an error, processes end in the middle of their work.
            children.callback(threads.shutdown, wait=False, cancel_futures=True)
            for future in waiting:
                future.add_done_callback(events.put)
            if not in_order:
                waiting.clear()  # `events` has each when it is done
            for _ in tasks:
                done = None
                while done is None:
                    if in_order and waiting[0].done() and events.empty():
                        done = waiting.popleft()
                        break
                    event: Future[Result] | Counts = {}
                    with suppress(Empty):
                        event = events.get(timeout=_HEARTBEAT)
                    if not isinstance(event, Future):
                        if on_counts is not None:
                            on_counts(event)
                    elif not in_order:
                        done = event
                yield done.result()


class Threads(Engine):
    """Threads of this process."""

    def __init__(self, count: int) -> None:
        """Set the number of threads."""
        self.count = count

    def map(
        self,
        function: Callable[[Task], Result],
        tasks: Iterable[Task],
        *,
        in_order: bool,
        on_counts: OnCounts | None,
        **_more: object,
    ) -> Iterator[Result]:
        """Yield the results of tasks; as many are under way as there are threads."""
        counts, rest = SimpleQueue[Counts](), iter(tasks)

        def run(task: Task) -> Result:
            with counting(counts.put):
                return function(task)

        with ThreadPoolExecutor(self.count, "tfrtool-task") as pool:
            try:
                waiting = [pool.submit(run, task) for task in islice(rest, self.count)]
                while waiting:
                    next_ones = waiting[:1] if in_order else waiting
                    done, _ = wait(next_ones, _SOON, FIRST_COMPLETED)
                    if on_counts is not None:
                        on_counts({})
                        while not counts.empty():
                            on_counts(counts.get())
                    for future in done:
                        waiting.remove(future)
                        yield future.result()
                        waiting += (pool.submit(run, task) for task in islice(rest, 1))
            finally:
                pool.shutdown(wait=True, cancel_futures=True)


def _kill_after_error(child: Child, error: object, *_: object) -> None:
    if error is not None:
        child.kill()


def _run_counted(function: Callable[[Task], Result], task: Task) -> Result:
    """Call a function in a worker process, and send the parent what it counts meanwhile."""
    with counting(lambda counts: send_to_parent(_Counted(counts))):
        return function(task)


def run_in_order(
    function: Callable[[Task], Result], tasks: Iterable[Task], workers: int, *, computes: bool
) -> Iterator[Result]:
    """Yield the results of tasks in their order, from threads; the first error cancels the rest.

    Work that ``computes`` in the interpreter is done in this thread alone, because threads would
    compete for the interpreter; unless its first task has mostly waited, as for a disk or a store.
    Few tasks are taken before they are worked on, and few results wait to be taken.
    """
    tasks = iter(tasks)
    if computes:
        wall, cpu = time.perf_counter(), time.thread_time()
        first = [function(task) for task in islice(tasks, 1)]
        waits = time.perf_counter() - wall > 2 * (time.thread_time() - cpu) + _MOMENT
        workers = workers if waits else 1
        yield from first
    if workers == 1:
        yield from map(function, tasks)
        return
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(workers, "tfrtool") as pool:
        try:
            for task in tasks:
                waiting.append(pool.submit(function, task))
                if len(waiting) > 2 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
