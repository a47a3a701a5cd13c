"""``tfrtool train``."""

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from tfrtool.cli.bars import Bars
from tfrtool.cli.damage import warn_of_damage
from tfrtool.cli.output import Outcome, emit, warn
from tfrtool.cli.parameters import INPUT, command, resolve_dataset
from tfrtool.errors import UsageError
from tfrtool.training.train_options import TrainOptions

if TYPE_CHECKING:
    from tfrtool.training.train_report import EpochReport, TrainPlan


@command(
    "tfrtool train shards --validation validation --out run",
    "tfrtool train shards --model cnn --image-size 150 --validation 0.2 --augment flip",
    "tfrtool train --resume --out run --epochs 10",
    options=TrainOptions,
)
@click.argument("dataset", type=INPUT, required=False)
def train_command(dataset: str | None, *, as_json: bool, **words: Any) -> Outcome:
    """Train an image classifier on the shards in DATASET.

    DATASET is a directory that tfrtool write or TFDS wrote, or any directory of shards with an
    image and a label in each record. With --resume, it comes from the run in --out.

    Exit code 3 means that damaged records were skipped.
    """
    from tfrtool.training.run_record import resumed
    from tfrtool.training.worker_cluster import find_workers

    source_of, default = (
        click.get_current_context().get_parameter_source,
        click.core.ParameterSource.DEFAULT,
    )
    given = {name: one for name, one in words.items() if source_of(name) != default}
    if "compare_rounds" in given and not words["compare"]:
        raise UsageError("--compare-rounds requires --compare")
    # Before TensorFlow starts, so that wrong options are reported at once.
    options = resumed(TrainOptions(dataset, **given))
    if options.strategy in ("auto", "multi-worker") and find_workers() is not None:
        # TensorFlow logs a lot about a lost worker; our error names it.
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    path = resolve_dataset(str(options.dataset))
    if options.engine == "ray":  # only the nodes need TensorFlow
        from tfrtool.training.ray_training import train_on_ray as train
    else:
        with Bars() as bars, bars.loading_tensorflow():
            from tfrtool.loading.tensors import start_devices
            from tfrtool.training.train import train_with as train

            start_devices()
    from tfrtool.cli.render.train_text import render_end, render_epoch, render_plan

    with Bars() as bars:

        def show_plan(plan: "TrainPlan") -> None:
            warn_of_damage(plan.damage)
            for line in plan.warnings:
                warn(line)
            if not as_json:
                emit(render_plan(plan))

        def show_epoch(epoch: "EpochReport") -> None:
            emit(epoch.to_json() if as_json else render_epoch(epoch))

        report = train(
            replace(
                options,
                dataset=path,
                on_plan=show_plan,
                on_epoch=show_epoch,
                on_progress=bars,
                on_restart=warn,
            )
        )
    if report.plan.worker == 0:  # only the chief reports
        emit(report.to_json() if as_json else render_end(report))
    return Outcome.DAMAGE if report.plan.skipped else Outcome.FINE
