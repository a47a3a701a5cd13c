"""A small dataset and small runs on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tfrtool.training.train_report import TrainPlan

__all__ = ["planned", "saved_variables", "small_options", "write_drawings"]

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


def saved_variables(out: Path) -> bytes:
    """Return all numbers of a run's checkpoint."""
    data = (out / "checkpoint").read_bytes()
    start = len(b"tfrtool checkpoint 1\n")
    return data[start + 8 + int.from_bytes(data[start : start + 8], "little") :]
