"""Input pipelines measured in turn, each in a process of its own.

TensorFlow keeps memory that was freed, so a pipeline that fills a cache after another one did would
look better than it is.
"""

import contextlib
import gc
import os
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

from tfrtool.declare import takes
from tfrtool.engines.engine import busy_seconds, cores
from tfrtool.errors import DatasetError, UsageError
from tfrtool.loading.cache import CacheRequest, available_memory, own_memory, plan_cache
from tfrtool.loading.dataset import Dataset
from tfrtool.loading.open_dataset import opened
from tfrtool.loading.options import BenchOptions, LoadOptions
from tfrtool.storage.arguments import Paths
from tfrtool.storage.child import Child, ChildDied, ChildError
from tfrtool.storage.extras import require_tensorflow
from tfrtool.storage.json_values import Shown, to_json_values
from tfrtool.storage.progress import OnProgress, Progress, no_progress
from tfrtool.storage.remote_path import AnyPath

_BUSY = 0.1
"""The part of the cores that other programs may take before there is a warning."""

_TINY = 16

Task = Callable[[], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What a task took."""

    result: Any
    seconds: float
    cpu_seconds: float
    memory_bytes: int | None  # by which the process grew at its peak; None if unknown
    other_cores: float | None  # cores that other programs kept busy meanwhile; None if unknown


def measure(task: Task, warm_up: Task | None = None) -> Measurement:
    """Run a task in this process; ``warm_up`` loads before what any such task loads."""
    if warm_up is not None:
        warm_up()
    gc.collect()
    gc.freeze()  # a later collection would fall to the task
    with contextlib.suppress(OSError):  # proc(5): forget the peak so far
        Path("/proc/self/clear_refs").write_text("5", "ascii")
    memory = own_memory("VmRSS")
    start, cpu, busy = time.perf_counter(), time.process_time(), busy_seconds()
    result = task()
    seconds, cpu, others = time.perf_counter() - start, time.process_time() - cpu, None
    if busy is not None and (now := busy_seconds()) is not None:
        others = max(now - busy - cpu, 0.0) / seconds
    peak = own_memory("VmHWM")
    return Measurement(
        result=result,
        seconds=seconds,
        cpu_seconds=cpu,
        memory_bytes=max(peak - memory, 0) if peak else None,
        other_cores=others,
    )


def measure_in_turn(
    path: AnyPath,
    tasks: Mapping[str, Task],
    rounds: int,
    *,
    warm_up: Task | None = None,
    optional: Collection[str] = (),
    on_progress: OnProgress = no_progress,
) -> tuple[dict[str, list[Measurement]], dict[str, str]]:
    """Run tasks in turn, ``rounds`` times, each in a process of its own.

    Args:
        path: the dataset, for errors.
        tasks: functions by name, which can be pickled.
        rounds: how often each is run.
        warm_up: what is done before in each process.
        optional: names of tasks that may fail.
        on_progress: called before each run, and with the progress that a task sends.

    Returns:
        The measurements of each task, and the errors of the optional tasks that failed.

    Raises:
        DatasetError: a task fails, or its process is killed.
        UsageError: a task does not accept its options.
    """
    results: dict[str, list[Measurement]] = {name: [] for name in tasks}
    errors: dict[str, str] = {}
    done, total = 0, rounds * len(tasks)
    for _ in range(rounds):
        for name, task in tasks.items():
            on_progress(Progress(what=name, done=done, total=total, unit="runs"))
            done += 1
            if name in errors:
                continue
            run = partial(_in_run, on_progress, f"{name}, run {done} of {total}")
            try:
                results[name].append(in_own_process(path, measure, task, warm_up, on_progress=run))
            except (DatasetError, UsageError) as error:
                if name not in optional:
                    raise
                errors[name] = str(error)
    return results, errors


def _in_run(on_progress: OnProgress, run: str, progress: Progress) -> None:
    on_progress(replace(progress, what=f"{run}: {progress.what}"))


def in_own_process(
    path: AnyPath,
    function: Callable[..., Any],
    *arguments: object,
    on_progress: OnProgress = no_progress,
) -> Any:
    """Return what a function returns in a process that did nothing before.

    Progress that the function passes to `send_to_parent` is passed on.
    """
    environment = {"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ}
    with Path(os.devnull).open("wb") as nowhere, Child(nowhere, environment) as child:
        try:
            child.send(function, *arguments)
            while isinstance(answer := child.receive(), Progress):
                on_progress(answer)
            return answer
        except ChildError as error:
            found = str(error)[:300]
        except ChildDied as death:
            found = f"its process was killed by signal {-death.code}, possibly out of memory"
            if death.code >= 0:
                found = f"its process ended with exit code {death.code}"
    raise DatasetError("the benchmark failed", path=path, found=found)


def busy_warning(runs: Sequence[Measurement]) -> str | None:
    """Return a warning if other programs kept cores busy during a run."""
    others = max((run.other_cores or 0.0 for run in runs), default=0.0)
    if others <= _BUSY * cores():
        return None
    return (
        f"Other programs kept up to {others:.1f} of {cores()} cores busy, so compare CPU time "
        "rather than images per second."
    )


EpochCost = dict[str, Any]
"""What an epoch takes: the medians ``cpu_ms_per_image`` and ``images_per_second`` of all
measurements, and the lowest and highest CPU time, ``cpu_ms_range``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineReport:
    """What a pipeline takes, or why it was skipped."""

    pipeline: str
    first_epoch: EpochCost | None = None
    later_epochs: EpochCost | None = None
    memory_bytes: int | None = None  # by which a process grew at its peak
    skipped: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BenchReport(Shown):
    """Result of benchmarking the data loader.

    Attributes:
        pipelines: the naive pipeline, the usual one of notebooks, and tfrtool's own, without and
            with its cache.
        images: number of images in an epoch.
        total_images: number of images in the split.
        shards: number of shards read.
        image_size: width and height to which images are resized, in pixels.
        cache: where tfrtool's pipeline cached images: "memory" or "none".
        cores: number of cores available to this process.
        warning: what makes the result unreliable, such as other programs that kept cores busy.
    """

    pipelines: tuple[PipelineReport, ...]
    images: int
    total_images: int
    shards: int
    image_size: int
    cache: str
    cores: int
    warning: str | None = None

    def to_json(self) -> list[dict[str, Any]]:
        """Return one object per pipeline, and a last one for the other results."""
        last = to_json_values(self)
        return [*last.pop("pipelines"), last]


@takes(BenchOptions)
def bench(path: Paths, options: BenchOptions) -> BenchReport:
    """Benchmark the data loader on a dataset against published pipelines.

    Each measurement runs in its own process, so that they do not influence each other. Remote
    shards are downloaded first.

    Args:
        path: dataset directory, glob pattern of shards, or a list of their files.

    Raises:
        UsageError: the dataset has no such split, or a number is out of range.
        DatasetError: the dataset can't be used, or the pipelines don't return the same images.
    """
    require_tensorflow("benchmarks of the loader")
    split, epochs, size = options.split, options.epochs, options.image_size
    dataset = opened(path, options)
    whole = dataset.local_split(split)
    count = 1 + sum(total < options.limit for total in accumulate(whole.lengths))
    if whole.ranges:  # which may have no records of the first shards
        count = len(whole.shards)
    part = replace(whole, shards=whole.shards[:count], lengths=whole.lengths[:count])
    dataset = replace(dataset, splits={split: part}, shard_cache=None)
    request = CacheRequest(
        images=part.records,
        image_size=size,
        epochs=epochs,
        free_memory=available_memory,
        free_disk=lambda: 0,
    )
    cache, skipped = plan_cache(request).cache, {}
    loading = LoadOptions(image_size=size, split=split, batch_size=options.batch_size)
    own = replace(loading, decode=options.decode)
    try:
        plan_cache(replace(request, recipe="notebook"))
    except UsageError as error:
        skipped["notebook"] = str(error)
    chosen = {
        "naive": replace(loading, recipe="naive"),
        "notebook": replace(loading, recipe="notebook"),
        "tfrtool, uncached": own,
        "tfrtool": replace(own, cache=cache),
    }
    tasks = {
        name: partial(run_epochs, dataset, one, epochs)
        for name, one in chosen.items()
        if name not in skipped and (name != "tfrtool" or cache != "none")
    }
    tiny = replace(part, shards=part.shards[:1], lengths=part.lengths[:1], ranges=())
    small = replace(dataset, splits={split: tiny})
    warm_up = partial(run_epochs, small, replace(loading, image_size=_TINY), 1)
    results, _ = measure_in_turn(
        dataset.directory,
        tasks,
        options.rounds,
        warm_up=warm_up,
        on_progress=options.on_progress,
    )
    runs = [run for some in results.values() for run in some]
    if len({epoch[:2] for run in runs for epoch in run.result}) > 1:
        raise DatasetError("the pipelines return different images", path=dataset.directory)
    return BenchReport(
        pipelines=tuple(
            _sum_up(name, results[name])
            if name in results
            else PipelineReport(pipeline=name, skipped=skipped.get(name, "no memory for a cache"))
            for name in chosen
        ),
        images=part.records,
        total_images=whole.records,
        shards=len(part.shards),
        image_size=size,
        cache=cache,
        cores=cores(),
        warning=busy_warning(runs),
    )


def run_epochs(
    dataset: Dataset, options: LoadOptions, epochs: int
) -> list[tuple[int, int, float, float]]:
    """Load epochs, and return the images, the sum of labels, seconds and CPU seconds of each.

    An iterator is for ``options.epochs``: for one epoch, as Keras' ``fit`` makes them, or for all.
    """
    from tfrtool.loading.corrupt import naming_damage
    from tfrtool.loading.pipeline import load

    costs: list[tuple[int, int, float, float]] = []
    iterator: Iterator[Any] = iter(())
    with naming_damage(dataset, options.split):
        start, cpu = time.perf_counter(), time.process_time()
        batches = load(dataset, options)
        steps = int(batches.cardinality()) // options.epochs
        for epoch in range(epochs):
            if epoch % options.epochs == 0:
                iterator = iter(batches)
            is_last = (epoch + 1) % options.epochs == 0
            images, labels = 0, 0
            for _, numbers in islice(iterator, None if is_last else steps):
                images, labels = images + len(numbers), labels + int(numbers.numpy().sum())
            if is_last:
                iterator = iter(())  # here a tuned pipeline waits for the tuner
            now, used = time.perf_counter(), time.process_time()
            costs.append((images, labels, now - start, used - cpu))
            start, cpu = now, used
    return costs


def _sum_up(name: str, runs: Sequence[Measurement]) -> PipelineReport:
    def cost(which: slice) -> EpochCost:
        epochs = [epoch for run in runs for epoch in run.result[which]]
        cpu = sorted(used / images * 1e3 for images, _, _, used in epochs)
        return {
            "cpu_ms_per_image": statistics.median(cpu),
            "cpu_ms_range": (cpu[0], cpu[-1]),
            "images_per_second": statistics.median(images / took for images, _, took, _ in epochs),
        }

    memory = [run.memory_bytes for run in runs if run.memory_bytes is not None]
    return PipelineReport(
        pipeline=name,
        first_epoch=cost(slice(1)),
        later_epochs=cost(slice(1, None)),
        memory_bytes=round(statistics.median(memory)) if memory else None,
    )
