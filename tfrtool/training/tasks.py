"""What a model predicts: a class, several, or numbers; each task has its head, loss and figures."""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import keras
import numpy as np

from tfrtool.errors import DatasetError, UsageError, printable, some_of
from tfrtool.loading.labels import Task
from tfrtool.page import figure_text
from tfrtool.storage.arguments import option_name
from tfrtool.storage.json_values import to_json_values
from tfrtool.training.tallies import (
    ImageResult,
    MultiLabelTally,
    SingleLabelTally,
    ValueTally,
    named_values,
    rounded_values,
)

if TYPE_CHECKING:
    from tfrtool.loading.dataset_facts import DatasetFacts
    from tfrtool.training.train_options import Outputs, TrainOptions

_NAMES_SHOWN = 10


class _ModelTask:
    """Outputs of a model, and labels that they are compared with."""

    activation: ClassVar[str | None] = None  # of the last layer
    head_name: ClassVar[str] = "value"
    allows_single_output: ClassVar[bool] = False  # for two classes: the probability of the second
    is_ranked: ClassVar[bool] = False  # whether mean average precision is measured
    names_by_default: ClassVar[tuple[str, ...]] = ()  # of outputs
    mistake_figure: ClassVar[str] = "probability"
    left_out: ClassVar[tuple[str, ...]] = ()  # fields of an `ImageResult`
    plan_title: ClassVar[str] = "classes"
    plan_text: ClassVar[str] = "{count} ({names})"

    def head(self, units: int) -> Any:
        """Return a new last layer."""
        activation = "sigmoid" if units == 1 and self.activation else self.activation
        return keras.layers.Dense(units, activation, name=self.head_name, dtype="float32")

    def finish(self, output: Any, *, classes: int, outputs: "Outputs") -> Any:
        """Return probabilities or numbers, from the output of a model's last layer."""
        is_single = self.allows_single_output and output.shape[-1] == 1 and classes == 2
        if outputs == "logits" and self.activation:
            activation = "sigmoid" if is_single else self.activation
            output = keras.layers.Activation(activation, dtype="float32", name="activation")(output)
        return keras.ops.concatenate([1.0 - output, output], axis=-1) if is_single else output

    def plan_line(self, names: Sequence[str]) -> tuple[str, str]:
        """Return what ``train`` prints of the outputs: a title and a text."""
        shown = some_of([*map(printable, names)], _NAMES_SHOWN)
        return self.plan_title, self.plan_text.format(count=len(names), names=shown)

    def result_json(self, result: ImageResult) -> Mapping[str, Any]:
        """Return a line of predictions.jsonl."""
        values = rounded_values(to_json_values(result))
        return {name: value for name, value in values.items() if name not in self.left_out}


