"""Training on several devices and workers: Keras 3's ``fit`` fails under several workers."""

import functools
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from tfrtool.errors import ClusterError, UsageError, reason_of
from tfrtool.loading.labels import Task
from tfrtool.loading.tensors import Batch, Tensor, TfDataset
from tfrtool.training.fitting import MeasuredModel, cross_entropy
from tfrtool.training.train_options import Strategy
from tfrtool.training.worker_cluster import VARIABLE, WorkerCluster, find_workers

_LOST = (
    *(tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.InternalError),
    *(tf.errors.CancelledError, tf.errors.DeadlineExceededError, tf.errors.UnknownError),
    tf.errors.FailedPreconditionError,
)
"""What TensorFlow raises in a worker when another one is gone."""

_plain = tf.autograph.experimental.do_not_convert


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """The devices of a run, which take each step together."""

    kind: Strategy
    strategy: Any  # variables are made in its ``scope()``
    cluster: WorkerCluster | None = None

    @property
    def workers(self) -> int:
        """Number of processes."""
        return 1 if self.cluster is None else len(self.cluster.names)

    @property
    def number(self) -> int:
        """Number of this process; process 0, the chief, writes and reports."""
        return 0 if self.cluster is None else self.cluster.own

    @property
    def replicas(self) -> int:
        """Number of devices in all processes."""
        return int(self.strategy.num_replicas_in_sync)

    @property
    def several(self) -> bool:
        """Whether a strategy is used, even if it has one device."""
        return self.kind != "one"

    def check_batch_size(self, batch_size: int, images: Sequence[int]) -> None:
        """Raise a `UsageError` if images can't be divided among the devices."""
        if min(images) < self.workers or batch_size < self.replicas or batch_size % self.workers:
            multiple = f" that is a multiple of {self.workers}" if self.workers > 1 else ""
            raise UsageError(
                f"{min(images)} images can't be distributed in batches of {batch_size}",
                expected=f"at least {self.workers} images, and a batch size of at least "
                f"{self.replicas}{multiple}",
            )

    def distribute(self, make: Callable[[Any], TfDataset]) -> Any:
        """Return an endless iterator over the batches that ``make`` returns for an InputContext."""

        def endless(context: Any) -> TfDataset:
            # Before each step of a finite dataset, TensorFlow would ask all workers whether
            # theirs has ended. All workers have the same number of steps.
            return make(context).repeat()

        return iter(self.strategy.distribute_datasets_from_function(endless))

    def gather(self, value: int) -> list[int]:
        """Return the value that each worker passed; all of them must call this."""
        if self.workers == 1:
            return [value]
        local = self.replicas // self.workers
        passed = self.strategy.experimental_distribute_values_from_function(
            lambda _: tf.constant([value], tf.int64)
        )
        return [int(one) for one in self.strategy.gather(passed, axis=0).numpy()[::local]]

    def check_same(self, digest: int) -> None:
        """Raise a `UsageError` that names workers with another digest of their run."""
        found = self.gather(digest)
        other = [number for number, one in enumerate(found) if one != digest]
        if self.cluster is not None and other:
            names = ", ".join(map(self.cluster.describe, other))
            raise UsageError(
                f"options, dataset or checkpoint differ from those of {names}",
                hint="start all workers with the same options and files",
            )

    @contextmanager
    def naming_lost_workers(self) -> Iterator[None]:
        """Turn TensorFlow's errors about lost workers into one that names them."""
        try:
            yield
        except _LOST as error:
            if self.cluster is None:
                raise
            lost = " and ".join(map(self.cluster.describe, self.cluster.missing()))
            raise ClusterError(
                f"{lost} ended during the run" if lost else f"lost a worker: {reason_of(error)}",
                hint="see its output for the cause; use --resume on all workers to continue from "
                "the checkpoint in --out",
            ) from error


def open_devices(kind: Strategy) -> Devices:
    """Open the devices of a strategy, before anything else is done with TensorFlow.

    Raises:
        UsageError: the devices are missing, or TF_CONFIG is invalid.
        ClusterError: a worker did not connect in time.
    """
    cluster = None if kind in ("one", "mirrored") else find_workers()
    if kind == "auto":
        kind = "mirrored" if len(tf.config.list_physical_devices("GPU")) > 1 else "one"
        if cluster is not None and len(cluster.names) > 1:
            kind = "multi-worker"
    if kind == "one":
        return Devices(kind=kind, strategy=tf.distribute.get_strategy())
    if kind == "mirrored":
        return _open_mirrored()
    if cluster is None:
        raise UsageError(
            f"--strategy multi-worker requires {VARIABLE} in the environment",
            hint="a scheduler such as Kubeflow sets it on each worker",
        )
    return _open_workers(os.environ[VARIABLE], cluster)


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


@functools.cache
def _open_workers(_config: str, cluster: WorkerCluster) -> Devices:
    cluster.wait_for_all()
    try:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    except (RuntimeError, ValueError, tf.errors.OpError) as error:
        raise ClusterError(f"the workers can't start together: {reason_of(error)}") from error
    return Devices(kind="multi-worker", strategy=strategy, cluster=cluster)


class ReplicaModel(MeasuredModel):
    """A model whose ``fit`` takes each step on all devices of a strategy.

    ``fit`` itself fails under several workers (Keras 3.15): it is used as a loop over steps, whose
    batches come from ``iterators``. The loss of a step is the mean over the images of all devices,
    however many each of them has.
    """

    devices: Devices
    task: Task
    smoothing: float
    class_weights: Sequence[float] = ()
    iterators: Sequence[Any]
    stop_training: bool

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
        if self.task is Task.SINGLE:
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
        losses = cross_entropy(targets, scores, self.task, self.smoothing)[:count]
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
        """Return the last callback: it averages statistics, and stops if one worker stops.

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

        def agree(_epoch: int, _logs: Any) -> None:
            if statistics:
                averaged()
            self.stop_training = any(self.devices.gather(int(bool(self.stop_training))))

        return keras.callbacks.LambdaCallback(
            on_test_begin=lambda _logs: averaged() if statistics else None, on_epoch_end=agree
        )
