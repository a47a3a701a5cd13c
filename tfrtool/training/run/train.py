"""The verb: a dataset of shards becomes a trained model."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tfrtool.engines.processes import engine_of
from tfrtool.errors import UsageError, WriteError, os_errors_as
from tfrtool.loading.dataset.dataset import Dataset
from tfrtool.loading.pipeline.load_options import Recipe
from tfrtool.storage.lock import locked
from tfrtool.storage.progress import OnProgress, activity, silent
from tfrtool.storage.scratch_folder import ScratchFolder
from tfrtool.storage.words import make_options
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
    on_progress: OnProgress = silent,
    **options: Any,
) -> TrainReport:
    """Train a classifier on a dataset's images: ``tfrtool.train("shards", model="cnn")``.

    Args:
        dataset: the directory of shards, or the opened dataset. A run that is resumed has recorded
            it, and all options: what is not given is taken from its ``run.json``.
        engine: where: "local", or "ray" for workers on the nodes of a cluster. They write and read
            ``out``, which all of them see; when one dies, all are started again from the checkpoint
            there, up to three times, and each time ``on_plan`` is called.
        engine_address: of the cluster, "HOST:PORT" or "auto"; None is RAY_ADDRESS.
        workers: how many the cluster has; one for each node by default.
        compare: whether the naive and the published recipe are run, too, each in a process of its
            own, for ``naive``, ``notebook`` and ``speedup`` of the report.
        compare_rounds: how often each recipe is run for that, in turn with the others.
        callbacks: of Keras', called as ``fit`` would call them; ``model.stop_training`` ends the
            run. What they remember is in no checkpoint.
        on_plan: called once, before the first step.
        on_epoch: called after each epoch, when its checkpoint is whole.
        on_progress: called after each step, and as something is done before the first epoch.
        **options: any of these, with what they are without being given.

            split ("train"), validation: what is trained on; the name of a split to validate on,
            or the fraction of the training split to hold out, else the split "validation" if any.
            image_feature, label_feature: as in `dataset`, told from the records by default.
            model ("mobilenet_v2"): that, "cnn", another name of keras.applications,
            "module:function", a function of image size and number of classes that returns a
            ``keras.Model``, or such a model, which is trained as it is.
            weights: "imagenet", "none" or a file; the cnn's default is none.
            trainable ("auto"): "head", "all" or the layer from which on layers are trained; auto
            is the head over loaded weights, and all where there are none.
            image_size: in pixels, both ways; the model's own.
            rescale ("model"): the range that the model was trained on; "unit" is 0 to 1, and
            "dataset" makes the mean of each channel 0 and its standard deviation 1.
            fine_tune: "layer" or "layer:epochs", a second phase in which layers from that one on
            are trained at a tenth of the rate, for as many epochs as the first if none are given.
            epochs (5), batch_size (32), seed (0), learning_rate: 0.001 where only a head is
            trained, 0.0003 from random weights, and 0.0001 from loaded ones; of sgd ten times
            that, of lion a tenth.
            optimizer ("adam"): or "adamw", "sgd" (with a momentum of 0.9), "rmsprop", "lion".
            schedule ("constant"): or "cosine", half of one, down to 0 at the last step.
            class_weights: "balanced" has all classes count alike in the loss, however many images
            they have.
            early_stopping: end after this many epochs without a lower val_loss (loss, where
            nothing is validated), with the weights of the best epoch.
            recipe ("tfrtool"): the loader; "notebook" and "naive" are the published ones.
            cache ("auto"), cache_directory: "features", "memory", "disk" or "none"; auto goes by
            what is free.
            decode ("exact"): "fast" decodes JPEGs smaller that are larger than is needed.
            augment, cycle_length, block_length, parallel_calls, shuffle_buffer, prefetch,
            deterministic (True): as in `Dataset.load`.
            precision ("float32"): what layers compute in; "mixed_bfloat16" and "mixed_float16" are
            for GPUs, "bfloat16" for a frozen base whose outputs are kept.
            on_error ("stop"): "skip" leaves out what is damaged.
            shard_cache, shard_cache_size: where shards of a store are fetched to, and how large
            that may become, as in `open_dataset`; not for a dataset that is open.
            out, resume (False): a directory for the model, its history, its labels, its options,
            and a checkpoint of each epoch; whether to begin after that.
            export: "saved_model", "tflite" or both: the model in these forms, too, run once and
            compared with it.
            strategy ("auto"): "one" device, "mirrored" on all GPUs of this machine, "multi-worker"
            on the workers of TF_CONFIG; auto takes what there is.
            shares: shuffle as so many workers would, each its own range of the images, so that
            one device sees the batches of them all; a run of theirs can be resumed so.
            worker_timeout (600): how many seconds the others are waited for.
            tensorboard, profile (False): a directory for TensorBoard's logs; whether some steps
            are traced, into it or into ``out / "profile"``.

    Returns:
        What was planned, and what each epoch brought.

    Raises:
        UsageError: an option is unknown, or options don't go together, or not with the dataset or
            the run to resume.
        DatasetError: the dataset can't be trained on, or the checkpoint can't be used.
        CorruptShardError: a shard is damaged; names the record.
        TrainingError: the loss is not finite; the checkpoint of the epoch before is kept. Or the
            model, which is kept, can't be exported.
        WeightsError: the weights can't be had.
        ClusterError: a worker has not come, or ended in the middle of the run; names it. With the
            engine "ray", after it was started three times again; or the cluster can't be reached.
        WriteError: the directory can't be written to.
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
        raise UsageError("only a cluster has workers", hint="--engine ray runs on one")
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
        on_plan, on_epoch, on_progress = (lambda _: None), (lambda _: None), silent
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
                "holds a run already", path=out, hint="--resume goes on with it; or choose another"
            )
        if not begun and os.path.lexists(out / MODEL_FILE):
            raise UsageError(
                "holds a model already, and no checkpoint of its run",
                path=out,
                hint="choose another directory",
            )
        yield
