"""Training on several devices, in processes of their own, held against one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.process.several_devices import (
    difference,
    free_ports,
    mirrored_run,
    start,
    worker,
    worker_config,
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
def test_two_workers_end_with_the_weights_of_one_process(drawings: Path, tmp_path: Path) -> None:
    """Only the chief prints and writes."""
    ports, out = free_ports(2), tmp_path / "two"
    workers = [worker(index, ports, _arguments(drawings, out)) for index in range(2)]
    tfrtool.train(drawings, **OPTIONS, shares=2, out=tmp_path / "one")
    printed = [one.communicate(timeout=100) for one in workers]
    assert [one.returncode for one in workers] == [0, 0]
    assert "devices  2, multi-worker, 2 workers" in printed[0][0]
    assert printed[1] == ("", "")
    assert difference(out, tmp_path / "one")[2] < 1e-5
    # The weights of one process that shuffles all images together are others.
    tfrtool.train(drawings, **OPTIONS, out=tmp_path / "other")
    assert difference(tmp_path / "other", tmp_path / "one")[2] > 1e-3


_OVERFLOWING = """
import os
import keras
import tensorflow as tf
from tfrtool.training.models.optimizers import Optimizer, make_optimizer
from tfrtool.training.run.trainer import Trainer

if "TF_CONFIG" in os.environ:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
else:
    cpu = tf.config.list_physical_devices("CPU")[0]
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, two)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
keras.utils.set_random_seed(0)
with strategy.scope():
    zeros = {"use_bias": False, "kernel_initializer": "zeros"}
    first = keras.layers.Dense(2, **zeros, dtype="mixed_float16")
    last = keras.layers.Activation("softmax", dtype="float32")
    model = keras.Sequential([keras.Input((1,)), first, last])
    trainer = Trainer(model, make_optimizer(Optimizer.ADAM, 0.01, scaled=True))
given = strategy.experimental_distribute_values_from_function
labels = given(lambda _: tf.constant([0], tf.int64))
moved = []
for large in (0, 1, None):
    before = first.kernel.numpy()

    def value(context):
        return tf.constant([[6e4 if context.replica_id_in_sync_group == large else 1.0]])

    trainer.train(given(value), labels)
    moved.append(bool(abs(first.kernel.numpy() - before).max() > 0))
found = trainer.optimizer.dynamic_scale, trainer.optimizer.iterations
print(moved, *(one.numpy() for one in found))
"""


@pytest.mark.several
@pytest.mark.parametrize("workers", [1, 2])
def test_a_step_that_overflows_on_one_device_is_skipped_by_all(workers: int) -> None:
    """In float16, whichever of them it is; none of them waits for another, and the next learns."""
    ports = free_ports(workers)
    runs = [
        start(
            ["-c", _OVERFLOWING],
            **({"TF_CONFIG": worker_config(index, ports)} if workers > 1 else {}),
        )
        for index in range(workers)
    ]
    try:
        printed = [run.communicate(timeout=60) for run in runs]
    finally:
        for run in runs:
            run.kill()
    for out, error in printed:
        assert out == f"[False, False, True] {2.0**13} 1\n", error


@pytest.mark.several
def test_two_devices_end_with_the_weights_of_one(drawings: Path, tmp_path: Path) -> None:
    """They see the same images in the same steps."""
    mirrored = mirrored_run(_arguments(drawings, tmp_path / "two"))
    tfrtool.train(drawings, **OPTIONS, out=tmp_path / "one")
    assert "devices  2, mirrored" in mirrored.communicate(timeout=100)[0]
    assert mirrored.returncode == 0
    assert difference(tmp_path / "two", tmp_path / "one")[2] < 1e-5
