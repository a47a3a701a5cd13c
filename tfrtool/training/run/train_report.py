"""What was decided before a training run, and what came of it."""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from tfrtool.loading.cache import CachePlan
from tfrtool.loading.labels import Task
from tfrtool.loading.options import Rescale
from tfrtool.storage.json_values import Shown
from tfrtool.training.devices.worker_cluster import DeviceFacts
from tfrtool.training.run.train_options import TrainOptions

if TYPE_CHECKING:
    from tfrtool.training.models.exporting import Exported

_DIGITS = {"seconds": 3, "images_per_second": 1, "input_wait_fraction": 4}
"""After the point, in JSON; of all others 6."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainPlan:
    """Settings of a training run, known before its first step.

    Attributes:
        options: options of the run.
        devices: devices and workers.
        cache: cache that was chosen, with the reason.
        rescale: how pixel values are rescaled.
        image_size: width and height of the input images, in pixels.
        class_names: names of the classes, by class number.
        task: whether an image has exactly one class, or any number of them.
        notes: how unusual images and labels were interpreted, one clause each.
        train_images: number of training images.
        validation_images: number of validation images, 0 without validation.
        trainable_parameters: number of trainable parameters.
        skipped: damage that was skipped, one line each.
        n_skipped: number of skipped records. A line of ``skipped`` may stand for several.
        epochs_before: number of epochs completed before the run was resumed.
        phase: first phase to train: 2 if the run is resumed during fine-tuning, otherwise 1.
        class_weights: weight of each class in the loss. Empty if classes are not weighted.
        warnings: warnings about effort that may be wasted, one sentence each.
    """

    options: TrainOptions
    devices: DeviceFacts
    cache: CachePlan
    rescale: Rescale
    image_size: int
    class_names: tuple[str, ...]
    task: Task = Task.SINGLE
    notes: tuple[str, ...] = ()
    train_images: int
    validation_images: int
    trainable_parameters: int
    skipped: tuple[str, ...] = ()
    n_skipped: int = 0
    epochs_before: int = 0
    phase: int = 1
    class_weights: tuple[float, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochReport:
    """Result of one epoch.

    Attributes:
        epoch: number of the epoch, counted from 1.
        phase: 1, or 2 during fine-tuning.
        seconds: wall time including validation, in seconds.
        images_per_second: training images per second of training, without validation.
        loss: mean cross-entropy over the epoch, while the weights changed.
        accuracy: fraction of images classified correctly over the epoch. With several classes per
            image, the fraction of correct decisions per class, at a threshold of 0.5.
        mean_average_precision: with several classes per image, the mean over classes of how well
            the probabilities rank the images; otherwise None. NaN if it is undefined.
        val_loss: loss on the validation images after the epoch, or None without validation.
        val_accuracy: accuracy on the validation images after the epoch, or None.
        val_mean_average_precision: mean average precision on the validation images, or None.
        input_wait_fraction: fraction of the training time spent waiting for input, 0 to 1.
    """

    epoch: int
    phase: int = 1
    seconds: float
    images_per_second: float
    loss: float
    accuracy: float
    val_loss: float | None = None
    val_accuracy: float | None = None
    input_wait_fraction: float
    mean_average_precision: float | None = None
    val_mean_average_precision: float | None = None

    @property
    def monitored(self) -> float:
        """Value that early stopping monitors: ``val_loss``, or ``loss`` without validation."""
        loss = self.loss if self.val_loss is None else self.val_loss
        return math.inf if math.isnan(loss) else loss

    @property
    def logs(self) -> Mapping[str, float]:
        """Values passed to callbacks, by name, without those that are None."""
        values = {field.name: getattr(self, field.name) for field in fields(self)[2:]}
        return {name: value for name, value in values.items() if value is not None}

    def to_json(self) -> Mapping[str, Any]:
        """Return the object that ``train --json`` prints for an epoch."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.mean_average_precision is None:
            values = {name: values[name] for name in values if not name.endswith("precision")}
        return {
            # A loss that went to infinity is no number of JSON's.
            name: round(value, _DIGITS.get(name, 6))
            if value is not None and math.isfinite(value)
            else None
            for name, value in values.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainReport(Shown):
    """Result of a training run.

    Attributes:
        plan: settings of the run.
        epochs: result of each epoch, including those before the run was resumed.
        seconds: wall time from opening the dataset to saving the model, plus the epochs before the
            run was resumed, in seconds.
        best_epoch: epoch whose weights the model has, with early stopping; otherwise None.
        stopped_early: whether fewer epochs were trained than requested.
        exported: exported forms of the model.
        naive: run with the recipe "naive" in float32, or None without a comparison.
        notebook: run with the recipe "notebook", or None without a comparison.
        notebook_skipped: why the recipe "notebook" was skipped.
        again: the other rounds of this run in a comparison.
        cpu_seconds: CPU time over all cores, in seconds. None without a comparison.
        other_cores: mean number of cores that other programs used during a comparison. None if
            unknown.
        memory_bytes: peak memory growth of the process during a comparison, without TensorFlow's
            libraries. None if unknown.
    """

    plan: TrainPlan
    epochs: tuple[EpochReport, ...]
    seconds: float
    best_epoch: int | None = None
    stopped_early: bool = False
    naive: "TrainReport | None" = None
    exported: "tuple[Exported, ...]" = ()
    notebook: "TrainReport | None" = None
    notebook_skipped: str = ""
    again: "tuple[TrainReport, ...]" = ()
    cpu_seconds: float | None = None
    memory_bytes: int | None = None
    other_cores: float | None = None

    @property
    def speedup(self) -> float:
        """How many times faster than the naive recipe, from opening the dataset to the saved model.

        The median over all rounds of the comparison. NaN without a comparison.
        """
        return self.ratios(self.naive, "seconds")[1] if self.naive else math.nan

    def ratios(self, other: "TrainReport", name: str) -> tuple[float, float, float]:
        """Return how many times as long another recipe took, round by round.

        Args:
            other: report of the other recipe.
            name: "seconds" or "cpu_seconds".

        Returns:
            The minimum, median and maximum of the ratio.
        """
        pairs = zip((other, *other.again), (self, *self.again), strict=True)
        found = [(getattr(one, name) or math.nan) / getattr(ours, name) for one, ours in pairs]
        return min(found), statistics.median(found), max(found)

    def _each(self, name: str) -> list[float]:
        """Return a number of each round, where it is known."""
        numbers = [getattr(one, name) for one in (self, *self.again)]
        return [number for number in numbers if number is not None]

    def median_of(self, name: str) -> float | None:
        """Return the median over all rounds of a value, or None if it is unknown.

        Args:
            name: "seconds", "cpu_seconds" or "other_cores".
        """
        numbers = self._each(name)
        return statistics.median(numbers) if numbers else None

    @property
    def runs(self) -> "tuple[TrainReport, ...]":
        """All runs of the comparison; tfrtool's recipe is last."""
        return tuple(run for run in (self.naive, self.notebook, self) if run is not None)

    @property
    def input_wait_fraction(self) -> float:
        """Fraction of the training time of all epochs spent waiting for input, 0 to 1."""
        seconds = [self.plan.train_images / one.images_per_second for one in self.epochs]
        waited = zip(seconds, self.epochs, strict=True)
        return sum(one * epoch.input_wait_fraction for one, epoch in waited) / sum(seconds)

    def costs(self) -> Mapping[str, Any]:
        """Return the compared values of this run, for JSON."""
        last, cpu = self.epochs[-1].to_json(), self.median_of("cpu_seconds")
        seconds, others = self.median_of("seconds") or self.seconds, self.median_of("other_cores")
        return {
            "recipe": self.plan.options.recipe.value,
            "cache": self.plan.cache.cache.value,
            "precision": self.plan.options.precision.value,
            "seconds": round(seconds, 3),
            "cpu_seconds": None if cpu is None else round(cpu, 3),
            "seconds_each": [round(one, 3) for one in self._each("seconds")],
            "cpu_seconds_each": [round(one, 3) for one in self._each("cpu_seconds")],
            "other_cores": None if others is None else round(others, 2),
            "memory_bytes": self.memory_bytes,
            "images_per_second": round(self.plan.train_images * len(self.epochs) / seconds, 1),
            "input_wait_fraction": round(self.input_wait_fraction, 4),
            "epochs": len(self.epochs),
            **{name: last[name] for name in ("loss", "accuracy", "val_loss", "val_accuracy")},
        }

    def to_json(self) -> Mapping[str, Any]:
        """Return the last object that ``train --json`` prints."""
        plan, options = self.plan, self.plan.options
        data: dict[str, Any] = {
            "model": options.model,
            "cache": plan.cache.cache.value,
            "recipe": options.recipe.value,
            "seconds": round(self.seconds, 3),
            "epochs": len(self.epochs),
            "epochs_before": plan.epochs_before,
            "best_epoch": self.best_epoch,
            "stopped_early": self.stopped_early,
            "cache_reason": plan.cache.reason,
            "image_size": plan.image_size,
            "task": plan.task.value,
            "forms": list(plan.notes),
            "train_images": plan.train_images,
            "validation_images": plan.validation_images,
            "precision": options.precision.value,
            "skipped": plan.n_skipped,
            "fine_tune": None if options.fine_tune is None else str(options.fine_tune),
            "class_weights": {
                name: round(weight, 6)
                for name, weight in zip(plan.class_names, plan.class_weights, strict=False)
            }
            or None,
            "warnings": list(plan.warnings),
            "strategy": plan.devices.strategy.value,
            "workers": plan.devices.workers,
            "replicas": plan.devices.replicas,
        }
        if options.export:
            data["exported"] = {
                one.kind.value: {"path": str(one.path), "difference": one.difference}
                for one in self.exported
            }
        if self.naive is not None:
            data["naive_seconds"] = round(self.naive.median_of("seconds") or math.nan, 3)
            data["speedup"] = round(self.speedup, 3)
            data["ratios"] = {
                other.plan.options.recipe.value: {
                    name: dict(
                        zip(
                            ("least", "median", "most"),
                            (round(one, 3) for one in self.ratios(other, name)),
                            strict=True,
                        )
                    )
                    for name in ("cpu_seconds", "seconds")
                }
                for other in self.runs[:-1]
            }
            data["runs"] = [run.costs() for run in self.runs]
        if self.notebook is not None:
            data["notebook_seconds"] = round(self.notebook.median_of("seconds") or math.nan, 3)
        if self.notebook_skipped:
            data["notebook_skipped"] = self.notebook_skipped
        return data
