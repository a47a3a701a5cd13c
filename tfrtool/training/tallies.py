"""What a model gets right and wrong on the images of a split, counted batch by batch."""

import abc
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any

import numpy as np

from tfrtool.storage.remote_path import AnyPath
from tfrtool.training.scores import EpochScores

_EPSILON = 1e-7
"""By which Keras keeps probabilities away from 0 and 1 in its losses."""


@dataclass(frozen=True, slots=True)
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
class ImageResult:
    """Prediction for one image.

    Attributes:
        shard: path of its shard.
        record: number of its record, from 0; None if damage before it was skipped.
        labels: true classes, one or more.
        predicted: the most probable class, or all with a probability of at least 0.5.
        probabilities: of these classes, 0 to 1.
        loss: cross-entropy in nats, with several classes the mean; for regression, the mean squared
            error.
        value: for regression, the true number, or several by name; otherwise None.
        predicted_value: for regression, the predicted number, or several by name; otherwise None.
    """

    shard: AnyPath
    record: int | None
    labels: tuple[str, ...]
    predicted: tuple[str, ...]
    probabilities: Mapping[str, float]
    loss: float
    value: float | Mapping[str, float] | None = None
    predicted_value: float | Mapping[str, float] | None = None

    @property
    def probability(self) -> float | None:
        """The highest probability of the predicted classes; None without any."""
        return max((self.probabilities[name] for name in self.predicted), default=None)


class _Tally(abc.ABC):
    """Counts the mistakes of a model, batch by batch."""

    def __init__(self, names: Sequence[str], numbers: Any, images: int, top_k: int) -> None:
        """Count up to ``images`` images; ``numbers`` are the model's of a dataset's outputs."""
        self._names, self._numbers, self._top_k = names, numbers, top_k
        self._scores, self.images = EpochScores(images), 0

    def results(
        self, labels: Any, scores: Any, locations: Iterator[tuple[AnyPath, int | None]]
    ) -> Iterator[ImageResult]:
        """Count a batch, and yield the result of each image."""
        self.images += len(labels)
        for values, (shard, record) in zip(self._count(labels, scores), locations, strict=False):
            yield ImageResult(shard=shard, record=record, **values)

    @abc.abstractmethod
    def _count(self, labels: Any, scores: Any) -> Iterator[dict[str, Any]]:
        """Count a batch, and yield the fields of each image's result."""


class _ClassTally(_Tally):
    """Counts right and wrong classes."""

    def __init__(self, names: Sequence[str], numbers: Any, images: int, top_k: int) -> None:
        super().__init__(names, numbers, images, top_k)
        self._losses, self._hits = 0.0, 0.0
        # For each class: its images, its predictions, and the images that are both.
        self._counts = np.zeros((3, len(names)), np.int64)

    def _count(self, labels: Any, scores: Any) -> Iterator[dict[str, Any]]:
        truths, guesses, losses = self._decide(labels, scores)
        self._scores.add(truths, scores.astype(np.float32))
        self._losses += float(losses.sum())
        self._counts += np.array([one.sum(axis=0) for one in (truths, guesses, truths & guesses)])
        for truth, guess, row, loss in zip(truths, guesses, scores, losses.tolist(), strict=True):
            labels, predicted, either = (
                tuple(self._names[number] for number in np.flatnonzero(one).tolist())
                for one in (truth, guess, truth | guess)
            )
            yield {
                "labels": labels,
                "predicted": predicted,
                "probabilities": dict(zip(either, row[truth | guess].tolist(), strict=True)),
                "loss": loss,
            }

    @abc.abstractmethod
    def _decide(self, labels: Any, scores: Any) -> tuple[Any, Any, Any]:
        """Return true and predicted classes, bool [n, classes], and losses, float64 [n]."""

    def _averages(self) -> list[float | None]:
        """Return the average precision of each class; none if it is not measured."""
        return []

    def figures(self) -> dict[str, Any]:
        """Return the figures of a report over all images."""
        images, predicted, right = self._counts.astype(np.float64)
        with np.errstate(invalid="ignore"):  # 0 / 0 is NaN, which becomes None
            each = right / predicted, right / images, 2 * right / (images + predicted)
        means = (np.nan_to_num(values[images + predicted > 0]).mean() for values in each)
        known = ([None if math.isnan(one) else one for one in values.tolist()] for values in each)
        lacking: list[float | None] = [None] * len(self._names)
        averages, areas = self._averages() or lacking, self._scores.areas() or lacking
        rows = zip(self._names, *self._counts[:2].tolist(), *known, averages, areas, strict=True)
        return {
            "images": self.images,
            "loss": self._losses / self.images,
            "accuracy": self._hits / self.images,
            **dict(zip(("precision", "recall", "f1"), map(float, means), strict=True)),
            "auc": _mean(areas),
            "mean_average_precision": _mean(averages),
            "classes": tuple(starmap(ClassFigures, rows)),
        }