class _ClassTask(_ModelTask):
    """A probability for each class."""

    head_name = "probabilities"
    left_out = ("value", "predicted_value")
    least_classes: ClassVar[int]

    def check_training(self, options: "TrainOptions", dataset: "DatasetFacts") -> None:
        """Raise an error if options can't be used, or there are too few classes."""
        del options
        if len(dataset.class_names) < self.least_classes:
            what, found = "a classifier needs at least two classes", ", ".join(dataset.class_names)
            raise DatasetError(what, path=dataset.directory, found=found)

    def output_numbers(self, names: Sequence[str], dataset: "DatasetFacts") -> Any:
        """Return the number of the output for each of a dataset's classes, by their names."""
        numbers = {name: number for number, name in enumerate(names)}
        unknown = [name for name in dataset.class_names if name not in numbers]
        if unknown:
            raise UsageError(
                "the dataset has classes that the model lacks",
                path=dataset.directory,
                expected=some_of(names, 5),
                found=some_of(unknown, 5),
            )
        return np.array([numbers[name] for name in dataset.class_names])

    def label_text(self, label: Any, names: Sequence[str]) -> str:
        """Return what stands below an image: its class, or its share of classes."""
        if not label.shape:
            return names[int(label)]
        shares = [(names[number], label[number]) for number in np.flatnonzero(label).tolist()]
        shown = (name if share == 1 else f"{name} {share:.0%}" for name, share in shares)
        return ", ".join(shown) or "none"

    def check_outputs(self, name: str, outputs: Any) -> None:
        """Raise a `UsageError` if a user's model does not return probabilities."""
        if not ((outputs >= 0).all() and (outputs <= 1).all()):
            raise UsageError(
                f"{name} does not return probabilities",
                expected="numbers from 0 to 1, as from softmax or sigmoid",
                found=f"{outputs.min():.3g} to {outputs.max():.3g}",
                hint="use --outputs logits if its last layer has no activation",
            )

    def figures(self, report: Any, top_k: int) -> list[tuple[str, str]]:
        """Return what ``evaluate`` prints above its tables: names and figures."""
        near, mean = report.top_k_accuracy, report.mean_average_precision
        means = map(figure_text, (report.precision, report.recall, report.f1))
        averages = "macro average: precision {}, recall {}, F1 {}".format(*means)
        return [
            ("accuracy", figure_text(report.accuracy)),
            *([] if near is None else [(f"top-{top_k} accuracy", figure_text(near))]),
            ("loss", f"{report.loss:.4f}"),
            ("AUC", figure_text(report.auc)),
            *([("mean average precision", figure_text(mean))] if self.is_ranked else []),
            ("classes", f"{len(report.classes):,}; {averages}"),
        ]

    def mistake_text(self, result: ImageResult) -> str:
        """Return the `mistake_figure` of an image."""
        return figure_text(result.probability)

    def prediction_fields(self, names: Sequence[str], outputs: Any, top: int) -> dict[str, Any]:
        """Return the fields of a `Prediction`, from a model's outputs for an image."""
        order = np.argsort(-outputs, kind="stable")[:top]
        return {"classes": {names[number]: float(outputs[number]) for number in order}}

    def prediction_json(self, prediction: Any) -> dict[str, Any]:
        """Return what ``predict --json`` prints of a prediction."""
        classes = {name: round(value, 6) for name, value in prediction.classes.items()}
        probability = next(iter(classes.values()), None)
        return {"label": prediction.label, "probability": probability, "classes": classes}

    def prediction_cells(self, prediction: Any, width: int) -> list[str]:
        """Return what ``predict`` prints of a prediction, in columns of a width."""
        found = prediction.classes.items()
        return [f"{printable(name):{width}}  {probability:.4f}" for name, probability in found]


class SingleLabel(_ClassTask):
    """An image has exactly one class."""

    activation, least_classes, allows_single_output = "softmax", 2, True
    tally = SingleLabelTally

    def losses(self, labels: Any, scores: Any, smoothing: float = 0.0) -> Any:
        """Return the loss of each image; labels are class numbers, or float32 [n, classes]."""
        vectors = len(labels.shape) == 2
        if not (smoothing or vectors):
            return keras.losses.sparse_categorical_crossentropy(labels, scores)
        one_hot = labels if vectors else keras.ops.one_hot(labels, scores.shape[-1])
        return keras.losses.categorical_crossentropy(one_hot, scores, label_smoothing=smoothing)

    def metrics(self) -> list[Any]:
        """Return the metrics of an epoch."""
        return [keras.metrics.MeanMetricWrapper(_are_right, name="accuracy")]

    def result_json(self, result: ImageResult) -> Mapping[str, Any]:
        """Return a line of predictions.jsonl."""
        (label,), (predicted,) = result.labels, result.predicted
        return {
            "shard": str(result.shard),
            "record": result.record,
            "label": label,
            "predicted": predicted,
            "probability": rounded_values(result.probabilities[predicted]),
            "label_probability": rounded_values(result.probabilities[label]),
        }


class MultiLabel(_ClassTask):
    """An image has any number of classes."""

    activation, least_classes, is_ranked = "sigmoid", 1, True
    tally = MultiLabelTally
    plan_text = "{count} ({names}), multi-label: sigmoid and binary cross-entropy"

    def check_training(self, options: "TrainOptions", dataset: "DatasetFacts") -> None:
        """Raise an error if options can't be used, or there are too few classes."""
        if options.balance_classes:
            raise UsageError("--balance-classes requires one class per image")
        super().check_training(options, dataset)

    def losses(self, labels: Any, scores: Any, smoothing: float = 0.0) -> Any:
        """Return the loss of each image, the mean over the classes."""
        return keras.losses.binary_crossentropy(labels, scores, label_smoothing=smoothing)

    def metrics(self) -> list[Any]:
        """Return the metrics of an epoch."""
        return [keras.metrics.BinaryAccuracy(name="accuracy")]


