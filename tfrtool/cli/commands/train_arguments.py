"""The options of ``tfrtool train``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from tfrtool.cli.parameters import INPUT, OUTPUT

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Option = Callable[[Any], Any]

_AUTO = "auto"


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


def _text(name: str, metavar: str | None, help_: str, default: str | None = None) -> _Option:
    return click.option(
        name, metavar=metavar, default=default, show_default=default is not None, help=help_
    )


def _word(name: str, words: Sequence[str], help_: str, default: str | None = None) -> _Option:
    kind = click.Choice(words)
    return click.option(
        name, type=kind, default=default, show_default=default is not None, help=help_
    )


def _number(name: str, kind: Any, help_: str | None = None, default: int | None = None) -> _Option:
    return click.option(
        name,
        type=kind,
        default=default,
        show_default=default is not None,
        metavar="X" if isinstance(kind, click.FloatRange) else "N",
        help=help_,
    )


def _knob(name: str, help_: str, least: int = 1) -> _Option:
    return click.option(name, type=_NumberOrAuto(least), metavar="N|auto", help=help_)


def _path(name: str, help_: str) -> _Option:
    return click.option(name, type=OUTPUT, metavar="DIR", help=help_)


def _flag(name: str, help_: str) -> _Option:
    return click.option(name, is_flag=True, help=help_)


_OPTIONS = (
    _text("--split", None, "The split to train on.", "train"),
    _text(
        "--validation",
        "NAME|FRACTION",
        "A split to validate on, or the fraction of the training split to hold out. The default "
        "is the split named validation, if there is one.",
    ),
    _word(
        "--on-corrupt",
        ["stop", "skip"],
        "At a damaged record, end and name it; or leave out what is damaged, and end with exit "
        "code 3.",
        "stop",
    ),
    _text(
        "--model",
        "NAME",
        "mobilenet_v2, any other name of keras.applications, or cnn: five convolutions.",
        "mobilenet_v2",
    ),
    click.option(
        "--weights",
        type=INPUT,
        metavar="imagenet|none|FILE",
        help="What to start from; imagenet (a download), and none for the cnn.",
    ),
    _text(
        "--trainable",
        "auto|head|all|LAYER",
        "Which layers are trained: the head; all; from a layer on. auto is the head over loaded "
        "weights, and all where there are none.",
        _AUTO,
    ),
    _number("--image-size", click.IntRange(32, 4096), "Pixels; the model's own."),
    _word(
        "--rescale",
        ["model", "unit"],
        "Scale pixels to what the model was trained on (the default), or to 0..1, which is the "
        "cnn's own range.",
    ),
    _word(
        "--normalize",
        ["dataset"],
        "Instead, take the mean of each channel out, and its spread, of all images that are "
        "trained on.",
    ),
    _word(
        "--precision",
        ["float32", "bfloat16"],
        "What a frozen base computes in whose outputs are kept: with --trainable head, --cache "
        "features or auto, and no --augment.",
        "float32",
    ),
    _number("--epochs", click.IntRange(1), default=5),
    _number("--batch-size", click.IntRange(1), default=32),
    _number(
        "--learning-rate",
        click.FloatRange(0, min_open=True),
        "Of Adam; 0.001 for a head, 0.0003 for random weights, 0.0001 for loaded ones.",
    ),
    _number(
        "--early-stopping",
        click.IntRange(1),
        "End after N epochs without a lower val_loss (loss, if nothing is validated), and keep "
        "the best epoch's weights.",
    ),
    _number(
        "--seed",
        click.IntRange(0, 2**32 - 1),
        "Of the initial weights, the order of images and their changes.",
        0,
    ),
    _word(
        "--recipe",
        ["tfrtool", "notebook", "naive"],
        "The loader: ours; the published one; one that does one thing after the other. The "
        "options below are for ours.",
        "tfrtool",
    ),
    _word(
        "--cache",
        [_AUTO, "features", "memory", "disk", "none"],
        "What is kept between epochs: a frozen base's outputs, decoded images in memory or on "
        "disk. auto goes by what is free.",
        _AUTO,
    ),
    _path(
        "--cache-dir",
        "Where the cache on disk is, which it asks for; the user's own cache folder.",
    ),
    _text(
        "--augment",
        "LIST",
        "Changes drawn anew every epoch, such as flip,rotate=40,crop=4: flip, flip-vertical, "
        "rotate=DEGREES, crop=PIXELS, cutout=PIXELS, brightness, contrast, saturation, hue.",
    ),
    _knob("--cycle-length", "Shards read at a time; 4."),
    _knob("--block-length", "Records of a shard in a row; 1."),
    _knob("--parallel-calls", "Images decoded at a time; the cores."),
    _knob(
        "--shuffle-buffer",
        "The shuffle buffer, in images; all that are cached, else 1024 or 32 MiB.",
    ),
    _knob("--prefetch", "Batches made ahead; 2.", least=0),
    click.option(
        "--deterministic/--no-deterministic",
        default=True,
        show_default=True,
        help="Images in an order that the seed decides, or as soon as they are ready.",
    ),
    _path(
        "--out",
        "Save model.keras, history.json, history.png and labels.txt here, and a checkpoint after "
        "each epoch.",
    ),
    _flag(
        "--resume",
        "Resume the run in --out from its checkpoint, if there is one; --epochs may be raised.",
    ),
    _path("--tensorboard", "Write logs for TensorBoard here."),
    _flag(
        "--profile",
        "Trace ten steps for TensorBoard's profiler, into --tensorboard or DIR/profile of --out.",
    ),
    _flag("--compare", "Train with the naive recipe, too, and print both times and their ratio."),
)


def train_options(command: _Command) -> _Command:
    """Add all options to a command, in the order of its help."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
