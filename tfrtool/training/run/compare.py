"""Ours beside the published recipes: each of these in a process of its own, measured alike."""

import contextlib
import gc
import pickle
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tfrtool.engines.pool import busy_seconds
from tfrtool.errors import DatasetError, UsageError
from tfrtool.loading.bench import in_own_process
from tfrtool.loading.cache import own_memory
from tfrtool.loading.dataset import Dataset
from tfrtool.loading.options import Cache, Recipe
from tfrtool.storage.arguments import check_least
from tfrtool.storage.opening import file_sha256
from tfrtool.storage.progress import OnProgress, Progress, no_progress
from tfrtool.training.devices.worker_cluster import StrategyKind, find_workers
from tfrtool.training.models.model_choice import PICKLED
from tfrtool.training.run.train_options import KNOBS, Precision, TrainOptions
from tfrtool.training.run.train_report import TrainReport
from tfrtool.training.run.training_data import open_original

Train = Callable[..., TrainReport]
"""`train` with its dataset and options, which takes others in their place."""

_SAVES_NOTHING: dict[str, Any] = {
    **dict.fromkeys(("out", "tensorboard")),
    **{"export": (), "profile": False},
}

_AS_PUBLISHED: dict[str, Any] = {
    "decode": "exact",
    **_SAVES_NOTHING,
    **dict.fromkeys((*KNOBS, "cache", "cache_directory", "shares")),
    **{"deterministic": True, "precision": Precision.FLOAT32},
    "strategy": StrategyKind.ONE,
}


def compared(
    run: Train,
    ours: Train,
    options: TrainOptions,
    given: Dataset | None,
    on_progress: OnProgress,
    rounds: int,
) -> TrainReport:
    """Train by ``ours`` in this process, and by the published recipes in processes of their own.

    All take turns, ``rounds`` times. From the second time on, ours has a process of its own, too.
    """
    check_least({"compare_rounds": rounds}, {"compare_rounds": 1})
    several = options.strategy is StrategyKind.MULTI_WORKER
    if options.strategy is StrategyKind.AUTO and (cluster := find_workers()) is not None:
        several = len(cluster.names) > 1
    if several or options.resume or options.recipe is Recipe.NAIVE:
        other = "--resume" if options.resume else "--recipe naive"
        raise UsageError(f"--compare cannot be used with {'several workers' if several else other}")
    published = partial(run, **_AS_PUBLISHED)
    recipes = [Recipe.NAIVE, *([Recipe.NOTEBOOK] if options.recipe is Recipe.TFRTOOL else [])]
    try:
        # Before any is trained: a model that is given is the same for all of them.
        tasks = [pickle.dumps(partial(published, recipe=one)) for one in recipes]
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UsageError(
            "--compare requires a model that other processes can load",
            expected=PICKLED,
        ) from error
    dataset = open_original(options, given)
    for name in {options.split, options.validation, "validation"} & dataset.splits.keys():
        for shard in dataset.local_split(str(name)).shards:
            # Else the first run alone would wait for a disk or a store. Ours tells what is wrong.
            with contextlib.suppress(OSError):
                file_sha256(shard)
    report = measured(tasks[0], ours, on_progress)
    gc.collect()  # what it held
    on_disk = report.plan.cache.cache is Cache.DISK
    runs: dict[Recipe, list[TrainReport]] = {one: [] for one in (options.recipe, *recipes)}
    done, total = 0, rounds * len(runs) - 1
    for number in range(rounds):
        for recipe in list(runs):
            if recipe is options.recipe and number == 0:
                runs[recipe].append(report)
                continue
            on_progress(Progress(what=recipe.value, done=done, total=total, unit="runs"))
            done += 1
            with tempfile.TemporaryDirectory(prefix="tfrtool-") as empty:
                own = partial(run, **_SAVES_NOTHING)
                if on_disk:  # the first run has filled its own
                    own = partial(own, cache=Cache.DISK, cache_directory=Path(empty, "images"))
                task = tasks[recipes.index(recipe)] if recipe in recipes else pickle.dumps(own)
                try:
                    made = in_own_process(dataset.directory, measured, tasks[0], task)
                except (DatasetError, UsageError) as error:
                    if recipe is not Recipe.NOTEBOOK or recipe is options.recipe:
                        raise
                    # It has a large cache, and doesn't augment.
                    report = replace(report, notebook_skipped=str(error))
                    del runs[recipe]
                else:
                    runs[recipe].append(made)
    again = tuple(runs.pop(options.recipe)[1:])
    for recipe, (first, *more) in runs.items():
        others: dict[str, Any] = {recipe.value: replace(first, again=tuple(more))}
        report = replace(report, **others)
    return replace(report, again=again)


def measured(
    naive: bytes, run: Train | bytes, on_progress: OnProgress = no_progress
) -> TrainReport:
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
    start, cpu, busy = time.perf_counter(), time.process_time(), busy_seconds()
    report = train(on_progress=on_progress)
    cpu, peak, others = time.process_time() - cpu, own_memory("VmHWM"), None
    if busy is not None and (now := busy_seconds()) is not None:
        others = max(now - busy - cpu, 0.0) / (time.perf_counter() - start)
    return replace(
        report,
        cpu_seconds=cpu,
        memory_bytes=max(peak - memory, 0) if peak else None,
        other_cores=others,
    )


class _BegunError(Exception):
    """What ends a run that is only begun."""


def _end(progress: Progress) -> None:
    if progress.unit == "steps":
        raise _BegunError
