"""``tfrtool bench``."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from tfrtool.cli.output import Outcome, emit
from tfrtool.cli.parameters import INPUT, command, resolve_dataset
from tfrtool.errors import human_bytes, human_count
from tfrtool.loading.options import BenchOptions
from tfrtool.page import Heading, Page, Prose, Table
from tfrtool.storage.progress import Progress

if TYPE_CHECKING:
    from tfrtool.loading.bench import BenchReport

_HEAD = ("1st CPU ms", "range", "images/s", "later CPU ms", "range", "images/s", "memory")


@command(
    "tfrtool bench shards",
    "tfrtool bench shards --image-size 160 --rounds 1 --json",
    options=BenchOptions,
)
@click.argument("dataset", type=INPUT)
def bench_command(dataset: str, as_json: bool, **words: Any) -> Outcome:
    """Compare the input pipeline with published ones, without training.

    DATASET is a directory of shards. Measures a naive tf.data pipeline, the usual one of notebooks,
    and tfrtool's own without and with its cache. Each runs in its own process. Shows CPU time per
    image, images per second in first and later epochs, and memory.

    Exit code 3 means that a pipeline was skipped for lack of memory.
    """
    from tfrtool.cli.output import Bars
    from tfrtool.loading.bench import bench

    def show(progress: Progress) -> None:
        bars(replace(progress, what="measuring", note=progress.what))

    with Bars() as bars:
        report = bench(resolve_dataset(dataset), on_progress=show, **words)
    for result in report.to_json() if as_json else [_page(report)]:
        emit(result)
    return Outcome.DAMAGE if any(one.skipped for one in report.pipelines) else Outcome.FINE


def _page(report: "BenchReport") -> Page:
    """Return the page to print."""
    images = human_count(report.images, "image")
    if report.images < report.total_images:
        images = f"{report.images:,} of {human_count(report.total_images, 'image')}"
    shards = human_count(report.shards, "shard")
    rows, notes = [], []
    for one in report.pipelines:
        cells = ["-"] * len(_HEAD)
        if one.skipped:
            notes.append(f"skipped {one.pipeline}: {one.skipped}")
        elif one.first_epoch and one.later_epochs:
            cells = []
            for cost in (one.first_epoch, one.later_epochs):
                low, high = cost["cpu_ms_range"]
                cells += [f"{cost['cpu_ms_per_image']:.3f}", f"{low:.2f}-{high:.2f}"]
                cells.append(f"{cost['images_per_second']:,.0f}")
            cells.append(human_bytes(one.memory_bytes or 0))
        rows.append((one.pipeline, *cells))
    return [
        Heading(f"Loading {images} from {shards} at {report.image_size} px; cache: {report.cache}"),
        Table(head=("pipeline", *_HEAD), rows=rows, right=range(1, 1 + len(_HEAD))),
        *notes,
        *([Prose(report.warning)] if report.warning else ()),
    ]
