"""``tfrtool bench``."""

from __future__ import annotations

from dataclasses import replace

import click

from tfrtool.cli.outcome import Outcome
from tfrtool.cli.output import emit_json, emit_page
from tfrtool.cli.parameters import INPUT, dataset_of
from tfrtool.cli.shared_options import debug_option, json_option
from tfrtool.storage.progress import Progress

__all__ = ["bench_command"]


@click.command(
    name="bench",
    epilog="\b\nExamples:\n  tfrtool bench shards\n"
    "  tfrtool bench shards --image-size 160 --rounds 1 --json",
)
@click.argument("dataset", type=INPUT)
@click.option("--split", default="train", show_default=True, help="The split to load.")
@click.option(
    "--image-size",
    type=click.IntRange(8, 4096),
    default=224,
    show_default=True,
    metavar="N",
    help="Pixels; what the model takes.",
)
@click.option("--batch-size", type=click.IntRange(1), default=32, show_default=True, metavar="N")
@click.option(
    "--epochs",
    type=click.IntRange(2),
    default=2,
    show_default=True,
    metavar="N",
    help="Epochs of each run; all but the first count as later ones.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    metavar="N",
    help="How often each stage is measured, in turn with the others.",
)
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=2000,
    show_default=True,
    metavar="N",
    help="How many images are enough; whole shards are read.",
)
@json_option
@debug_option
def bench_command(
    dataset: str,
    split: str,
    image_size: int,
    batch_size: int,
    epochs: int,
    rounds: int,
    limit: int,
    as_json: bool,
) -> Outcome:
    """Measure the loader on the shards in DATASET, stage by stage, and name its bottleneck.

    The stages are a naive pipeline, then one thing more at a time up to the published one, and
    ours. Each is measured in a process of its own, so that none profits from another. Nothing is
    trained. The first step puts the shards out of the system's page cache, to see how fast the
    disk is. Exit code 3 means that a stage was left out, for want of memory.
    """
    from tfrtool.cli.progress import Bars
    from tfrtool.cli.render.bench_text import render_bench
    from tfrtool.loading.bench.bench import bench

    def show(progress: Progress) -> None:
        bars(replace(progress, what="measuring"), note=progress.what)

    with Bars() as bars:
        report = bench(
            dataset_of(dataset),
            split=split,
            image_size=image_size,
            batch_size=batch_size,
            epochs=epochs,
            rounds=rounds,
            limit=limit,
            on_progress=show,
        )
    if as_json:
        for line in report.to_json():
            emit_json(line)
    else:
        emit_page(render_bench(report))
    return Outcome.DAMAGE if any(stage.left_out for stage in report.stages) else Outcome.FINE
