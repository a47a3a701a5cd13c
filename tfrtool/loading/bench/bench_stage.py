"""Measuring a pipeline in this process, which should have done nothing of the kind before.

TensorFlow keeps memory that was freed. A pipeline that fills a cache where another one did before
pays for none of it, and would look better than it is in any real run.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from tfrtool.loading.bench.bench_tasks import BenchStage, EpochTiming, StageRun, StageTask, Timing
from tfrtool.loading.dataset.dataset import Dataset
from tfrtool.loading.pipeline.load_options import Cache, LoadOptions
from tfrtool.loading.pipeline.pipeline import count_images, load
from tfrtool.loading.pipeline.recipes import Stage, load_published

__all__ = ["measure_stage"]

_TINY = 16
_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_STAT = Path("/proc/stat")
_TOO_SHORT = 0.1
"""Seconds; the kernel counts idle time in hundredths."""


def measure_stage(task: StageTask) -> StageRun:
    """Run a pipeline's epochs.

    The published pipelines have a new iterator for each, as Keras' ``fit`` makes them; ours has
    one for all of them, as ``tfrtool train`` has.
    """
    _warm_up(task)
    before = _start_watching_memory()
    timings = []
    watch = _Watch()
    at_once = task.stage is BenchStage.TFRTOOL
    options = replace(task.options, epochs=task.epochs) if at_once else task.options
    batches = _build(task.dataset, options, task.stage)
    iterator = iter(batches) if at_once else None
    steps = int(batches.cardinality()) // task.epochs
    for _ in range(task.epochs):
        images, labels, marks = _epoch(batches) if iterator is None else _next(iterator, steps)
        whole, idle = watch.stop()
        timings.append(
            EpochTiming(
                whole=whole,
                first_batch=marks[0] - watch.start,
                ending=marks[2] - marks[1],
                idle=idle,
            )
        )
        watch = _Watch()
    memory = max(_kilobytes("VmHWM") - before, 0) * 1024
    return StageRun(images=images, labels=labels, epochs=tuple(timings), memory=memory)


class _Watch:
    """Wall clock, CPU time of this process, and idle time of the cores, from now on."""

    def __init__(self) -> None:
        self._idle, self._system = _idle_seconds(), os.times().system
        self.start, self._cpu = time.perf_counter(), time.process_time()

    def stop(self) -> tuple[Timing, float | None]:
        """Return how long it was, and how many cores had nothing to do, if that can be told."""
        seconds, cpu = time.perf_counter() - self.start, time.process_time() - self._cpu
        system, idle = os.times().system - self._system, _idle_seconds()
        timing = Timing(seconds=seconds, cpu=cpu, system=system)
        if idle is None or self._idle is None or seconds < _TOO_SHORT:
            return timing, None
        return timing, (idle - self._idle) / seconds


def _build(dataset: Dataset, options: LoadOptions, stage: BenchStage) -> Any:
    if stage is BenchStage.TFRTOOL:
        return load(dataset, options)
    stages = frozenset(Stage(name) for name in stage.published)
    images = count_images(dataset, options)
    return load_published(dataset, replace(options, cache=Cache.NONE), images, stages)


def _warm_up(task: StageTask) -> None:
    """Start TensorFlow's threads, and load what it loads on first use.

    Tiny images leave no memory behind that the measured epochs could use again.
    """
    options, dataset = replace(task.options, image_size=_TINY), task.dataset
    split = dataset.split(options.split)
    few = replace(split, shards=split.shards[:1], lengths=split.lengths[:1])
    _epoch(_build(replace(dataset, splits={split.name: few}), options, task.stage))


def _next(batches: Iterator[Any], steps: int) -> tuple[int, int, tuple[float, float, float]]:
    """Go on through an epoch of several, whose iterator stays; see `_epoch`."""
    images, total, first = 0, 0, None
    for _, labels in islice(batches, steps):
        first = first or time.perf_counter()
        images += labels.shape[0]
        total += int(labels.numpy().sum())
    last = time.perf_counter()
    return images, total, (first or last, last, last)


def _epoch(batches: Any) -> tuple[int, int, tuple[float, float, float]]:
    """Go through an epoch.

    Returns:
        The number of images, the sum of their labels, and when there was the first batch, when
        the last one had been used, and when the iterator was gone.
    """
    images, total, first = 0, 0, None
    iterator = iter(batches)
    for _, labels in iterator:
        first = first or time.perf_counter()
        images += labels.shape[0]
        total += int(labels.numpy().sum())
    last = time.perf_counter()
    # Here the published pipeline waits for its tuner's sleep.
    del iterator
    return images, total, (first or last, last, time.perf_counter())


def _idle_seconds() -> float | None:
    """Return how long the cores that this process may use were idle; None if that is not told."""
    try:
        lines = _STAT.read_text("ascii").splitlines()
        own = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        # proc(5): user, nice, system, idle, iowait; a core that waits for a disk is free, too.
        ticks = [sum(map(int, line.split()[4:6])) for line in lines if line.split()[0] in own]
        return sum(ticks) / os.sysconf("SC_CLK_TCK") if ticks else None
    except (OSError, ValueError, AttributeError):
        return None


def _start_watching_memory() -> int:
    """Return the resident memory in kB, from which on its peak is watched."""
    try:
        # proc(5): 5 sets the peak back to what is resident now.
        _CLEAR_REFS.write_text("5", "ascii")
    except OSError:
        return _kilobytes("VmHWM")
    return _kilobytes("VmRSS")


def _kilobytes(name: str) -> int:
    """Return a value of /proc/self/status in kB; 0 where there is no such thing."""
    try:
        found = re.search(rf"^{name}:\s+(\d+) kB", _STATUS.read_text("ascii"), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0
