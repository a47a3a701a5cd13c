"""What a run's weights depend on, to tell whether a run that goes on is the one that was begun."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from tfrtool.loading.dataset.dataset import Dataset
from tfrtool.training.run.train_options import TrainOptions

__all__ = ["request_of"]


def request_of(options: TrainOptions, dataset: Dataset) -> Mapping[str, Any]:
    """Return all that decides what is learnt, as JSON values by name.

    Where files are is left out, and so is what only changes how fast it goes.

    Args:
        options: what was asked for.
        dataset: as it is on disk, before anything is left out.
    """
    return {
        "dataset": _digest(dataset),
        "split": options.split,
        "validation": options.validation,
        "model": options.model.value,
        "weights": options.initial_weights,
        "trainable": options.trainable.value,
        "image size": options.image_size,
        "rescale": options.rescale.value,
        "precision": options.precision.value,
        "epochs": options.epochs,
        "batch size": options.batch_size,
        "learning rate": options.rate,
        "seed": options.seed,
        "cache": None if options.cache is None else options.cache.value,
        "cycle length": options.cycle_length,
        "block length": options.block_length,
        "shuffle buffer": options.shuffle_buffer,
        "deterministic": options.deterministic,
        "augment": None if options.augment is None else str(options.augment),
        "on corrupt": options.on_corrupt.value,
        "early stopping": options.early_stopping,
    }


def _digest(dataset: Dataset) -> str:
    """Return what tells a dataset from another: its shards' names, sizes and numbers of records."""
    facts = {
        name: [split.records, *((path.name, path.stat().st_size) for path in split.shards)]
        for name, split in dataset.splits.items()
    }
    text = json.dumps([facts, dataset.class_names], sort_keys=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]
