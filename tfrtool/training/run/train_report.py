"""What was decided before a training run, and what came of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tfrtool.loading.pipeline.load_options import Rescale

_DIGITS = {"seconds": 3, "images_per_second": 1, "input_wait_fraction": 4}
"""After the point, in JSON; of all others 6."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainPlan:
    """What is about to be trained, known before the first step.

    Attributes:
        model: its name.
        recipe: the loader's name.
        cache: where decoded images are kept, in words of the CLI.
        cache_reason: why there.
        image_size: pixels both ways.
        class_names: by number.
        train_images: images of an epoch.
        validation_images: images that are validated on; 0 for none.
        trainable_parameters: how many of the model's numbers are trained.
        learning_rate: Adam's.
        rescale: what pixels become.
        precision: what the model computes in, in words of the CLI.
        augment: how images are changed, in words of the CLI; None where they aren't.
        deterministic: whether the seed decides the order of images.
        left_out: the records that are not used because they are damaged, a line each.
        n_left_out: how many these are; a line may stand for more than one.
        epochs_before: how many epochs the run that is resumed had done.
        profile: where the trace of some steps goes; None for nowhere.
    """

    model: str
    recipe: str
    cache: str
    cache_reason: str
    image_size: int
    class_names: tuple[str, ...]
    train_images: int
    validation_images: int
    trainable_parameters: int
    learning_rate: float
    rescale: Rescale
    precision: str = "float32"
    augment: str | None = None
    deterministic: bool = True
    left_out: tuple[str, ...] = ()
    n_left_out: int = 0
    epochs_before: int = 0
    profile: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochReport:
    """One time through the training split.

    Attributes:
        epoch: its number, from 1.
        seconds: wall time, validation included.
        images_per_second: training images by the wall time of training alone.
        loss: mean cross-entropy over the epoch, while the weights changed.
        accuracy: the share of images whose class was predicted, likewise.
        val_loss: after the epoch, on the validation images; None without any.
        val_accuracy: likewise.
        input_wait_fraction: the share of the training time spent waiting for a batch, 0 to 1.
    """

    epoch: int
    seconds: float
    images_per_second: float
    loss: float
    accuracy: float
    val_loss: float | None
    val_accuracy: float | None
    input_wait_fraction: float

    @property
    def monitored(self) -> float:
        """What early stopping goes by: val_loss, or loss where nothing is validated."""
        return self.loss if self.val_loss is None else self.val_loss

    @property
    def logs(self) -> Mapping[str, float]:
        """What callbacks are told: all of it by name, but for what there is none of."""
        values = {field.name: getattr(self, field.name) for field in fields(self)[1:]}
        return {name: value for name, value in values.items() if value is not None}

    def to_json(self) -> Mapping[str, Any]:
        """Return the object that ``train --json`` prints for an epoch."""
        return {
            field.name: _rounded(getattr(self, field.name), _DIGITS.get(field.name, 6))
            for field in fields(self)
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainReport:
    """A whole run.

    Attributes:
        plan: what was trained.
        epochs: what each epoch brought, those before it was resumed included.
        seconds: wall time of all, from the opening of the dataset on, likewise.
        cpu_seconds: what the cores worked meanwhile, added up; since it was resumed.
        best_epoch: whose weights the model has, if there was early stopping; else None.
        stopped_early: whether there were fewer epochs than there should be.
        naive: the same with the naive recipe, in float32; None where nothing was compared.
    """

    plan: TrainPlan
    epochs: tuple[EpochReport, ...]
    seconds: float
    cpu_seconds: float = 0.0
    best_epoch: int | None = None
    stopped_early: bool = False
    naive: TrainReport | None = None

    @property
    def epochs_seconds(self) -> float:
        """Wall time of the epochs alone."""
        return sum(epoch.seconds for epoch in self.epochs)

    @property
    def start_seconds(self) -> float:
        """Wall time of all else: opening the dataset, building the model, saving it."""
        return self.seconds - self.epochs_seconds

    @property
    def speedup(self) -> float:
        """How many times faster than the naive run, from the dataset's opening to the model."""
        return self.naive.seconds / self.seconds if self.naive else math.nan

    @property
    def epochs_speedup(self) -> float:
        """How many times faster than in the naive run an epoch was in the mean."""
        if self.naive is None:
            return math.nan
        theirs = self.naive.epochs_seconds / len(self.naive.epochs)
        return theirs / (self.epochs_seconds / len(self.epochs))

    def to_json(self) -> Mapping[str, Any]:
        """Return the last object that ``train --json`` prints."""
        plan, naive = self.plan, self.naive
        data = {
            "model": plan.model,
            "cache": plan.cache,
            "recipe": plan.recipe,
            "seconds": round(self.seconds, 3),
            "cpu_seconds": round(self.cpu_seconds, 3),
            "epochs": len(self.epochs),
            "epochs_before": plan.epochs_before,
            "best_epoch": self.best_epoch,
            "stopped_early": self.stopped_early,
            "cache_reason": plan.cache_reason,
            "image_size": plan.image_size,
            "train_images": plan.train_images,
            "validation_images": plan.validation_images,
            "precision": plan.precision,
            "left_out": plan.n_left_out,
        }
        if naive is None:
            return data
        return data | {
            "start_seconds": round(self.start_seconds, 3),
            "naive_seconds": round(naive.seconds, 3),
            "naive_start_seconds": round(naive.start_seconds, 3),
            "naive_cpu_seconds": round(naive.cpu_seconds, 3),
            "naive_epochs": [epoch.to_json() for epoch in naive.epochs],
            "speedup": round(self.speedup, 3),
            "epochs_speedup": round(self.epochs_speedup, 3),
        }


def _rounded(value: float | None, digits: int) -> float | None:
    """Return a number as JSON has it: a loss that went to infinity has none."""
    return None if value is None or not math.isfinite(value) else round(value, digits)
