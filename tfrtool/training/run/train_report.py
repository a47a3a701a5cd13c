"""What was decided before a training run, and what came of it."""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from tfrtool.loading.cache.cache_plan import CachePlan
from tfrtool.loading.dataset.label_form import Task
from tfrtool.loading.pipeline.load_options import Rescale
from tfrtool.storage.plain import Shown
from tfrtool.training.devices.worker_cluster import DeviceFacts
from tfrtool.training.run.train_options import TrainOptions

if TYPE_CHECKING:
    from tfrtool.training.models.exporting import Exported

_DIGITS = {"seconds": 3, "images_per_second": 1, "input_wait_fraction": 4}
"""After the point, in JSON; of all others 6."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainPlan:
    """What is about to be trained, known before the first step: the options, and what they mean."""

    options: TrainOptions
    devices: DeviceFacts
    cache: CachePlan
    rescale: Rescale
    image_size: int  # pixels both ways
    class_names: tuple[str, ...]
    task: Task = Task.SINGLE
    notes: tuple[str, ...] = ()  # what was made of unusual images and labels, a clause each
    train_images: int
    validation_images: int  # 0 where nothing is validated on
    trainable_parameters: int
    skipped: tuple[str, ...] = ()  # damage, a line each
    n_skipped: int = 0  # records; a line may stand for more than one
    epochs_before: int = 0  # of the run that is resumed
    phase: int = 1  # which is trained first: 2 where a run is resumed that fine-tunes already
    class_weights: tuple[float, ...] = ()  # of the loss, by class; none where all count as they are
    warnings: tuple[str, ...] = ()  # of effort that may be wasted, a sentence each


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochReport:
    """One time through the training split.

    Attributes:
        epoch: its number, from 1.
        phase: 1, or 2 where the run fine-tunes.
        seconds: wall time, validation included.
        images_per_second: training images by the wall time of training alone.
        loss: mean cross-entropy over the epoch, while the weights changed.
        accuracy: the share of images whose class was predicted, likewise; where an image may be
            of several classes, the share of right decisions, a class at a time, at 0.5.
        mean_average_precision: where an image may be of several classes, likewise: how well the
            probabilities order the images, the mean over classes. NaN where that can't be told.
        val_loss: after the epoch, on the validation images; None without any.
        val_accuracy: likewise.
        val_mean_average_precision: likewise.
        input_wait_fraction: the share of the training time spent waiting for a batch, 0 to 1.
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
        """What early stopping goes by: val_loss, or loss where nothing is validated."""
        loss = self.loss if self.val_loss is None else self.val_loss
        return math.inf if math.isnan(loss) else loss

    @property
    def logs(self) -> Mapping[str, float]:
        """What callbacks are told: all of it by name, but for what there is none of."""
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
    """A whole run.

    Attributes:
        plan: what was trained.
        epochs: what each epoch brought, those before it was resumed included.
        seconds: wall time from the opening of the dataset to the saved model, and that of the
            epochs before it was resumed.
        best_epoch: whose weights the model has, if there was early stopping; else None.
        stopped_early: whether there were fewer epochs than there should be.
        exported: the model in other forms.
        naive: the same with the naive recipe, in float32; None where nothing was compared.
        notebook: the same with the published one.
        notebook_skipped: why that could not be run.
        again: the same once more, by the other rounds of a comparison.
        cpu_seconds: of all cores, where it was compared.
        other_cores: how many cores other programs kept busy meanwhile, where it was compared; None
            where that is not known.
        memory_bytes: by how much the process grew at its largest, without TensorFlow's libraries,
            where it was compared; None where that is not known.
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
        """How many times faster than the naive run, from the dataset's opening to the model.

        The median of all rounds.
        """
        return self.ratios(self.naive, "seconds")[1] if self.naive else math.nan

    def ratios(self, other: "TrainReport", name: str) -> tuple[float, float, float]:
        """Return how many times as many seconds another recipe took, round by round.

        Args:
            other: its report.
            name: "seconds" or "cpu_seconds".

        Returns:
            The least, the median and the largest ratio.
        """
        pairs = zip((other, *other.again), (self, *self.again), strict=True)
        found = [(getattr(one, name) or math.nan) / getattr(ours, name) for one, ours in pairs]
        return min(found), statistics.median(found), max(found)

    def _each(self, name: str) -> list[float]:
        """Return a number of each round, where it is known."""
        numbers = [getattr(one, name) for one in (self, *self.again)]
        return [number for number in numbers if number is not None]

    def median_of(self, name: str) -> float | None:
        """Return the median of a number of all rounds: seconds, cpu_seconds or other_cores."""
        numbers = self._each(name)
        return statistics.median(numbers) if numbers else None

    @property
    def runs(self) -> "tuple[TrainReport, ...]":
        """All runs that were compared, ours last."""
        return tuple(run for run in (self.naive, self.notebook, self) if run is not None)

    @property
    def input_wait_fraction(self) -> float:
        """The share of the training time of all epochs that was spent waiting for a batch."""
        seconds = [self.plan.train_images / one.images_per_second for one in self.epochs]
        waited = zip(seconds, self.epochs, strict=True)
        return sum(one * epoch.input_wait_fraction for one, epoch in waited) / sum(seconds)

    def costs(self) -> Mapping[str, Any]:
        """Return what is compared of a run, for JSON."""
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

    def _page(self) -> tuple[str, dict[str, Any]]:
        epochs = [epoch.to_json() for epoch in self.epochs]
        return "run", {"heading": self.plan.options.model, "epochs": epochs, "run": self.to_json()}

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
