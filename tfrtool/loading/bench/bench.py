"""The loader alone, stage by stage: what each brings, what it costs, and what limits ours."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate

from tfrtool.errors import DatasetError
from tfrtool.loading.bench.bench_options import BenchOptions
from tfrtool.loading.bench.bench_process import Killed, measure_apart
from tfrtool.loading.bench.bench_report import BenchReport, StageReport
from tfrtool.loading.bench.bench_tasks import BenchStage, PartsRun, PartsTask, StageRun, StageTask
from tfrtool.loading.bench.bench_verdict import Measured, Verdict, judge
from tfrtool.loading.cache.cache_plan import CacheRequest, plan_cache
from tfrtool.loading.cache.memory import available_memory
from tfrtool.loading.dataset.dataset import Dataset, open_dataset
from tfrtool.loading.pipeline.load_options import Cache, LoadOptions
from tfrtool.records.compression import Compression

__all__ = ["BenchProgress", "bench"]

_PARTS_IMAGES = 256
_MOST = 0.5
"""The part of the free memory that the published cache may take: its shuffle buffer, its batches
and other programs need some, too, and a process that takes all ends others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchProgress:
    """How far the benchmark is.

    Attributes:
        what: what is measured next.
        done: how many measurements are done.
        total: how many there are.
    """

    what: str
    done: int
    total: int


def bench(options: BenchOptions, on_stage: Callable[[BenchProgress], object]) -> BenchReport:
    """Measure the loader of a dataset, stage by stage, in turn.

    Each measurement has a process of its own, so that none pays or saves what another one did.

    Args:
        options: what to measure.
        on_stage: is told of each measurement before it starts.

    Raises:
        UsageError: the dataset has no such split.
        DatasetError: the dataset is unusable, or the pipelines don't give the same images.
    """
    whole = open_dataset(options.dataset)
    dataset = _enough_of(whole, options)
    split = dataset.split(options.split)
    if split.records == 0:
        raise DatasetError(f"split {options.split!r} has no records", path=options.dataset)
    free = available_memory()
    request = CacheRequest(
        images=split.records,
        image_size=options.image_size,
        epochs=options.epochs,
        free_memory=free,
        # One that an earlier run left on disk would make a first epoch look like a later one.
        free_disk=0,
    )
    load = LoadOptions(
        image_size=options.image_size,
        split=options.split,
        batch_size=options.batch_size,
        cache=plan_cache(request).cache,
    )
    left_out: dict[BenchStage, str] = {}
    if free is not None and request.published_bytes > _MOST * free:
        reason = (
            f"its float32 cache would take {request.published_bytes / 2**20:,.0f} MiB, and "
            f"{free / 2**20:,.0f} are free"
        )
        left_out = dict.fromkeys((BenchStage.CACHE, BenchStage.PREFETCH), reason)

    total = 1 + options.rounds * (len(BenchStage) - len(left_out))
    on_stage(BenchProgress(what="pieces", done=0, total=total))
    parts = measure_apart(
        PartsTask(dataset=dataset, options=load, images=_PARTS_IMAGES, rounds=options.rounds)
    )
    runs: dict[BenchStage, list[StageRun]] = {stage: [] for stage in BenchStage}
    done = 1
    for _ in range(options.rounds):
        for stage in BenchStage:
            if stage in left_out:
                continue
            on_stage(BenchProgress(what=stage.value, done=min(done, total), total=total))
            done += 1
            task = StageTask(dataset=dataset, options=load, stage=stage, epochs=options.epochs)
            try:
                runs[stage].append(measure_apart(task))
            except Killed as killed:
                if stage is BenchStage.TFRTOOL:
                    raise DatasetError(f"the loader was {killed}", path=options.dataset) from killed
                left_out[stage] = f"it was {killed}"
    _check_same(dataset, runs)
    stages = tuple(
        StageReport(stage=stage, left_out=left_out[stage])
        if stage in left_out
        else StageReport.of(stage, runs[stage])
        for stage in BenchStage
    )
    return BenchReport(
        stages=stages,
        parts=parts,
        verdict=_verdict(dataset, load, parts, stages),
        images=split.records,
        total_images=whole.split(options.split).records,
        shards=len(split.shards),
        image_size=options.image_size,
        batch_size=options.batch_size,
        cache=load.cache.value,
        cores=_cores(),
        rounds=options.rounds,
    )


def _enough_of(dataset: Dataset, options: BenchOptions) -> Dataset:
    """Return a dataset with as many of the split's first shards as hold enough images."""
    split = dataset.split(options.split)
    count = 1 + sum(total < options.limit for total in accumulate(split.lengths))
    few = replace(split, shards=split.shards[:count], lengths=split.lengths[:count])
    return replace(dataset, splits={options.split: few})


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _check_same(dataset: Dataset, runs: dict[BenchStage, list[StageRun]]) -> None:
    seen = {(run.images, run.labels) for some in runs.values() for run in some}
    if len(seen) > 1:
        raise DatasetError(
            "the pipelines don't give the same images",
            path=dataset.directory,
            found=" and ".join(f"{images} (labels {labels})" for images, labels in sorted(seen)),
        )


def _verdict(
    dataset: Dataset, load: LoadOptions, parts: PartsRun, stages: tuple[StageReport, ...]
) -> Verdict:
    by_stage = {report.stage: report for report in stages}
    naive = by_stage[BenchStage.NAIVE]
    ours, published = by_stage[BenchStage.TFRTOOL], by_stage[BenchStage.PREFETCH]
    if ours.first is None or ours.later is None:
        raise ValueError("our pipeline was not measured")
    split = dataset.split(load.split)
    epochs = [some for some in (published.first, published.later) if some is not None]
    starting = None
    if naive.first is not None and naive.later is not None:
        a_batch = naive.later.seconds.least * min(load.batch_size / split.records, 1)
        starting = max(naive.first.first_batch.median - a_batch, 0)
    stalled = max(epochs, key=lambda some: some.ending.median, default=None)
    return judge(
        Measured(
            parts=parts,
            images=split.records,
            first_seconds=ours.first.seconds.median,
            first_cpu=ours.first.cpu_ms.median / 1e3,
            first_batch=ours.first.first_batch.median,
            starting=starting,
            idle=ours.first.idle,
            later_cpu=ours.later.cpu_ms.median / 1e3,
            cached=load.cache is not Cache.NONE,
            stall=None if stalled is None else stalled.ending.median,
            stalled_epoch=None if stalled is None else stalled.seconds.median,
            cores=_cores(),
            shards=len(split.shards),
            compressed=split.compression is not Compression.NONE,
            image_size=load.image_size,
        )
    )
