"""How well probabilities order images, where each may be of several classes."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tfrtool.storage.limits import MAX_SCORES

MEAN_AVERAGE_PRECISION = "mean_average_precision"


class EpochScores:
    """The probabilities and labels of an epoch, if any: 5 bytes for each class of each image."""

    def __init__(self, images: int) -> None:
        """Get ready for so many images."""
        self._images, self._any = images, False
        self._truths: list[Any] = []
        self._scores: list[Any] = []

    def add(self, truths: Any, scores: Any) -> None:
        """Take in a batch: labels, 0 or 1, and probabilities, both float32 [n, classes]."""
        self._any = True
        if self._images * truths.shape[1] <= MAX_SCORES:
            self._truths.append(truths.numpy() > 0)
            self._scores.append(scores.numpy())

    def figures(self) -> Mapping[str, float]:
        """Return the mean average precision by its name; NaN of too many, nothing of none."""
        if not self._any:
            return {}
        if not self._scores:
            return {MEAN_AVERAGE_PRECISION: float("nan")}
        truths, scores = np.concatenate(self._truths), np.concatenate(self._scores)
        return {MEAN_AVERAGE_PRECISION: mean_average_precision(truths, scores)}


def mean_average_precision(truths: Any, scores: Any) -> float:
    """Return the mean over classes of the average precision, as scikit-learn defines it.

    Precision is taken at each distinct score, and weighed by the recall that it adds. Classes
    without an image don't count; it is NaN where none has one, or a score is no number.

    Args:
        truths: whether an image is of a class, bool [images, classes].
        scores: float [images, classes].
    """
    if not np.isfinite(scores).all():
        return float("nan")
    found = [
        average_precision(truths[:, number], scores[:, number])
        for number in np.flatnonzero(truths.any(axis=0))
    ]
    return float(np.mean(found)) if found else float("nan")


def average_precision(truths: Any, scores: Any) -> float:
    """Return that of one class, bool [images] and float [images], which has an image at least."""
    order = np.argsort(-scores, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1)
    right = np.cumsum(truths[order])[ends]
    return float(np.sum(np.diff(right, prepend=0) * (right / (ends + 1))) / right[-1])
