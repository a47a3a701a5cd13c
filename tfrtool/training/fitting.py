"""Keras' ``fit``, and callbacks: how long steps wait for input, TensorBoard's numbers, a trace."""

import time
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import keras
import tensorflow as tf

from tfrtool.errors import DatasetError
from tfrtool.loading.labels import Task
from tfrtool.training.scores import MEAN_AVERAGE_PRECISION, EpochScores
from tfrtool.training.tasks import TASKS

_LABELS, _SCORES = "_labels", "_scores"


class EpochMeter:
    """The time that steps of an epoch wait for input, and multi-label scores."""

    def __init__(self, images: list[int], task: Task) -> None:
        """Measure training, and validation if ``images`` has a second number."""
        self._images, self._is_ranked = images, TASKS[task].is_ranked
        self.begin_epoch()

    def begin_epoch(self) -> None:
        """Forget the epoch before."""
        self.start, self.waited = time.perf_counter(), 0.0
        self.scores = [EpochScores(count) for count in self._images] if self._is_ranked else []

    def batches(self, iterator: Iterator[Any]) -> Iterator[Any]:
        """Yield the batches of an iterator."""
        while True:
            before = time.perf_counter()
            batch = next(iterator, None)
            self.waited += time.perf_counter() - before
            if batch is None:
                return
            yield batch

    def take(self, iterator: Iterator[Any]) -> Any:
        """Return the next batch of an iterator."""
        for batch in self.batches(iterator):
            return batch
        raise DatasetError("the split has fewer records than counted")

    def figures(self) -> Mapping[str, float]:
        """Return the figures of the epoch that Keras doesn't know."""
        seconds = time.perf_counter() - self.start
        prefixes = zip(("", "val_"), self.scores, strict=False)
        return {
            "seconds": seconds,
            "images_per_second": sum(self._images) / seconds,
            "input_wait_fraction": min(self.waited / seconds, 1.0),
            **{f"{prefix}{MEAN_AVERAGE_PRECISION}": one.mean() for prefix, one in prefixes},
        }


class MeasuredModel(keras.Model):  # type: ignore[misc]  # keras has no types
    """A functional model whose ``fit`` uses a `EpochMeter`."""

    meter: EpochMeter
    train_function: Any
    test_function: Any

    def make_train_function(self, force: bool = False) -> None:
        """Make what ``fit`` calls for each step."""
        if force or self.train_function is None:
            self.train_function = self._measured(self.train_step, 0)

    def make_test_function(self, force: bool = False) -> None:
        """Make what ``fit`` calls for each validation step."""
        if force or self.test_function is None:
            self.test_function = self._measured(self.test_step, 1)

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Return a step's metrics, and what mean average precision needs."""
        found = super().compute_metrics(x, y, y_pred, sample_weight)
        return {**found, _LABELS: y, _SCORES: y_pred} if self.meter.scores else found

    def _measured(self, step: Callable[[Any], Any], part: int) -> Callable[[Iterator[Any]], Any]:
        function: Any = None
        strategy = tf.distribute.get_strategy()

        def distributed(batch: Any) -> dict[str, Any]:
            logs = strategy.run(step, (batch,))
            names = {_LABELS, _SCORES} & logs.keys()
            parts = {name: strategy.experimental_local_results(logs[name]) for name in names}
            joined = {name: tf.concat(values, 0) for name, values in parts.items()}
            return {**self.get_metrics_result(), **joined}

        def run(iterator: Any) -> Any:
            nonlocal function
            batch = self.meter.take(iterator)
            if function is None:
                # Of any batch size: the last batch of an epoch needs no graph of its own.
                signature = [iterator.element_spec]
                function = tf.function(distributed, input_signature=signature, autograph=False)
            logs = function(batch)
            if self.meter.scores:
                self.meter.scores[part].add(logs.pop(_LABELS), logs.pop(_SCORES))
            return logs

        return run


def take_compile_arguments(model: Any) -> Mapping[str, Any]:
    """Return the arguments with which a user compiled a model, if any, and leave it uncompiled.

    Otherwise, a model that it is part of would be saved with its loss and the optimizer's state.
    """
    config = getattr(model, "_compile_config", None)  # the public one has functions as text only
    if config is None or not model.compiled:
        return {}
    model.compiled, model.optimizer = False, None
    return dict(config.config)


def needs_vectors(compiled: Mapping[str, Any], units: int) -> bool:
    """Return whether a compiled loss of some outputs takes one-hot labels, as Keras' losses do."""
    loss = compiled.get("loss")
    name = loss if isinstance(loss, str) else getattr(loss, "name", None) or loss_name(loss)
    return loss is not None and units > 1 and "sparse" not in name.lower()


def loss_name(loss: Any) -> str:
    """Return the name of a loss: of its class, of a function, or the text that stands for it."""
    return loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)


def compile_model(
    model: Any,
    optimizer: Any,
    task: Task,
    smoothing: float = 0.0,
    compiled: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Compile a model with a user's loss and metrics, or with those of its task."""
    if compiled.get("loss") is not None:
        names = ("loss", "loss_weights", "metrics", "weighted_metrics")
        model.compile(optimizer, **{name: compiled[name] for name in names})
        return
    kind = TASKS[task]

    def loss(labels: Any, outputs: Any) -> Any:
        return kind.losses(labels, outputs, smoothing)

    model.compile(optimizer, loss, metrics=kind.metrics())
