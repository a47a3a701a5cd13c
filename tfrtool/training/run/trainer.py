"""The training loop: step after step and epoch after epoch, with Keras' callbacks."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from tfrtool.loading.pipeline.tensors import Batch, Tensor
from tfrtool.training.run.epoch_iterator import EpochIterator
from tfrtool.training.run.train_report import EpochReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Seconds that count as an epoch's, before its first step, and those of them in waiting."""

    seconds: float = 0.0
    waited: float = 0.0


class Score:
    """Loss and accuracy over images, whatever the batches."""

    def __init__(self) -> None:
        self.images, self._loss, self._hits = 0, 0.0, 0.0

    def add(self, figures: Tensor, labels: Tensor) -> Mapping[str, float]:
        """Add a batch, and return the means so far."""
        count = int(labels.shape[0])
        loss, accuracy = figures.numpy().tolist()
        self.images += count
        self._loss += loss * count
        self._hits += accuracy * count
        return self.means

    @property
    def means(self) -> Mapping[str, float]:
        """The mean cross-entropy, and the share of images whose class was predicted."""
        return {"loss": self._loss / self.images, "accuracy": self._hits / self.images}


class Trainer:
    """A classifier with Adam and cross-entropy.

    Its steps do what ``fit`` and ``evaluate`` of Keras do. The loop is our own because ``fit`` of
    Keras 3 fails under MultiWorkerMirroredStrategy, and a step of the small cnn takes 1.9 ms where
    ``train_on_batch`` takes 2.7, and the first one 0.2 s instead of 0.6.

    Attributes:
        model: the compiled ``keras.Model`` that callbacks see; it shares the core's layers, and
            the core that is saved has no optimizer in it.
        optimizer: Adam.
    """

    def __init__(self, core: Any, rate: float, head: Any = None) -> None:
        """Get ready to train a core, or on features its last layer alone, the head."""
        self.optimizer = keras.optimizers.Adam(rate)
        self.optimizer.build(core.trainable_variables)
        self._loss = keras.losses.SparseCategoricalCrossentropy()
        self.model = keras.Model(core.inputs, core.outputs, name=core.name)
        self.model.compile(self.optimizer, self._loss, metrics=["accuracy"])
        self._trained = core if head is None else head
        shape = core.inputs[0].shape[1:] if head is None else head.input.shape[1:]
        # Any number of images: the last batch of an epoch, which is smaller, needs no new graph.
        # And functions of this trainer alone: of one that several share, TensorFlow would say that
        # it is traced too often.
        self.train, self.evaluate = (
            tf.function(
                lambda inputs, labels, step=step: step(inputs, labels),
                input_signature=[
                    tf.TensorSpec([None, *shape], tf.float32),
                    tf.TensorSpec([None], tf.int64),
                ],
                autograph=False,
            )
            for step in (self._train, self._evaluate)
        )

    def _train(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """Take one step; return mean loss and accuracy before it, float32 [2]."""
        variables = self._trained.trainable_variables
        with tf.GradientTape() as tape:
            probabilities = self._trained(inputs, training=True)
            loss = self._total(labels, probabilities)
        gradients = tape.gradient(loss, [variable.value for variable in variables])
        self.optimizer.apply(gradients, variables)
        return _figures(loss, labels, probabilities)

    def _evaluate(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """Return mean loss and accuracy, float32 [2], and change nothing."""
        probabilities = self._trained(inputs, training=False)
        return _figures(self._total(labels, probabilities), labels, probabilities)

    def _total(self, labels: Tensor, probabilities: Tensor) -> Tensor:
        # The layers' own losses are what regularizes their weights.
        return tf.add_n([self._loss(labels, probabilities), *self._trained.losses])

    def run_epoch(
        self,
        number: int,
        batches: tuple[EpochIterator, EpochIterator | None],
        callbacks: Any,
        before: Spent,
    ) -> EpochReport:
        """Train for one epoch, and validate; callbacks are told what ``fit`` would tell."""
        start = time.perf_counter()
        training, validation = batches
        callbacks.on_epoch_begin(number - 1)
        score = Score()
        epoch: Any = enumerate(training.epoch(callbacks.on_train_batch_begin))
        for step, (inputs, labels) in epoch:
            callbacks.on_train_batch_end(step, score.add(self.train(inputs, labels), labels))
        trained = time.perf_counter() - start + before.seconds
        validated = {} if validation is None else self._validate(validation, callbacks)
        report = EpochReport(
            epoch=number,
            seconds=time.perf_counter() - start + before.seconds,
            images_per_second=training.images / trained,
            **score.means,
            val_loss=validated.get("loss"),
            val_accuracy=validated.get("accuracy"),
            input_wait_fraction=min((training.waited + before.waited) / trained, 1.0),
        )
        callbacks.on_epoch_end(number - 1, report.logs)
        return report

    def _validate(self, batches: EpochIterator, callbacks: Any) -> Mapping[str, float]:
        score = Score()
        callbacks.on_test_begin()
        batch: Batch
        for step, batch in enumerate(batches.epoch(callbacks.on_test_batch_begin)):
            inputs, labels = batch
            callbacks.on_test_batch_end(step, score.add(self.evaluate(inputs, labels), labels))
        callbacks.on_test_end(score.means)
        return score.means


def _figures(loss: Tensor, labels: Tensor, probabilities: Tensor) -> Tensor:
    """Return mean loss and accuracy as one tensor, which is fetched at once."""
    hits = tf.equal(tf.argmax(probabilities, axis=-1, output_type=tf.int64), labels)
    return tf.stack([loss, tf.reduce_mean(tf.cast(hits, tf.float32))])
