"""What a classifier got right and wrong: figures, and the images it was most wrong about."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfrtool.loading.labels import Task

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
    """Result of evaluating a model on a split.

    Attributes:
        model: path of the model's file.
        dataset: directory of the dataset.
        split: name of the split.
        task: whether an image has exactly one class, or any number of them.
        images: number of images evaluated.
        loss: mean cross-entropy, in nats.
        accuracy: fraction of images classified correctly. With several classes per image, the
            fraction of correct decisions per class.
        classes: figures for each class of the model.
        confusion: number of images by pair of (true class, predicted class). Empty with several
            classes per image.
        mean_average_precision: mean over the classes that have images. None with one class per
            image.
        most_wrong: misclassified images with the highest loss, highest first.
        skipped: damage that was skipped, one line each.
        n_skipped: number of skipped records.
        seconds: wall time, in seconds.
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
        """Names of all classes of the model."""
        return tuple(one.label for one in self.classes)

    def mean(self, figure: str) -> float:
        """Return the mean of a figure over all classes (macro average).

        Classes with neither images nor predictions are not counted. Otherwise undefined values
        count as 0, as with ``zero_division=0`` in scikit-learn.

        Args:
            figure: "precision", "recall" or "f1".
        """
        met = [getattr(one, figure) or 0.0 for one in self.classes if one.f1 is not None]
        return sum(met) / len(met) if met else 0.0

    def most_confused(self, first: int) -> Sequence[tuple[str, str, int]]:
        """Return the most frequent mistakes as (true class, predicted class, count).

        Args:
            first: maximum number of mistakes to return.
        """
        wrong = [(n, pair) for pair, n in self.confusion.items() if pair[0] != pair[1]]
        found = sorted(wrong, key=lambda one: (-one[0], one[1]))[:first]
        return [(self.names[truth], self.names[guess], n) for n, (truth, guess) in found]

    def to_json(self) -> Mapping[str, Any]:
        """Return the object that ``evaluate --json`` prints and evaluation.json contains."""
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
