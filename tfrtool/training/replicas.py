"""Training on several devices of a machine."""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from tfrtool.errors import UsageError, reason_of
from tfrtool.loading.labels import Task
from tfrtool.loading.tensors import Batch, Tensor, TfDataset
from tfrtool.training.fitting import MeasuredModel
from tfrtool.training.tasks import TASKS
from tfrtool.training.train_options import ONE_MACHINE, SEVERAL_MACHINES, Strategy

_plain = tf.autograph.experimental.do_not_convert


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

    def distribute(self, make: Callable[[Any], TfDataset]) -> Any:
        """Return an endless iterator over the batches that ``make`` returns for an InputContext."""

        def endless(context: Any) -> TfDataset:
            # Before each step of a finite dataset, TensorFlow would ask all devices whether
            # theirs has ended.
            return make(context).repeat()

        return iter(self.strategy.distribute_datasets_from_function(endless))


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


class ReplicaModel(MeasuredModel):
    """A model whose ``fit`` takes each step on all devices of a strategy.

    ``fit`` is used as a loop over steps, whose batches come from ``iterators``. The loss of a step
    is the mean over the images of all devices, however many each of them has.
    """

    devices: Devices
    task: Task
    smoothing: float
    class_weights: Sequence[float] = ()
    iterators: Sequence[Any]

    def compile_on(
        self, devices: Devices, optimizer: Any, task: Task, smoothing: float = 0.0
    ) -> None:
        """Compile the model with the loss and metrics of its task, for steps on these devices."""
        self.devices, self.task, self.smoothing = devices, task, smoothing
        self.compile(optimizer)

    def _measured(self, step: Callable[[Any], Any], part: int) -> Callable[[Iterator[Any]], Any]:
        del step
        local = self.devices.strategy.experimental_local_results
        replica_step = _plain(functools.partial(self._replica_step, training=part == 0))

        def distributed(batch: Batch) -> list[Tensor]:
            # Each replica has the same results, which are those of all.
            return [local(one)[0] for one in self.devices.strategy.run(replica_step, batch)]

        iterator = self.iterators[part]
        function = tf.function(distributed, [iterator.element_spec], autograph=False)

        def run(_dummy: Iterator[Any]) -> dict[str, float]:
            figures, *scored = function(self.meter.take(iterator))
            if scored:
                self.meter.scores[part].add(*scored)
            return self.meter.mean(part, *figures.numpy().tolist())

        return run

    def _replica_step(self, inputs: Tensor, labels: Tensor, *, training: bool) -> list[Tensor]:
        """Take a replica's part in a step; return mean loss and accuracy, and number of images."""
        context = tf.distribute.get_replica_context()
        add_up = functools.partial(context.all_reduce, tf.distribute.ReduceOp.SUM)
        with tf.GradientTape() if training else nullcontext() as tape:
            scores, losses, hits = self._score(inputs, labels, training=training)
            penalties = self.losses
            columns = [losses, hits, tf.ones_like(losses)]
            sums = add_up(tf.stack([tf.reduce_sum(one) for one in columns]))  # in one message
            loss = tf.reduce_sum(losses) / sums[2]
            loss += sum(penalties) / self.devices.replicas
            if training:
                loss = self.optimizer.scale_loss(loss)
        if tape is not None:
            variables = self.trainable_variables
            gradients = tape.gradient(loss, [variable.value for variable in variables])
            if isinstance(self.optimizer, keras.optimizers.LossScaleOptimizer):
                # It checks the gradients of one replica: NaN stands for those of the others.
                invalid = add_up(tf.where(self.optimizer.check_finite(gradients), 0.0, math.nan))
                gradients = [None if one is None else one + invalid for one in gradients]
            self.optimizer.apply(gradients, variables)
        means = tf.stack([sums[0] / sums[2] + sum(penalties), sums[1] / sums[2], sums[2]])
        if not TASKS[self.task].is_ranked:
            return [means]
        return [means, *(context.all_gather(one, 0) for one in (labels, scores))]

    def _score(self, inputs: Tensor, labels: Tensor, *, training: bool) -> list[Tensor]:
        """Return the scores, the loss and the accuracy of each image of a replica."""
        count = tf.shape(labels)[0]
        # Layers make NaN of a batch without images. The image that is added counts for nothing.
        missing = tf.maximum(1 - count, 0)
        images, targets = (
            tf.pad(one, [[0, missing], *[[0, 0]] * (len(one.shape) - 1)])
            for one in (inputs, labels)
        )
        scores = self(images, training=training)
        # Keras finds the logits of a layer's output, but not those of a slice: without them,
        # no loss exceeds 16, and a probability of 0 has no gradient.
        losses = TASKS[self.task].losses(targets, scores, self.smoothing)[:count]
        scores = scores[:count]
        classes = labels if len(labels.shape) == 1 else tf.argmax(labels, axis=-1)
        if self.task is Task.MULTI:
            hits = tf.cast(tf.equal(scores > 0.5, labels > 0.5), tf.float32)
            hits = tf.reduce_mean(hits, axis=-1)
        else:
            hits = tf.equal(tf.argmax(scores, axis=-1, output_type=tf.int64), classes)
        if training and self.class_weights:
            losses *= tf.gather(tf.constant(self.class_weights, tf.float32), classes)
        return [scores, losses, tf.cast(hits, tf.float32)]

    def agreeing(self) -> Any:
        """Return a callback that averages statistics.

        BatchNormalization's statistics are of the images of each replica.
        """
        strategy = self.devices.strategy
        statistics = [one for one in self.non_trainable_variables if "float" in one.dtype]

        def average() -> None:
            context = tf.distribute.get_replica_context()
            for variable in statistics:
                mean = context.all_reduce(tf.distribute.ReduceOp.MEAN, variable.value + 0)
                variable.value.assign(mean)

        averaged = tf.function(lambda: strategy.run(average), autograph=False)

        def agree(*_: Any) -> None:
            if statistics:
                averaged()

        return keras.callbacks.LambdaCallback(on_test_begin=agree, on_epoch_end=agree)