class Regression(_ModelTask):
    """An image has one or several numbers."""

    names_by_default, mistake_figure = ("value",), "error"
    left_out = ("labels", "predicted", "probabilities")
    plan_title, plan_text = "target", "{names}, regression"
    tally = ValueTally

    def check_training(self, options: "TrainOptions", _: "DatasetFacts") -> None:
        """Raise a `UsageError` for options that need classes."""
        for name in ("head", "outputs", "label_smoothing", "balance_classes"):
            if getattr(options, name):
                raise UsageError(f"{option_name(name)} can't be used with --task regression")

    def losses(self, labels: Any, outputs: Any, _: float = 0.0) -> Any:
        """Return the loss of each image, the mean over the numbers."""
        return keras.losses.mean_squared_error(labels, outputs)

    def metrics(self) -> list[Any]:
        """Return the metrics of an epoch."""
        mae, rmse = keras.metrics.MeanAbsoluteError, keras.metrics.RootMeanSquaredError
        return [mae(name="mae"), rmse(name="rmse")]

    def output_numbers(self, names: Sequence[str], dataset: "DatasetFacts") -> Any:
        """Return the number of the output for each of a dataset's targets.

        A single one may have any name, as may those of a function that decodes records.
        """
        targets = dataset.targets
        if sorted(targets) == sorted(names):
            return np.array([names.index(name) for name in targets])
        if len(targets) != len(names) or (len(targets) > 1 and dataset.decode is None):
            raise UsageError(
                "the numbers in the dataset don't match those that the model predicts",
                path=dataset.directory,
                expected=some_of(names, 5),
                found=some_of(targets, 5),
            )
        return np.arange(len(targets))

    def label_text(self, label: Any, _: Sequence[str]) -> str:
        """Return what stands below an image: its numbers."""
        return ", ".join(f"{number:.6g}" for number in label.reshape(-1))

    def check_outputs(self, name: str, outputs: Any) -> None:
        """Raise a `UsageError` if a user's model does not return finite numbers."""
        if not np.isfinite(outputs).all():
            raise UsageError(f"{name} returns values that are not finite")

    def figures(self, report: Any, _: int) -> list[tuple[str, str]]:
        """Return what ``evaluate`` prints above its tables: names and figures."""
        errors = ("loss", report.loss), ("MAE", report.mae), ("RMSE", report.rmse)
        return [*((name, f"{value:.6g}") for name, value in errors), ("R2", figure_text(report.r2))]

    def mistake_text(self, result: ImageResult) -> str:
        """Return the `mistake_figure` of an image."""
        return f"{math.sqrt(result.loss):.6g}"

    def prediction_fields(self, names: Sequence[str], outputs: Any, _: int) -> dict[str, Any]:
        """Return the fields of a `Prediction`, from a model's outputs for an image."""
        return {"value": named_values(names, outputs)}

    def prediction_json(self, prediction: Any) -> dict[str, Any]:
        """Return what ``predict --json`` prints of a prediction."""
        return {"value": prediction.value}

    def prediction_cells(self, prediction: Any, _: int) -> list[str]:
        """Return what ``predict`` prints of a prediction."""
        if isinstance(prediction.value, Mapping):
            return [f"{printable(name)} {one:.6g}" for name, one in prediction.value.items()]
        return [f"{prediction.value:.6g}"]


TASKS: Mapping[Task, SingleLabel | MultiLabel | Regression] = MappingProxyType(
    {Task.SINGLE: SingleLabel(), Task.MULTI: MultiLabel(), Task.REGRESSION: Regression()}
)


def _are_right(labels: Any, scores: Any) -> Any:
    """Return for each image whether its class has the highest score."""
    classes = labels if len(labels.shape) == 1 else keras.ops.argmax(labels, axis=-1)
    return keras.ops.equal(keras.ops.argmax(scores, axis=-1), keras.ops.cast(classes, "int32"))
