"""A trainer's steps, held against Keras' own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tfrtool.training.models.optimizers import Optimizer, Schedule, make_optimizer
from tfrtool.training.run.trainer import EpochIterator, Trainer

pytestmark = pytest.mark.tf


def _model(seed: int) -> Any:
    """Return a small model with all that a step may touch: BatchNormalization and Dropout."""
    import keras

    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Dense(16, activation="relu", kernel_regularizer="l2"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.2, seed=3),
            keras.layers.Dense(3, activation="softmax", dtype="float32"),
        ]
    )


def trained_alike(
    optimizer: Any,
    theirs: Any,
    policy: str = "float32",
    steps: int = 5,
    class_weights: tuple[float, ...] = (),
) -> tuple[list[Any], list[Any]]:
    """Return the weights after some steps of ours, and of Keras' with its optimizer."""
    import keras

    keras.config.set_dtype_policy(policy)
    try:
        first, second = _model(1), _model(1)
    finally:
        keras.config.set_dtype_policy("float32")
    trainer = Trainer(first, optimizer, class_weights=class_weights)
    second.compile(theirs, keras.losses.SparseCategoricalCrossentropy(), auto_scale_loss=False)
    for inputs, labels in _batches()[:steps]:
        loss = trainer.train(inputs, labels).numpy()[0]
        weights = dict(enumerate(class_weights)) or None
        other = second.train_on_batch(inputs, labels, class_weight=weights, return_dict=True)[
            "loss"
        ]
        assert loss == pytest.approx(float(other), rel=1e-2)
        second.reset_metrics()
    return first.get_weights(), second.get_weights()


def _batches() -> list[tuple[Any, Any]]:
    draw = np.random.default_rng(0)
    return [
        (draw.normal(size=(n, 8)).astype("float32"), draw.integers(0, 3, n))
        for n in (16, 16, 5, 16, 1)
    ]


MADE: dict[Optimizer, Callable[[Any, Any], Any]] = {
    Optimizer.ADAM: lambda of, rate: of.Adam(rate),
    Optimizer.ADAMW: lambda of, rate: of.AdamW(rate),
    Optimizer.SGD: lambda of, rate: of.SGD(rate, momentum=0.9),
    Optimizer.RMSPROP: lambda of, rate: of.RMSprop(rate),
    Optimizer.LION: lambda of, rate: of.Lion(rate),
}


@pytest.mark.parametrize("schedule", Schedule)
@pytest.mark.parametrize("optimizer", Optimizer)
def test_optimizers_are_those_of_keras(optimizer: Optimizer, schedule: Schedule) -> None:
    """Class and settings are those that Keras' optimizer has for such a rate."""
    import keras

    ours: Any = make_optimizer(optimizer, 0.01, schedule, 5)
    decay = keras.optimizers.schedules.CosineDecay(0.01, 5)
    theirs = MADE[optimizer](keras.optimizers, decay if schedule is Schedule.COSINE else 0.01)
    assert type(ours) is type(theirs)
    ours.name = theirs.name  # of which Keras numbers its own
    assert ours.get_config() == theirs.get_config()


@pytest.mark.parametrize("optimizer", [Optimizer.ADAM, Optimizer.SGD])
def test_steps_are_those_of_keras(optimizer: Optimizer) -> None:
    """Loss, accuracy, weights and statistics are what train_on_batch makes of the same batches."""
    import keras

    ours, theirs = (
        Trainer(_model(1), make_optimizer(optimizer, 0.01, Schedule.COSINE, 5)),
        _model(1),
    )
    decay = keras.optimizers.schedules.CosineDecay(0.01, 5)
    theirs.compile(
        optimizer=MADE[optimizer](keras.optimizers, decay),
        loss=keras.losses.SparseCategoricalCrossentropy(),
        metrics=["accuracy"],
    )
    for inputs, labels in _batches():
        loss, accuracy, images = ours.train(inputs, labels).numpy()
        assert images == len(labels)
        theirs.reset_metrics()
        logs = theirs.train_on_batch(inputs, labels, return_dict=True)
        assert loss == pytest.approx(float(logs["loss"]), rel=1e-5)
        assert accuracy == pytest.approx(float(logs["accuracy"]))
    for mine, other in zip(ours.model.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)


def test_evaluation_is_that_of_keras_and_changes_nothing() -> None:
    """Means are over images, whatever the batches; no weight moves."""
    import keras

    model = _model(2)
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(), metrics=["accuracy"], optimizer="sgd"
    )
    trainer, before = Trainer(model, keras.optimizers.Adam(0.01)), model.get_weights()
    batches = EpochIterator(_batches(), 54, 5, at_once=False)
    callbacks = keras.callbacks.CallbackList([])
    nothing = EpochIterator([], 0, 0, at_once=False)
    epoch = trainer.run_epoch(1, [nothing, batches], callbacks, 0.0)
    inputs, labels = (np.concatenate(part) for part in zip(*_batches(), strict=True))
    logs = model.evaluate(inputs, labels, batch_size=len(labels), verbose=0, return_dict=True)
    assert epoch.val_loss == pytest.approx(logs["loss"], rel=1e-5)
    assert epoch.val_accuracy == pytest.approx(logs["accuracy"])
    for now, then in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)


def test_one_graph_for_batches_of_any_size() -> None:
    """The last batch of an epoch, which is smaller, is no reason to build another graph."""
    import keras

    trainer = Trainer(_model(3), keras.optimizers.Adam(0.01))
    for inputs, labels in _batches():
        trainer.train(inputs, labels)
    assert trainer.train.experimental_get_tracing_count() == 1
