"""``tfrtool bench``."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from tfrtool.cli.output import Outcome, emit
from tfrtool.cli.parameters import FEATURES, INPUT, SHARD_CACHE, WholeNumber, command, dataset_of
from tfrtool.cli.render.page import Heading, Page, Table, wrapped
from tfrtool.errors import human_bytes, human_count
from tfrtool.storage.progress import Progress

if TYPE_CHECKING:
    from tfrtool.loading.bench.bench import BenchReport

_ADDED = ("interleave", "parallel map", "cache", "prefetch")
_HEAD = ("1st CPU ms", "images/s", "later CPU ms", "images/s", "memory", "of the cache")


@command(
    "tfrtool bench shards",
    "tfrtool bench shards --image-size 160 --rounds 1 --json",
    options={
        "--split NAME=train": "The split to load.",
        **FEATURES,
        "--image-size N=224": "Images are resized to N x N pixels.",
        "--batch-size N=32": "Images in a batch.",
        "--decode exact|fast=exact": "How ours decodes JPEGs that are larger than needed.",
        "--epochs N=2": "Epochs of each run; all but the first count as later ones.",
        "--rounds N=3": "Measurements of each stage, in turn with the others.",
        "--limit N=2000": "Images to load at least; whole shards are read.",
        **SHARD_CACHE,
    },
    kinds={"--image-size": WholeNumber(8, 4096), "--epochs": WholeNumber(2)},
)
@click.argument("dataset", type=INPUT)
def bench_command(dataset: str, as_json: bool, **given: Any) -> Outcome:
    """Measure the loader on DATASET, and name its bottleneck.

    The stages are a naive pipeline, then one thing more at a time up to the published one, and
    ours: CPU time per image and images per second in first and in later epochs, and memory. Each
    is measured in a process of its own, so that none profits from another. Nothing is trained. The
    shards are first dropped from the system's page cache, to see how fast the disk is. Exit code 3
    means that a stage was left out, for want of memory.
    """
    from tfrtool.cli.bars import Bars
    from tfrtool.loading.bench.bench import bench

    def show(progress: Progress) -> None:
        bars(replace(progress, what="measuring", note=progress.what))

    with Bars() as bars:
        report = bench(dataset_of(dataset), on_progress=show, **given)
    for result in report.to_json() if as_json else [_page(report)]:
        emit(result)
    return Outcome.DAMAGE if any(stage.skipped for stage in report.stages) else Outcome.FINE


def _page(report: "BenchReport") -> Page:
    """Return what is shown to people."""
    images = human_count(report.images, "image")
    if report.images < report.total_images:
        images = f"{report.images:,} of {human_count(report.total_images, 'image')}"
    shards = human_count(report.shards, "shard")
    rows, skipped = [], []
    for stage in report.stages:
        name = f"+ {stage.stage}" if stage.stage in _ADDED else stage.stage
        cells = ["-"] * len(_HEAD)
        if stage.skipped:
            skipped.append(f"{name} was left out: {stage.skipped}")
        elif stage.first_epoch and stage.later_epochs:
            speeds = [
                (f"{epoch['cpu_ms_per_image']:.3f}", f"{epoch['images_per_second']:,.0f}")
                for epoch in (stage.first_epoch, stage.later_epochs)
            ]
            cache = "-" if stage.cache_bytes is None else human_bytes(stage.cache_bytes)
            cells = [*speeds[0], *speeds[1], human_bytes(stage.memory_bytes or 0), cache]
        rows.append((name, *cells))
    return [
        Heading(f"Loading {images} from {shards} at {report.image_size} px; cache: {report.cache}"),
        Table(head=("stage", *_HEAD), rows=rows, right=range(1, 1 + len(_HEAD))),
        *skipped,
        *wrapped(report.sentence),
    ]
