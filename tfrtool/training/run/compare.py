"""Ours beside the published recipes: each of these in a process of its own, measured alike."""

import contextlib
import gc
import pickle
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tfrtool.errors import DatasetError, UsageError
from tfrtool.loading.bench.bench import in_own_process
from tfrtool.loading.cache.cache_plan import own_memory
from tfrtool.loading.dataset.dataset import Dataset
from tfrtool.loading.pipeline.load_options import Recipe
from tfrtool.storage.opening import file_sha256
from tfrtool.storage.progress import OnProgress, Progress, silent
from tfrtool.training.devices.worker_cluster import StrategyKind, find_workers
from tfrtool.training.run.train_options import KNOBS, Precision, TrainOptions
from tfrtool.training.run.train_report import TrainReport
from tfrtool.training.run.training_data import open_original

Train = Callable[..., TrainReport]
"""`train` with its dataset and options, which takes others in their place."""

_AS_PUBLISHED: dict[str, Any] = {
    "decode": "exact",
    **dict.fromkeys((*KNOBS, "cache", "cache_directory", "out", "tensorboard", "shares")),
    "export": (),
    **{"deterministic": True, "precision": Precision.FLOAT32, "profile": False},
    "strategy": StrategyKind.ONE,
}


def compared(
    run: Train, ours: Train, options: TrainOptions, given: Dataset | None, on_progress: OnProgress
) -> TrainReport:
    """Train by ``ours`` in this process, and by the published recipes in processes of their own."""
    several = options.strategy is StrategyKind.MULTI_WORKER
    if options.strategy is StrategyKind.AUTO and (cluster := find_workers()) is not None:
        several = len(cluster.names) > 1
    if several or options.resume or options.recipe is Recipe.NAIVE:
        part = "a part of a run" if options.resume else "the naive recipe"
        raise UsageError(f"nothing can be compared with {'several workers' if several else part}")
    published = partial(run, **_AS_PUBLISHED)
    recipes = [Recipe.NAIVE, *([Recipe.NOTEBOOK] if options.recipe is Recipe.TFRTOOL else [])]
    try:
        # Before any is trained: a model that is given is the same for all of them.
        tasks = [pickle.dumps(partial(published, recipe=one)) for one in recipes]
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UsageError(
            "no other process can have this model, to compare it",
            expected="a function of a module, FILE.py:FUNCTION or a keras.Model",
            found=str(error)[:200],
        ) from error
    dataset = open_original(options, given)
    for name in {options.split, options.validation, "validation"} & dataset.splits.keys():
        for shard in dataset.split(str(name)).shards:
            # Else the first run alone would wait for a disk or a store. Ours tells what is wrong.
            with contextlib.suppress(OSError), dataset.local(shard) as path:
                file_sha256(path)
    report = measured(tasks[0], ours, on_progress)
    gc.collect()  # what it held
    for number, (recipe, task) in enumerate(zip(recipes, tasks, strict=True)):
        on_progress(Progress(what=recipe.value, done=number, total=len(tasks), unit="runs"))
        try:
            other = in_own_process(dataset.directory, measured, tasks[0], task)
            report = replace(report, **{recipe.value: other})
        except (DatasetError, UsageError) as error:  # it has a large cache, and doesn't augment
            if recipe is Recipe.NAIVE:
                raise
            report = replace(report, notebook_left_out=str(error))
    return report


def measured(naive: bytes, run: Train | bytes, on_progress: OnProgress = silent) -> TrainReport:
    """Train in this process, and say what it took beside the time.

    The naive recipe is begun before, up to its first step: libraries are loaded and threads started
    then. The memory of TensorFlow alone is left out.
    """
    begun, memory = pickle.loads(naive), own_memory("VmRSS")
    with contextlib.suppress(_BegunError):
        begun(on_progress=_end)
    gc.collect()
    with contextlib.suppress(OSError):  # proc(5): the peak so far is forgotten
        Path("/proc/self/clear_refs").write_text("5", "ascii")
    train = pickle.loads(run) if isinstance(run, bytes) else run
    cpu = time.process_time()
    report = train(on_progress=on_progress)
    cpu, peak = time.process_time() - cpu, own_memory("VmHWM")
    return replace(report, cpu_seconds=cpu, memory_bytes=max(peak - memory, 0) if peak else None)


class _BegunError(Exception):
    """What ends a run that is only begun."""


def _end(_progress: Progress) -> None:
    raise _BegunError
