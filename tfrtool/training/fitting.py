"""Keras' ``fit`` on one device or several, and how long its steps wait for input."""

import functools
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import keras
import tensorflow as tf

from tfrtool.errors import DatasetError, UsageError, reason_of
from tfrtool.loading.labels import Task
from tfrtool.loading.tensors import Batch, Tensor
from tfrtool.training.scores import MEAN_AVERAGE_PRECISION, EpochScores
from tfrtool.training.tasks import TASKS
from tfrtool.training.train_options import ONE_MACHINE, SEVERAL_MACHINES, Strategy

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """The devices of a run, which take each step together."""

    kind: Strategy
    strategy: Any  # variables are made in its ``scope()``
    replicas: int  # how many devices
    several: bool  # whether a strategy is used, even if it has one device


def open_devices(kind: Strategy) -> Devices:
    """Open the devices of a strategy, before anything else is done with TensorFlow."""
    if kind == "auto":
        if "TF_CONFIG" in os.environ:
            _check_alone()
        kind = "mirrored" if len(tf.config.list_physical_devices("GPU")) > 1 else "one"
    if kind == "one":
        strategy = tf.distribute.get_strategy()
        replicas = strategy.num_replicas_in_sync
        return Devices(kind=kind, strategy=strategy, replicas=replicas, several=False)
    return _open_mirrored()


def _check_alone() -> None:
    """Raise a `UsageError` if TF_CONFIG has other workers: each would train all by itself."""
    try:
        cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver().cluster_spec()
        count = sum(map(cluster.num_tasks, cluster.jobs))
    except (ValueError, TypeError, AttributeError) as error:
        raise UsageError(f"TF_CONFIG is invalid: {reason_of(error)}") from error
    if count > 1:
        hint = f"use --strategy one to train on this machine, or {SEVERAL_MACHINES}"
        raise UsageError(ONE_MACHINE, found=f"{count} workers in TF_CONFIG", hint=hint)


# Once per process: a second strategy would receive the collectives of the first.
@functools.cache
def _open_mirrored() -> Devices:
    devices = tf.config.list_logical_devices("GPU")
    processors = tf.config.list_logical_devices("CPU")
    if not devices and len(processors) > 1:  # the program has divided the CPU
        devices = processors
    if not devices:
        raise UsageError(
            "--strategy mirrored requires a GPU",
            found=f"{len(processors)} CPU",
            hint="use --strategy one to train on it",
        )
    strategy = tf.distribute.MirroredStrategy([device.name for device in devices])
    replicas = strategy.num_replicas_in_sync
    return Devices(kind="mirrored", strategy=strategy, replicas=replicas, several=True)


class MirroredModel(MeasuredModel):
    """A model that is trained on several devices at once, so that all images count equally.

    Each device takes a part of a batch. In Keras' own steps, all devices count equally. Of the last
    batch of an epoch, they may have different numbers of images, or none.
    """

    strategy: Any

    def compile(self, *arguments: Any, **words: Any) -> None:
        """Compile the model for the strategy in whose scope this is called."""
        self.strategy = tf.distribute.get_strategy()
        super().compile(*arguments, **words)

    def fit(self, *arguments: Any, **words: Any) -> Any:
        """Train as ``fit`` does; BatchNormalization normalizes a batch, and not its parts."""
        layers = [
            layer
            for layer in self._flatten_layers()
            if isinstance(layer, keras.layers.BatchNormalization) and not layer.synchronized
        ]
        for layer in layers:
            layer.synchronized = True
        try:
            with self.strategy.scope():  # in which ``fit`` divides batches
                return super().fit(*arguments, **words)
        finally:
            for layer in layers:
                layer.synchronized = False

    def train_step(self, data: Batch) -> Any:
        """Take a device's part in a training step."""
        with tf.GradientTape() as tape:
            loss, count, logs = self._measure(data, training=True)
            loss = self.optimizer.scale_loss(loss * count / _add_up(count))
        variables = self.trainable_variables
        gradients = tape.gradient(loss, variables)
        if isinstance(self.optimizer, keras.optimizers.LossScaleOptimizer):
            # It checks the gradients of one device: NaN stands for those of the others.
            invalid = _add_up(tf.where(self.optimizer.check_finite(gradients), 0.0, math.nan))
            gradients = [None if one is None else one + invalid for one in gradients]
        self.optimizer.apply(gradients, variables)
        return logs

    def test_step(self, data: Batch) -> Any:
        """Take a device's part in a validation step."""
        return self._measure(data, training=False)[-1]

    def _measure(self, data: Batch, *, training: bool) -> tuple[Tensor, Tensor, Any]:
        """Return the mean loss of a device's images, their number, and metrics."""
        count = tf.shape(data[0])[0]
        images, labels, *weights = map(_at_least_one, data)
        scores = self(images, training=training)
        loss = self.compute_loss(images, labels, scores, *weights, training=training)
        loss *= tf.distribute.get_strategy().num_replicas_in_sync  # by which Keras divides it
        self.metrics[0].update_state(loss, sample_weight=count)  # the mean loss
        logs = self.compute_metrics(images[:count], labels[:count], scores[:count])
        return loss, tf.cast(count, loss.dtype), logs


def _at_least_one(values: Tensor) -> Tensor:
    """Return a device's images or labels; if there are none, a copy of the first of device 0.

    Some layers fail without images, and others would be disturbed by an image of zeros.
    """
    missing = tf.maximum(1 - tf.shape(values)[0], 0)
    first = tf.pad(values[:1], [[0, missing], *[[0, 0]] * (values.shape.rank - 1)])
    is_first = tf.distribute.get_replica_context().replica_id_in_sync_group == 0
    copied = _add_up(first * tf.cast(is_first, first.dtype))
    return tf.concat([values, copied[:missing]], 0)


def _add_up(value: Tensor) -> Tensor:
    """Return the sum over all devices."""
    context = tf.distribute.get_replica_context()
    return context.all_reduce(tf.distribute.ReduceOp.SUM, value)
