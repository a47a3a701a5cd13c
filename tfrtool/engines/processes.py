"""Work on several shards at once, in processes of their own."""

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TypeVar, cast

from tfrtool.engines.engine import Engine, Workers
from tfrtool.errors import ShardError, UsageError
from tfrtool.records.stream import Stream
from tfrtool.storage.child import Child, ChildDied, may_fork

Result = TypeVar("Result")
Source = TypeVar("Source")

WORTH_A_PROCESS = 256 * 1024 * 1024
"""Bytes that are read and checked in the time that a process takes to start: images at 2 GB/s,
records of some hundred bytes at a tenth of that."""


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def engine_of(engine: str, address: str | None, workers: int | None) -> Engine:
    """Return the engine of a name, at an address, with so many workers.

    Raises:
        UsageError: there is no such engine, or it has no address.
    """
    if engine == "ray":
        from tfrtool.engines.ray_cluster import RayCluster

        return RayCluster(address, workers)
    if engine != "local":
        raise UsageError("no such engine", expected="local or ray", found=repr(engine)[:100])
    if address is not None:
        raise UsageError("only a cluster has an address", hint="--engine ray runs on one")
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
) -> Iterator[Result]:
    """Yield ``function(path)`` for each shard, in the order of ``paths`` or as they are done.

    Processes are started afresh rather than forked, so that this is safe in a program with
    threads; they don't load its main module. Where there are none, and ``function`` only reads
    (``reads``), they are forked: a start takes as long as 200 MB of images. So ``function`` is in
    a module that can be imported, and it and its results can be pickled. Each process has
    ``worth`` bytes of shards to do, of ``size`` in all, which is asked of the files if they are
    paths. ``workers`` of None takes the cores. `ShardError` if a process died.
    """
    engine = workers if isinstance(workers, Engine) else Processes(workers)
    if isinstance(paths, Sequence) and any(isinstance(path, Stream) for path in paths[:1]):
        engine = Processes(1)  # it is open here
    yield from engine.map(function, paths, worth=worth, size=size, in_order=in_order, reads=reads)


class Processes(Engine):
    """Processes of this machine, as many as are worth their start."""

    def __init__(self, workers: int | None = None) -> None:
        """Take so many at most; None takes the cores."""
        self._workers = cores() if workers is None else workers
        if self._workers < 1:
            raise UsageError(f"workers is at least 1, not {workers}")

    def map(
        self,
        function: Callable[[Source], Result],
        tasks: Iterable[Source],
        *,
        worth: int,
        size: int | None,
        in_order: bool,
        reads: bool,
    ) -> Iterator[Result]:
        """Yield the results of tasks; of paths, the size is asked of the files."""
        tasks = [*tasks]
        if size is None:
            size = sum(p.stat().st_size for p in tasks if isinstance(p, Path) and p.is_file())
        workers = min(self._workers, len(tasks), 1 + size // max(worth, 1))
        # A frozen program's executable is no Python that could be started.
        if workers <= 1 or getattr(sys, "frozen", False):
            yield from map(function, tasks)
            return
        futures = {Future[Result](): task for task in tasks}
        left = deque(futures)

        def send(child: Child, sent: deque[Future[Result]]) -> None:
            # One more task waits there, so that it never does; towards the end none has to wait.
            while left and len(sent) < (2 if reads and len(left) > workers else 1):
                with suppress(IndexError):  # another thread took the last one
                    future = left.popleft()
                    sent.append(future)
                    try:
                        child.send(function, futures[future])
                    except Exception as error:  # noqa: BLE001 - it can't be pickled
                        sent.pop().set_exception(error)

        def serve(child: Child, sent: deque[Future[Result]]) -> None:
            send(child, sent)
            while sent:
                future = sent.popleft()
                try:
                    future.set_result(cast(Result, child.receive()))
                except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
                    future.set_exception(error)
                send(child, sent)

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
            for future in futures if in_order else as_completed(futures):
                try:
                    yield future.result()
                except ChildDied as error:
                    raise ShardError(
                        "a worker process died",
                        path=str(futures[future]),
                        hint="was there enough memory?",
                    ) from error
