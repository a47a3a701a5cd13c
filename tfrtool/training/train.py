"""Training: a dataset of shards becomes a trained model."""

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tfrtool.declare import takes
from tfrtool.errors import UsageError, WriteError, os_errors_as
from tfrtool.storage.atomic_files import leftovers
from tfrtool.storage.lock import locked
from tfrtool.storage.progress import activity, no_progress
from tfrtool.storage.scratch_folder import ScratchFolder
from tfrtool.training.checkpoint import CHECKPOINT, has_checkpoint, read_state
from tfrtool.training.compare import comparable_runs, compare_recipes
from tfrtool.training.ray_training import train_on_ray
from tfrtool.training.replicas import open_devices
from tfrtool.training.run_record import resumed
from tfrtool.training.saved_model import BEST_MODEL_FILE, MODEL_FILE
from tfrtool.training.train_options import TrainOptions, ignore
from tfrtool.training.train_report import TrainReport
from tfrtool.training.train_run import TrainingRun
from tfrtool.training.training_data import find_training_data


@takes(TrainOptions)
def train(options: TrainOptions) -> TrainReport:
    """Train an image classifier on a dataset: ``tfrtool.train("shards", model="cnn")``.

    Args:
        dataset: dataset directory, or an open dataset. None if a run is resumed: the dataset and
            every option that is not passed are read from its ``run.json``.

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
    options = resumed(options)
    return train_on_ray(options) if options.engine == "ray" else train_with(options)


def train_with(options: TrainOptions) -> TrainReport:
    """Train without a cluster, by options that are complete."""
    if not options.compare:
        return run_here(options)
    runs = comparable_runs(options)
    report = run_here(options)
    compared, skipped = compare_recipes(options, runs)
    return replace(report, compared=compared, notebook_skipped=skipped)


def run_here(options: TrainOptions) -> TrainReport:
    """Train in this process, on its devices or as one of the workers of TF_CONFIG."""
    start = time.perf_counter()
    ours = options.recipe == "tfrtool"
    devices = open_devices(options.strategy if ours else "one")
    if devices.number > 0:  # only the chief reports
        silent: dict[str, Any] = {"on_plan": ignore, "on_epoch": ignore, "on_progress": no_progress}
        options = replace(options, **silent)
    on_progress = options.on_progress
    with contextlib.ExitStack() as stack:
        stack.enter_context(devices.naming_lost_workers())
        before = None
        if options.out_dir is not None:
            if devices.number == 0:
                stack.enter_context(_run_directory(options.out_dir, resume=options.resume))
            before = read_state(options.out_dir)
        scratch = Path(stack.enter_context(ScratchFolder()))
        on_progress(activity("opening the dataset"))
        data = find_training_data(options, scratch)
        on_progress(activity("building the model"))
        run = TrainingRun(options, data, devices, before)
        options.on_plan(run.plan)
        run.train()
        return run.finish(start)


@contextlib.contextmanager
def _run_directory(out: Path, *, resume: bool) -> Iterator[None]:
    """Create the directory of a run before time is spent on training, and hold its lock."""
    with contextlib.ExitStack() as stack:
        with os_errors_as(WriteError, out, "can't be written to"):
            out.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(out, "train"))
            for name in (CHECKPOINT, MODEL_FILE, BEST_MODEL_FILE):
                for path in leftovers(out / name):  # of a run that was killed while it saved
                    path.unlink()
        if has_checkpoint(out) and not resume:
            raise UsageError(
                "already has a run",
                path=out,
                hint="use --resume to continue it, or choose another directory",
            )
        if not has_checkpoint(out) and os.path.lexists(out / MODEL_FILE):
            raise UsageError(
                "already has a model, and no checkpoint to resume from",
                path=out,
                hint="choose another directory",
            )
        yield
