"""The loader alone, stage by stage: what each brings, what it costs, and what limits ours."""

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import accumulate, compress
from pathlib import Path
from typing import Any

from tfrtool.engines.pool import cores
from tfrtool.errors import DatasetError
from tfrtool.loading.cache import CacheRequest, available_memory, plan_cache
from tfrtool.loading.dataset import Dataset, Split
from tfrtool.loading.open_dataset import open_dataset
from tfrtool.loading.options import Cache, LoadOptions
from tfrtool.records.compression import Compression
from tfrtool.storage.arguments import check_least, make_options
from tfrtool.storage.child import Child, ChildDied, ChildError
from tfrtool.storage.json_values import to_json_values
from tfrtool.storage.progress import OnProgress, Progress, no_progress
from tfrtool.storage.remote.shard_cache import FETCHED_AT_ONCE, ShardCache

UNCACHED, OWN_UNCACHED, OWN = "uncached", "tfrtool, uncached", "tfrtool"
_WITHOUT = {"cache": "parallel map", OWN: OWN_UNCACHED}
_PUBLISHED = ("naive", "interleave", "parallel map", "cache", "prefetch")
STAGES = (*_PUBLISHED, UNCACHED, OWN_UNCACHED, OWN)
"""The pipelines: each of the published ones has what those before it have, and one thing more;
"prefetch" is the notebooks' whole pipeline. "uncached" is what is published for images that fit
into no cache; "tfrtool" is ours, with its cache and without."""

_MOST = 0.5
"""The part of the free memory that the published cache may take: its shuffle buffer, its batches
and other programs need some, too, and a process that takes all ends others."""

_TOO_SHORT = 0.5
"""Seconds of an epoch, in which starting a pipeline counts for more than what it does."""

_LARGER = 1.5
"""How many times the pixels that are needed images must have for a resize to be worth it."""

_BUSY = 0.1
"""The part of the cores that other programs may take before it is said."""

_HELP = {
    "parsing": "Records are small; in Python, load(batched_parse=N) parses N at a time.",
    "copying": "Images are copied into float32 batches; a smaller --image-size copies less.",
    "storing": "The first epoch fills the cache; a smaller --image-size stores less.",
    "waiting": "The loader kept {busy:.1f} of {cores} cores busy. To use more, raise "
    "--parallel-calls and --cycle-length of tfrtool train, or write more shards (tfrtool write "
    "--shards, now {shards}).",
}
"""What would make a share of the cores' time smaller, whatever the images are."""

