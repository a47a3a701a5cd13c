"""The training loop: batches, steps and epochs, with Keras' callbacks."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from tfrtool.errors import DatasetError, TrainingError
from tfrtool.loading.labels import Task
from tfrtool.loading.python_calls import plain
from tfrtool.loading.tensors import Batch, Tensor, TfDataset
from tfrtool.training.run.scores import EpochScores
from tfrtool.training.run.train_report import EpochReport

_DECIDED = 0.5
"""The probability above which an image is of a class, where it may be of several."""


class EpochIterator:
    """Gives an epoch's batches, again and again; ``waited`` is how long they were waited for."""

    def __init__(
        self,
        batches: TfDataset,
        images: int,
        steps: int,
        *,
        at_once: bool,
        ahead: bool = False,
    ) -> None:
        """Get ready.

        Where ``batches`` hold all epochs, ``at_once``, one iterator goes through all, and the next
        epoch's first batches are made while the last one is validated. With ``ahead`` the very
        first ones are made from now on, while something else is done.
        """
        self.images, self.steps, self.waited = images, steps, 0.0
        self._batches = batches  # or another iterable of them
        self._at_once = at_once
        self._iterator: Iterator[Batch] | None = None
        if at_once and ahead:
            if isinstance(batches, tf.data.Dataset):  # one that is distributed has it set already
                options = tf.data.Options()
                options.experimental_warm_start = True
                batches = batches.with_options(options)
            self._iterator = iter(batches)

    def epoch(self, on_begin: Callable[[int], None] = lambda _: None) -> Iterator[Batch]:
        """Yield an epoch's batches; ``on_begin`` is called before each is waited for."""
        self.waited = 0.0
        if self._iterator is None or not self._at_once:
            self._iterator = iter(self._batches)
        for step in range(self.steps):
            on_begin(step)
            before = time.perf_counter()
            batch = next(self._iterator, None)
            self.waited += time.perf_counter() - before
            if batch is None:
                raise DatasetError("the split has fewer records than counted")
            yield batch
        # A cache has to be read to its end to be complete, and to be used in the next epoch.
        if not self._at_once and next(self._iterator, None) is not None:
            raise DatasetError("the split has more records than counted")


