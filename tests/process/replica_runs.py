"""Training runs in a process whose CPU is two devices of TensorFlow's, on one of them and on both.

TensorFlow divides a CPU only before it is first used, so that a process of its own is needed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfrtool.training.train_options import Strategy
    from tfrtool.training.train_report import EpochReport

__all__ = ["compare_devices"]


def compare_devices(folder: str) -> None:
    """Do the runs of ``runs.json``, and write the epochs of each to ``epochs.json``.

    A run is done on one device and on two, unless its options have a strategy.
    """
    import tensorflow as tf

    (cpu,) = tf.config.list_physical_devices("CPU")
    halves = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, halves)
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    import tfrtool

    strategies: tuple[tuple[Strategy, int], ...] = (("one", 1), ("mirrored", 2))
    found: dict[str, list[Any]] = {}
    for name, options in json.loads(Path(folder, "runs.json").read_text()).items():
        chosen = options.pop("strategy", None)
        for strategy, replicas in strategies:
            if chosen not in (None, strategy):
                continue
            report = tfrtool.train(**options, strategy=strategy)
            assert report.plan.replicas == replicas
            epochs = [_scores(epoch) for epoch in report.epochs]
            found.setdefault(name, []).append(epochs)
    Path(folder, "epochs.json").write_text(json.dumps(found))


def _scores(epoch: EpochReport) -> dict[str, float]:
    """Return the losses and metrics of an epoch, which unlike its times must be the same."""
    names = {*epoch.scores, *(f"val_{name}" for name in epoch.scores)}
    return {name: value for name, value in epoch.logs.items() if name in names}


def small_model(size: int, classes: int) -> Any:
    """Return a model for one class per image, with a penalty on weights.

    Its weights are so large that some probabilities are 0: their losses come from logits.
    """
    import keras

    inputs = keras.Input((size, size, 3))
    convolved = keras.layers.Conv2D(4, 3)(inputs)
    flat = keras.layers.Flatten()(keras.layers.BatchNormalization()(convolved))
    dense = keras.layers.Dense(
        classes,
        activation="softmax",
        kernel_initializer=keras.initializers.RandomNormal(stddev=2.0),
        kernel_regularizer=keras.regularizers.L2(0.001),
    )
    return keras.Model(inputs, dense(flat))


def multi_label_model(size: int, classes: int) -> Any:
    """Return a model for several classes per image."""
    import keras

    return keras.Sequential(
        [
            keras.Input((size, size, 3)),
            keras.layers.Flatten(),
            keras.layers.Dense(classes, activation="sigmoid"),
        ]
    )


def linear_model(size: int, numbers: int) -> Any:
    """Return a model for regression."""
    import keras

    layers = [keras.Input((size, size, 3)), keras.layers.Flatten(), keras.layers.Dense(numbers)]
    return keras.Sequential(layers)


def steep_model(size: int, classes: int) -> Any:
    """Return a model whose gradients exceed float16 in some steps."""
    import keras

    steep = [keras.layers.Flatten(), keras.layers.Rescaling(30.0), keras.layers.Dense(8)]
    last = keras.layers.Dense(classes, activation="softmax")
    return keras.Sequential([keras.Input((size, size, 3)), *steep, last])


def decode(record: Any) -> Any:
    """Return the image and the label of a record."""
    import tensorflow as tf

    scalar = {"image": tf.string, "label": tf.int64}
    features = {name: tf.io.FixedLenFeature([], dtype) for name, dtype in scalar.items()}
    parsed = tf.io.parse_single_example(record, features)
    return tf.reshape(tf.io.decode_raw(parsed["image"], tf.uint8), (8, 8, 3)), parsed["label"]


def frozen_model(size: int, classes: int) -> Any:
    """Return a model of which only the last layer is trained, with the same weights each time."""
    import keras

    fixed = [keras.initializers.GlorotUniform(seed) for seed in (1, 2)]
    convolution = keras.layers.Conv2D(4, 5, 4, kernel_initializer=fixed[0])
    convolution.trainable = False
    layers = [keras.Input((size, size, 3)), convolution, keras.layers.Flatten()]
    last = keras.layers.Dense(classes, activation="softmax", kernel_initializer=fixed[1])
    return keras.Sequential([*layers, last])
