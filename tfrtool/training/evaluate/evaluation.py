"""What a classifier got right and wrong: figures, and the images it was most wrong about."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MATRIX_CLASSES = 1000
"""The most for which JSON has the whole matrix, of as many numbers squared."""

_DIGITS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassFigures:
    """How well one class is told from all others, as scikit-learn defines it.

    Attributes:
        label: the name of the class.
        images: how many images are of this class.
        predicted: how many were taken for it.
        right: how many of both.
    """

    label: str
    images: int
    predicted: int
    right: int

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageResult:
    """What the model made of one image; ``losses`` is higher the more it is wrong.

    Attributes:
        shard: the file that the image is in.
        record: its place there, from 0; None where damage before it was left out.
        label: what the dataset says.
        predicted: the most probable class.
        probability: of the predicted class, 0 to 1.
        label_probability: of the label.
    """

    shard: Path
    record: int | None
    label: str
    predicted: str
    probability: float
    label_probability: float

    @property
    def loss(self) -> float:
        """The cross-entropy, in nats, with Keras' bounds."""
        return cross_entropy(self.label_probability)

    def to_json(self) -> Mapping[str, Any]:
        """Return a line of predictions.jsonl."""
        return {
            "shard": str(self.shard),
            "record": self.record,
            "label": self.label,
            "predicted": self.predicted,
            "probability": round(self.probability, _DIGITS),
            "label_probability": round(self.label_probability, _DIGITS),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationReport:
    """How good a model is on a split.

    Attributes:
        model: its file.
        dataset: the directory of the shards.
        split: which part of it.
        images: how many were looked at.
        loss: mean cross-entropy, in nats.
        names: all classes of the model.
        confusion: how many images of a class (the first number) were taken for a class.
        most_wrong: the images with the highest loss that were mistaken, highest first.
        left_out: damage that was skipped, a line each.
        n_left_out: how many records that is.
        seconds: wall time.
    """

    model: Path
    dataset: Path
    split: str
    images: int
    loss: float
    names: tuple[str, ...]
    confusion: Mapping[tuple[int, int], int]
    most_wrong: tuple[ImageResult, ...]
    left_out: tuple[str, ...]
    n_left_out: int
    seconds: float

    @property
    def accuracy(self) -> float:
        """The share of images whose class was predicted."""
        right = sum(n for (truth, guess), n in self.confusion.items() if truth == guess)
        return right / self.images

    @property
    def classes(self) -> tuple[ClassFigures, ...]:
        """The figures of each class."""
        truths, guesses, right = Counter[int](), Counter[int](), Counter[int]()
        for (truth, guess), count in self.confusion.items():
            truths[truth] += count
            guesses[guess] += count
            right[truth] += count if truth == guess else 0
        return tuple(
            ClassFigures(label=name, images=truths[n], predicted=guesses[n], right=right[n])
            for n, name in enumerate(self.names)
        )

    def mean(self, figure: str) -> float:
        """Return the mean of "precision", "recall" or "f1" over classes (macro average).

        Classes without an image and without a prediction don't count; else what can't be told is 0,
        as with scikit-learn's ``zero_division=0``.
        """
        met = [getattr(one, figure) or 0.0 for one in self.classes if one.f1 is not None]
        return sum(met) / len(met)

    def most_confused(self, first: int) -> Sequence[tuple[str, str, int]]:
        """Return the commonest mistakes: a class, what it was taken for, and how often."""
        wrong = [(n, pair) for pair, n in self.confusion.items() if pair[0] != pair[1]]
        found = sorted(wrong, key=lambda one: (-one[0], one[1]))[:first]
        return [(self.names[truth], self.names[guess], n) for n, (truth, guess) in found]

    def to_json(self) -> Mapping[str, Any]:
        """Return the object that ``evaluate --json`` prints, and evaluation.json holds."""
        count, matrix = len(self.names), None
        if count <= _MATRIX_CLASSES:
            matrix = [
                [self.confusion.get((truth, guess), 0) for guess in range(count)]
                for truth in range(count)
            ]
        return {
            "model": str(self.model),
            "dataset": str(self.dataset),
            "split": self.split,
            "images": self.images,
            "loss": round(self.loss, _DIGITS),
            "accuracy": round(self.accuracy, _DIGITS),
            **{name: round(self.mean(name), _DIGITS) for name in ("precision", "recall", "f1")},
            "classes": [
                {
                    "label": one.label,
                    "images": one.images,
                    "predicted": one.predicted,
                    **{
                        name: _rounded(getattr(one, name)) for name in ("precision", "recall", "f1")
                    },
                }
                for one in self.classes
            ],
            "confusion": matrix,
            "most_wrong": [one.to_json() for one in self.most_wrong],
            "left_out": self.n_left_out,
            "seconds": round(self.seconds, 3),
        }


def cross_entropy(probability: float) -> float:
    """Return the loss of a probability as Keras clips it: 1e-7 away from 0 and 1."""
    return -math.log(min(max(probability, 1e-7), 1 - 1e-7))


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)
