"""Training on several devices of a machine."""

import functools
import math
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from tfrtool.errors import UsageError, reason_of
from tfrtool.loading.tensors import Batch, Tensor
from tfrtool.training.fitting import MeasuredModel
from tfrtool.training.train_options import ONE_MACHINE, SEVERAL_MACHINES, Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """The devices of a run, which take each step together."""

    kind: Strategy
    strategy: Any  # variables are made in its ``scope()``

    @property
    def replicas(self) -> int:
        """Number of devices."""
        return int(self.strategy.num_replicas_in_sync)

    @property
    def several(self) -> bool:
        """Whether a strategy is used, even if it has one device."""
        return self.kind != "one"

    def check_batch_size(self, batch_size: int) -> None:
        """Raise a `UsageError` if a batch can't be divided among the devices."""
        if batch_size < self.replicas:
            raise UsageError(
                f"--batch-size must be at least {self.replicas}, an image per device, "
                f"got {batch_size}"
            )


def open_devices(kind: Strategy) -> Devices:
    """Open the devices of a strategy, before anything else is done with TensorFlow."""
    if kind == "auto":
        _check_alone()
        kind = "mirrored" if len(tf.config.list_physical_devices("GPU")) > 1 else "one"
    if kind == "one":
        return Devices(kind=kind, strategy=tf.distribute.get_strategy())
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
    return Devices(kind="mirrored", strategy=strategy)


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
