"""Features and labels of records that tests make."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfrtool.examples.example import DType, Feature, Value
from tfrtool.loading.dataset import Dataset

__all__ = ["SIZE", "feature", "loaded_labels"]

SIZE = 6
_DTYPES = {bytes: DType.STRING, int: DType.INT64, float: DType.FLOAT32}


def feature(*values: Value) -> Feature:
    """Return a feature of some values; without any, of int64."""
    dtype = _DTYPES[type(values[0])] if values else DType.INT64
    return Feature(dtype=dtype, values=values)


def loaded_labels(dataset: Dataset, **options: Any) -> Any:
    """Return the labels of all records, in their order, by the loader."""
    batches = dataset.load(image_size=SIZE, training=False, cycle_length=1, **options)
    return np.concatenate([labels.numpy() for _, labels in batches])
