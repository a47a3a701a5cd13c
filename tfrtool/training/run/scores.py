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
        """Take in a batch: labels, 0 or 1, and probabilities, both [n, classes]."""
        self._any = True
        if self._images * truths.shape[1] <= MAX_SCORES:
            self._truths.append(np.asarray(truths) > 0)
            self._scores.append(np.asarray(scores))

    def averages(self) -> list[float | None]:
        """Return the average precision of each class, None of one without an image.

        Nothing is returned of too many images, or where a score is no number.
        """
        if not self._scores:
            return []
        truths, scores = np.concatenate(self._truths), np.concatenate(self._scores)
        if not np.isfinite(scores).all():
            return []
        classes = zip(truths.T, scores.T, strict=True)
        return [average_precision(*one) if one[0].any() else None for one in classes]

    def figures(self) -> Mapping[str, float]:
        """Return the mean average precision by its name; NaN where it can't be told.

        It is the mean over the classes that have images, as scikit-learn defines it. Where there
        are no labels of several classes, nothing is returned.
        """
        found = [average for average in self.averages() if average is not None]
        mean = float(np.mean(found)) if found else float("nan")
        return {MEAN_AVERAGE_PRECISION: mean} if self._any else {}


def average_precision(truths: Any, scores: Any) -> float:
    """Return that of one class, bool [images] and float [images], which has an image at least.

    Precision is taken at each distinct score, and weighed by the recall that it adds.
    """
    order = np.argsort(-scores, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1)
    right = np.cumsum(truths[order])[ends]
    return float(np.sum(np.diff(right, prepend=0) * (right / (ends + 1))) / right[-1])
