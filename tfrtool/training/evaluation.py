"""Evaluation of a saved model on a split of a dataset, and the files that it writes."""

import contextlib
import json
import math
import time
from collections import Counter
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
    some_of,
)
from tfrtool.images.charts import MOST_CHARTED, draw_confusion
from tfrtool.images.pixels import Picture
from tfrtool.loading.corrupt import naming_damage
from tfrtool.loading.dataset import Dataset
from tfrtool.loading.dataset_facts import Split
from tfrtool.loading.labels import Task
from tfrtool.loading.open_dataset import opened
from tfrtool.loading.options import PathLike
from tfrtool.storage.atomic_files import delete_leftovers, new_file
from tfrtool.storage.json_values import to_json_values
from tfrtool.storage.progress import OnProgress, Progress, activity
from tfrtool.storage.remote_path import AnyPath
from tfrtool.storage.scratch_folder import ScratchFolder
from tfrtool.training.evaluate_options import EvaluateOptions
from tfrtool.training.image_result import ImageResult, rounded_values
from tfrtool.training.own_model_file import load_any_model
from tfrtool.training.saved_model import SavedModel, is_own_file, load_model
from tfrtool.training.scores import EpochScores
from tfrtool.training.worst_mistakes import (
    check_drop_list,
    original_pictures,
    save_drop_list,
    save_mistakes,
)

_FIGURES = ("precision", "recall", "f1")
_OF_VALUES = ("mae", "rmse", "r2", "targets")
_OF_CLASSES = (
    *("accuracy", *_FIGURES, "top_k_accuracy", "auc", "mean_average_precision"),
    *("classes", "confusion"),
)

_USUAL = ("test", "validation", "valid", "val")
"""Splits that are evaluated if none is named: the first that exists."""

_MATRIX_CLASSES = 1000
"""Largest number of classes for which JSON has the whole confusion matrix."""

_PREDICTIONS, _CONFUSION = "predictions.jsonl", "confusion.png"
_SHEET, _REPORT = "most_wrong.png", "evaluation.json"

