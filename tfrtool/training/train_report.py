"""What was decided before a training run, and its results."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from tfrtool.loading.labels import Task
from tfrtool.loading.options import Cache, Channels, ImageSize, Rescale
from tfrtool.storage.json_values import Shown, to_json_values
from tfrtool.training.scores import MEAN_AVERAGE_PRECISION
from tfrtool.training.train_options import Strategy, TrainOptions

if TYPE_CHECKING:
    from tfrtool.training.exporting import Exported

_DIGITS = {"seconds": 3, "images_per_second": 1, "input_wait_fraction": 4}
"""Decimals in JSON; 6 for all others."""

_NOT_IN_JSON = (
    *("options", "rescale", "scaling_layer", "class_names", "targets"),
    "damage",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainPlan:
    """Settings of a training run, known before its first step.

    Attributes:
        options: options of the run.
        made: how the run is made, as in ``run.json``: dataset, options, versions and host.
        model: name of the model.
        recipe: data loader.
        cache: what is kept between epochs.
        cache_reason: why.
        image_size: size of the input images in pixels: N for N x N, or (width, height).
        channels: 3 for RGB, 1 for gray images.
        rescale: how pixel values are rescaled.
        scaling_layer: name of the layer with which the model itself scales pixel values from 0 to
            255, or "".
        class_names: names of the classes, by class number.
        targets: for regression, names of the numbers that are predicted, in the order of outputs.
        task: whether an image has exactly one class, or any number of them.
        forms: how unusual images and labels were interpreted, one clause each.
        train_images: number of training images.
        validation_images: number of validation images, 0 without validation.
        trainable_parameters: number of trainable parameters.
        precision: numeric type of the layers.
        damage: damage that was skipped, one line each.
        skipped: number of skipped records. A line of ``damage`` may stand for several.
        class_weights: weight of each class in the loss, or None.
        warnings: warnings about effort that may be wasted, one sentence each.
        epochs_before: number of epochs completed before the run was resumed.
        strategy: how several devices are used.
        replicas: number of devices.
    """

    options: TrainOptions = field(repr=False)
    made: Mapping[str, Any]
    model: str
    recipe: str
    cache: Cache
    cache_reason: str
    image_size: ImageSize
    channels: Channels = 3
    rescale: Rescale
    scaling_layer: str = ""
    class_names: tuple[str, ...]
    targets: tuple[str, ...] = ()
    task: Task
    forms: tuple[str, ...]
    train_images: int
    validation_images: int
    trainable_parameters: int
    precision: str
    damage: tuple[str, ...]
    skipped: int
    class_weights: Mapping[str, float] | None
    warnings: tuple[str, ...]
    epochs_before: int
    strategy: Strategy
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochReport:
    """Result of one epoch.

    Attributes:
        epoch: number of the epoch, counted from 1.
        seconds: wall time including validation, in seconds.
        images_per_second: training and validation images per second of that time.
        loss: mean cross-entropy, or loss of a compiled model, over the epoch, while the weights
            changed.
        accuracy: fraction of images classified correctly over the epoch. With several classes per
            image, the fraction of correct decisions per class, at a threshold of 0.5. None if a
            compiled model has other metrics.
        mean_average_precision: with several classes per image, the mean over classes of how well
            the probabilities rank the images; otherwise None. NaN if it is undefined.
        val_loss: loss on the validation images after the epoch, or None without validation.
        val_accuracy: accuracy on the validation images after the epoch, or None.
        val_mean_average_precision: mean average precision on the validation images, or None.
        input_wait_fraction: fraction of the time spent waiting for input, 0 to 1.
        metrics: values of other metrics by name, those of the validation images as ``val_NAME``.
    """

    epoch: int
    seconds: float
    images_per_second: float
    loss: float
    accuracy: float | None = None
    val_loss: float | None = None
    val_accuracy: float | None = None
    input_wait_fraction: float
    mean_average_precision: float | None = None
    val_mean_average_precision: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def scores(self) -> list[str]:
        """Names of the loss and the metrics, without those of the validation images."""
        own = [name for name in self.metrics if not name.startswith("val_")]
        known = ("accuracy", MEAN_AVERAGE_PRECISION)
        return ["loss", *(one for one in known if getattr(self, one) is not None), *own]

    @property
    def monitored(self) -> float:
        """Value that decides the best epoch: ``val_loss``, or ``loss`` without validation."""
        loss = self.loss if self.val_loss is None else self.val_loss
        return math.inf if math.isnan(loss) else loss

    @property
    def logs(self) -> Mapping[str, float]:
        """Values passed to callbacks, by name, without those that are None."""
        values = {one.name: getattr(self, one.name) for one in fields(self)[1:-1]} | self.metrics
        return {name: value for name, value in values.items() if value is not None}

    def to_json(self) -> Mapping[str, Any]:
        """Return the object that ``train --json`` prints for an epoch."""
        values = to_json_values(self)
        values |= values.pop("metrics")
        for name in ("accuracy", MEAN_AVERAGE_PRECISION):
            if getattr(self, name) is None:
                del values[name], values[f"val_{name}"]
        return {  # JSON has no NaN or infinity
            name: round(one, _DIGITS.get(name, 6))
            if one is not None and math.isfinite(one)
            else None
            for name, one in values.items()
        }


def best_epoch(epochs: Sequence[EpochReport]) -> int:
    """Return the number of the epoch with the lowest `EpochReport.monitored`."""
    return min(epochs, key=lambda epoch: epoch.monitored).epoch


def is_over(epochs: Sequence[EpochReport], options: TrainOptions) -> bool:
    """Return whether all epochs are done, or none was better for long enough."""
    waited = len(epochs) - best_epoch(epochs) if epochs else 0
    return len(epochs) >= options.epochs or waited >= (options.early_stopping or math.inf)


NAIVE, NO_FEATURES = "naive", "no-features"
"""Names of runs in a comparison: the one that others are compared with, and tfrtool's pipeline
without cached features."""

COSTS = ("first_epoch_seconds", "later_epoch_seconds", "seconds", "cpu_seconds")
"""What the runs of a comparison take, for which there are ratios."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRun:
    """Costs and result of a run in a comparison.

    Attributes:
        name: name of the recipe, or "no-features" for tfrtool's with images cached in memory
            in place of features.
        recipe: name of the recipe.
        cache: where its images were cached.
        precision: numeric type of the layers.
        first_epoch_seconds: wall time of the first epoch, median of the rounds.
        later_epoch_seconds: wall time of a later epoch, median of the rounds; None without any.
        seconds: wall time from opening the dataset to the trained model, median of the rounds.
        cpu_seconds: CPU time of the same over all cores, median of the rounds.
        first_epoch_seconds_each: value of each round, as the following.
        later_epoch_seconds_each: median of the later epochs; empty without any.
        seconds_each: wall time.
        cpu_seconds_each: CPU time.
        other_cores: mean number of cores that other programs used, or None if unknown.
        memory_bytes: peak memory growth, without TensorFlow's libraries, or None if unknown.
        images_per_second: training and validation images of all epochs per second of their time.
        input_wait_fraction: fraction of the time of all epochs spent waiting for input.
        epochs: number of epochs.
        loss: of the last epoch, as the following.
        accuracy: training accuracy.
        val_loss: validation loss, or None.
        val_accuracy: validation accuracy, or None.
    """

    name: str
    recipe: str
    cache: str
    precision: str
    first_epoch_seconds: float
    later_epoch_seconds: float | None
    seconds: float
    cpu_seconds: float
    first_epoch_seconds_each: tuple[float, ...]
    later_epoch_seconds_each: tuple[float, ...]
    seconds_each: tuple[float, ...]
    cpu_seconds_each: tuple[float, ...]
    other_cores: float | None
    memory_bytes: int | None
    images_per_second: float
    input_wait_fraction: float
    epochs: int
    loss: float | None
    accuracy: float | None
    val_loss: float | None
    val_accuracy: float | None

    def ratios(self, other: "ComparedRun", name: str) -> dict[str, float]:
        """Return how many times as much as another run this one took, of one of the `COSTS`.

        The keys are "least", "median" and "most" of all rounds; there are none for later epochs
        without any.
        """
        pairs = zip(getattr(self, f"{name}_each"), getattr(other, f"{name}_each"), strict=True)
        ratios = sorted(round(one / max(its, 0.001), 3) for one, its in pairs)
        if not ratios:
            return {}
        return {"least": ratios[0], "median": statistics.median(ratios), "most": ratios[-1]}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainReport(Shown):
    """Result of a training run.

    Attributes:
        plan: settings of the run.
        epochs: result of each epoch, including those before the run was resumed.
        seconds: wall time from opening the dataset to saving the model, plus the epochs before the
            run was resumed, in seconds.
        best_epoch: epoch with the lowest ``val_loss``, or ``loss`` without validation. Its model is
            saved as ``model.best.keras``.
        saved_epoch: epoch whose weights the model has, and that is saved as ``model.keras``: the
            best one with early stopping, otherwise the last.
        stopped_early: whether fewer epochs were trained than requested.
        exported: exported forms of the model.
        compared: the runs of a comparison, naive first and the caller's last; empty without one.
        compare_skipped: why other runs were skipped, by name.
    """

    plan: TrainPlan
    epochs: tuple[EpochReport, ...]
    seconds: float
    best_epoch: int
    saved_epoch: int
    stopped_early: bool = False
    exported: "tuple[Exported, ...]" = ()
    compared: tuple[ComparedRun, ...] = ()
    compare_skipped: Mapping[str, str] = field(default_factory=dict)

    @property
    def speedup(self) -> float:
        """How many times faster than the naive recipe, or NaN without a comparison."""
        return (
            self.ratios[self.compared[-1].name]["seconds"]["median"] if self.compared else math.nan
        )

    @property
    def ratios(self) -> dict[str, dict[str, dict[str, float]]]:
        """Costs of the naive run divided by those of the others, by name and cost."""
        naive, *others = self.compared
        return {one.name: {cost: naive.ratios(one, cost) for cost in COSTS} for one in others}

    @property
    def gains(self) -> dict[str, float]:
        """What makes the run faster than the naive one: "pipeline" and "feature_cache", or nothing.

        They are factors of the wall time, whose product is about the whole gain.
        """
        by_name = {one.name: one for one in self.compared}
        if NO_FEATURES not in by_name:
            return {}
        plain = by_name[NO_FEATURES]
        factors = (self.compared[0], plain), (plain, self.compared[-1])
        names = ("pipeline", "feature_cache")
        return {
            name: slow.ratios(fast, "seconds")["median"]
            for name, (slow, fast) in zip(names, factors, strict=True)
        }

    @property
    def input_wait_fraction(self) -> float:
        """Fraction of the time of all epochs spent waiting for input, 0 to 1."""
        waited = sum(one.seconds * one.input_wait_fraction for one in self.epochs)
        return waited / sum(one.seconds for one in self.epochs)

    def to_json(self) -> Mapping[str, Any]:
        """Return the last object that ``train --json`` prints."""
        names = [one.name for one in fields(self.plan) if one.name not in _NOT_IN_JSON]
        data: dict[str, Any] = {
            **{name: to_json_values(getattr(self.plan, name)) for name in names},
            "epochs": len(self.epochs),
            "seconds": round(self.seconds, 3),
            "best_epoch": self.best_epoch,
            "saved_epoch": self.saved_epoch,
            "stopped_early": self.stopped_early,
        }
        if self.plan.targets:
            data["targets"] = list(self.plan.targets)
        if self.exported:
            data["exported"] = {
                one.kind: {"path": str(one.path), "difference": one.difference}
                for one in self.exported
            }
        if self.compared:
            data |= {"speedup": self.speedup, "gains": self.gains, "ratios": self.ratios}
            data["runs"] = to_json_values(self.compared)
            data["compare_skipped"] = dict(self.compare_skipped)
        return data
