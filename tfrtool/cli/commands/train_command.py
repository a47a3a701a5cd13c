"""``tfrtool train``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tfrtool.cli.commands.train_arguments import (
    loader_options,
    model_options,
    run_options,
    split_options,
)
from tfrtool.cli.native_stderr import starting_tensorflow
from tfrtool.cli.outcome import Outcome
from tfrtool.cli.output import emit, emit_json, human_count, warn
from tfrtool.cli.parameters import INPUT, dataset_of
from tfrtool.cli.shared_options import debug_option, json_option
from tfrtool.errors import UsageError

if TYPE_CHECKING:
    from tfrtool.cli.bars import Bars
    from tfrtool.training.run.listener import Listener
    from tfrtool.training.run.train_options import TrainOptions
    from tfrtool.training.run.train_report import EpochReport, TrainPlan

__all__ = ["train_command"]

_LEFT_OUT_SHOWN = 10


@click.command(
    name="train",
    epilog="\b\nExamples:\n"
    "  tfrtool train shards --validation validation --out run\n"
    "  tfrtool train shards --model cnn --image-size 150 --validation 0.2 --augment flip\n"
    "  tfrtool train shards --out run --epochs 10 --resume",
)
@click.argument("dataset", type=INPUT)
@split_options
@model_options
@loader_options
@run_options
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
        from tfrtool.loading.pipeline.devices import find_devices
        from tfrtool.training.run.compare import train_and_compare
        from tfrtool.training.run.train import train

        find_devices()
    from tfrtool.cli.bars import Bars
    from tfrtool.cli.render.train_text import render_comparison, render_end

    with Bars(unit="step") as bars:
        ours = _listener(bars, as_json)
        if compare:
            both = train_and_compare(options, ours, _listener(bars, as_json, label="naive "))
            report, data = both.ours, both.to_json()
        else:
            report = train(options, ours.on_plan, ours.on_epoch, ours.on_step, ours.on_phase)
            data = report.to_json()
    if as_json:
        emit_json(data)
    else:
        emit(render_end(report, options.out))
        if compare:
            emit(render_comparison(both))
    return Outcome.DAMAGE if report.plan.n_left_out else Outcome.FINE


def _options(dataset: str, given: dict[str, Any]) -> TrainOptions:
    """Make the noun of what was given; names are those of its attributes, or near them."""
    from tfrtool.loading.augment.augment_options import parse_augment
    from tfrtool.loading.dataset.corrupt_report import OnCorrupt
    from tfrtool.loading.pipeline.load_options import Cache, Recipe
    from tfrtool.training.run.train_options import (
        ModelName,
        Precision,
        RescaleTo,
        Trainable,
        TrainOptions,
    )

    kinds: dict[str, Callable[[Any], Any]] = {
        "validation": _validation,
        "model": ModelName,
        "trainable": Trainable,
        "recipe": Recipe,
        "cache": lambda name: None if name == "auto" else Cache(name),
        "cache_directory": Path,
        "augment": parse_augment,
        "precision": Precision,
        "on_corrupt": OnCorrupt,
        "out": Path,
        "tensorboard": Path,
    }
    rescale, normalize = given.pop("rescale"), given.pop("normalize")
    if rescale is not None and normalize is not None:
        raise UsageError("--rescale and --normalize exclude each other")
    given["cache_directory"] = given.pop("cache_dir")
    for name, kind in kinds.items():
        if given[name] is not None:
            given[name] = kind(given[name])
    rescale = RescaleTo(normalize or rescale or "model")
    options = TrainOptions(dataset=Path(dataset), rescale=rescale, **given)
    return replace(options, dataset=dataset_of(dataset))


def _validation(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text


def _listener(bars: Bars, as_json: bool, label: str = "") -> Listener:
    """Return what shows a run as it goes on; of one with a label, only its bars are shown."""
    from tfrtool.cli.render.train_text import render_epoch, render_plan
    from tfrtool.training.run.listener import Listener

    def show_plan(plan: TrainPlan) -> None:
        bars.close()
        if label:
            return
        for line in plan.left_out[:_LEFT_OUT_SHOWN]:
            warn(f"left out: {line}")
        more = len(plan.left_out) - _LEFT_OUT_SHOWN
        if more > 0:
            warn(f"left out: {human_count(more, 'more place')}")
        if not as_json:
            emit(render_plan(plan))

    def show_epoch(epoch: EpochReport) -> None:
        bars.close()
        if as_json and not label:
            emit_json(epoch.to_json())
        elif not label:
            emit(render_epoch(epoch))

    return Listener(
        on_plan=show_plan,
        on_epoch=show_epoch,
        on_step=lambda step: bars.show(
            f"{label}epoch {step.epoch}",
            step.done,
            step.total,
            f"loss {step.loss:.4f}, accuracy {step.accuracy:.4f}",
        ),
        on_phase=lambda phase: bars.show(f"{label}{phase.name}", phase.done, phase.total),
    )
