"""Evaluation of a saved model on a split of a dataset, and the files that it writes."""

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from tfrtool.declare import takes
from tfrtool.errors import (
    DatasetError,
    UsageError,
    WeightsError,
    WriteError,
    os_errors_as,
)
from tfrtool.images.charts import MOST_CHARTED, draw_confusion
from tfrtool.images.pixels import Picture
from tfrtool.loading.corrupt import naming_damage
from tfrtool.loading.dataset import Dataset
from tfrtool.loading.dataset_facts import Split
from tfrtool.loading.labels import Task
from tfrtool.loading.open_dataset import opened
from tfrtool.loading.options import PathLike
from tfrtool.storage.arguments import Paths
from tfrtool.storage.atomic_files import delete_leftovers, new_file
from tfrtool.storage.json_values import Shown, to_json_values
from tfrtool.storage.progress import Progress, activity
from tfrtool.storage.remote_path import AnyPath
from tfrtool.storage.scratch_folder import ScratchFolder
from tfrtool.training.evaluate_options import EvaluateOptions
from tfrtool.training.own_model_file import load_any_model
from tfrtool.training.saved_model import SavedModel, is_own_file, load_model
from tfrtool.training.tallies import ClassFigures, ImageResult, TargetFigures, rounded_values
from tfrtool.training.tasks import TASKS
from tfrtool.training.worst_mistakes import (
    check_drop_list,
    original_pictures,
    save_drop_list,
    save_mistakes,
)

_OF_VALUES = ("mae", "rmse", "r2", "targets")
_OF_CLASSES = (
    *("accuracy", "precision", "recall", "f1", "top_k_accuracy", "auc"),
    *("mean_average_precision", "classes", "confusion"),
)

_USUAL = ("test", "validation", "valid", "val")
"""Splits that are evaluated if none is named: the first that exists."""

_MATRIX_CLASSES = 1000
"""Largest number of classes for which JSON has the whole confusion matrix."""

