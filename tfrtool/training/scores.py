"""How well probabilities rank the images of a class: average precision, and area under the ROC."""

from typing import Any

import numpy as np

from tfrtool.storage.limits import MAX_SCORES

MEAN_AVERAGE_PRECISION = "mean_average_precision"


class EpochScores:
    """Labels and probabilities of an epoch: 5 bytes for each class of each image."""

    def __init__(self, images: int) -> None:
        """Collect scores of ``images`` images, unless they need too much memory."""
        self._images = images
        self._labels: list[Any] = []
        self._scores: list[Any] = []

    def add(self, labels: Any, scores: Any) -> None:
        """Add a batch: labels, 0 or 1, and probabilities, both [n, classes]."""
        if self._images * labels.shape[1] <= MAX_SCORES:
            self._labels.append(np.asarray(labels) > 0)
            self._scores.append(np.asarray(scores))

    def averages(self) -> list[float | None]:
        """Return the average precision of each class, None for a class without images.

        The list is empty for too many images, or if a score is not finite.
        """
        if not self._scores:
            return []
        labels, scores = np.concatenate(self._labels), np.concatenate(self._scores)
        if not np.isfinite(scores).all():
            return []
        classes = zip(labels.T, scores.T, strict=True)
        return [average_precision(*one) if one[0].any() else None for one in classes]

    def areas(self) -> list[float | None]:
        """Return the area under the ROC curve of each class, None for one without a curve."""
        if not self._scores:
            return []
        pairs = zip(np.concatenate(self._labels).T, np.concatenate(self._scores).T, strict=True)
        return [area_under_roc(*one) for one in pairs]

    def mean(self) -> float:
        """Return the mean over the classes that have images, as scikit-learn defines it, or NaN."""
        known = [average for average in self.averages() if average is not None]
        return float(np.mean(known)) if known else float("nan")


def average_precision(labels: Any, scores: Any) -> float:
    """Return the average precision of a class, bool [images] and float [images].

    Precision is taken at each distinct score, and weighted by the recall that it adds.
    """
    order = np.argsort(-scores, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1)
    right = np.cumsum(labels[order])[ends]
    return float(np.sum(np.diff(right, prepend=0) * (right / (ends + 1))) / right[-1])


def area_under_roc(labels: Any, scores: Any) -> float | None:
    """Return how often an image of the class has a higher score than another, ties count half."""
    right = int(labels.sum())
    if right in (0, len(labels)):
        return None
    _, which, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[which]
    above = ranks[labels].sum() - right * (right + 1) / 2
    return float(above / (right * (len(labels) - right)))