class Trainer:
    """A classifier with an optimizer and cross-entropy, binary for several classes an image.

    Its steps do what ``fit`` and ``evaluate`` of Keras do. The loop is our own because ``fit`` of
    Keras 3 fails under MultiWorkerMirroredStrategy, and a step of the small cnn takes 1.9 ms where
    ``train_on_batch`` takes 2.7, and the first one 0.2 s instead of 0.6.

    Attributes:
        model: the compiled ``keras.Model`` that callbacks see; it shares the core's layers, and
            the core that is saved has no optimizer in it.
        optimizer: Keras' own.
        train: takes a step, and returns mean loss and accuracy before it, and of how many
            images they are the means, float32 [3]; where an image may be of several classes, also
            labels and probabilities, float32 [n, classes].
        evaluate: returns the same, and changes nothing.
    """

    def __init__(
        self,
        core: Any,
        optimizer: Any,
        head: Any = None,
        task: Task = Task.SINGLE,
        class_weights: Sequence[float] = (),
    ) -> None:
        """Get ready to train a core, or on features its last layer alone, the head.

        With a weight for each class, the loss of an image that is trained on is multiplied by that
        of its class, as ``fit`` does.

        The strategy is that in whose scope this is called; the core is of the same.
        """
        self._multi = task is Task.MULTI
        self._strategy = tf.distribute.get_strategy()
        self.optimizer = optimizer
        self.optimizer.build(core.trainable_variables)
        self.model = keras.Model(core.inputs, core.outputs, name=core.name)
        losses, accuracy = keras.losses.SparseCategoricalCrossentropy, "accuracy"
        labels = tf.TensorSpec([None], tf.int64)
        if self._multi:
            losses, accuracy = (
                keras.losses.BinaryCrossentropy,
                keras.metrics.BinaryAccuracy(name="accuracy"),
            )
            labels = tf.TensorSpec([None, core.outputs[0].shape[-1]], tf.float32)
        self.model.compile(self.optimizer, losses(), metrics=[accuracy])
        self._loss = losses(reduction=None)
        self._class_weights = tuple(class_weights)
        self._trained = core if head is None else head
        shape = (core.inputs[0] if head is None else head.input).shape[1:]
        specs = tf.TensorSpec([None, *shape], tf.float32), labels
        empty = tf.data.Dataset.from_generator(lambda: iter(()), output_signature=specs)
        batches = self._strategy.distribute_datasets_from_function(lambda _: empty)
        # Any number of images: the last batch of an epoch, which is smaller, needs no new graph.
        # And functions of this trainer alone: of one that several share, TensorFlow would say that
        # it is traced too often.
        self.train, self.evaluate = (
            tf.function(
                partial(self._step, training=training),
                input_signature=batches.element_spec,
                autograph=False,
            )
            for training in (True, False)
        )
        self._own_statistics = [
            variable
            for variable in self._trained.non_trainable_variables
            if self._strategy.num_replicas_in_sync > 1 and "float" in variable.dtype
        ]
        average = partial(self._strategy.run, self._average_statistics)
        self._average = tf.function(average, autograph=False)

    def _step(self, inputs: Tensor, labels: Tensor, *, training: bool) -> Tensor:
        """Take a step on all replicas; each has the same figures, which are those of all."""
        step = plain(partial(self._replica_step, training=training))
        found = self._strategy.run(step, (inputs, labels))
        own = self._strategy.experimental_local_results
        return tf.nest.pack_sequence_as(found, [own(one)[0] for one in tf.nest.flatten(found)])

    def _replica_step(self, inputs: Tensor, labels: Tensor, *, training: bool) -> Tensor:
        """Take one replica's part in a step.

        The loss is the sum over its images by the number of all replicas' images, so that the sum
        of their gradients is the gradient of the mean, however many images each of them has.
        """
        replicas, own = self._strategy.num_replicas_in_sync, tf.shape(labels)[0]
        if replicas > 1:
            # Layers make NaN of no image at all. What is added counts for nothing.
            inputs, labels = (_at_least_one(one) for one in (inputs, labels))
        with tf.GradientTape() if training else nullcontext() as tape:
            probabilities = self._trained(inputs, training=training)
            if replicas > 1:
                labels, probabilities = labels[:own], probabilities[:own]
            if self._multi:
                hits = tf.cast(tf.equal(probabilities > _DECIDED, labels > _DECIDED), tf.float32)
                hits = tf.reduce_mean(hits, axis=-1)
            else:
                hits = tf.equal(tf.argmax(probabilities, axis=-1, output_type=tf.int64), labels)
            losses = self._loss(labels, probabilities)
            if training and self._class_weights:
                losses *= tf.gather(tf.constant(self._class_weights, tf.float32), labels)
            sums = [
                tf.reduce_sum(losses),
                tf.reduce_sum(tf.cast(hits, tf.float32)),
                tf.cast(own, tf.float32),
            ]
            loss, images = sums[0], sums[2]
            if replicas > 1:
                context = tf.distribute.get_replica_context()
                # One message for all of them: it takes as long as one for one.
                sums = context.all_reduce(tf.distribute.ReduceOp.SUM, tf.stack(sums))
                images = sums[2]
            # The layers' own losses are what regularizes their weights.
            added = self._trained.losses
            loss = tf.add_n([loss / images, *(one / replicas for one in added)])
            if training:
                loss = self.optimizer.scale_loss(loss)  # of float16; nothing else changes it
        if tape is not None:
            variables = self._trained.trainable_variables
            gradients = tape.gradient(loss, [variable.value for variable in variables])
            if replicas > 1 and isinstance(self.optimizer, keras.optimizers.LossScaleOptimizer):
                # It asks one replica whether its gradients are finite; NaN tells all of all.
                unfit = tf.where(self.optimizer.check_finite(gradients), 0.0, math.nan)
                unfit = context.all_reduce(tf.distribute.ReduceOp.SUM, unfit)
                gradients = [None if one is None else one + unfit for one in gradients]
            self.optimizer.apply(gradients, variables)
        # One tensor, which is fetched at once.
        figures = tf.stack([tf.add_n([sums[0] / images, *added]), sums[1] / images, images])
        if not self._multi:
            return figures
        if replicas > 1:
            labels, probabilities = (context.all_gather(one, 0) for one in (labels, probabilities))
        return figures, labels, probabilities

    def _average_statistics(self) -> None:
        """Make what replicas have by themselves what they have on average.

        BatchNormalization's statistics are of the images that a replica has seen. So they are of
        all images, and evaluation and a resumed run find the same on all replicas.
        """
        context = tf.distribute.get_replica_context()
        for variable in self._own_statistics:
            mean = context.all_reduce(tf.distribute.ReduceOp.MEAN, variable.value + 0)
            variable.value.assign(mean)

    def run_epoch(
        self,
        number: int,
        batches: Sequence[EpochIterator],
        callbacks: Any,
        start: float,
        waited: float = 0.0,
    ) -> EpochReport:
        """Train for one epoch, and validate; callbacks are told what ``fit`` would tell.

        The epoch began at ``start``; before its first step were ``waited`` seconds of waiting.
        """
        training, *validation = batches
        callbacks.on_epoch_begin(number - 1)
        begin, end = callbacks.on_train_batch_begin, callbacks.on_train_batch_end
        trained, scores = _run(self.train, training, begin, end)
        if self._own_statistics:
            self._average()
        seconds = time.perf_counter() - start
        validated: Mapping[str, float] = {}
        for one in validation:
            callbacks.on_test_begin()
            begin, end = callbacks.on_test_batch_begin, callbacks.on_test_batch_end
            validated, some = _run(self.evaluate, one, begin, end)
            validated = {**validated, **some.figures()}
            callbacks.on_test_end(validated)
        report = EpochReport(
            epoch=number,
            phase=1,  # the run knows better
            seconds=time.perf_counter() - start,
            images_per_second=training.images / seconds,
            **trained,
            **scores.figures(),
            **{f"val_{name}": value for name, value in validated.items()},
            input_wait_fraction=min((training.waited + waited) / seconds, 1.0),
        )
        callbacks.on_epoch_end(number - 1, report.logs)
        return report


def _at_least_one(values: Tensor) -> Tensor:
    """Return the same, or zeros for one image where there is none."""
    missing = tf.maximum(1 - tf.shape(values)[:1], 0)
    more = tf.zeros(tf.concat([missing, values.shape[1:]], 0), values.dtype)
    return tf.concat([values, more], 0)


def _run(
    step: Any, batches: EpochIterator, on_begin: Any, on_end: Any
) -> tuple[Mapping[str, float], EpochScores]:
    """Take a step with each batch; return the means over all images, whatever the batches."""
    images, sums, means = 0.0, [0.0, 0.0], {"loss": 0.0, "accuracy": 0.0}
    scores = EpochScores(batches.images)
    for number, (inputs, labels) in enumerate(batches.epoch(on_begin)):
        found = step(inputs, labels)
        if isinstance(found, tuple):
            scores.add(*found[1:])
            found = found[0]
        *figures, count = found.numpy().tolist()
        images += count
        sums = [total + figure * count for total, figure in zip(sums, figures, strict=True)]
        means = {"loss": sums[0] / images, "accuracy": sums[1] / images}
        if not math.isfinite(sums[0]):
            raise TrainingError(f"the loss became {sums[0]} at step {number + 1}")
        on_end(number, means)
    return means, scores
