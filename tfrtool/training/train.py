"""Training: a dataset of shards becomes a trained model, in one run or several to compare."""

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from tfrtool.declare import takes
from tfrtool.errors import UsageError, WriteError, human_count, os_errors_as
from tfrtool.images.charts import draw_charts, shortened_name
from tfrtool.loading.decoding import original_pixels
from tfrtool.loading.pipeline import load
from tfrtool.storage.atomic_files import delete_leftovers, new_file, new_files_by_name
from tfrtool.storage.lock import LOCK, locked
from tfrtool.storage.progress import Progress, activity, no_progress
from tfrtool.storage.scratch_folder import ScratchFolder
from tfrtool.training.callbacks import (
    EpochEnd,
    Reports,
    StepTrace,
    TensorBoardLogs,
)
from tfrtool.training.checkpoint import CHECKPOINT, assign_values, values_of
from tfrtool.training.compare import comparable_runs, compare_recipes
from tfrtool.training.exporting import EXPORT_FILES, Exported, export_model
from tfrtool.training.frozen_features import BASE_BATCH, extract_features, feature_batches, freeze
from tfrtool.training.preparation import Run, prepare
from tfrtool.training.run_record import RUN_FILE, resumed, save_json
from tfrtool.training.saved_model import (
    BEST_MODEL_FILE,
    MODEL_FILE,
    ModelFacts,
    load_model,
    save_model,
)
from tfrtool.training.tasks import TASKS
from tfrtool.training.train_options import TrainOptions, check_backend
from tfrtool.training.train_report import EpochReport, TrainReport, best_epoch, is_over

_AHEAD = 16
"""Batches for a frozen base that are decoded while its graph is made: 39 MB at 224 pixels."""

_VALIDATED = 1024
"""Rows of features that are evaluated at a time."""


_HISTORY, _CHARTS, _LABELS = "history.json", "history.png", "labels.txt"
_RESULTS = (MODEL_FILE, BEST_MODEL_FILE, _HISTORY, _CHARTS, _LABELS, *EXPORT_FILES.values())
"""What a run makes besides its checkpoint and its record."""

_DRAWN = 64
"""The most images of ``--show-augment``."""


def draw_augmented(run: Run, path: Path) -> None:
    """Draw the first training images, as they are in the first epoch, with their labels."""
    from tfrtool.images.sheet import draw_pixel_sheet, save_sheet

    # A cache changes the order. With cached features, images come without one.
    data, names, task = run.data.changed(epochs=1), run.plan.class_names, TASKS[run.plan.task]
    with data.naming_damage():
        full = next(load(data.dataset, data.training).as_numpy_iterator())
    batch = original_pixels(full[0][:_DRAWN], run.plan.rescale), full[1][:_DRAWN]
    images = [
        (pixels, shortened_name(task.label_text(label, names), 24 if label.shape else 18), "", "")
        for pixels, label in zip(*batch, strict=True)
    ]
    title = f"{human_count(len(images), 'training image')}: {run.options.augment or 'as is'}"
    sheet = draw_pixel_sheet(images, title)
    with os_errors_as(WriteError, path, "can't be written"), new_file(path) as file:
        save_sheet(sheet, file, ".png")


def fit(run: Run) -> tuple[Sequence[EpochReport], Sequence[Any]]:
    """Train until all epochs are done, none was better for long enough, or a callback stops.

    Returns:
        All epochs, and the values of `Run.weights` after the best one.
    """
    options, data, before = run.options, run.data, run.state.epochs
    if is_over(before, options):
        return before, run.best_weights
    run.model.meter.begin_epoch()
    reports = Reports(run)
    last = EpochEnd(run, reports)
    with contextlib.ExitStack() as stack:
        callbacks: list[Any] = [reports]
        if options.log_dir is not None:
            callbacks.append(TensorBoardLogs(options.log_dir, run.plan.made))
        if options.profile_folder is not None:
            trace = StepTrace(options.profile_folder, data.epoch_steps)
            stack.callback(trace.stop)
            callbacks.append(trace)
        callbacks += [*options.callbacks, last]
        stack.enter_context(data.naming_damage())
        options.on_progress(activity(f"epoch {len(before) + 1}"))
        training, *validation = _batches(run)
        weights = run.plan.class_weights or {}
        run.model.fit(
            training,
            epochs=options.epochs,
            initial_epoch=len(before),
            # One iterator over all epochs; other recipes are read as in the notebooks.
            steps_per_epoch=data.epoch_steps if options.recipe == "tfrtool" else None,
            validation_data=validation[0] if validation else None,
            class_weight=dict(enumerate(weights.values())) or None,
            callbacks=callbacks,
            shuffle=False,
            verbose=int(_is_watched(options)),
        )
    return reports.epochs, last.best_weights