Numbers = dict[str, float]
"""Of an epoch, its images_per_second and cpu_ms_per_image, and where it is known other_cores: how
many cores other programs kept busy meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRun:
    """What one process measured of a pipeline."""

    images: int  # in an epoch
    labels: int  # the sum of an epoch's
    epochs: tuple[Numbers, ...]
    memory: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageReport:
    """A pipeline, by the medians of all runs; or why it was left out."""

    stage: str
    first_epoch: Numbers | None = None
    later_epochs: Numbers | None = None
    memory_bytes: int | None = None  # by how much a process grew at its largest
    cache_bytes: int | None = None  # of that, what the same pipeline without its cache didn't take
    skipped: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchReport:
    """Result of benchmarking the data loader.

    Attributes:
        stages: result of each stage: the naive pipeline, then one change at a time, and last
            tfrtool's pipeline.
        bottleneck: what limits the first epoch of tfrtool's pipeline, in one word.
        sentence: explanation of the bottleneck, with an option that would help.
        parts_cpu_ms_per_image: CPU time per image for reading (with decompression), parsing,
            decoding and resizing, in milliseconds.
        shares_ms_per_image: time per image in the first epoch of tfrtool's pipeline, in
            milliseconds: the parts above, copying, storing and waiting.
        pixels_per_image: mean number of pixels of the images in the shards.
        compression: compression of the shards.
        cold_read_ms_per_image: wall time per image to read from disk without a warm page cache, in
            milliseconds. None if unknown.
        store_ms_per_image: wall time per image to fetch shards from an object store, in
            milliseconds, for those that were not cached. None if none was fetched.
        images: number of images in an epoch.
        total_images: number of images in the split.
        shards: number of shards read.
        image_size: width and height to which images are resized, in pixels.
        cache: where tfrtool's pipeline cached images: "memory", "disk" or "none".
        cores: number of cores available to this process.
    """

    stages: tuple[StageReport, ...]
    bottleneck: str = ""
    sentence: str = ""
    parts_cpu_ms_per_image: Numbers
    shares_ms_per_image: Numbers
    pixels_per_image: float
    compression: str
    cold_read_ms_per_image: float | None
    store_ms_per_image: float | None = None
    images: int
    total_images: int = 0
    shards: int
    image_size: int
    cache: str
    cores: int

    def to_json(self) -> list[dict[str, Any]]:
        """Return one object per stage, and a last one for the other results."""
        last = to_json_values(self)
        return [*last.pop("stages"), last]


def bench(
    path: str | os.PathLike[str],
    *,
    split: str = "train",
    image_size: int = 224,
    batch_size: int = 32,
    epochs: int = 2,
    rounds: int = 3,
    limit: int = 2000,
    decode: str = "exact",
    image_feature: str | None = None,
    label_feature: str | None = None,
    shard_cache: str | os.PathLike[str] | None = None,
    on_progress: OnProgress = no_progress,
) -> BenchReport:
    """Benchmark the data loader on a dataset, stage by stage.

    Each measurement runs in its own process, so that they do not influence each other. Remote
    shards are fetched first; the time for this is reported separately.

    Args:
        path: dataset directory.
        split: name of the split.
        image_size: width and height to which images are resized, in pixels.
        batch_size: images per batch.
        epochs: number of epochs per measurement, at least 2: the first one fills the cache.
        rounds: number of measurements of each pipeline, alternating between pipelines.
        limit: number of images to read. Shards are read whole, as many as are needed to reach it.
        decode: "exact" or "fast", for tfrtool's pipeline; see `Dataset.load`.
        image_feature: feature that contains the images; see `tfrtool.dataset`.
        label_feature: feature that contains the labels; see `tfrtool.dataset`.
        shard_cache: local directory in which to cache remote shards; see `tfrtool.dataset`.
        on_progress: called before each measurement.

    Raises:
        UsageError: the dataset has no such split, or a number is out of range.
        DatasetError: the dataset can't be used, or the pipelines don't return the same images.
    """
    least = {"epochs": 2, "rounds": 1, "limit": 1}
    check_least({"epochs": epochs, "rounds": rounds, "limit": limit}, least)
    load = make_options(
        LoadOptions, image_size=image_size, split=split, batch_size=batch_size, decode=decode
    )
    dataset = open_dataset(
        path,
        image_feature=image_feature,
        label_feature=label_feature,
        shard_cache=shard_cache,
    )
    whole = dataset.split(split)
    count = 1 + sum(total < limit for total in accumulate(whole.lengths))
    shards = replace(whole, shards=whole.shards[:count], lengths=whole.lengths[:count])
    cache = dataset.shard_cache  # which keeps the copies while they are measured
    shards, fetched = _fetch(cache, shards)
    dataset = replace(dataset, splits={split: shards}, shard_cache=None)
    report = _measure_all(dataset, load, epochs, rounds, on_progress)
    report = replace(report, store_ms_per_image=fetched, total_images=whole.records)
    report = replace(report, shares_ms_per_image=_shares(report))
    bottleneck, sentence = _judge(report)
    return replace(report, bottleneck=bottleneck, sentence=sentence)


def _fetch(cache: ShardCache | None, split: Split) -> tuple[Split, float | None]:
    """Return a split of local shards, and what an image of those took that were fetched, in ms."""
    if cache is None:
        return split, None
    start = time.perf_counter()
    with ThreadPoolExecutor(FETCHED_AT_ONCE) as pool:
        files = [*pool.map(cache.fetch, split.shards)]
    took = time.perf_counter() - start
    images = sum(compress(split.lengths, [path in cache.fetched for path in split.shards]))
    return replace(split, shards=tuple(files)), took / images * 1e3 if images else None


def _measure_all(
    dataset: Dataset, load: LoadOptions, epochs: int, rounds: int, on_progress: OnProgress
) -> BenchReport:
    """Measure the loader of local shards; what limits it is not told yet."""
    shards, image_size = dataset.split(load.split), load.image_size
    request = CacheRequest(
        images=shards.records,
        image_size=image_size,
        epochs=epochs,
        free_memory=available_memory(),
        # One that an earlier run left on disk would make a first epoch look like a later one.
        free_disk=0,
    )
    load = replace(load, cache=plan_cache(request).cache)
    stages: tuple[str, ...] = STAGES
    skipped = ""
    free, float_cache = request.free_memory, request.bytes(Cache.MEMORY, 4) or 0
    if free is not None and float_cache > _MOST * free:
        stages = tuple(stage for stage in STAGES if stage not in ("cache", "prefetch"))
        sizes = f"{float_cache / 2**20:,.0f} MiB, with {free / 2**20:,.0f} MiB free"
        skipped = f"its float32 cache would need {sizes}"

    total, done = 1 + rounds * len(stages), 0
    on_progress(Progress(what="pieces", done=done, total=total, unit="runs"))
    parts, cold, pixels = measure("measure_parts", dataset, load, rounds)
    runs: dict[str, list[StageRun]] = {stage: [] for stage in stages}
    for _ in range(rounds):
        for stage, some in runs.items():
            done += 1
            on_progress(Progress(what=stage, done=done, total=total, unit="runs"))
            some.append(measure("measure_stage", dataset, load, stage, epochs))
    if len({(run.images, run.labels) for some in runs.values() for run in some}) > 1:
        raise DatasetError("the pipelines return different images", path=dataset.directory)
    return BenchReport(
        stages=tuple(_sum_up(stage, runs, skipped) for stage in STAGES),
        parts_cpu_ms_per_image=parts,
        shares_ms_per_image={},
        cold_read_ms_per_image=cold,
        pixels_per_image=pixels,
        compression=shards.compression.value,
        images=shards.records,
        shards=len(shards.shards),
        image_size=image_size,
        cache=load.cache.value,
        cores=cores(),
    )


def measure(work: str, dataset: Dataset, *arguments: object) -> Any:
    """Return what a function of `bench_measure` gives, in a process of its own.

    That one alone loads TensorFlow. If it fails, or the system ends it, this is a DatasetError.
    """
    return in_own_process(dataset.directory, _in_child, work, dataset, *arguments)


def in_own_process(path: Path, function: Callable[..., Any], *arguments: object) -> Any:
    """Return what a function gives in a process that did nothing before; see `measure`."""
    environment = {"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ}
    with Path(os.devnull).open("wb") as nowhere, Child(nowhere, environment) as child:
        try:
            return child.call(function, *arguments)
        except ChildError as error:
            found = str(error)[:300]
        except ChildDied as death:
            found = f"its process was killed by signal {-death.code}, possibly out of memory"
            if death.code >= 0:
                found = f"its process ended with exit code {death.code}"
    raise DatasetError("the benchmark failed", path=path, found=found)


def _in_child(work: str, *arguments: object) -> Any:
    from tfrtool.loading import bench_measure

    return getattr(bench_measure, work)(*arguments)


def _sum_up(stage: str, measured: Mapping[str, Sequence[StageRun]], skipped: str) -> StageReport:
    if not (runs := measured.get(stage)):
        return StageReport(stage=stage, skipped=skipped)
    taken = {one: round(statistics.median(r.memory for r in measured[one])) for one in measured}
    without = taken.get(_WITHOUT.get(stage, ""))

    def medians(epochs: Sequence[Numbers]) -> Numbers:
        return {name: statistics.median(epoch[name] for epoch in epochs) for name in epochs[0]}

    return StageReport(
        stage=stage,
        first_epoch=medians([run.epochs[0] for run in runs]),
        later_epochs=medians([epoch for run in runs for epoch in run.epochs[1:]]),
        memory_bytes=taken[stage],
        cache_bytes=None if without is None else max(taken[stage] - without, 0),
    )


def _shares(report: BenchReport) -> Numbers:
    """Return what the cores do for an image in a first epoch of ours, in milliseconds of theirs."""
    first = {stage.stage: stage.first_epoch or {} for stage in report.stages}
    whole, uncached = (first[name]["cpu_ms_per_image"] for name in (OWN, OWN_UNCACHED))
    shares = dict(report.parts_cpu_ms_per_image)
    storing = 0.0 if report.cache == Cache.NONE.value else max(whole - uncached, 0.0)
    shares |= {"copying": max(whole - storing - sum(shares.values()), 0.0), "storing": storing}
    free = report.cores - first[OWN].get("other_cores", 0.0)
    waiting = free * 1e3 / first[OWN]["images_per_second"] - whole
    return shares | {"waiting": max(waiting, 0.0)}


def _judge(report: BenchReport) -> tuple[str, str]:
    """Return what limits the first epoch of our pipeline, in a word and in a sentence or two."""
    first, cold = report.stages[-1].first_epoch or {}, report.cold_read_ms_per_image
    rate, cpu = first["images_per_second"], first["cpu_ms_per_image"]
    store, others = report.store_ms_per_image, first.get("other_cores", 0.0)
    busy = ""
    if others > _BUSY * report.cores:
        busy = (
            f" Other programs kept {others:.1f} of {report.cores} cores busy, so compare CPU ms "
            "rather than images/s."
        )
    size = report.image_size
    larger = report.pixels_per_image > _LARGER * size**2
    smaller = (
        f" Smaller records help: tfrtool write --encode jpeg --resize {size}." if larger else ""
    )
    if store is not None and store > max(1e3 / rate, cold or 0.0):
        return "store", (
            f"The store is the bottleneck of the first epoch: it delivers {1e3 / store:,.0f} "
            f"images/s, and the loader can process {rate:,.0f}. Later epochs read from the shard "
            f"cache.{smaller}{busy}"
        )
    if report.images / rate < _TOO_SHORT:
        return "starting", (
            f"Startup is the bottleneck: the first epoch of {report.images:,} images takes "
            f"{report.images / rate:.2f} s, too short for any option to matter.{busy}"
        )
    if cold is not None and cold > 1e3 / rate:
        return "disk", (
            f"The disk is the bottleneck of the first epoch: it delivers {1e3 / cold:,.0f} "
            f"images/s, and the loader can process {rate:,.0f}.{smaller}{busy}"
        )
    costs = report.shares_ms_per_image
    bottleneck = max(costs, key=costs.__getitem__)
    shares = {name: f"{cost / sum(costs.values()):.0%}" for name, cost in costs.items()}
    told = ", ".join(f"{name} {share}" for name, share in shares.items())
    helps = _help(bottleneck, report, larger).format(
        busy=cpu * rate / 1e3, cores=report.cores, shards=report.shards
    )
    return bottleneck, (
        f"{bottleneck.capitalize()} is the bottleneck, with {shares[bottleneck]} of the core time "
        f"of the first epoch ({told}).{helps and f' {helps}'}{busy}"
    )


def _help(bottleneck: str, report: BenchReport, larger: bool) -> str:
    """Return what would make a share of the cores' time smaller; nothing where nothing would."""
    size = report.image_size
    if bottleneck == "reading":
        helps = [f"tfrtool write --resize {size} makes records smaller."] if larger else []
        if report.compression != Compression.NONE.value:
            helps.append("tfrtool write --compression none avoids decompression.")
        return " ".join(helps)
    if bottleneck in ("decoding", "resizing"):
        if larger:
            smaller = f"tfrtool write --resize {size} makes images smaller"
            return f"{smaller}, and --encode raw avoids decoding."
        if bottleneck == "decoding":
            return "tfrtool write --encode raw avoids decoding."
        if report.pixels_per_image < size**2:
            return "Images are enlarged; a smaller --image-size enlarges them less."
        return ""
    return _HELP[bottleneck]
