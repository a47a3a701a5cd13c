"""Work on several shards at once, in processes of their own."""

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, nullcontext, suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import NamedTuple, TypeVar, cast

from tfrtool.engines.engine import Engine, Workers
from tfrtool.errors import ShardError, UsageError
from tfrtool.records.stream import Stream
from tfrtool.storage.child import Child, ChildDied, may_fork, tell
from tfrtool.storage.progress import Counts, OnCounts, counting

Result = TypeVar("Result")
Source = TypeVar("Source")

WORTH_A_PROCESS = 256 * 1024 * 1024
"""Bytes that are read and checked in the time that a process takes to start: images at 2 GB/s,
records of some hundred bytes at a tenth of that."""

_HEARTBEAT = 1.0
"""Seconds after which workers that count nothing are reported as busy."""


class _Counted(NamedTuple):
    """What a task in a worker process has counted since its last message."""

    counts: Counts


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def busy_seconds() -> float | None:
    """Return for how long the cores of `cores` have been busy, for whichever program; Linux only.

    The difference of two calls is in seconds of one core, and good to about 0.02 of them.
    """
    try:
        text = Path("/proc/stat").read_text("ascii")
        own = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    except (OSError, AttributeError):
        return None
    lines = [line.split() for line in text.splitlines()]
    # proc(5): user, nice, system, idle, iowait, irq, softirq and steal.
    counts = [list(map(int, line[1:9])) for line in lines if line and line[0] in own]
    return sum(sum(one) - one[3] - one[4] for one in counts) / os.sysconf("SC_CLK_TCK")


def engine_of(engine: str, address: str | None, workers: int | None) -> Engine:
    """Return the engine of a name, at an address, with so many workers.

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


def workers_of(engine: str, address: str | None, workers: Workers) -> Workers:
    """Return the workers that these words mean: their number, where they are of this machine."""
    if isinstance(workers, Engine) or (engine, address) == ("local", None):
        return workers
    return engine_of(engine, address, workers)


def map_shards(
    function: Callable[[Source], Result],
    paths: Iterable[Source],
    workers: Workers = 1,
    worth: int = WORTH_A_PROCESS,
    size: int | None = None,
    *,
    in_order: bool = True,
    reads: bool = False,
    on_counts: OnCounts | None = None,
) -> Iterator[Result]:
    """Yield ``function(path)`` for each shard, in the order of ``paths`` or as they are done.

    Processes are started afresh rather than forked, so that this is safe in a program with
    threads; they don't load its main module. Where there are none, and ``function`` only reads
    (``reads``), they are forked: a start takes as long as 200 MB of images. So ``function`` is in
    a module that can be imported, and it and its results can be pickled. Each process has
    ``worth`` bytes of shards to do, of ``size`` in all, which is asked of the files if they are
    paths. ``workers`` of None takes the cores. ``on_counts`` gets what tasks count with
    `count_work` while they run. `ShardError` if a process died.
    """
    engine = workers if isinstance(workers, Engine) else Processes(workers)
    if isinstance(paths, Sequence) and any(isinstance(path, Stream) for path in paths[:1]):
        engine = Processes(1)  # it is open here
    yield from engine.map(
        function,
        paths,
        worth=worth,
        size=size,
        in_order=in_order,
        reads=reads,
        on_counts=on_counts,
    )


class Processes(Engine):
    """Processes of this machine, as many as are worth their start."""

    def __init__(self, workers: int | None = None) -> None:
        """Take so many at most; None takes the cores."""
        self._workers = cores() if workers is None else workers
        if self._workers < 1:
            raise UsageError(f"--workers must be at least 1, got {workers}")

    def map(
        self,
        function: Callable[[Source], Result],
        tasks: Iterable[Source],
        *,
        worth: int,
        size: int | None,
        in_order: bool,
        reads: bool,
        on_counts: OnCounts | None,
    ) -> Iterator[Result]:
        """Yield the results of tasks; of paths, the size is asked of the files."""
        tasks = [*tasks]
        if size is None:
            size = sum(p.stat().st_size for p in tasks if isinstance(p, Path) and p.is_file())
        workers = min(self._workers, len(tasks), 1 + size // max(worth, 1))
        # A frozen program's executable is no Python that could be started.
        if workers <= 1 or getattr(sys, "frozen", False):
            for task in tasks:
                with nullcontext() if on_counts is None else counting(on_counts):
                    result = function(task)
                yield result
            return
        futures = {Future[Result](): task for task in tasks}
        left = deque(futures)
        events = SimpleQueue[Future[Result] | Counts]()
        run = function if on_counts is None else partial(_run_counted, function)

        def send(child: Child, sent: deque[Future[Result]]) -> None:
            # One more task waits there, so that it never does; towards the end none has to wait.
            while left and len(sent) < (2 if reads and len(left) > workers else 1):
                with suppress(IndexError):  # another thread took the last one
                    future = left.popleft()
                    sent.append(future)
                    try:
                        child.send(run, futures[future])
                    except Exception as error:  # noqa: BLE001 - it can't be pickled
                        sent.pop().set_exception(error)
                        events.put(future)

        def serve(child: Child, sent: deque[Future[Result]]) -> None:
            send(child, sent)
            while sent:
                future = sent.popleft()
                try:
                    while isinstance(answer := child.receive(), _Counted):
                        events.put(answer.counts)
                    future.set_result(cast(Result, answer))
                except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
                    future.set_exception(error)
                events.put(future)
                send(child, sent)

        def completed() -> Iterator[Future[Result]]:
            unfinished = len(futures)
            while unfinished:
                event: Future[Result] | Counts = {}
                with suppress(Empty):
                    event = events.get(timeout=_HEARTBEAT)
                if isinstance(event, Future):
                    unfinished -= 1
                    yield event
                elif on_counts is not None:
                    on_counts(event)

        def ordered() -> Iterator[Future[Result]]:
            waiting = deque(futures)
            for _ in completed():
                while waiting and waiting[0].done():
                    yield waiting.popleft()

        with ThreadPoolExecutor(workers) as threads, ExitStack() as children:
            # A copy holds what this process has open: locks of a write would outlive it.
            forked = reads and may_fork()
            begun = []
            for _ in range(workers):
                begun.append(
                    (children.enter_context(Child(forked=forked)), deque[Future[Result]]())
                )
                if forked:  # it begins while the next one is made
                    send(*begun[-1])
            for each in begun:
                threads.submit(serve, *each)
            children.callback(left.clear)
            for future in ordered() if in_order else completed():
                try:
                    yield future.result()
                except ChildDied as error:
                    raise ShardError(
                        "a worker process died",
                        path=str(futures[future]),
                        hint="check whether it ran out of memory, or use fewer --workers",
                    ) from error


def _run_counted(function: Callable[[Source], Result], task: Source) -> Result:
    """Call a function in a worker process, and send the parent what it counts meanwhile."""
    with counting(lambda counts: tell(_Counted(counts))):
        return function(task)
