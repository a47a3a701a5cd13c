"""``tfrtool train``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tfrtool.cli.native_stderr import starting_tensorflow
from tfrtool.cli.options import debug_option, json_option
from tfrtool.cli.outcome import Outcome
from tfrtool.cli.output import emit, emit_json

if TYPE_CHECKING:
    from tfrtool.training.report import EpochReport, TrainPlan
    from tfrtool.training.train import Step

__all__ = ["train_command"]


@click.command(
    name="train",
    epilog="\b\nExamples:\n"
    "  tfrtool train shards --validation validation --out run\n"
    "  tfrtool train shards --model cnn --image-size 150 --validation 0.2 --epochs 10",
)
@click.argument("dataset")
@click.option("--split", default="train", show_default=True, help="The split to train on.")
@click.option(
    "--validation",
    metavar="NAME|FRACTION",
    help="A split to validate on, or the fraction of the training split to hold out. The default "
    "is the split named validation, if there is one.",
)
@click.option(
    "--model",
    type=click.Choice(["mobilenet_v2", "cnn"]),
    default="mobilenet_v2",
    show_default=True,
    help="MobileNetV2 with average pooling and softmax, or five convolutions.",
)
@click.option(
    "--weights",
    metavar="imagenet|none|FILE",
    help="What to start from; imagenet for mobilenet_v2 (a download), none for cnn.",
)
@click.option(
    "--trainable",
    type=click.Choice(["auto", "head", "all"]),
    default="auto",
    show_default=True,
    help="What learns; auto is the head over loaded weights, and all where there are none.",
)
@click.option(
    "--image-size", type=click.IntRange(32, 4096), metavar="N", help="Pixels; the model's own."
)
@click.option(
    "--rescale",
    type=click.Choice(["model", "unit"]),
    default="model",
    show_default=True,
    help="Scale pixels to what the model was trained on, or to 0..1.",
)
@click.option("--epochs", type=click.IntRange(1), default=5, show_default=True, metavar="N")
@click.option("--batch-size", type=click.IntRange(1), default=32, show_default=True, metavar="N")
@click.option(
    "--learning-rate",
    type=click.FloatRange(0, min_open=True),
    metavar="X",
    help="Of Adam; 0.001 where only a head learns, 0.0003 where everything does.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    show_default=True,
    metavar="N",
    help="Of the initial weights and the order of images.",
)
@click.option(
    "--recipe",
    type=click.Choice(["tfrtool", "notebook", "naive"]),
    default="tfrtool",
    show_default=True,
    help="The loader: ours; the published one; one that does one thing after the other.",
)
@click.option(
    "--cache",
    type=click.Choice(["auto", "memory", "none"]),
    default="auto",
    show_default=True,
    help="Where decoded images are kept; auto goes by the memory that is free.",
)
@click.option(
    "--out", metavar="DIR", help="Save model.keras, history.json, history.png and labels.txt here."
)
@json_option
@debug_option
def train_command(
    dataset: str,
    split: str,
    validation: str | None,
    model: str,
    weights: str | None,
    trainable: str,
    image_size: int | None,
    rescale: str,
    epochs: int,
    batch_size: int,
    learning_rate: float | None,
    seed: int,
    recipe: str,
    cache: str,
    out: str | None,
    as_json: bool,
) -> Outcome:
    """Train a classifier of images on the shards in DATASET.

    DATASET is what tfrtool write makes, or TFDS, or a directory of shards with one encoded image
    and one int64 label in each record.
    """
    with starting_tensorflow():
        from tfrtool.loading.devices import find_devices
        from tfrtool.training.train import train

        find_devices()
    from tfrtool.cli.progress import Bars
    from tfrtool.cli.train_text import render_end, render_epoch, render_plan
    from tfrtool.loading.options import Cache, Recipe
    from tfrtool.training.options import ModelName, RescaleTo, Trainable, TrainOptions

    options = TrainOptions(
        dataset=Path(dataset),
        split=split,
        validation=_validation(validation),
        model=ModelName(model),
        weights=weights,
        trainable=Trainable(trainable),
        image_size=image_size,
        rescale=RescaleTo(rescale),
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        seed=seed,
        recipe=Recipe(recipe),
        cache=None if cache == "auto" else Cache(cache),
        out=None if out is None else Path(out),
    )
    bars = Bars(unit="step")

    def show_plan(plan: TrainPlan) -> None:
        if not as_json:
            emit(render_plan(plan))

    def show_epoch(epoch: EpochReport) -> None:
        bars.close()
        if as_json:
            emit_json(epoch.to_json())
        else:
            emit(render_epoch(epoch))

    def show_step(step: Step) -> None:
        note = f"loss {step.loss:.4f}, accuracy {step.accuracy:.4f}"
        bars.show(f"epoch {step.epoch}", step.done, step.total, note)

    with bars:
        report = train(options, show_plan, show_epoch, show_step)
    if as_json:
        emit_json(report.to_json())
    else:
        emit(render_end(report, options.out))
    return Outcome.FINE


def _validation(text: str | None) -> str | float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return text
