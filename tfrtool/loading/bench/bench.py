"""The loader alone, stage by stage: what each brings, what it costs, and what limits ours."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from typing import TypeVar

from tfrtool.errors import DatasetError, TfrtoolError
from tfrtool.loading.bench.bench_report import STAGES, BenchReport, PartsRun, StageReport, StageRun
from tfrtool.loading.bench.bench_verdict import judge
from tfrtool.loading.cache.cache_plan import CacheRequest, plan_cache
from tfrtool.loading.cache.memory import available_memory
from tfrtool.loading.dataset.dataset import Dataset, open_dataset
from tfrtool.loading.pipeline.load_options import LoadOptions
from tfrtool.records.compression import Compression
from tfrtool.storage.child import Child, ChildDied, ChildError
from tfrtool.storage.progress import OnProgress, Progress, silent
from tfrtool.storage.words import check_least

__all__ = ["Killed", "bench", "measure_apart", "parts_of", "stage_of"]

_MOST = 0.5
"""The part of the free memory that the published cache may take: its shuffle buffer, its batches
and other programs need some, too, and a process that takes all ends others."""

Result = TypeVar("Result")


def bench(
    path: str | os.PathLike[str],
    *,
    split: str = "train",
    image_size: int = 224,
    batch_size: int = 32,
    epochs: int = 2,
    rounds: int = 3,
    limit: int = 2000,
    on_progress: OnProgress = silent,
) -> BenchReport:
    """Measure the loader of a dataset, stage by stage, in turn.

    Each measurement has a process of its own, so that none pays or saves what another one did.

    Args:
        path: the directory of a dataset.
        split: which split of it.
        image_size: images are resized to this many pixels, both ways.
        batch_size: images in a batch.
        epochs: how many epochs each pipeline goes through, 2 or more: the first fills the cache.
        rounds: how often each pipeline is measured, in turn with the others.
        limit: how many images are enough; as many shards are read as it takes to have them.
        on_progress: told of each measurement before it starts.

    Raises:
        UsageError: the dataset has no such split, or a number is impossible.
        DatasetError: the dataset is unusable, or the pipelines don't give the same images.
    """
    numbers = {"epochs": epochs, "rounds": rounds, "limit": limit}
    check_least(numbers, {"epochs": 2, "rounds": 1, "limit": 1})
    load = LoadOptions(image_size=image_size, split=split, batch_size=batch_size)
    dataset = open_dataset(path)
    total_images = dataset.split(split).records
    dataset = _enough_of(dataset, split, limit)
    shards = dataset.split(split)
    free = available_memory()
    request = CacheRequest(
        images=shards.records,
        image_size=image_size,
        epochs=epochs,
        free_memory=free,
        # One that an earlier run left on disk would make a first epoch look like a later one.
        free_disk=0,
    )
    load = replace(load, cache=plan_cache(request).cache)
    left_out: dict[str, str] = {}
    if free is not None and request.published_bytes > _MOST * free:
        reason = (
            f"its float32 cache would take {request.published_bytes / 2**20:,.0f} MiB, and "
            f"{free / 2**20:,.0f} are free"
        )
        left_out = dict.fromkeys(("cache", "prefetch"), reason)

    total, done = 1 + rounds * (len(STAGES) - len(left_out)), 0

    def tell(what: str) -> None:
        nonlocal done
        on_progress(Progress(what=what, done=min(done, total), total=total, unit="runs"))
        done += 1

    tell("pieces")
    parts = measure_apart(parts_of, dataset, load, rounds)
    runs: dict[str, list[StageRun]] = {stage: [] for stage in STAGES}
    for _ in range(rounds):
        for stage in STAGES:
            if stage in left_out:
                continue
            tell(stage)
            try:
                runs[stage].append(measure_apart(stage_of, dataset, load, stage, epochs))
            except Killed as killed:
                if stage == "tfrtool":
                    raise DatasetError(
                        f"the loader was {killed}", path=dataset.directory
                    ) from killed
                left_out[stage] = f"it was {killed}"
    _check_same(dataset, runs)
    report = BenchReport(
        stages=tuple(
            StageReport(stage=stage, left_out=left_out[stage])
            if stage in left_out
            else StageReport.of(stage, runs[stage])
            for stage in STAGES
        ),
        parts=parts,
        images=shards.records,
        total_images=total_images,
        shards=len(shards.shards),
        image_size=image_size,
        batch_size=batch_size,
        cache=load.cache.value,
        cores=len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1,
        rounds=rounds,
    )
    return judge(report, compressed=shards.compression is not Compression.NONE)


def _enough_of(dataset: Dataset, name: str, images: int) -> Dataset:
    """Return a dataset with as many of a split's first shards as hold enough images."""
    split = dataset.split(name)
    count = 1 + sum(total < images for total in accumulate(split.lengths))
    few = replace(split, shards=split.shards[:count], lengths=split.lengths[:count])
    return replace(dataset, splits={name: few})


def _check_same(dataset: Dataset, runs: dict[str, list[StageRun]]) -> None:
    seen = {(run.images, run.labels) for some in runs.values() for run in some}
    if len(seen) > 1:
        raise DatasetError(
            "the pipelines don't give the same images",
            path=dataset.directory,
            found=" and ".join(f"{images} (labels {labels})" for images, labels in sorted(seen)),
        )


class Killed(Exception):  # noqa: N818 - it is no error of ours, but what became of a process
    """The system ended a measuring process; mostly it was out of memory."""


def measure_apart(measure: Callable[..., Result], dataset: Dataset, *arguments: object) -> Result:
    """Measure in a process of its own; this one need not load TensorFlow.

    Args:
        measure: `stage_of` or `parts_of`.
        dataset: the first of its arguments.
        *arguments: the others.

    Raises:
        TfrtoolError: what the measurement raised.
        DatasetError: it failed otherwise, such as for a record that TensorFlow can't read.
        Killed: the system ended the process.
    """
    environment = {"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ}
    with tempfile.TemporaryFile() as errors, Child(errors, environment) as child:
        try:
            return child.call(measure, dataset, *arguments)
        except ChildDied as death:
            if death.code < 0:
                raise Killed(f"ended by signal {-death.code}") from death
            errors.seek(0)
            said, found = errors.read().decode("utf-8", "replace"), f"exit code {death.code}"
        except TfrtoolError:
            raise
        except ChildError as error:
            said = found = str(error)
        except Exception as error:  # noqa: BLE001 - whatever else
            said, found = "", f"{type(error).__name__}: {error}"
    # TensorFlow's messages end with the names of nodes.
    lines = [line for line in said.strip().splitlines() if "[[" not in line]
    raise DatasetError(
        "measuring the loader failed", path=dataset.directory, found=lines[-1] if lines else found
    )


def stage_of(dataset: Dataset, options: LoadOptions, stage: str, epochs: int) -> StageRun:
    """Measure a pipeline in this process."""
    from tfrtool.loading.bench.bench_measure import measure_stage

    return measure_stage(dataset, options, stage, epochs)


def parts_of(dataset: Dataset, options: LoadOptions, rounds: int) -> PartsRun:
    """Measure the work on a record in this process."""
    from tfrtool.loading.bench.bench_measure import measure_parts

    return measure_parts(dataset, options, rounds)
