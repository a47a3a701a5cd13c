"""The options of ``tfrtool train``, by what they are about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from tfrtool.cli.parameters import INPUT, OUTPUT

__all__ = ["loader_options", "model_options", "run_options", "split_options"]

Command = TypeVar("Command", bound=Callable[..., Any])

_AUTO = "auto"
_NUMBER = "N|auto"


class _NumberOrAuto(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.5 on
    """A whole number, or ``auto`` for the tool's own choice, which becomes None."""

    name = "number"

    def __init__(self, least: int) -> None:
        self._least = least

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | None:
        """Return the number, or None."""
        text = str(value).strip().lower()
        if text == _AUTO:
            return None
        if not (text.isascii() and text.isdigit()) or int(text) < self._least:
            self.fail(
                f"{value!r} is neither {_AUTO} nor a number from {self._least} on", param, ctx
            )
        return int(text)


_COUNT, _COUNT_OR_NONE = _NumberOrAuto(1), _NumberOrAuto(0)


def _in_turn(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def split_options(command: Command) -> Command:
    """Add what is trained on."""
    add: Callable[[Command], Command] = _in_turn(
        click.option("--split", default="train", show_default=True, help="The split to train on."),
        click.option(
            "--validation",
            metavar="NAME|FRACTION",
            help="A split to validate on, or the fraction of the training split to hold out. The "
            "default is the split named validation, if there is one.",
        ),
        click.option(
            "--on-corrupt",
            type=click.Choice(["stop", "skip"]),
            default="stop",
            show_default=True,
            help="At a damaged record, end and name it; or leave out what is damaged, and end "
            "with exit code 3.",
        ),
    )
    return add(command)


def model_options(command: Command) -> Command:
    """Add what is trained, and how."""
    add: Callable[[Command], Command] = _in_turn(
        click.option(
            "--model",
            metavar="NAME",
            default="mobilenet_v2",
            show_default=True,
            help="mobilenet_v2, any other name of keras.applications, or cnn: five convolutions.",
        ),
        click.option(
            "--weights",
            type=INPUT,
            metavar="imagenet|none|FILE",
            help="What to start from; imagenet (a download), and none for the cnn.",
        ),
        click.option(
            "--trainable",
            metavar="auto|head|all|LAYER",
            default=_AUTO,
            show_default=True,
            help="What learns: the head; all; from a layer on. auto is the head over loaded "
            "weights, and all where there are none.",
        ),
        click.option(
            "--image-size",
            type=click.IntRange(32, 4096),
            metavar="N",
            help="Pixels; the model's own.",
        ),
        click.option(
            "--rescale",
            type=click.Choice(["model", "unit"]),
            help="Scale pixels to what the model was trained on (the default), or to 0..1, which "
            "is the cnn's own range.",
        ),
        click.option(
            "--normalize",
            type=click.Choice(["dataset"]),
            help="Instead, take the mean of each channel out, and its spread, of all images that "
            "are trained on.",
        ),
        click.option(
            "--precision",
            type=click.Choice(["float32", "bfloat16"]),
            default="float32",
            show_default=True,
            help="What a frozen base computes in whose outputs are kept: with --trainable head, "
            "--cache features or auto, and no --augment.",
        ),
        click.option("--epochs", type=click.IntRange(1), default=5, show_default=True, metavar="N"),
        click.option(
            "--batch-size", type=click.IntRange(1), default=32, show_default=True, metavar="N"
        ),
        click.option(
            "--learning-rate",
            type=click.FloatRange(0, min_open=True),
            metavar="X",
            help="Of Adam; 0.001 for a head, 0.0003 for random weights, 0.0001 for loaded ones.",
        ),
        click.option(
            "--early-stopping",
            type=click.IntRange(1),
            metavar="N",
            help="End after N epochs without a lower val_loss (loss, if nothing is validated), "
            "and keep the best epoch's weights.",
        ),
        click.option(
            "--seed",
            type=click.IntRange(0, 2**32 - 1),
            default=0,
            show_default=True,
            metavar="N",
            help="Of the initial weights, the order of images and their changes.",
        ),
    )
    return add(command)


def loader_options(command: Command) -> Command:
    """Add how images are loaded."""
    add: Callable[[Command], Command] = _in_turn(
        click.option(
            "--recipe",
            type=click.Choice(["tfrtool", "notebook", "naive"]),
            default="tfrtool",
            show_default=True,
            help="The loader: ours; the published one; one that does one thing after the other. "
            "The options below are for ours.",
        ),
        click.option(
            "--cache",
            type=click.Choice([_AUTO, "features", "memory", "disk", "none"]),
            default=_AUTO,
            show_default=True,
            help="What is kept between epochs: a frozen base's outputs, decoded images in memory "
            "or on disk. auto goes by what is free.",
        ),
        click.option(
            "--cache-dir",
            type=OUTPUT,
            metavar="DIR",
            help="Where the cache on disk is, which it asks for; the user's own cache folder.",
        ),
        click.option(
            "--augment",
            metavar="LIST",
            help="Changes drawn anew every epoch, such as flip,rotate=40,crop=4: flip, "
            "flip-vertical, rotate=DEGREES, crop=PIXELS, cutout=PIXELS, brightness, contrast, "
            "saturation, hue.",
        ),
        click.option(
            "--cycle-length", type=_COUNT, metavar=_NUMBER, help="Shards read at a time; 4."
        ),
        click.option(
            "--block-length", type=_COUNT, metavar=_NUMBER, help="Records of a shard in a row; 1."
        ),
        click.option(
            "--parallel-calls",
            type=_COUNT,
            metavar=_NUMBER,
            help="Images decoded at a time; the cores.",
        ),
        click.option(
            "--shuffle-buffer",
            type=_COUNT,
            metavar=_NUMBER,
            help="Images to draw the next from; all that are cached, else 1024 or 32 MiB.",
        ),
        click.option(
            "--prefetch", type=_COUNT_OR_NONE, metavar=_NUMBER, help="Batches made ahead; 2."
        ),
        click.option(
            "--deterministic/--no-deterministic",
            default=True,
            show_default=True,
            help="Images in an order that the seed decides, or as soon as they are ready.",
        ),
    )
    return add(command)


def run_options(command: Command) -> Command:
    """Add what becomes of a run."""
    add: Callable[[Command], Command] = _in_turn(
        click.option(
            "--out",
            type=OUTPUT,
            metavar="DIR",
            help="Save model.keras, history.json, history.png and labels.txt here, and a "
            "checkpoint after each epoch.",
        ),
        click.option(
            "--resume",
            is_flag=True,
            help="Go on from the checkpoint in --out, if there is one; --epochs may be raised.",
        ),
        click.option(
            "--tensorboard", type=OUTPUT, metavar="DIR", help="Write logs for TensorBoard here."
        ),
        click.option(
            "--profile",
            is_flag=True,
            help="Trace ten steps for TensorBoard's profiler, into --tensorboard or DIR/profile "
            "of --out.",
        ),
        click.option(
            "--compare",
            is_flag=True,
            help="Train with the naive recipe, too, and print both times and their ratio.",
        ),
    )
    return add(command)
