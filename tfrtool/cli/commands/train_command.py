"""``tfrtool train``."""

import contextlib
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tfrtool.cli.bars import Bars
from tfrtool.cli.damage import warn_of_damage
from tfrtool.cli.output import Outcome, emit, warn
from tfrtool.cli.parameters import (
    ENGINE,
    FEATURES,
    INPUT,
    LOCAL_INPUT,
    SHARD_CACHE,
    STOP_ON_ERROR,
    Number,
    WholeNumber,
    command,
    resolve_dataset,
)
from tfrtool.errors import UsageError

if TYPE_CHECKING:
    from tfrtool.training.run.train_report import EpochReport, TrainPlan, TrainReport


def _number_or_auto(text: str) -> int | None:
    """Return a whole number, or None for ``auto``, the tool's own choice."""
    text = text.strip().lower()
    if text != "auto" and not (text.isascii() and text.isdigit()):
        raise click.BadParameter(f"expected a number or auto, got {text[:100]!r}")
    return None if text == "auto" else int(text)


_KINDS = {
    "X": Number(0, min_open=True),
    "N|auto": _number_or_auto,
    "--weights": LOCAL_INPUT,
    "--image-size": WholeNumber(32, 4096),
    "--seed": WholeNumber(0, 2**32 - 1),
    "SECONDS": Number(0, 86_400, min_open=True),
    "--shares": WholeNumber(1),
}

_DEFAULT = click.core.ParameterSource.DEFAULT

_OPTIONS = {
    "Dataset": {
        "--split NAME=train": "Split to train on.",
        "--validation NAME|FRACTION": "Split to validate on, or fraction of the training split to "
        "hold out.  [default: the split validation, if any]",
        **FEATURES,
        **STOP_ON_ERROR,
    },
    "Model": {
        "--model NAME|MODULE:FUNCTION=mobilenet_v2": "mobilenet_v2 or another model of "
        "keras.applications, cnn (five convolutional layers), or your own: a function of image "
        "size and number of classes that returns a keras.Model (also FILE.py:FUNCTION).",
        "--weights imagenet|none|FILE": "Initial weights; imagenet is downloaded.  [default: "
        "imagenet, or none for cnn]",
        "--trainable auto|head|all|LAYER=auto": "Layers to train: only the head, all, or LAYER and "
        "those after it. auto means head with loaded weights, otherwise all.",
        "--image-size N": "Resize images to N x N pixels.  [default: the model's own size]",
        "--rescale model|unit": "Scale pixels to the range that the model expects, or to 0..1.  "
        "[default: model]",
        "--normalize dataset": "Instead of --rescale, scale each channel to mean 0 and standard "
        "deviation 1 over the training images.",
        "--precision float32|mixed_bfloat16|mixed_float16|bfloat16=float32": "Precision of the "
        "layers. The mixed ones are for GPUs. bfloat16 is for a frozen base: it requires "
        "--trainable head, --cache features or auto, and no --augment.",
    },
    "Optimization": {
        "--epochs N=5": "Number of epochs.",
        "--fine-tune LAYER[:EPOCHS]": "After --epochs, also train LAYER and the layers after it "
        "at a tenth of the learning rate, for EPOCHS epochs.  [default: as many as --epochs]",
        "--batch-size N=32": "Number of images per batch.",
        "--learning-rate X": "Learning rate. The default is 0.001 for a head, 0.0003 for random "
        "and 0.0001 for loaded weights; ten times that for sgd, a tenth for lion.",
        "--optimizer adam|adamw|sgd|rmsprop|lion=adam": "Optimizer; sgd has a momentum of 0.9.",
        "--schedule constant|cosine=constant": "Learning rate schedule: constant, or cosine decay "
        "to 0 at the last step.",
        "--class-weights balanced": "Weight the loss of each image so that all classes count "
        "equally.",
        "--early-stopping N": "Stop after N epochs without a lower val_loss (without "
        "validation, loss), and keep the best weights.",
        "--seed N=0": "Random seed for initial weights, image order and augmentation.",
    },
    "Input pipeline": {
        **SHARD_CACHE,
        "--recipe tfrtool|notebook|naive=tfrtool": "tfrtool's own pipeline, the common tf.data "
        "pipeline of notebooks, or a naive sequential one. The options below require --recipe "
        "tfrtool.",
        "--cache auto|features|memory|disk|none=auto": "What to keep between epochs: outputs of a "
        "frozen base, or decoded images in memory or on disk. auto picks what fits.",
        "--cache-dir DIR": "Directory of the disk cache; implies --cache disk.  [default: in the "
        "user cache directory]",
        "--decode exact|fast=exact": "fast decodes large JPEGs at 1/2, 1/4 or 1/8 of their size, "
        "but not below the image size.",
        "--augment LIST": "Random augmentation, such as flip,rotate=40. Choose from flip, "
        "flip-vertical, rotate=DEGREES, crop=PIXELS, cutout=PIXELS, brightness, contrast, "
        "saturation and hue.",
        "--cycle-length N|auto": "Shards to read in parallel; auto is 4.  [default: auto]",
        "--block-length N|auto": "Consecutive records to take from a shard; auto is 1.  [default: "
        "auto]",
        "--parallel-calls N|auto": "Images to decode ahead; auto is 8 per core.  [default: auto]",
        "--shuffle-buffer N|auto": "Images in the shuffle buffer; auto is all cached images, or "
        "1024 (at most 32 MiB) without a cache.  [default: auto]",
        "--prefetch N|auto": "Batches to prefetch; auto is 2.  [default: auto]",
        "--deterministic/--no-deterministic =true": "Use the image order given by the seed, or "
        "take images as soon as they are ready.",
    },
    "Output": {
        "--out DIR": "Directory for model.keras, history.json, history.png, labels.txt, run.json "
        "(the options) and a checkpoint after each epoch.",
        "--resume": "Continue the run in --out from its checkpoint, with the DATASET and options "
        "in its run.json. You can raise --epochs.",
        "--export saved_model|tflite ...": "Also save the model in this format in --out, and "
        "compare its predictions with model.keras. Repeatable.",
        "--tensorboard DIR": "Directory for TensorBoard logs.",
        "--profile": "Profile ten steps for TensorBoard, in the --tensorboard directory or in the "
        "folder profile of --out.",
    },
    "Execution": {
        "--strategy auto|one|mirrored|multi-worker=auto": "Train on one device, on all GPUs of "
        "this machine (mirrored), or on the workers of TF_CONFIG (multi-worker). auto uses what "
        "is available.",
        "--worker-timeout SECONDS=600": "Maximum time to wait for the other workers.",
        "--shares N": "Shuffle in one process as N workers would, to get the same batches.",
        **ENGINE,
        "--workers N": "Number of workers with --engine ray.  [default: one per node]",
    },
    "Comparison": {
        "--compare": "Also train with the recipes naive and notebook, each in its own process, and "
        "compare CPU time, wall time, memory and input wait.",
        "--compare-rounds N=3": "How often --compare runs each recipe.",
    },
}


