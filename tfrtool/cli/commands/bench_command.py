"""``tfrtool bench``."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from tfrtool.cli.output import Outcome, emit
from tfrtool.cli.parameters import (
    FEATURES,
    INPUT,
    SHARD_CACHE,
    WholeNumber,
    command,
    resolve_dataset,
)
from tfrtool.cli.render.page import Heading, Page, Table, wrapped
from tfrtool.errors import human_bytes, human_count
from tfrtool.storage.progress import Progress

if TYPE_CHECKING:
    from tfrtool.loading.bench import BenchReport

_ADDED = ("interleave", "parallel map", "cache", "prefetch")
_HEAD = ("1st CPU ms", "images/s", "later CPU ms", "images/s", "memory", "of the cache")


@command(
    "tfrtool bench shards",
    "tfrtool bench shards --image-size 160 --rounds 1 --json",
    options={
        "Dataset": {"--split NAME=train": "Split to load.", **FEATURES},
        "Input pipeline": {
            "--image-size N=224": "Resize images to N x N pixels.",
            "--batch-size N=32": "Number of images per batch.",
            "--decode exact|fast=exact": "How tfrtool decodes JPEGs that are larger than needed.",
            **SHARD_CACHE,
        },
        "Measurement": {
            "--epochs N=2": "Number of epochs per run, at least 2: the first, and later ones.",
            "--rounds N=3": "How often to measure each stage; the stages take turns.",
            "--limit N=2000": "Minimum number of images to load; whole shards are read.",
        },
    },
    kinds={"--image-size": WholeNumber(8, 4096), "--epochs": WholeNumber(2)},
)
@click.argument("dataset", type=INPUT)
def bench_command(dataset: str, as_json: bool, **given: Any) -> Outcome:
    """Measure the input pipeline on a dataset and name its bottleneck.

    DATASET is a directory of shards. The stages go from a naive tf.data pipeline, with one
    improvement at a time, to tfrtool's own. Each runs in its own process, and shards are first
    dropped from the page cache. Shows CPU time per image, images per second in first and later
    epochs, and memory. Nothing is trained.

    Exit code 3 means that a stage was skipped for lack of memory.
    """
    from tfrtool.cli.bars import Bars
    from tfrtool.loading.bench import bench

    def show(progress: Progress) -> None:
        bars(replace(progress, what="measuring", note=progress.what))

    with Bars() as bars:
        report = bench(resolve_dataset(dataset), on_progress=show, **given)
    for result in report.to_json() if as_json else [_page(report)]:
        emit(result)
    return Outcome.DAMAGE if any(stage.skipped for stage in report.stages) else Outcome.FINE


def _page(report: "BenchReport") -> Page:
    """Return the page to print."""
    images = human_count(report.images, "image")
    if report.images < report.total_images:
        images = f"{report.images:,} of {human_count(report.total_images, 'image')}"
    shards = human_count(report.shards, "shard")
    rows, skipped = [], []
    for stage in report.stages:
        name = f"+ {stage.stage}" if stage.stage in _ADDED else stage.stage
        cells = ["-"] * len(_HEAD)
        if stage.skipped:
            skipped.append(f"skipped {name}: {stage.skipped}")
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
