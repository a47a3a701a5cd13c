"""Batches for a head, out of what the frozen base before it made of the images."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from tfrtool.training.features.features import Features

__all__ = ["head_batches"]


def head_batches(features: Features, order: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield batches of features and labels in the order that the images would come in.

    Args:
        features: of all images.
        order: for each batch the numbers of its images, integers [n], as arrays or tensors; such
            as a ``tf.data.Dataset.range`` that is shuffled and batched as the images would be.

    Yields:
        Values, float32 [n, width], and labels, int64 [n], as arrays.
    """
    for batch in order:
        rows = np.asarray(batch)
        yield features.values[rows], features.labels[rows]