@command(
    "tfrtool train shards --validation validation --out run",
    "tfrtool train shards --model cnn --image-size 150 --validation 0.2 --augment flip",
    "tfrtool train --resume --out run --epochs 10",
    options=_OPTIONS,
    kinds=_KINDS,
)
@click.argument("dataset", type=INPUT, required=False)
def train_command(dataset: str | None, *, compare: bool, as_json: bool, **given: Any) -> Outcome:
    """Train an image classifier on the shards in DATASET.

    DATASET is a directory that tfrtool write or TFDS wrote, or any directory of shards with an
    image and a label in each record. With --resume, it comes from the run in --out.

    Exit code 3 means that damaged records were skipped.
    """
    from tfrtool.training.devices.worker_cluster import find_workers
    from tfrtool.training.run.train_options import TrainOptions, resumed

    source_of = click.get_current_context().get_parameter_source
    compared = {"compare": compare, "compare_rounds": given.pop("compare_rounds")}
    if not compare and source_of("compare_rounds") != _DEFAULT:
        raise UsageError("--compare-rounds requires --compare")
    where = {name: given.pop(name) for name in ("engine", "engine_address", "workers")}
    given = {name: one for name, one in given.items() if source_of(name) != _DEFAULT}
    rescale, normalize = given.pop("rescale", None), given.pop("normalize", None)
    if rescale is not None and normalize is not None:
        raise UsageError("--rescale and --normalize cannot be used together")
    if normalize or rescale:
        given["rescale"] = normalize or rescale
    with contextlib.suppress(KeyError, ValueError):
        given["validation"] = float(given["validation"])
    if "cache_dir" in given:
        given["cache_directory"] = given.pop("cache_dir")
    # Before TensorFlow starts, so that wrong options are reported at once.
    given = resumed({**given, "dataset": dataset})
    chosen = TrainOptions(**given)
    if chosen.strategy.value in ("auto", "multi-worker") and find_workers() is not None:
        # TensorFlow logs a lot about a lost worker; our error names it.
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    path = resolve_dataset(str(given.pop("dataset")))
    if where["engine"] == "ray":  # only the nodes need TensorFlow
        from tfrtool.training.nodes.node_training import train_on_nodes

        where.pop("engine")
        compared.pop("compare_rounds")
        train: Callable[..., TrainReport] = partial(train_on_nodes, **where, on_restart=warn)
    else:
        with Bars() as bars, bars.loading_tensorflow():
            from tfrtool.loading.tensors import start_devices
            from tfrtool.training.run import train as training

            start_devices()
        train = partial(training.train, **where)
    from tfrtool.cli.render.train_text import render_end, render_epoch, render_plan

    with Bars() as bars:

        def show_plan(plan: "TrainPlan") -> None:
            warn_of_damage(plan.skipped)
            for line in plan.warnings:
                warn(line)
            if not as_json:
                emit(render_plan(plan))

        def show_epoch(epoch: "EpochReport") -> None:
            emit(epoch.to_json() if as_json else render_epoch(epoch))

        report = train(
            path,
            **compared,
            on_plan=show_plan,
            on_epoch=show_epoch,
            on_progress=bars,
            **given,
        )
    if report.plan.devices.worker == 0:  # only the chief reports
        emit(report.to_json() if as_json else render_end(report))
    return Outcome.DAMAGE if report.plan.n_skipped else Outcome.FINE
