"""The verb: a dataset of shards becomes a trained model."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tfrtool.engines.pool import engine_of
from tfrtool.errors import UsageError, WriteError, os_errors_as
from tfrtool.loading.dataset import Dataset
from tfrtool.loading.options import Recipe
from tfrtool.storage.arguments import make_options
from tfrtool.storage.lock import locked
from tfrtool.storage.progress import OnProgress, activity, no_progress
from tfrtool.storage.scratch_folder import ScratchFolder
from tfrtool.training.devices.devices import open_devices
from tfrtool.training.devices.worker_cluster import StrategyKind
from tfrtool.training.features.frozen_base import check_precision
from tfrtool.training.models.saved_model import MODEL_FILE
from tfrtool.training.nodes.node_training import train_on_nodes
from tfrtool.training.run.checkpoints import has_checkpoint, read_run
from tfrtool.training.run.compare import compared
from tfrtool.training.run.run_files import save_record
from tfrtool.training.run.train_options import TrainOptions, resumed
from tfrtool.training.run.train_report import TrainPlan, TrainReport
from tfrtool.training.run.train_run import OnEpoch, TrainingRun
from tfrtool.training.run.training_data import find_training_data


def train(
    dataset: str | os.PathLike[str] | Dataset | None = None,
    *,
    engine: str = "local",
    engine_address: str | None = None,
    workers: int | None = None,
    compare: bool = False,
    compare_rounds: int = 3,
    callbacks: Sequence[Any] = (),
    on_plan: Callable[[TrainPlan], None] = lambda _: None,
    on_epoch: OnEpoch = lambda _: None,
    on_progress: OnProgress = no_progress,
    **options: Any,
) -> TrainReport:
    """Train an image classifier on a dataset: ``tfrtool.train("shards", model="cnn")``.

    Args:
        dataset: dataset directory, or an open dataset. None if a run is resumed: the dataset and
            every option that is not given are read from its ``run.json``.
        engine: "local", or "ray" for workers on the nodes of a Ray cluster. All workers must have
            access to ``out``. If one dies, all are restarted from the last checkpoint, up to three
            times; ``on_plan`` is called again each time.
        engine_address: address of the cluster, "HOST:PORT" or "auto". None uses RAY_ADDRESS.
        workers: number of workers on the cluster. None uses one per node.
        compare: whether to run the recipes "naive" and "notebook" too, each in its own process, and
            fill ``naive``, ``notebook`` and ``speedup`` of the report.
        compare_rounds: number of runs of each recipe in a comparison, alternating between recipes.
        callbacks: Keras callbacks, called as ``fit`` calls them. Setting ``model.stop_training``
            ends the run. Their state is not part of checkpoints.
        on_plan: called once, before the first step.
        on_epoch: called after each epoch, once its checkpoint has been saved.
        on_progress: called after each step, and during the preparation of the first epoch.
        **options: any of the following, with defaults in parentheses.

            - ``split`` ("train"): split to train on.
            - ``validation``: split to validate on, or fraction of the training split to hold out.
              By default the split "validation", if it exists.
            - ``image_feature``, ``label_feature``: as for `tfrtool.dataset`; detected by default.
            - ``model`` ("mobilenet_v2"): that, "cnn", another model of ``keras.applications``,
              "module:function", a function of image size and number of classes that returns a
              ``keras.Model``, or a ``keras.Model`` to train as it is.
            - ``weights``: "imagenet", "none" or a file. The default is "none" for "cnn" and
              "imagenet" for other models by name.
            - ``trainable`` ("auto"): "head", "all", or a layer from which on layers are trained.
              "auto" trains the head if weights were loaded, otherwise all layers.
            - ``image_size``: width and height of the input images, in pixels; by default that of
              the model.
            - ``rescale`` ("model"): range of pixel values: "model" is the one that the model was
              trained on, "unit" is 0 to 1, "dataset" gives each channel mean 0 and standard
              deviation 1.
            - ``fine_tune``: "layer" or "layer:epochs". Adds a second phase that trains the layers
              from that one on at a tenth of the learning rate, by default for as many epochs as the
              first.
            - ``epochs`` (5): number of epochs.
            - ``batch_size`` (32): images per batch.
            - ``seed`` (0): random seed.
            - ``learning_rate``: by default 0.001 for a head, 0.0003 from random weights and 0.0001
              from loaded weights; ten times that for "sgd", a tenth of it for "lion".
            - ``optimizer`` ("adam"): or "adamw", "sgd" (momentum 0.9), "rmsprop", "lion".
            - ``schedule`` ("constant"): or "cosine", a half cosine that ends at 0 with the last
              step.
            - ``class_weights``: "balanced" weights the loss so that all classes count equally,
              however many images they have.
            - ``early_stopping``: number of epochs without a lower ``val_loss`` (``loss`` without
              validation) after which to stop. The model has the weights of the best epoch.
            - ``recipe`` ("tfrtool"): data loader. "notebook" and "naive" are published pipelines.
            - ``cache`` ("auto"): "features", "memory", "disk" or "none". "auto" chooses according
              to free memory and disk space.
            - ``cache_directory``: directory of a cache on disk.
            - ``decode`` ("exact"): "fast" decodes larger JPEGs than needed at a reduced size.
            - ``augment``, ``cycle_length``, ``block_length``, ``parallel_calls``,
              ``shuffle_buffer``, ``prefetch``, ``deterministic`` (True): as for `Dataset.load`.
            - ``precision`` ("float32"): numeric type of the layers. "mixed_bfloat16" and
              "mixed_float16" are for GPUs, "bfloat16" for a frozen base whose outputs are cached.
            - ``on_error`` ("stop"): "skip" skips damaged records.
            - ``shard_cache``: directory of the cache for remote shards, as for `tfrtool.dataset`.
              Not for an open dataset.
            - ``out``: directory for the model, its history, labels and options, and a checkpoint of
              each epoch.
            - ``resume`` (False): whether to continue from the checkpoint in ``out``.
            - ``export``: "saved_model", "tflite" or both: also save the model in these forms. Each
              is run once and compared with the model.
            - ``strategy`` ("auto"): "one" device, "mirrored" on all local GPUs, or "multi-worker"
              on the workers of TF_CONFIG. "auto" uses what is available.
            - ``shares``: number of workers whose shuffling to reproduce: each has its own range of
              images, and one device sees the batches of all. With this, one process can resume a
              run of several workers.
            - ``worker_timeout`` (600): how long to wait for other workers, in seconds.
            - ``tensorboard``: directory for TensorBoard logs.
            - ``profile`` (False): whether to trace some steps, into that directory or
              ``out / "profile"``.

    Returns:
        The settings of the run and the result of each epoch.

    Raises:
        UsageError: an option is unknown, or does not fit other options, the dataset or the run to
            resume.
        DatasetError: the dataset can't be trained on, or the checkpoint can't be used.
        CorruptShardError: a shard is damaged; the error names the record.
        TrainingError: the loss is not finite, and the checkpoint of the previous epoch is kept; or
            the model can't be exported, and the model itself is kept.
        WeightsError: the weights can't be loaded or downloaded.
        ClusterError: a worker did not connect or died during the run; the error names it. With the
            engine "ray", raised after three restarts, or if the cluster can't be reached.
        WriteError: a file can't be written.
    """
    if engine == "ray":
        return train_on_nodes(
            dataset,
            engine_address=engine_address,
            workers=workers,
            compare=compare,
            callbacks=callbacks,
            on_plan=on_plan,
            on_epoch=on_epoch,
            on_progress=on_progress,
            **options,
        )
    engine_of(engine, engine_address, None)
    if workers is not None:
        raise UsageError("--workers requires a cluster", hint="use --engine ray to train on one")
    given = dataset if isinstance(dataset, Dataset) else None
    options = resumed({**options, "dataset": dataset if given is None else given.directory})
    chosen = make_options(TrainOptions, **options)
    if compare:
        del options["dataset"]
        run = partial(train, dataset, **options)
        ours = partial(run, callbacks=callbacks, on_plan=on_plan, on_epoch=on_epoch)
        return compared(run, ours, chosen, given, on_progress, compare_rounds)
    start = time.perf_counter()
    check_precision(chosen.precision)
    ours_only = chosen.recipe is Recipe.TFRTOOL
    kind = chosen.strategy if ours_only else StrategyKind.ONE
    devices = open_devices(kind, chosen.worker_timeout, chosen.shares)
    if devices.number > 0:  # the chief tells of the run
        on_plan, on_epoch, on_progress = (lambda _: None), (lambda _: None), no_progress
    with contextlib.ExitStack() as stack:
        stack.enter_context(devices.naming_lost_workers())
        before = None
        if chosen.out is not None:
            if devices.number == 0:
                stack.enter_context(_run_directory(chosen.out, resume=chosen.resume))
            before = read_run(chosen.out)
        scratch = Path(stack.enter_context(ScratchFolder()))
        on_progress(activity("opening the dataset"))
        data = find_training_data(chosen, scratch, on_progress, given)
        on_progress(activity("building the model"))
        begun = TrainingRun(chosen, data, devices, before, on_progress)
        on_plan(begun.plan)
        if devices.number == 0:
            save_record(chosen)
        begun.train(callbacks, on_epoch)
        return begun.finish(start)


@contextlib.contextmanager
def _run_directory(out: Path, *, resume: bool) -> Iterator[None]:
    """Make the directory for a run, before any time is spent on training, and hold its lock."""
    with contextlib.ExitStack() as stack:
        with os_errors_as(WriteError, out, "can't be written to"):
            out.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(out, "train"))
        begun = has_checkpoint(out)
        if begun and not resume:
            raise UsageError(
                "already has a run",
                path=out,
                hint="use --resume to continue it, or choose another directory",
            )
        if not begun and os.path.lexists(out / MODEL_FILE):
            raise UsageError(
                "already has a model, and no checkpoint to resume from",
                path=out,
                hint="choose another directory",
            )
        yield