_EPSILON = 1e-7
"""By which Keras keeps probabilities away from 0 and 1 in its losses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassFigures:
    """How well one class is distinguished from all others, as scikit-learn defines it.

    Attributes:
        label: name of the class.
        images: number of images of the class.
        predicted: number of images predicted as the class.
        precision: fraction of the images predicted as the class that are of it; None without any.
        recall: fraction of the images of the class that were predicted as it; None without any.
        f1: harmonic mean of both; None without images and predictions.
        average_precision: with several classes per image, how well the probabilities rank its
            images first; otherwise, or without images, None.
        auc: area under the ROC curve of the class against all others; None without a curve.
    """

    label: str
    images: int
    predicted: int
    precision: float | None
    recall: float | None
    f1: float | None
    average_precision: float | None = field(default=None, compare=False)
    auc: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFigures:
    """How well one number is predicted.

    Attributes:
        target: name of the number.
        mae: mean absolute error.
        rmse: root of the mean squared error.
        r2: coefficient of determination, as in scikit-learn; None if all numbers are the same.
    """

    target: str
    mae: float
    rmse: float
    r2: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationReport:
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
        del data["damage"]
        data["most_wrong"] = [one.to_json(self.task) for one in self.most_wrong]
        if self.task is Task.REGRESSION:
            return {name: data[name] for name in data if name not in _OF_CLASSES}
        for name in _OF_VALUES:
            del data[name]
        numbers, data["confusion"] = range(len(self.classes)), None
        if self.task is Task.SINGLE and len(numbers) <= _MATRIX_CLASSES:
            data["confusion"] = [[self.confusion.get((n, m), 0) for m in numbers] for n in numbers]
        return data


@takes(EvaluateOptions)
def evaluate(
    model: SavedModel | PathLike, dataset: PathLike | Dataset, options: EvaluateOptions
) -> EvaluationReport:
    """Evaluate a model: ``tfrtool.evaluate("run", "shards", out="evaluation")``.

    Images are read once, in record order, and decoded as in training. Memory is bounded by a few
    batches, the worst mistakes, and the number of confused pairs of classes.

    Args:
        model: result of `load_model`, path of a model file, or directory of a run.
        dataset: dataset directory, or an open dataset. Its classes are matched with those of the
            model by name.

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
    regression = model.facts.task is Task.REGRESSION
    name = _choose_split(original, options.split)
    evaluator = (_ValueEvaluator if regression else _Evaluator)(model, original, options)
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
            evaluator.run(clean, name, options.batch_size, lines, on_progress)
        pictures = None if folder is None else original_pictures(clean, name, evaluator.mistakes)
        report = EvaluationReport(
            model=model.path,
            dataset=original.directory,
            split=name,
            **evaluator.figures(),
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
    model: SavedModel | PathLike, dataset: PathLike | Dataset, options: EvaluateOptions
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
    if model.facts.task is Task.REGRESSION and options.task is None:
        options = replace(options, task="regression")
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
    """Counts what a model gets right and wrong on a dataset's images."""

    def __init__(self, saved: SavedModel, dataset: Dataset, options: EvaluateOptions) -> None:
        self._saved, self._dataset, self._top_losses = saved, dataset, options.top_losses
        self._top_k, self._near = options.top_k, 0  # images whose class is among the first
        self._names = saved.facts.class_names
        self._multi = dataset.task is Task.MULTI
        self._numbers = self._class_numbers()
        self.mistakes: list[tuple[ImageResult, int]] = []  # with positions; highest loss first
        self._images, self._losses, self._hits = 0, 0.0, 0.0
        self._confusion = Counter[tuple[int, int]]()
        # For each class: its images, its predictions, and the images that are both.
        self._counts = np.zeros((3, len(self._names)), np.int64)

    def _class_numbers(self) -> Any:
        """Return the model's number for each of the dataset's classes or targets."""
        dataset, task = self._dataset, self._saved.facts.task
        if dataset.task is not task:
            raise UsageError(
                "the labels don't match the model's task",
                path=dataset.directory,
                expected=task.value,
                found=dataset.task.value,
            )
        if task is Task.REGRESSION:
            return _match_targets(self._saved, dataset)
        numbers = {name: number for number, name in enumerate(self._names)}
        unknown = [name for name in dataset.class_names if name not in numbers]
        if unknown:
            raise UsageError(
                "the dataset has classes that the model lacks",
                path=dataset.directory,
                expected=some_of(list(self._names), 5),
                found=some_of(unknown, 5),
            )
        return np.array([numbers[name] for name in dataset.class_names])

    def figures(self) -> dict[str, Any]:
        """Return the figures of a report over all images."""
        images, predicted, right = self._counts.astype(np.float64)
        with np.errstate(invalid="ignore"):  # 0 / 0 is NaN, which becomes None
            each = right / predicted, right / images, 2 * right / (images + predicted)
        met = images + predicted > 0
        lacking: list[float | None] = [None] * len(self._names)
        averages = (self._multi and self._scores.averages()) or lacking
        areas = self._scores.areas() or lacking
        ranked = not self._multi and self._top_k < len(self._names)
        rows = zip(self._names, *self._counts[:2].tolist(), *each, averages, areas, strict=True)
        return {
            "task": self._dataset.task,
            "images": self._images,
            "loss": self._losses / self._images,
            "accuracy": self._hits / self._images,
            **{
                name: float(np.nan_to_num(values[met]).mean())
                for name, values in zip(_FIGURES, each, strict=True)
            },
            "confusion": self._confusion,
            "top_k_accuracy": self._near / self._images if ranked else None,
            "auc": _mean(areas),
            "mean_average_precision": _mean(averages),
            "classes": tuple(
                ClassFigures(
                    label=label,
                    images=images,
                    predicted=predicted,
                    average_precision=average,
                    auc=area,
                    **{
                        name: None if np.isnan(value) else float(value)
                        for name, value in zip(_FIGURES, figures, strict=True)
                    },
                )
                for label, images, predicted, *figures, average, area in rows
            ),
        }

    def run(
        self,
        dataset: Dataset,
        name: str,
        batch_size: int,
        lines: IO[bytes] | None,
        on_progress: OnProgress,
    ) -> None:
        """Classify all images of a split, in the order of their records."""
        split, model = dataset.split(name), self._saved.graph()
        batches = dataset.load(
            name,
            image_size=self._saved.facts.image_size,
            channels=self._saved.facts.channels,
            rescale=None,
            training=False,
            batch_size=batch_size,
            cycle_length=1,  # one shard after the other
        )
        places = _record_places(split, self._dataset.split(name))
        self._scores = EpochScores(split.records)
        for pixels, labels in batches:
            scores = model(pixels).numpy().astype(np.float64)
            if not np.isfinite(scores).all():
                raise WeightsError("its outputs are not finite", path=self._saved.path)
            results = enumerate(self._results(labels.numpy(), scores, places), self._images)
            for position, result in results:
                if result.labels != result.predicted:
                    self.mistakes.append((result, position))
                if lines is not None:
                    line = json.dumps(result.to_json(dataset.task))
                    lines.write(line.encode("ascii") + b"\n")
            self.mistakes.sort(key=lambda mistake: -mistake[0].loss)
            del self.mistakes[self._top_losses :]
            done = self._images
            on_progress(Progress(what="evaluate", done=done, total=split.records, unit="images"))
        if self._images != split.records:
            raise DatasetError("the split has fewer records than counted")

    def _results(
        self, labels: Any, scores: Any, places: Iterator[tuple[AnyPath, int | None]]
    ) -> Iterator[ImageResult]:
        """Count a batch, and yield the result of each image."""
        truths, guesses = self._decisions(labels, scores)
        losses = self._count(truths, guesses, scores)
        for row, loss in enumerate(losses.tolist()):
            yield self._result(next(places), truths[row], guesses[row], scores[row], loss)

    def _decisions(self, labels: Any, scores: Any) -> tuple[Any, Any]:
        """Return the true and the predicted classes of images, bool [n, classes] both."""
        truths, rows = np.zeros(scores.shape, np.bool_), np.arange(len(scores))
        if self._multi:
            truths[:, self._numbers] = labels > 0
            return truths, scores >= 0.5
        guesses = np.zeros_like(truths)
        truths[rows, self._numbers[labels]] = guesses[rows, scores.argmax(axis=1)] = True
        return truths, guesses

    def _count(self, truths: Any, guesses: Any, scores: Any) -> Any:
        """Count a batch, and return the loss of each image, float64 [n]."""
        bounded = np.clip(scores, _EPSILON, 1 - _EPSILON)
        if self._multi:
            losses = -np.log(np.where(truths, bounded, 1 - bounded)).mean(axis=1)
            self._hits += float((truths == guesses).mean(axis=1).sum())
        else:
            losses = -np.log(bounded[truths])
            pairs = zip(*(one.argmax(axis=1).tolist() for one in (truths, guesses)), strict=True)
            self._confusion.update(pairs)
            self._hits += int((truths & guesses).sum())
            higher = (scores > scores[truths][:, None]).sum(axis=1)
            self._near += int((higher < self._top_k).sum())
        self._scores.add(truths, scores.astype(np.float32))
        self._images += len(losses)
        self._losses += float(losses.sum())
        self._counts += np.array([one.sum(axis=0) for one in (truths, guesses, truths & guesses)])
        return losses

    def _result(
        self, place: tuple[AnyPath, int | None], truths: Any, guesses: Any, scores: Any, loss: float
    ) -> ImageResult:
        labels, predicted, either = (
            [self._names[number] for number in np.flatnonzero(one)]
            for one in (truths, guesses, truths | guesses)
        )
        values = scores[np.flatnonzero(truths | guesses)].tolist()
        return ImageResult(
            shard=place[0],
            record=place[1],
            labels=tuple(labels),
            predicted=tuple(predicted),
            probabilities=dict(zip(either, values, strict=True)),
            loss=loss,
        )


class _ValueEvaluator(_Evaluator):
    """Compares the numbers that a model predicts with those of a dataset."""

    def __init__(self, saved: SavedModel, dataset: Dataset, options: EvaluateOptions) -> None:
        super().__init__(saved, dataset, options)
        # Of squared errors, absolute errors, true numbers and their squares, for each target.
        self._sums = np.zeros((4, saved.facts.outputs))

    def _results(
        self, labels: Any, scores: Any, places: Iterator[tuple[AnyPath, int | None]]
    ) -> Iterator[ImageResult]:
        truths = np.empty_like(scores)
        truths[:, self._numbers] = labels.reshape(scores.shape)
        losses = np.square(scores - truths)
        self._images += len(losses)
        for total, values in zip(
            self._sums, (losses, np.abs(scores - truths), truths, np.square(truths)), strict=True
        ):
            total += values.sum(axis=0)
        for truth, guess, loss in zip(truths, scores, losses.mean(axis=1), strict=True):
            shard, record = next(places)
            yield ImageResult(
                shard=shard,
                record=record,
                labels=tuple(f"{value:.6g}" for value in truth),
                predicted=tuple(f"{value:.6g}" for value in guess),
                probabilities={},
                loss=float(loss),
                value=self._saved.facts.named_values(truth),
                predicted_value=self._saved.facts.named_values(guess),
            )

    def figures(self) -> dict[str, Any]:
        """Return the figures of a report over all images."""
        squared, absolute, total, squares = self._sums
        spread = squares - total**2 / self._images
        loss, names = float(squared.mean() / self._images), self._saved.facts.targets or ("value",)
        targets = tuple(
            TargetFigures(
                target=name,
                mae=float(absolute[n] / self._images),
                rmse=math.sqrt(squared[n] / self._images),
                r2=float(1 - squared[n] / spread[n]) if spread[n] > 0 else None,
            )
            for n, name in enumerate(names)
        )
        return {
            "task": Task.REGRESSION,
            "images": self._images,
            "loss": loss,
            "mae": _mean([one.mae for one in targets]),
            "rmse": math.sqrt(loss),
            "r2": _mean([one.r2 for one in targets]),
            "targets": targets,
        }


def _match_targets(saved: SavedModel, dataset: Dataset) -> Any:
    """Return the number of the model's output for each of the dataset's targets.

    A single one may have any name, as may those of a function that decodes records.
    """
    own, targets = dataset.targets, saved.facts.targets or ("value",)
    if sorted(own) == sorted(targets):
        return np.array([targets.index(name) for name in own])
    if len(own) != len(targets) or (len(own) > 1 and dataset.decode is None):
        raise UsageError(
            "the numbers in the dataset don't match those that the model predicts",
            path=dataset.directory,
            expected=some_of(list(targets), 5),
            found=some_of(list(own), 5),
        )
    return np.arange(len(own))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _record_places(read: Split, original: Split) -> Iterator[tuple[AnyPath, int | None]]:
    """Yield the shard and the number of each record; None in a copy without damaged records."""
    own = {*original.shards}
    by_name = {path.name: path for path in original.shards}
    for path, length in zip(read.shards, read.lengths, strict=True):
        for record in range(length):
            yield (path, record) if path in own else (by_name.get(path.name, path), None)


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
    if report.task is Task.SINGLE and len(report.names) <= MOST_CHARTED:
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
