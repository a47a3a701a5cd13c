"""What came of a training run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfrtool.loading.pipeline.load_options import Rescale

__all__ = ["EpochReport", "TrainPlan", "TrainReport"]


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
        trainable_parameters: how many of the model's numbers learn.
        learning_rate: Adam's.
        rescale: what pixels become.
        precision: what the model computes in, in words of the CLI.
        augment: how images are changed, in words of the CLI; None where they aren't.
        deterministic: whether the seed decides the order of images.
        left_out: the records that are not used because they are damaged, a line each.
        n_left_out: how many these are; a line may stand for more than one.
        epochs_before: how many epochs an earlier run had done, from which this one goes on.
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
        accuracy: the share of images that were told rightly, likewise.
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

    def to_json(self) -> Mapping[str, Any]:
        """Return the object that ``train --json`` prints for an epoch."""
        return {
            "epoch": self.epoch,
            "seconds": round(self.seconds, 3),
            "images_per_second": round(self.images_per_second, 1),
            "loss": _number(self.loss),
            "accuracy": _number(self.accuracy),
            "val_loss": _number(self.val_loss),
            "val_accuracy": _number(self.val_accuracy),
            "input_wait_fraction": round(self.input_wait_fraction, 4),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainReport:
    """A whole run.

    Attributes:
        plan: what was trained.
        epochs: what each epoch brought, those of an earlier run included.
        seconds: wall time of all, from the opening of the dataset on, likewise.
        cpu_seconds: what the cores worked meanwhile, added up; without an earlier run's.
        best_epoch: whose weights the model has, if there was early stopping; else None.
        stopped_early: whether there were fewer epochs than there should be, for that reason.
    """

    plan: TrainPlan
    epochs: tuple[EpochReport, ...]
    seconds: float
    cpu_seconds: float = 0.0
    best_epoch: int | None = None
    stopped_early: bool = False

    @property
    def epochs_seconds(self) -> float:
        """Wall time of the epochs alone."""
        return sum(epoch.seconds for epoch in self.epochs)

    @property
    def start_seconds(self) -> float:
        """Wall time of all else: opening the dataset, building the model, saving it."""
        return self.seconds - self.epochs_seconds

    def to_json(self) -> Mapping[str, Any]:
        """Return the last object that ``train --json`` prints."""
        return {
            "model": self.plan.model,
            "cache": self.plan.cache,
            "recipe": self.plan.recipe,
            "seconds": round(self.seconds, 3),
            "cpu_seconds": round(self.cpu_seconds, 3),
            "epochs": len(self.epochs),
            "epochs_before": self.plan.epochs_before,
            "best_epoch": self.best_epoch,
            "stopped_early": self.stopped_early,
            "cache_reason": self.plan.cache_reason,
            "image_size": self.plan.image_size,
            "train_images": self.plan.train_images,
            "validation_images": self.plan.validation_images,
            "precision": self.plan.precision,
            "left_out": self.plan.n_left_out,
        }


def _number(value: float | None) -> float | None:
    """Return a number as JSON has it: a loss that went to infinity has none."""
    if value is None or value != value or value in (float("inf"), float("-inf")):
        return None
    return round(value, 6)
