"""Training on several devices, in processes of their own, held against one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfrtool
from tests.process.several_devices import (
    free_ports,
    mirrored_run,
    start,
    worker,
)
from tests.training.runs import write_drawings

pytestmark = [pytest.mark.tf, pytest.mark.slow]

OPTIONS: dict[str, Any] = {"model": "cnn", "image_size": 32, "epochs": 2, "batch_size": 16}
# With some seeds rounding decides what a pooling takes of flat drawings: weights are then
# 1e-3 apart on two devices, and as far on one whose weights begin 1e-7 apart.
OPTIONS |= {"optimizer": "sgd", "learning_rate": 0.05, "seed": 1}


@pytest.fixture(scope="module")
def drawings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the drawings as a dataset of 155 images to train on and 44 to validate on."""
    return write_drawings(tmp_path_factory.mktemp("d"))


def _arguments(drawings: Path, out: Path, **more: Any) -> list[str]:
    words = {**OPTIONS, "out": out, **more}
    return [
        str(drawings),
        *(f"--{name.replace('_', '-')}={value}" for name, value in words.items()),
    ]


@pytest.mark.several
def test_two_workers_train_one_model(drawings: Path, tmp_path: Path) -> None:
    """Only the chief prints and writes; the losses are near those of one process."""
    ports, out = free_ports(2), tmp_path / "two"
    workers = [worker(index, ports, _arguments(drawings, out)) for index in range(2)]
    printed = [one.communicate(timeout=300) for one in workers]
    assert [one.returncode for one in workers] == [0, 0], printed
    assert "devices  2, multi-worker, 2 workers" in printed[0][0]
    assert printed[1] == ("", "")
    epochs = json.loads((out / "history.json").read_text())["epochs"]
    whole = tfrtool.train(drawings, **OPTIONS, out=tmp_path / "one")
    for epoch, other in zip(epochs, whole.epochs, strict=True):
        assert epoch["val_loss"] == pytest.approx(other.val_loss, rel=0.1)
    assert {path.name for path in out.iterdir()} == {
        path.name for path in (tmp_path / "one").iterdir()
    }


_REPLICAS = """
import json
import keras, numpy as np, tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
from tfrtool.loading.labels import Task
from tfrtool.training.fitting import MeasuredModel, EpochMeter, compile_model
from tfrtool.training.replicas import ReplicaModel, open_devices

draw = np.random.default_rng(0)
inputs = draw.normal(size=(21, 8)).astype("float32")
multi = draw.integers(0, 2, (21, 4)).astype("float32")
single = draw.integers(0, 4, 21)

def batches(labels):
    return tf.data.Dataset.from_tensor_slices((inputs, labels)).batch(5)  # the last has one image

def halves(labels):  # of each batch, one for each device
    parts = [(a, b) for n in range(0, 21, 5) for a, b in ((n, n + 3), (n + 3, min(n + 5, 21)))]
    def take(a, b):
        return tf.constant(inputs)[a:b], tf.constant(labels)[a:b]
    return tf.data.Dataset.from_tensor_slices(np.array(parts)).map(lambda p: take(p[0], p[1]))

def build(task):
    keras.utils.set_random_seed(1)
    ends = "sigmoid" if task is Task.MULTI else "softmax"
    x = keras.Input((8,))
    h = keras.layers.BatchNormalization()(x) if task is Task.SINGLE else x
    y = keras.layers.Dense(4, activation=ends)(h)
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build(keras.Model(x, y).trainable_variables)
    return x, y, optimizer

devices = open_devices("mirrored")
for task, labels, weights in ((Task.MULTI, multi, ()), (Task.SINGLE, single, (1.0, 2.0, 0.5, 1.0))):
    found = []
    for several in (False, True):
        logs = []
        def keep(epoch, values):
            means = {k: v for k, v in model.meter.figures().items() if "mean" in k}
            logs.append({**values, **means})
            model.meter.begin_epoch()
        callbacks = [keras.callbacks.LambdaCallback(on_epoch_end=keep)]
        words = dict(epochs=2, verbose=0)
        if several:
            with devices.strategy.scope():
                x, y, optimizer = build(task)
            model = ReplicaModel(x, y)
            model.devices, model.task, model.class_weights = devices, task, weights
            model.compile(optimizer)
            model.meter = EpochMeter([21, 21], task)
            model.iterators = tuple(devices.distribute(lambda _: halves(labels)) for _ in range(2))
            model.fit(tf.data.Dataset.range(10), steps_per_epoch=5, **words,
                      validation_data=tf.data.Dataset.range(5),
                      callbacks=[*callbacks, model.agreeing()])
        else:
            x, y, optimizer = build(task)
            model = MeasuredModel(x, y)
            compile_model(model, optimizer, task)
            model.meter = EpochMeter([21, 21], task)
            model.fit(batches(labels), validation_data=batches(labels), **words,
                      class_weight=dict(enumerate(weights)) or None, callbacks=callbacks)
        found.append(logs)
    print(json.dumps(found))
"""


@pytest.mark.several
def test_two_replicas_train_as_keras_fit_does() -> None:
    """Losses, accuracies and mean average precision; a device may have no image of a batch.

    BatchNormalization has the statistics of each device's part, so that only the losses before it
    made a difference are near.
    """
    run = start(["-c", _REPLICAS])
    printed, error = run.communicate(timeout=300)
    multi, single = map(json.loads, printed.splitlines())
    for one, two in zip(*multi, strict=True):
        assert two == pytest.approx(one, rel=1e-4), error
        assert "val_mean_average_precision" in one
    assert single[1][0].keys() == single[0][0].keys()
    assert all(np.isfinite([*epoch.values()]).all() for epoch in single[1])


@pytest.mark.several
def test_two_devices_train_as_one(drawings: Path, tmp_path: Path) -> None:
    """They see the same images in the same steps."""
    out = tmp_path / "two"
    mirrored = mirrored_run(_arguments(drawings, out))
    whole = tfrtool.train(drawings, **OPTIONS)
    printed, error = mirrored.communicate(timeout=300)
    assert mirrored.returncode == 0, error
    assert "devices  2, mirrored" in printed
    epochs = json.loads((out / "history.json").read_text())["epochs"]
    losses = [epoch.val_loss for epoch in whole.epochs]
    assert [epoch["val_loss"] for epoch in epochs] == pytest.approx(losses, rel=1e-4)
