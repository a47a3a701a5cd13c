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
    Number,
    WholeNumber,
    command,
    dataset_of,
)
from tfrtool.errors import UsageError

if TYPE_CHECKING:
    from tfrtool.training.run.train_report import EpochReport, TrainPlan, TrainReport


def _number_or_auto(text: str) -> int | None:
    """Return a whole number, or None for ``auto``, the tool's own choice."""
    text = text.strip().lower()
    if text != "auto" and not (text.isascii() and text.isdigit()):
        raise click.BadParameter(f"{text!r} is neither auto nor a number")
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
    "--split NAME=train": "The split to train on.",
    "--validation NAME|FRACTION": "The split to validate on, or the fraction of the training "
    "split to hold out. The default is the split named validation, if there is one.",
    **FEATURES,
    "--on-error stop|skip=stop": "What to do at a damaged record: stop and name it, or skip what "
    "is damaged and end with exit code 3.",
    "--model NAME|MODULE:FUNCTION=mobilenet_v2": "mobilenet_v2, the name of any other "
    "keras.applications model, cnn (five convolutional layers), or a function of your own (also "
    "FILE.py:FUNCTION) of image size and number of classes that returns a keras.Model.",
    "--weights imagenet|none|FILE": "Initial weights. The default is imagenet (downloaded), and "
    "none for the cnn.",
    "--trainable auto|head|all|LAYER=auto": "The trainable layers: the head, all, or from a "
    "layer on. auto is the head over loaded weights, and all layers without them.",
    "--image-size N": "Images are resized to N x N pixels. The default is the model's own size.",
    "--rescale model|unit": "Scale pixels to the range that the model was trained on (the "
    "default), or to 0..1, which is the cnn's own range.",
    "--normalize dataset": "Instead, scale each channel to mean 0 and standard deviation 1 over "
    "the training images.",
    "--precision float32|mixed_bfloat16|mixed_float16|bfloat16=float32": "What layers compute in: "
    "mixed ones in 16 bits with weights in float32, which is for GPUs. bfloat16 is for feature "
    "extraction by a frozen base: with --trainable head, --cache features or auto, and no "
    "--augment.",
    "--epochs N=5": "Epochs to train.",
    "--fine-tune LAYER[:EPOCHS]": "After these, train the layers from LAYER on at a tenth of the "
    "learning rate, for as many epochs again or for EPOCHS.",
    "--batch-size N=32": "Images in a batch.",
    "--learning-rate X": "Learning rate. The default is 0.001 for a head, 0.0003 for random "
    "weights, and 0.0001 for loaded ones; ten times that for sgd, a tenth for lion.",
    "--optimizer adam|adamw|sgd|rmsprop|lion=adam": "Optimizer; sgd has a momentum of 0.9.",
    "--schedule constant|cosine=constant": "Learning rate over the run: constant, or half a "
    "cosine down to 0 at the last step.",
    "--class-weights balanced": "Weight the loss of each image by its class, so that all classes "
    "count alike.",
    "--early-stopping N": "Stop after N epochs without a lower val_loss (loss, without "
    "validation), and keep the best epoch's weights.",
    "--seed N=0": "Seed of the initial weights, the order of images, and augmentation.",
    "--recipe tfrtool|notebook|naive=tfrtool": "The loader: ours, the published tf.data pipeline, "
    "or a naive sequential one. The options below are for ours.",
    "--cache auto|features|memory|disk|none=auto": "What is cached between epochs: the "
    "outputs of a frozen base, or decoded images in memory or on disk. auto goes by what is free.",
    "--cache-dir DIR": "Directory of the disk cache; implies --cache disk. The default is in the "
    "user's cache directory.",
    **SHARD_CACHE,
    "--decode exact|fast=exact": "fast decodes large JPEGs at a half, a quarter or an eighth of "
    "their size, where that is still at least the image size.",
    "--augment LIST": "Random augmentation, drawn anew every epoch, such as flip,rotate=40: "
    "flip, flip-vertical, rotate=DEGREES, crop=PIXELS, cutout=PIXELS, brightness, contrast, "
    "saturation, hue.",
    "--cycle-length N|auto": "Shards read in parallel; auto is 4.",
    "--block-length N|auto": "Consecutive records from a shard; auto is 1.",
    "--parallel-calls N|auto": "Images decoded in parallel; auto is the number of cores.",
    "--shuffle-buffer N|auto": "Size of the shuffle buffer in images; auto is all cached images, "
    "else 1024 or 32 MiB.",
    "--prefetch N|auto": "Batches to prefetch; auto is 2.",
    "--deterministic/--no-deterministic =true": "Images in the order that the seed decides, or "
    "as soon as they are ready.",
    "--out DIR": "Save model.keras, history.json, history.png, labels.txt and run.json (the "
    "options) here, and a checkpoint after each epoch.",
    "--resume": "Resume the run in --out from its checkpoint, if there is one. DATASET and all "
    "options are taken from its run.json; --epochs may be raised.",
    "--export saved_model|tflite ...": "Also save the model in this form in --out, run once and "
    "compared with model.keras; both may be given.",
    "--tensorboard DIR": "Write TensorBoard logs here.",
    "--profile": "Trace ten steps for TensorBoard's profiler, into --tensorboard or DIR/profile of "
    "--out.",
    "--strategy auto|one|mirrored|multi-worker=auto": "Train on one device, on all GPUs of this "
    "machine (mirrored), or on the workers of TF_CONFIG (multi-worker). auto takes what there is.",
    "--worker-timeout SECONDS=600": "How long the other workers are waited for.",
    "--shares N": "Shuffle as N workers do: each its own range of the images.",
    **ENGINE,
    "--workers N": "With --engine ray: how many workers.  [default: one for each node]",
    "--compare": "Also train by the recipes naive and notebook, each in a process of its own, "
    "and print what the runs took: CPU, time, memory, input wait.",
    "--compare-rounds N=3": "How often each recipe is run for that, in turn with the others.",
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
    """Train a classifier of images on the shards in DATASET.

    DATASET is what tfrtool write makes, or TFDS, or a directory of shards with one image and one
    label in each record. With --resume, DATASET and all options are those of the run in --out.
    Exit code 3 means that damaged records were left out.
    """
    from tfrtool.training.devices.worker_cluster import find_workers
    from tfrtool.training.run.train_options import TrainOptions, resumed

    source_of = click.get_current_context().get_parameter_source
    compared = {"compare": compare, "compare_rounds": given.pop("compare_rounds")}
    if not compare and source_of("compare_rounds") != _DEFAULT:
        raise UsageError("--compare-rounds needs --compare")
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
    # Before TensorFlow starts: what makes no sense is told at once.
    given = resumed({**given, "dataset": dataset})
    chosen = TrainOptions(**given)
    if chosen.strategy.value in ("auto", "multi-worker") and find_workers() is not None:
        # TensorFlow's own words about a worker that is gone are many, and ours say who it is.
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    path = dataset_of(str(given.pop("dataset")))
    if where["engine"] == "ray":  # TensorFlow is the nodes' alone
        from tfrtool.training.nodes.node_training import train_on_nodes

        where.pop("engine")
        compared.pop("compare_rounds")
        train: Callable[..., TrainReport] = partial(train_on_nodes, **where, on_restart=warn)
    else:
        with Bars() as bars, bars.loading_tensorflow():
            from tfrtool.loading.pipeline.tensors import start_devices
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
    if report.plan.devices.worker == 0:  # the chief tells of the run
        emit(report.to_json() if as_json else render_end(report))
    return Outcome.DAMAGE if report.plan.n_skipped else Outcome.FINE