_PREDICTIONS, _CONFUSION = "predictions.jsonl", "confusion.png"
_SHEET, _REPORT = "most_wrong.png", "evaluation.json"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class EvaluationReport(Shown):
    """Result of evaluating a model on a split.

    Attributes:
        model: path of the model's file.
        dataset: directory of the dataset.
        split: name of the split.
        task: whether an image has exactly one class, or any number of them, or a number.
        images: number of images evaluated.
        loss: mean cross-entropy, in nats; for regression, the mean squared error.
        mae: for regression, the mean absolute error; otherwise None, as the following two.
        rmse: root of the mean squared error.
        r2: coefficient of determination, as in scikit-learn, the mean over several numbers; None if
            all numbers are the same.
        targets: for regression, figures for each number that the model predicts.
        accuracy: fraction of images classified correctly. With several classes per image, the
            fraction of correct decisions per class. None for regression, as the following three.
        precision: mean over the classes with images or predictions, as the following two;
            undefined values count as 0, as with ``zero_division=0`` in scikit-learn.
        recall: macro average of the recall.
        f1: macro average of F1.
        top_k_accuracy: fraction of images whose class is among the ``top_k`` most probable; None
            with several classes per image, or without more classes.
        auc: mean of the areas under the ROC curves of the classes, each against all others, as
            with ``multi_class="ovr"`` in scikit-learn; None if no class has one.
        mean_average_precision: mean over the classes that have images. None with one class per
            image.
        classes: figures for each class of the model.
        confusion: number of images by pair of (true class, predicted class). Empty with several
            classes per image.
        most_wrong: misclassified images with the highest loss, highest first.
        damage: damage that was skipped, one line each.
        skipped: number of skipped records.
        seconds: wall time, in seconds.
    """

    model: Path
    dataset: AnyPath
    split: str
    task: Task
    images: int
    loss: float
    mae: float | None = None
    rmse: float | None = None
    r2: float | None = None
    targets: tuple[TargetFigures, ...] = ()
    accuracy: float | None = None
    precision: float | None = None
    recall: float | None = None
    f1: float | None = None
    top_k_accuracy: float | None = None
    auc: float | None = None
    mean_average_precision: float | None = field(default=None, compare=False)
    classes: tuple[ClassFigures, ...] = ()
    confusion: Mapping[tuple[int, int], int] = field(default_factory=dict)
    most_wrong: tuple[ImageResult, ...]
    damage: tuple[str, ...]
    skipped: int
    seconds: float

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all classes of the model."""
        return tuple(one.label for one in self.classes)

    def most_confused(self, first: int) -> Sequence[tuple[str, str, int]]:
        """Return the ``first`` most frequent mistakes as (true class, predicted class, count)."""
        wrong = [(n, pair) for pair, n in self.confusion.items() if pair[0] != pair[1]]
        found = sorted(wrong, key=lambda one: (-one[0], one[1]))[:first]
        return [(self.names[truth], self.names[guess], n) for n, (truth, guess) in found]

    def to_json(self) -> Mapping[str, Any]:
        """Return the object that ``evaluate --json`` prints and evaluation.json contains."""
        plain = replace(self, confusion={}, most_wrong=(), damage=())
        data: dict[str, Any] = rounded_values(to_json_values(plain))
        task, numbers = TASKS[self.task], range(len(self.classes))
        data["most_wrong"] = [task.result_json(one) for one in self.most_wrong]
        data["confusion"] = None
        if self.confusion and len(numbers) <= _MATRIX_CLASSES:
            data["confusion"] = [[self.confusion.get((n, m), 0) for m in numbers] for n in numbers]
        for name in ("damage", *(_OF_VALUES if self.classes else _OF_CLASSES)):
            data.pop(name, None)
        return data


@takes(EvaluateOptions)
def evaluate(
    model: SavedModel | PathLike, dataset: Paths | Dataset, options: EvaluateOptions
) -> EvaluationReport:
    """Evaluate a model: ``tfrtool.evaluate("run", "shards", out="evaluation")``.

    Images are read once, in record order, and decoded as in training. Memory is bounded by a few
    batches, the worst mistakes, and the number of confused pairs of classes.

    Args:
        model: result of `load_model`, path of a model file, or directory of a run.
        dataset: dataset directory, shards, or an open dataset. Its classes are matched with those
            of the model by name.

    Raises:
        UsageError: the split does not exist, the dataset has classes that the model does not know,
            or a file to write exists.
        DatasetError: the dataset can't be used.
        CorruptShardError: a shard is damaged; the error names the record.
        WeightsError: the model can't be loaded.
        WriteError: a file can't be written.
    """
    start, on_progress = time.perf_counter(), options.on_progress
    folder, overwrite = None if options.out is None else Path(options.out), options.overwrite
    if folder is not None:
        _check_folder(folder, overwrite=overwrite)
    if options.drop_list is not None:
        check_drop_list(Path(options.drop_list), overwrite=overwrite)
    model, original = _open_both(model, dataset, options)
    name = _choose_split(original, options.split)
    evaluator = _Evaluator(model, original, options)
    with contextlib.ExitStack() as stack:
        clean, dropped = original, None
        if options.on_error == "skip":
            scratch = stack.enter_context(ScratchFolder())
            names = original.split_names(name)
            clean, dropped = original.drop_corrupt(scratch, splits=names, on_progress=on_progress)
        lines = None
        if folder is not None:
            lines = stack.enter_context(_new(folder / _PREDICTIONS, overwrite=overwrite))
        with naming_damage(clean, name):
            figures = evaluator.run(clean, name, lines)
        pictures = None if folder is None else original_pictures(clean, name, evaluator.mistakes)
        report = EvaluationReport(
            model=model.path,
            dataset=original.directory,
            split=name,
            task=model.facts.task,
            **figures,
            most_wrong=tuple(result for result, _ in evaluator.mistakes),
            damage=() if dropped is None else dropped.lines,
            skipped=0 if dropped is None else dropped.n_skipped,
            seconds=time.perf_counter() - start,
        )
    if folder is not None:
        _save(folder, report, pictures or (), overwrite=overwrite)
    if options.drop_list is not None:
        what = f"worst mistakes of {report.model} on {report.split} of {report.dataset}"
        save_drop_list(Path(options.drop_list), what, report.most_wrong, original)
    return report


def _open_both(
    model: SavedModel | PathLike, dataset: Paths | Dataset, options: EvaluateOptions
) -> tuple[SavedModel, Dataset]:
    """Load the model and open the dataset: the first that says what the other is about."""
    opening = activity("opening the dataset")
    if not isinstance(model, SavedModel) and is_own_file(model):
        options.on_progress(opening)
        original = opened(dataset, options)
        options.on_progress(activity("loading the model"))
        return load_any_model(model, options, original), original
    options.check_unused()
    if not isinstance(model, SavedModel):
        options.on_progress(activity("loading the model"))
        model = load_model(model)
    options.on_progress(opening)
    if options.task is None and not isinstance(dataset, Dataset):
        options = replace(options, task=model.facts.task.option)
    return model, opened(dataset, options)


def _choose_split(dataset: Dataset, split: str | None) -> str:
    names = [name for name in dataset.splits if name not in dataset.unlabeled_splits]
    found = split or next((name for name in _USUAL if name in names), None)
    if found is None and len(names) > 1:
        raise UsageError(
            f"ambiguous split: the dataset has {', '.join(names)}",
            path=dataset.directory,
            hint="use --split NAME",
        )
    return dataset.split(found or names[0]).name


class _Evaluator:
    """Compares what a model predicts with the labels of a dataset."""

    def __init__(self, saved: SavedModel, dataset: Dataset, options: EvaluateOptions) -> None:
        self._saved, self._dataset, self._options = saved, dataset, options
        self.mistakes: list[tuple[ImageResult, int]] = []  # with positions; highest loss first
        if dataset.task is not saved.facts.task:
            raise UsageError(
                "the labels don't match the model's task",
                path=dataset.directory,
                expected=saved.facts.task.value,
                found=dataset.task.value,
            )
        self._task = TASKS[dataset.task]
        self._numbers = self._task.output_numbers(saved.facts.output_names, dataset)

    def run(self, dataset: Dataset, name: str, lines: IO[bytes] | None) -> dict[str, Any]:
        """Classify all images of a split, in the order of their records; return the figures."""
        split, model, facts = dataset.split(name), self._saved.graph(), self._saved.facts
        options, places = self._options, _record_places(split, self._dataset.split(name))
        tally = self._task.tally(facts.output_names, self._numbers, split.records, options.top_k)
        batches = dataset.load(
            name,
            image_size=facts.image_size,
            channels=facts.channels,
            rescale=None,
            training=False,
            batch_size=options.batch_size,
            cycle_length=1,  # one shard after the other
        )
        for pixels, labels in batches:
            scores = model(pixels).numpy().astype(np.float64)
            if not np.isfinite(scores).all():
                raise WeightsError("its outputs are not finite", path=self._saved.path)
            results = tally.results(labels.numpy(), scores, places)
            for position, result in enumerate(results, tally.images):
                if result.labels != result.predicted:
                    self.mistakes.append((result, position))
                if lines is not None:
                    line = json.dumps(self._task.result_json(result))
                    lines.write(line.encode("ascii") + b"\n")
            self.mistakes.sort(key=lambda mistake: -mistake[0].loss)
            del self.mistakes[options.top_losses :]
            done, total = tally.images, split.records
            options.on_progress(Progress(what="evaluate", done=done, total=total, unit="images"))
        if tally.images != split.records:
            raise DatasetError("the split has fewer records than counted")
        return tally.figures()


def _record_places(read: Split, original: Split) -> Iterator[tuple[AnyPath, int | None]]:
    """Yield the shard and the number of each record; None in a copy without damaged records."""
    own = {*original.shards}
    by_name = {path.name: path for path in original.shards}
    positions, start = read.positions(), 0
    position = next(positions, None)
    for path, length in zip(read.shards, read.lengths, strict=True):
        while position is not None and position < start + length:
            record = position - start
            yield (path, record) if path in own else (by_name.get(path.name, path), None)
            position = next(positions, None)
        start += length


def _check_folder(folder: Path, *, overwrite: bool) -> None:
    """Create the folder of an evaluation; a `UsageError` if it has files of another."""
    with os_errors_as(WriteError, folder, "can't be written to"):
        folder.mkdir(parents=True, exist_ok=True)
        existing = {path.name for path in folder.iterdir()}
    for name in (_PREDICTIONS, _CONFUSION, _SHEET, _REPORT):
        if name in existing and not overwrite:
            raise UsageError(
                "already exists", path=folder / name, hint="use --overwrite to replace it"
            )


def _save(
    folder: Path, report: EvaluationReport, pictures: Sequence[Picture], *, overwrite: bool
) -> None:
    """Draw the pictures, and write the report, which comes last."""
    title = f"{report.split}: {report.images:,} images, accuracy {report.accuracy or 0:.3f}"
    with os_errors_as(WriteError, folder, "can't be written"):
        for name in (_CONFUSION, _SHEET) if overwrite else ():  # of an earlier evaluation
            (folder / name).unlink(missing_ok=True)
    if report.confusion and len(report.names) <= MOST_CHARTED:
        with _new(folder / _CONFUSION, overwrite=overwrite) as file:
            file.write(draw_confusion(report.confusion, report.names, title))
    if pictures:
        with _new(folder / _SHEET, overwrite=overwrite) as file:
            what = f"worst {len(pictures):,} of {report.images:,} images"
            save_mistakes(file, report.most_wrong, pictures, what)
    with _new(folder / _REPORT, overwrite=overwrite) as file:
        text = json.dumps(report.to_json(), indent=2, allow_nan=False)
        file.write(f"{text}\n".encode("ascii"))


@contextlib.contextmanager
def _new(path: Path, *, overwrite: bool) -> Iterator[IO[bytes]]:
    delete_leftovers(path)
    with (
        os_errors_as(WriteError, path, "can't be written"),
        new_file(path, replace=overwrite) as file,
    ):
        yield file