class SingleLabelTally(_ClassTally):
    """Counts images of one class each."""

    def __init__(self, names: Sequence[str], numbers: Any, images: int, top_k: int) -> None:
        super().__init__(names, numbers, images, top_k)
        self._near = 0  # images whose class is among the first
        self._confusion = Counter[tuple[int, int]]()

    def _decide(self, labels: Any, scores: Any) -> tuple[Any, Any, Any]:
        classes, predicted, rows = (
            self._numbers[labels],
            scores.argmax(axis=1),
            np.arange(len(scores)),
        )
        truths, guesses = np.zeros((2, *scores.shape), np.bool_)
        truths[rows, classes] = guesses[rows, predicted] = True
        self._confusion.update(zip(classes.tolist(), predicted.tolist(), strict=True))
        self._hits += int((classes == predicted).sum())
        higher = (scores > scores[truths][:, None]).sum(axis=1)
        self._near += int((higher < self._top_k).sum())
        return truths, guesses, -np.log(np.clip(scores, _EPSILON, 1 - _EPSILON)[truths])

    def figures(self) -> dict[str, Any]:
        """Return the figures of a report over all images."""
        near = self._near / self.images if self._top_k < len(self._names) else None
        return super().figures() | {"confusion": self._confusion, "top_k_accuracy": near}


class MultiLabelTally(_ClassTally):
    """Counts images of any number of classes."""

    def _decide(self, labels: Any, scores: Any) -> tuple[Any, Any, Any]:
        truths, guesses = np.zeros(scores.shape, np.bool_), scores >= 0.5
        truths[:, self._numbers] = labels > 0
        self._hits += float((truths == guesses).mean(axis=1).sum())
        bounded = np.clip(scores, _EPSILON, 1 - _EPSILON)
        return truths, guesses, -np.log(np.where(truths, bounded, 1 - bounded)).mean(axis=1)

    def _averages(self) -> list[float | None]:
        return self._scores.averages()


class ValueTally(_Tally):
    """Compares the numbers that a model predicts with those of a dataset."""

    def __init__(self, names: Sequence[str], numbers: Any, images: int, top_k: int) -> None:
        super().__init__(names, numbers, images, top_k)
        # Of squared errors, absolute errors, true numbers and their squares, for each target.
        self._sums = np.zeros((4, len(names)))

    def _count(self, labels: Any, scores: Any) -> Iterator[dict[str, Any]]:
        truths = np.empty_like(scores)
        truths[:, self._numbers] = labels.reshape(scores.shape)
        losses = np.square(scores - truths)
        values = losses, np.abs(scores - truths), truths, np.square(truths)
        self._sums += np.array([one.sum(axis=0) for one in values])
        for truth, guess, loss in zip(truths, scores, losses.mean(axis=1).tolist(), strict=True):
            yield {
                "labels": tuple(f"{value:.6g}" for value in truth),
                "predicted": tuple(f"{value:.6g}" for value in guess),
                "probabilities": {},
                "loss": loss,
                "value": named_values(self._names, truth),
                "predicted_value": named_values(self._names, guess),
            }

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


def rounded_values(value: Any) -> Any:
    """Return a JSON value with six decimals."""
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        return {name: rounded_values(one) for name, one in value.items()}
    return [rounded_values(one) for one in value] if isinstance(value, list) else value


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
