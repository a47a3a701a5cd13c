"""``tfrtool train``."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from tfrtool.cli.commands.train_arguments import train_options
from tfrtool.cli.output import Outcome, emit, emit_json, human_count, warn
from tfrtool.cli.parameters import INPUT, dataset_of, debug_option, json_option
from tfrtool.cli.process import starting_tensorflow
from tfrtool.errors import UsageError

if TYPE_CHECKING:
    from tfrtool.training.run.train_options import TrainOptions
    from tfrtool.training.run.train_report import EpochReport, TrainPlan

_LEFT_OUT_SHOWN = 10


@click.command(
    name="train",
    epilog="\b\nExamples:\n"
    "  tfrtool train shards --validation validation --out run\n"
    "  tfrtool train shards --model cnn --image-size 150 --validation 0.2 --augment flip\n"
    "  tfrtool train shards --out run --epochs 10 --resume",
)
@click.argument("dataset", type=INPUT)
@train_options
@json_option
@debug_option
def train_command(dataset: str, *, compare: bool, as_json: bool, **given: Any) -> Outcome:
    """Train a classifier of images on the shards in DATASET.

    DATASET is what tfrtool write makes, or TFDS, or a directory of shards with one image and one
    label in each record. Exit code 3 means that damaged records were left out.
    """
    # Before TensorFlow starts: what makes no sense is told at once.
    options = _options(dataset, given)
    with starting_tensorflow():
        from tfrtool.loading.pipeline.tensors import start_devices
        from tfrtool.training.run.train import train_by_options

        start_devices()
    from tfrtool.cli.bars import Bars
    from tfrtool.cli.render.train_text import render_end, render_epoch, render_plan

    with Bars() as bars:

        def show_plan(plan: TrainPlan) -> None:
            bars.close()
            for line in plan.left_out[:_LEFT_OUT_SHOWN]:
                warn(f"left out: {line}")
            more = len(plan.left_out) - _LEFT_OUT_SHOWN
            if more > 0:
                warn(f"left out: {human_count(more, 'more place')}")
            if not as_json:
                emit(render_plan(plan))

        def show_epoch(epoch: EpochReport) -> None:
            bars.close()
            if as_json:
                emit_json(epoch.to_json())
            else:
                emit(render_epoch(epoch))

        report = train_by_options(
            options, compare=compare, on_plan=show_plan, on_epoch=show_epoch, on_progress=bars
        )
    if as_json:
        emit_json(report.to_json())
    else:
        emit(render_end(report, options.out))
    return Outcome.DAMAGE if report.plan.n_left_out else Outcome.FINE


def _options(dataset: str, given: dict[str, Any]) -> TrainOptions:
    from tfrtool.training.run.train_options import TrainOptions

    rescale, normalize = given.pop("rescale"), given.pop("normalize")
    if rescale is not None and normalize is not None:
        raise UsageError("--rescale and --normalize exclude each other")
    with contextlib.suppress(TypeError, ValueError):
        given["validation"] = float(given["validation"])
    given["rescale"] = normalize or rescale or "model"
    given["cache_directory"] = given.pop("cache_dir")
    options = TrainOptions(dataset=dataset, **given)  # type: ignore[arg-type]
    return replace(options, dataset=dataset_of(dataset))