def _is_watched(options: TrainOptions) -> bool:
    """Return whether Keras' own progress is shown: in a notebook, if nothing else gets any."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return options.on_progress is no_progress and hasattr(shell, "kernel")


def _batches(run: Run) -> list[Any]:
    """Return the batches of the epochs that are left, and those of validation if there is any."""
    options, data, done = run.options, run.data, len(run.state.epochs)
    passes = data.passes_after(done, options.epochs)
    if run.state.cache == "features":
        return list(_feature_batches(run, **passes))
    parts = []
    for part in data.parts:
        # ``fit`` makes an iterator for each validation, and each epoch of other recipes.
        once: dict[str, Any] = {"first_epoch": done, "epochs": 1}
        several = part.training and options.recipe == "tfrtool"
        parts.append(replace(part, **passes if several else once))
    return [load(data.dataset, part) for part in parts]


def _feature_batches(run: Run, **passes: int) -> Iterator[Any]:
    """Run the frozen base over all images; yield batches of features of each part."""
    options, data = run.options, run.data
    once = data.once(batch_size=BASE_BATCH, prefetch=_AHEAD)
    warm = tf.data.Options()
    warm.experimental_warm_start = True  # decode while the base's graph is made
    iterators = [iter(load(data.dataset, part).with_options(warm)) for part in once.parts]
    total, extracted = sum(data.images), 0

    def on_images(count: int) -> None:
        nonlocal extracted
        extracted += count
        progress = Progress(what="features", done=extracted, total=total, unit="images")
        options.on_progress(progress)

    size, rescale = data.training.image_size, run.state.rescale
    base = freeze(run.classifier.base, size, rescale, options.precision)
    for iterator, count, part in zip(iterators, data.images, data.parts, strict=True):
        images = run.model.meter.batches(iterator)
        values, labels = extract_features(base, images, count, on_images)
        if part.training:
            yield feature_batches(values, labels, options.batch_size, seed=options.seed, **passes)
        else:
            yield feature_batches(values, labels, _VALIDATED)


def finish(
    run: Run, epochs: Sequence[EpochReport], best_weights: Sequence[Any], start: float
) -> TrainReport:
    """Save the models and the history, and return the report."""
    options, out, stops = run.options, run.options.out_dir, run.options.early_stopping is not None
    options.on_progress(activity("saving the model"))
    before, best = run.state.epochs, best_epoch(epochs)
    report = TrainReport(
        plan=run.plan,
        epochs=tuple(epochs),
        seconds=time.perf_counter() - start + sum(epoch.seconds for epoch in before),
        best_epoch=best,
        saved_epoch=best if stops else len(epochs),
        stopped_early=len(epochs) < options.epochs,
    )
    last_weights = best_weights if stops else values_of(run.weights)
    assign_values(run.weights, best_weights)
    if out is not None:
        _save_model(run, out / BEST_MODEL_FILE)
    assign_values(run.weights, last_weights)
    if out is not None:
        _save_history(out, report)
        _save_model(run, out / MODEL_FILE)
        if options.export:
            report = replace(report, exported=tuple(_export(run, out)))
            _save_history(out, report)
    if isinstance(options.model, keras.Model) and run.classifier.compiled:
        options.model.compile(**run.classifier.compiled)
    return report


def _save_model(run: Run, path: Path) -> None:
    facts = ModelFacts(**{one.name: getattr(run.plan, one.name) for one in fields(ModelFacts)})
    writing = os_errors_as(WriteError, path, "can't be written")
    with writing, new_files_by_name([path]) as scratch:
        save_model(scratch / path.name, run.classifier.core, run.plan.rescale, facts)


def _save_history(out: Path, report: TrainReport) -> None:
    """Save history.json, history.png and labels.txt."""
    epochs = [epoch.to_json() for epoch in report.epochs]
    save_json(out / _HISTORY, {"epochs": epochs, "run": report.to_json()})
    logs = [epoch.logs for epoch in report.epochs]
    charts = {
        name.replace("_", " "): {
            "training": [values.get(name) for values in logs],
            "validation": [values.get(f"val_{name}") for values in logs],
        }
        for name in report.epochs[0].scores
    }
    names = "".join(f"{name}\n" for name in report.plan.class_names)
    files = {_CHARTS: draw_charts(charts)}
    if names:
        files[_LABELS] = names.encode()
    for name, data in files.items():
        with os_errors_as(WriteError, out / name), new_file(out / name) as file:
            file.write(data)


def _export(run: Run, out: Path) -> Iterator[Exported]:
    """Export the saved model, and compare each export on an image."""
    model, once = load_model(out / MODEL_FILE), run.data.once(batch_size=1)
    with once.naming_damage():
        image, _ = next(iter(load(once.dataset, once.parts[-1])))
    for kind in run.options.export:
        yield export_model(model, kind, image, mixed=run.options.policy != "float32")


@takes(TrainOptions, make=resumed)
def train(options: TrainOptions) -> TrainReport:
    """Train an image classifier on a dataset: ``tfrtool.train("shards", model="cnn")``.

    Args:
        dataset: dataset directory, glob pattern or list of shards, or an open dataset. None to
            take the one in ``run.json`` of a run that is resumed, if it is below the directory of
            the run. Every other option that is not passed is read from that record, too, but no
            code and no path outside the directory.

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
        WriteError: a file can't be written.
    """
    return train_with(options)


def train_with(options: TrainOptions) -> TrainReport:
    """Train by options that are complete, in this process, on its devices."""
    check_backend()
    compared = comparable_runs(options) if options.compare else {}
    start, out = time.perf_counter(), options.out_dir
    with contextlib.ExitStack() as stack:
        if out is not None:
            stack.enter_context(_run_directory(out, resume=options.resume))
        run = prepare(options, Path(stack.enter_context(ScratchFolder())))
        options.on_plan(run.plan)
        if options.show_augment is not None:
            draw_augmented(run, Path(options.show_augment))
        if out is not None:
            save_json(out / RUN_FILE, run.plan.made)
        try:
            epochs, best_weights = fit(run)
        except KeyboardInterrupt as error:
            if out is not None and os.path.lexists(out / CHECKPOINT):
                error.add_note("continue with --resume")
            raise
        report = finish(run, epochs, best_weights, start)
    if not compared:
        return report
    runs, skipped = compare_recipes(options, compared, report.plan.cache, train_with)
    return replace(report, compared=runs, compare_skipped=skipped)


@contextlib.contextmanager
def _run_directory(out: Path, *, resume: bool) -> Iterator[None]:
    """Create the directory of a run before time is spent on training, and hold its lock."""
    with contextlib.ExitStack() as stack:
        with os_errors_as(WriteError, out, "can't be written to"):
            out.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(out, "train"))
            names = {*os.listdir(out)} - {LOCK}  # noqa: PTH208
            for name in (CHECKPOINT, RUN_FILE, *_RESULTS) if names else ():
                delete_leftovers(out / name)
        hint = "choose another directory"
        if names.isdisjoint((CHECKPOINT, RUN_FILE)):
            for name in filter(names.__contains__, _RESULTS):
                what = "already exists, but not from a run of tfrtool"
                raise UsageError(what, path=out / name, hint=hint)
        if CHECKPOINT in names and not resume:
            hint = f"use --resume to continue it, or {hint}"
            raise UsageError("already has a run", path=out, hint=hint)
        if CHECKPOINT not in names and MODEL_FILE in names:
            what = "already has a model, and no checkpoint to resume from"
            raise UsageError(what, path=out, hint=hint)
        yield
