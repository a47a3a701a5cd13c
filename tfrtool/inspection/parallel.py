"""Work on several shards at once, in processes of their own."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TypeVar

from tfrtool.errors import ShardError

__all__ = ["cores", "map_shards"]

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
    workers: int = 1,
    worth: int = _WORTH_A_PROCESS,
) -> Iterator[Result]:
    """Yield ``function(path)`` for each shard, in the order of ``paths``.

    Processes are started afresh rather than forked, so that this is safe in a program with
    threads; as for every use of `multiprocessing`, such a program's main module must be importable.

    Args:
        function: what to do with a shard; with several workers it, its results and its errors
            must be picklable.
        paths: the shards.
        workers: how many processes at most; 1 does everything in this one.
        worth: how many bytes of shards make one more process worth its start.

    Raises:
        ShardError: a process died.
    """
    workers = min(workers, len(paths), 1 + _size(paths) // max(worth, 1))
    if workers <= 1:
        yield from map(function, paths)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_end_on_interrupt) as pool:
        futures = [pool.submit(function, path) for path in paths]
        for path, future in zip(paths, futures, strict=True):
            try:
                yield future.result()
            except BrokenProcessPool as error:
                raise ShardError(
                    "a worker process died", path=str(path), hint="was there enough memory?"
                ) from error
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def _size(paths: Sequence[object]) -> int:
    return sum(p.stat().st_size for p in paths if isinstance(p, Path) and p.is_file())


def _end_on_interrupt() -> None:
    """Let Ctrl-C end a worker at once and in silence; the main process tells of it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
