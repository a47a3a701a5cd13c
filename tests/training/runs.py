"""A small dataset and small runs on it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tfrtool.training.run.train_report import EpochReport, TrainPlan

__all__ = ["epoch_report", "planned", "saved_variables", "small_options", "write_drawings"]

_PETS = Path(__file__).parents[2] / "fixtures" / "pets"


def write_drawings(directory: Path) -> Path:
    """Write the drawings of the fixtures as 155 records to train and 44 to validate on."""
    splits = {"train": 0.8, "validation": 0.2}
    tfrtool.write(_PETS, directory, splits=splits, shards=4)
    return directory


def small_options(dataset: Any, **changes: Any) -> dict[str, Any]:
    """Return the keywords of a run that takes a second: of the cnn, only the head learns."""
    options = {
        "dataset": dataset,
        "model": "cnn",
        "trainable": "head",
        "image_size": 32,
        "epochs": 2,
        "batch_size": 16,
    }
    return options | changes


class _PlannedError(Exception):
    """What ends a run before its first step."""


def planned(**options: Any) -> TrainPlan:
    """Return what a run tells before its first step, and end it there."""
    plans: list[TrainPlan] = []

    def end(plan: TrainPlan) -> None:
        plans.append(plan)
        raise _PlannedError

    with pytest.raises(_PlannedError):
        tfrtool.train(**options, on_plan=end)
    return plans[0]


def epoch_report(epoch: int, **changes: Any) -> EpochReport:
    """Return what an epoch may have brought."""
    report = EpochReport(
        epoch=epoch,
        seconds=1.0,
        images_per_second=100.0,
        loss=0.5,
        accuracy=0.75,
        val_loss=None,
        val_accuracy=None,
        input_wait_fraction=0.0,
    )
    return replace(report, **changes)


def saved_variables(out: Path) -> dict[str, Any]:
    """Return all numbers of a run's checkpoint, by name."""
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(out / "checkpoint"))
    names = [name for name in reader.get_variable_to_shape_map() if name[:5] in ("state", "best/")]
    return {name: reader.get_tensor(name) for name in names}
