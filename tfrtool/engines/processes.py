"""Work on several shards at once, in processes of their own."""

import os
import queue
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from tfrtool.errors import ShardError, UsageError
from tfrtool.storage.child import Child, ChildDied

Result = TypeVar("Result")
Source = TypeVar("Source")

_WORTH_A_PROCESS = 256 * 1024 * 1024
"""Bytes that are read and checked in the time that a process takes to start: images at 2 GB/s,
records of some hundred bytes at a tenth of that."""


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def map_shards(
    function: Callable[[Source], Result],
    paths: Sequence[Source],
    workers: int | None = 1,
    worth: int = _WORTH_A_PROCESS,
    size: int | None = None,
) -> Iterator[Result]:
    """Yield ``function(path)`` for each shard, in the order of ``paths``.

    Processes are started afresh rather than forked, so that this is safe in a program with
    threads; they don't load its main module. So ``function`` is in a module that can be imported,
    and it and its results can be pickled. Each process has ``worth`` bytes of shards to do, of
    ``size`` in all, which is asked of the files if they are paths. ``workers`` of None takes the
    cores. `ShardError` if a process died.
    """
    workers = cores() if workers is None else workers
    if workers < 1:
        raise UsageError(f"workers is at least 1, not {workers}")
    if size is None:
        size = sum(p.stat().st_size for p in paths if isinstance(p, Path) and p.is_file())
    workers = min(workers, len(paths), 1 + size // max(worth, 1))
    # A frozen program's executable is no Python that could be started.
    if workers <= 1 or getattr(sys, "frozen", False):
        yield from map(function, paths)
        return
    idle: queue.SimpleQueue[Child] = queue.SimpleQueue()

    def call(path: Source) -> Result:
        child = idle.get()
        try:
            return child.call(function, path)
        finally:
            idle.put(child)

    with ThreadPoolExecutor(workers) as threads, ExitStack() as children:
        for _ in range(workers):
            idle.put(children.enter_context(Child()))
        futures = [threads.submit(call, path) for path in paths]
        children.callback(threads.shutdown, wait=False, cancel_futures=True)
        for path, future in zip(paths, futures, strict=True):
            try:
                yield future.result()
            except ChildDied as error:
                raise ShardError(
                    "a worker process died", path=str(path), hint="was there enough memory?"
                ) from error
