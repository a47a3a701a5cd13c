"""What a classifier got right and wrong: figures, and the images it was most wrong about."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfrtool.loading.dataset.label_form import Task

_MATRIX_CLASSES = 1000
"""The most for which JSON has the whole matrix, of as many numbers squared."""

FIGURES = ("precision", "recall", "f1")

_DIGITS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassFigures:
    """How well one class is told from all others, as scikit-learn defines it.

    Attributes:
        label: the name of the class.
        images: how many images are of this class.
        predicted: how many were taken for it.
        right: how many of both.
        average_precision: how well its probabilities put its images first, where an image may be
            of several classes; None elsewhere, or where there is no image of it.
    """

    label: str
    images: int
    predicted: int
    right: int
    average_precision: float | None = None

    @property
    def precision(self) -> float | None:
        """The share of images taken for it that are of it; None where none was."""
        return self.right / self.predicted if self.predicted else None

    @property
    def recall(self) -> float | None:
        """The share of its images that were taken for it; None where there is none."""
        return self.right / self.images if self.images else None

    @property
    def f1(self) -> float | None:
        """The harmonic mean of both; None where neither an image nor a prediction is of it."""
        both = self.images + self.predicted
        return 2 * self.right / both if both else None

    def to_json(self) -> Mapping[str, Any]:
        """Return an object of ``classes``."""
        figures = {name: _rounded(getattr(self, name)) for name in FIGURES}
        counts = {"label": self.label, "images": self.images, "predicted": self.predicted}
        average = self.average_precision
        return (
            counts | figures | ({} if average is None else {"average_precision": _rounded(average)})
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageResult:
    """What the model made of one image.

    Attributes:
        shard: the file that the image is in.
        record: its place there, from 0; None where damage before it was left out.
        labels: the class that the dataset says, or the classes.
        predicted: the most probable class; or all with a probability of 0.5 or more.
        probabilities: of these classes, 0 to 1.
        loss: cross-entropy in nats, of several classes the mean.
    """

    shard: Path
    record: int | None
    labels: tuple[str, ...]
    predicted: tuple[str, ...]
    probabilities: Mapping[str, float]
    loss: float

    def to_json(self, task: Task) -> Mapping[str, Any]:
        """Return a line of predictions.jsonl."""
        place = {"shard": str(self.shard), "record": self.record}
        found = {name: _rounded(value) for name, value in self.probabilities.items()}
        if task is Task.MULTI:
            names = {"labels": self.labels, "predicted": self.predicted}
            return {**place, **names, "probabilities": found, "loss": _rounded(self.loss)}
        (label,), (predicted,) = self.labels, self.predicted
        return {
            **place,
            "label": label,
            "predicted": predicted,
            "probability": found[predicted],
            "label_probability": found[label],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationReport:
    """How good a model is on a split.

    Attributes:
        model: its file.
        dataset: the directory of the shards.
        split: which part of it.
        task: whether an image is of one class, or of any number of them.
        images: how many were looked at.
        loss: mean cross-entropy, in nats.
        accuracy: the share of images whose class was predicted; where there may be several, of
            right decisions for or against a class.
        classes: the figures of each class of the model.
        confusion: how many images of a class (the first number) were taken for a class; empty
            where there may be several.
        mean_average_precision: over the classes that have images; None where there is one class
            an image.
        most_wrong: the images with the highest loss that were mistaken, highest first.
        skipped: damage that was skipped, a line each.
        n_skipped: how many records that is.
        seconds: wall time.
    """

    model: Path
    dataset: Path
    split: str
    task: Task = Task.SINGLE
    images: int
    loss: float
    accuracy: float
    classes: tuple[ClassFigures, ...]
    confusion: Mapping[tuple[int, int], int]
    mean_average_precision: float | None = None
    most_wrong: tuple[ImageResult, ...]
    skipped: tuple[str, ...]
    n_skipped: int
    seconds: float

    @property
    def names(self) -> tuple[str, ...]:
        """All classes of the model."""
        return tuple(one.label for one in self.classes)

    def mean(self, figure: str) -> float:
        """Return the mean of "precision", "recall" or "f1" over classes (macro average).

        Classes without an image and without a prediction don't count; else what can't be told is 0,
        as with scikit-learn's ``zero_division=0``.
        """
        met = [getattr(one, figure) or 0.0 for one in self.classes if one.f1 is not None]
        return sum(met) / len(met) if met else 0.0

    def most_confused(self, first: int) -> Sequence[tuple[str, str, int]]:
        """Return the commonest mistakes: a class, what it was taken for, and how often."""
        wrong = [(n, pair) for pair, n in self.confusion.items() if pair[0] != pair[1]]
        found = sorted(wrong, key=lambda one: (-one[0], one[1]))[:first]
        return [(self.names[truth], self.names[guess], n) for n, (truth, guess) in found]

    def to_json(self) -> Mapping[str, Any]:
        """Return the object that ``evaluate --json`` prints, and evaluation.json holds."""
        numbers, matrix = range(len(self.classes)), None
        if self.task is Task.SINGLE and len(numbers) <= _MATRIX_CLASSES:
            matrix = [
                [self.confusion.get((truth, guess), 0) for guess in numbers] for truth in numbers
            ]
        ranked = {"mean_average_precision": _rounded(self.mean_average_precision)}
        return {
            "model": str(self.model),
            "dataset": str(self.dataset),
            "split": self.split,
            "task": self.task.value,
            "images": self.images,
            "loss": _rounded(self.loss),
            "accuracy": _rounded(self.accuracy),
            **{name: _rounded(self.mean(name)) for name in FIGURES},
            **(ranked if self.task is Task.MULTI else {}),
            "classes": [one.to_json() for one in self.classes],
            "confusion": matrix,
            "most_wrong": [one.to_json(self.task) for one in self.most_wrong],
            "skipped": self.n_skipped,
            "seconds": round(self.seconds, 3),
        }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)
