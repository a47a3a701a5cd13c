"""A small base and a small cnn: each layer takes its time to build, and to trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

__all__ = ["small_cnn", "small_mobilenet"]


@contextmanager
def small_cnn() -> Iterator[None]:
    """Have two small convolutions in the cnn, where it only stands for any model."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tfrtool.training.models._FILTERS", (8, 16))
        patched.setattr("tfrtool.training.models._HIDDEN", 32)
        yield


def small_mobilenet(
    *, input_shape: tuple[int, int, int], include_top: bool, pooling: str, weights: None
) -> Any:
    """Build the first and the last block of a MobileNet, with the names that they have there.

    It has random weights, and yet its features differ from image to image.
    """
    import keras

    assert (include_top, pooling, weights) == (False, "avg", None)
    layers, strong = keras.layers, keras.initializers.Constant(4.0)
    inputs = x = keras.Input(input_shape)
    for name, layer in (
        ("conv1", layers.Conv2D(8, 3, 4, "same", use_bias=False, name="conv1")),
        ("conv_dw_1", layers.DepthwiseConv2D(3, 2, "same", use_bias=False, name="conv_dw_1")),
        ("conv_pw_1", layers.Conv2D(16, 1, use_bias=False, name="conv_pw_1")),
        ("conv_dw_13", layers.DepthwiseConv2D(3, 2, "same", use_bias=False, name="conv_dw_13")),
        ("conv_pw_13", layers.Conv2D(1024, 1, use_bias=False, name="conv_pw_13")),
    ):
        x = layers.BatchNormalization(gamma_initializer=strong, name=f"{name}_bn")(layer(x))
        x = layers.ReLU(6.0, name=f"{name}_relu")(x)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, x, name=f"mobilenet_small_{input_shape[0]}")


small_mobilenet.__module__ = "keras.src.applications.mobilenet"  # whose preprocessing it has
small_mobilenet.__name__ = "MobileNet"
