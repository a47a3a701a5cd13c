"""Predictions of a model for records: the lines that ``evaluate`` and ``predict`` write."""

import math
import os
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, NamedTuple

import msgspec

from tfrtool.errors import UsageError, os_errors_as, some_of
from tfrtool.storage.opening import open_regular
from tfrtool.storage.remote_path import AnyPath

LONGEST_LINE = 2**20

_MOST = 2_000_000
"""Predictions that are shown at most."""

_LEAST_PROBABILITY = 1e-7
"""Below it, the loss doesn't grow; it is that of Keras."""

_LONGEST_TEXT, _NAMES = 200, 5


class PredictedLine(msgspec.Struct):
    """A line that ``evaluate`` or ``predict`` wrote; those of ``predict`` have no true label."""

    record: Annotated[int, msgspec.Meta(ge=0, lt=2**60)] | None
    shard: str = ""
    path: str = ""
    label: str | None = None
    labels: list[str] | None = None
    predicted: str | list[str] | None = None
    probability: float | None = None
    label_probability: float | None = None
    loss: float | None = None
    value: Any = None
    predicted_value: Any = None

    @property
    def is_right(self) -> bool:
        """Whether the prediction is the true label."""
        return self.predicted is not None and self.predicted in (self.label, self.labels)


class ShownPrediction(NamedTuple):
    """What pages show of a prediction; None for what the line doesn't have.

    Attributes:
        label: the true label.
        predicted: what the model predicted.
        confidence: the probability of what the model predicted.
        loss: the loss.
        is_right: whether the prediction is the true label.
    """

    label: str | None
    predicted: str
    confidence: float | None
    loss: float | None
    is_right: bool | None

    @classmethod
    def of(cls, line: PredictedLine) -> "ShownPrediction | None":
        """Return what to show of a line; None if nothing was predicted."""
        confidence, loss = _finite(line.probability), _finite(line.loss)
        if line.predicted is not None:
            if loss is None and (probability := _finite(line.label_probability)) is not None:
                loss = -math.log(min(max(probability, _LEAST_PROBABILITY), 1.0))
            label = _text(line.label if line.labels is None else line.labels)
            predicted = _text(line.predicted) or ""
            return cls(label, predicted, confidence, loss, None if label is None else line.is_right)
        if line.predicted_value is not None:
            return cls(_text(line.value), _text(line.predicted_value) or "", None, loss, None)
        text = _text(line.label if line.value is None else line.value)
        return None if text is None else cls(None, text, confidence, loss, None)


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None


def _text(value: Any) -> str | None:
    """Return a class, several classes, or the numbers of a regression, in short."""
    if isinstance(value, list):
        value = some_of([str(one) for one in value], _NAMES) or "none"
    elif isinstance(value, dict):
        value = some_of([f"{name} {_text(one)}" for name, one in value.items()], _NAMES)
    elif isinstance(value, float):
        value = f"{value:.6g}"
    return None if value is None else str(value)[:_LONGEST_TEXT]


class ShardNames:
    """The numbers of shards by what files call them: their paths, or their file names."""

    def __init__(self, shards: Iterable[AnyPath]) -> None:
        self._numbers: dict[str, list[int]] = {}
        for number, shard in enumerate(shards):
            for name in {str(shard), str(shard.absolute()), shard.name}:
                self._numbers.setdefault(name, []).append(number)

    def find(self, name: str) -> list[int]:
        """Return the numbers of the shards of this name."""
        known = self._numbers.get(name)
        return known or self._numbers.get(os.path.abspath(name), [])  # noqa: PTH100 - text


def decode_line(path: AnyPath, location: str, data: bytes) -> PredictedLine:
    """Decode a line; `UsageError` names the file and its location there."""
    try:
        return msgspec.json.decode(data, type=PredictedLine)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        expected = "a line of predictions.jsonl, or of predict --json on shards"
        is_json = isinstance(error, msgspec.ValidationError)
        found = "JSON with other keys or types" if is_json else "text that is not JSON"
        raise UsageError(location, path=path, expected=expected, found=found) from error


def read_predictions(
    path: AnyPath, names: ShardNames
) -> tuple[dict[tuple[int, int], ShownPrediction], int]:
    """Return predictions by shard and record, and how many lines are not for these shards.

    The last one of a record counts.

    Raises:
        UsageError: the file can't be read, a line isn't a prediction, or none is for these shards.
    """
    found, others = dict[tuple[int, int], ShownPrediction](), 0
    for location, data in _lines(path):
        line = decode_line(path, location, data)
        shard = line.shard or line.path
        numbers = names.find(shard)
        if len(numbers) > 1:
            raise UsageError(f"{location}: several shards are named {shard[:200]!r}", path=path)
        prediction = ShownPrediction.of(line)
        if not numbers or line.record is None or prediction is None:
            others += 1
            continue
        found[numbers[0], line.record] = prediction
        if len(found) > _MOST:
            raise UsageError(f"more than {_MOST:,} predictions", path=path)
    if not found:
        raise UsageError(f"none of {others:,} predictions is for these shards", path=path)
    return found, others


def _lines(path: AnyPath) -> Iterator[tuple[str, bytes]]:
    with os_errors_as(UsageError, path), open_regular(path) as file:
        for number, data in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), start=1):
            if data.strip():
                yield f"line {number}", data
