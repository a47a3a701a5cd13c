"""``tfrtool bench``."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import click

from tfrtool.cli.output import Outcome, emit
from tfrtool.cli.parameters import INPUT, command, resolve_dataset
from tfrtool.cli.render.page import Heading, Page, Table, wrapped
from tfrtool.declare import Options, option
from tfrtool.errors import human_bytes, human_count
from tfrtool.storage.progress import Progress

if TYPE_CHECKING:
    from tfrtool.loading.bench import BenchReport

_HEAD = ("1st CPU ms", "range", "images/s", "later CPU ms", "range", "images/s", "memory")


@dataclass(frozen=True, kw_only=True)
class _BenchOptions(Options):
    split: str = option("train", "Split to load.", metavar="NAME", group="Dataset")
    image_feature: str | None = option(
        None, "Feature with the images.  [default: detected]", metavar="NAME", group="Dataset"
    )
    label_feature: str | None = option(
        None,
        "Feature with the labels: class numbers, class names, or vectors of 0 and 1.  "
        "[default: detected]",
        metavar="NAME",
        group="Dataset",
    )
    decode_function: str | None = option(
        None,
        "Function that decodes records of other forms.",
        metavar="FILE.py:FUNCTION",
        group="Dataset",
    )
    image_size: int = option(
        224,
        "Resize images to N x N pixels.",
        metavar="N",
        least=8,
        most=4096,
        group="Input pipeline",
    )
    batch_size: int = option(
        32, "Number of images per batch.", metavar="N", least=1, group="Input pipeline"
    )
    decode: Literal["exact", "fast"] = option(
        "exact",
        "How tfrtool decodes JPEGs that are larger than needed.",
        group="Input pipeline",
    )
    shard_cache: str | None = option(
        None,
        "Local directory for shards that are downloaded from an object store.  "
        "[default: in the user cache directory]",
        metavar="DIR",
        path="local output",
        group="Input pipeline",
    )
    epochs: int = option(
        2,
        "Number of epochs per run, at least 2: the first, and later ones.",
        metavar="N",
        least=2,
        group="Measurement",
    )
    rounds: int = option(
        3,
        "How often to measure each pipeline; the pipelines take turns.",
        metavar="N",
        least=1,
        group="Measurement",
    )
    limit: int = option(
        2000,
        "Minimum number of images to load; whole shards are read.",
        metavar="N",
        least=1,
        group="Measurement",
    )


@command(
    "tfrtool bench shards",
    "tfrtool bench shards --image-size 160 --rounds 1 --json",
    options=_BenchOptions,
)
@click.argument("dataset", type=INPUT)
def bench_command(dataset: str, as_json: bool, **given: Any) -> Outcome:
    """Compare the input pipeline with published ones, without training.

    DATASET is a directory of shards. Measures a naive tf.data pipeline, the usual one of notebooks,
    and tfrtool's own without and with its cache. Each runs in its own process. Shows CPU time per
    image, images per second in first and later epochs, and memory.

    Exit code 3 means that a pipeline was skipped for lack of memory.
    """
    from tfrtool.cli.bars import Bars
    from tfrtool.loading.bench import bench

    def show(progress: Progress) -> None:
        bars(replace(progress, what="measuring", note=progress.what))

    with Bars() as bars:
        report = bench(resolve_dataset(dataset), on_progress=show, **given)
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
                low, high = cost.cpu_ms_range
                cells += [f"{cost.cpu_ms_per_image:.3f}", f"{low:.2f}-{high:.2f}"]
                cells.append(f"{cost.images_per_second:,.0f}")
            cells.append(human_bytes(one.memory_bytes or 0))
        rows.append((one.pipeline, *cells))
    return [
        Heading(f"Loading {images} from {shards} at {report.image_size} px; cache: {report.cache}"),
        Table(head=("pipeline", *_HEAD), rows=rows, right=range(1, 1 + len(_HEAD))),
        *notes,
        *(wrapped(report.warning) if report.warning else ()),
    ]
