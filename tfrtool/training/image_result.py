"""What a model predicts for one image of a dataset, and how wrong it is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfrtool.loading.labels import Task
from tfrtool.storage.json_values import to_json_values
from tfrtool.storage.remote_path import AnyPath


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageResult:
    """Prediction for one image.

    Attributes:
        shard: path of its shard.
        record: number of its record, from 0; None if damage before it was skipped.
        labels: true classes, one or more.
        predicted: the most probable class, or all with a probability of at least 0.5.
        probabilities: of these classes, 0 to 1.
        loss: cross-entropy in nats, with several classes the mean; for regression, the mean squared
            error.
        value: for regression, the true number, or several by name; otherwise None.
        predicted_value: for regression, the predicted number, or several by name; otherwise None.
    """

    shard: AnyPath
    record: int | None
    labels: tuple[str, ...]
    predicted: tuple[str, ...]
    probabilities: Mapping[str, float]
    loss: float
    value: float | Mapping[str, float] | None = None
    predicted_value: float | Mapping[str, float] | None = None

    def to_json(self, task: Task) -> Mapping[str, Any]:
        """Return a line of predictions.jsonl."""
        if task is not Task.SINGLE:
            values: dict[str, Any] = rounded_values(to_json_values(self))
            several = ("labels", "predicted", "probabilities")
            for name in several if task is Task.REGRESSION else ("value", "predicted_value"):
                del values[name]
            return values
        (label,), (predicted,) = self.labels, self.predicted
        return {
            "shard": str(self.shard),
            "record": self.record,
            "label": label,
            "predicted": predicted,
            "probability": rounded_values(self.probabilities[predicted]),
            "label_probability": rounded_values(self.probabilities[label]),
        }


def rounded_values(value: Any) -> Any:
    """Return a JSON value with six decimals."""
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        return {name: rounded_values(one) for name, one in value.items()}
    return [rounded_values(one) for one in value] if isinstance(value, list) else value
