"""What a model predicts for one image of a dataset, and how wrong it is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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

    @property
    def probability(self) -> float | None:
        """The highest probability of the predicted classes; None without any."""
        return max((self.probabilities[name] for name in self.predicted), default=None)


def rounded_values(value: Any) -> Any:
    """Return a JSON value with six decimals."""
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        return {name: rounded_values(one) for name, one in value.items()}
    return [rounded_values(one) for one in value] if isinstance(value, list) else value
