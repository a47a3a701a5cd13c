"""What a model gets right and wrong on the images of a split, counted batch by batch."""

import abc
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tfrtool.storage.remote_path import AnyPath
from tfrtool.training.image_result import ImageResult
from tfrtool.training.scores import EpochScores

Locations = Iterator[tuple[AnyPath, int | None]]
"""The shard of each image and the number of its record, None if damage before it was skipped."""

_FIGURES = ("precision", "recall", "f1")
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


class ClassTally(abc.ABC):
    """Counts right and wrong classes."""

    def __init__(self, names: Sequence[str], numbers: Any, images: int, top_k: int) -> None:
        """Count up to ``images`` images; ``numbers`` are the model's of a dataset's classes."""
        self._names, self._numbers, self._top_k = names, numbers, top_k
        self.images, self._losses, self._hits = 0, 0.0, 0.0
        self._scores = EpochScores(images)
        # For each class: its images, its predictions, and the images that are both.
        self._counts = np.zeros((3, len(self._names)), np.int64)

    def results(self, labels: Any, scores: Any, locations: Locations) -> Iterator[ImageResult]:
        """Count a batch, and yield the result of each image."""
        truths, guesses = self._decisions(labels, scores)
        losses = self._count(truths, guesses, scores)
        self._scores.add(truths, scores.astype(np.float32))
        self.images += len(losses)
        self._losses += float(losses.sum())
        self._counts += np.array([one.sum(axis=0) for one in (truths, guesses, truths & guesses)])
        for truth, guess, row, loss in zip(truths, guesses, scores, losses.tolist(), strict=True):
            shard, record = next(locations)
            labels, predicted, either = (
                tuple(self._names[number] for number in np.flatnonzero(one).tolist())
                for one in (truth, guess, truth | guess)
            )
            probabilities = dict(zip(either, row[truth | guess].tolist(), strict=True))
            yield ImageResult(
                shard=shard,
                record=record,
                labels=labels,
                predicted=predicted,
                probabilities=probabilities,
                loss=loss,
            )

    @abc.abstractmethod
    def _decisions(self, labels: Any, scores: Any) -> tuple[Any, Any]:
        """Return the true and the predicted classes of images, bool [n, classes] both."""

    @abc.abstractmethod
    def _count(self, truths: Any, guesses: Any, scores: Any) -> Any:
        """Count a batch, and return the loss of each image, float64 [n]."""

    def _averages(self) -> list[float | None]:
        """Return the average precision of each class; the list may be empty."""
        return []

    def figures(self) -> dict[str, Any]:
        """Return the figures of a report over all images."""
        images, predicted, right = self._counts.astype(np.float64)
        with np.errstate(invalid="ignore"):  # 0 / 0 is NaN, which becomes None
            each = right / predicted, right / images, 2 * right / (images + predicted)
        met = images + predicted > 0
        lacking: list[float | None] = [None] * len(self._names)
        averages, areas = self._averages() or lacking, self._scores.areas() or lacking
        rows = zip(self._names, *self._counts[:2].tolist(), *each, averages, areas, strict=True)
        return {
            "images": self.images,
            "loss": self._losses / self.images,
            "accuracy": self._hits / self.images,
            **{
                name: float(np.nan_to_num(values[met]).mean())
                for name, values in zip(_FIGURES, each, strict=True)
            },
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


class SingleLabelTally(ClassTally):
    """Counts images of one class each."""

    def __init__(self, names: Sequence[str], numbers: Any, images: int, top_k: int) -> None:
        super().__init__(names, numbers, images, top_k)
        self._near = 0  # images whose class is among the first
        self._confusion = Counter[tuple[int, int]]()

    def _decisions(self, labels: Any, scores: Any) -> tuple[Any, Any]:
        truths, rows = np.zeros(scores.shape, np.bool_), np.arange(len(scores))
        guesses = np.zeros_like(truths)
        truths[rows, self._numbers[labels]] = guesses[rows, scores.argmax(axis=1)] = True
        return truths, guesses

    def _count(self, truths: Any, guesses: Any, scores: Any) -> Any:
        pairs = zip(*(one.argmax(axis=1).tolist() for one in (truths, guesses)), strict=True)
        self._confusion.update(pairs)
        self._hits += int((truths & guesses).sum())
        higher = (scores > scores[truths][:, None]).sum(axis=1)
        self._near += int((higher < self._top_k).sum())
        return -np.log(np.clip(scores, _EPSILON, 1 - _EPSILON)[truths])

    def figures(self) -> dict[str, Any]:
        """Return the figures of a report over all images."""
        near = self._near / self.images if self._top_k < len(self._names) else None
        return super().figures() | {"confusion": self._confusion, "top_k_accuracy": near}


class MultiLabelTally(ClassTally):
    """Counts images of any number of classes."""

    def _decisions(self, labels: Any, scores: Any) -> tuple[Any, Any]:
        truths = np.zeros(scores.shape, np.bool_)
        truths[:, self._numbers] = labels > 0
        return truths, scores >= 0.5

    def _count(self, truths: Any, guesses: Any, scores: Any) -> Any:
        self._hits += float((truths == guesses).mean(axis=1).sum())
        bounded = np.clip(scores, _EPSILON, 1 - _EPSILON)
        return -np.log(np.where(truths, bounded, 1 - bounded)).mean(axis=1)

    def _averages(self) -> list[float | None]:
        return self._scores.averages()


class ValueTally:
    """Compares the numbers that a model predicts with those of a dataset."""

    def __init__(self, names: Sequence[str], numbers: Any, images: int, top_k: int) -> None:
        """Compare with a dataset's targets; ``numbers`` are the model's outputs of these."""
        del images, top_k
        self._names, self._numbers, self.images = names, numbers, 0
        # Of squared errors, absolute errors, true numbers and their squares, for each target.
        self._sums = np.zeros((4, len(names)))

    def results(self, labels: Any, scores: Any, locations: Locations) -> Iterator[ImageResult]:
        """Count a batch, and yield the result of each image."""
        truths = np.empty_like(scores)
        truths[:, self._numbers] = labels.reshape(scores.shape)
        losses = np.square(scores - truths)
        self.images += len(losses)
        values = losses, np.abs(scores - truths), truths, np.square(truths)
        self._sums += np.array([one.sum(axis=0) for one in values])
        for truth, guess, loss in zip(truths, scores, losses.mean(axis=1), strict=True):
            shard, record = next(locations)
            yield ImageResult(
                shard=shard,
                record=record,
                labels=tuple(f"{value:.6g}" for value in truth),
                predicted=tuple(f"{value:.6g}" for value in guess),
                probabilities={},
                loss=float(loss),
                value=named_values(self._names, truth),
                predicted_value=named_values(self._names, guess),
            )

    def figures(self) -> dict[str, Any]:
        """Return the figures of a report over all images."""
        squared, absolute, total, squares = self._sums
        spread = squares - total**2 / self.images
        loss = float(squared.mean() / self.images)
        targets = tuple(
            TargetFigures(
                target=name,
                mae=float(absolute[n] / self.images),
                rmse=math.sqrt(squared[n] / self.images),
                r2=float(1 - squared[n] / spread[n]) if spread[n] > 0 else None,
            )
            for n, name in enumerate(self._names)
        )
        return {
            "images": self.images,
            "loss": loss,
            "mae": _mean([one.mae for one in targets]),
            "rmse": math.sqrt(loss),
            "r2": _mean([one.r2 for one in targets]),
            "targets": targets,
        }


def named_values(names: Sequence[str], values: Any) -> float | dict[str, float]:
    """Return the number that a model predicts, or several by name."""
    numbers = [float(value) for value in values]
    return numbers[0] if len(numbers) == 1 else dict(zip(names, numbers, strict=True))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
