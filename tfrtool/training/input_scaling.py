"""Models that scale pixel values themselves: ``Rescaling``, ``Normalization``, preprocessing."""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

_WHITE = 255.0
_WIDEST = 127.0
"""Layers that map 0 to 255 to a wider range than this expect 0 to 1."""
_SHIFTED = -30.0
"""Preprocessing that only subtracts the mean maps black to less than this."""

_SCALING = (keras.layers.Rescaling, keras.layers.Normalization, keras.layers.Lambda)
_ARITHMETIC = ("TrueDivide", "Divide", "Multiply", "Subtract", "Add")
"""Operations of ``preprocess_input`` and of arithmetic with tensors."""


def find_scaling_layer(model: Any) -> str:
    """Return the name of the layer with which a model scales pixels of 0 to 255, or "".

    What a model does before its first layer with weights is run on a black and a white image:
    ``Rescaling(1 / 255)`` expects 0 to 255, while ``Rescaling(2, -1)`` expects 0 to 1.
    """
    black = np.zeros((1, *model.input_shape[1:]), np.float32)
    images = np.concatenate([black, black + 1, black + _WHITE])
    try:
        steps, values = _preprocess(model, images)
    except Exception:  # noqa: BLE001  # a user's layer raises anything; it isn't preprocessing
        return ""
    scaling = [name for one in steps for name in _scaling_names(one)]
    dark, unit, white = np.asarray(keras.ops.convert_to_numpy(values), np.float64)
    is_linear = np.allclose(white - dark, (unit - dark) * _WHITE, rtol=0.01, atol=0.001)
    is_scaled = np.abs(white - dark).max() < _WIDEST or dark.min() < _SHIFTED
    return scaling[0] if scaling and is_linear and is_scaled else ""


def _preprocess(model: Any, images: Any) -> tuple[list[Any], Any]:
    """Return the layers of a model before the first with weights, and their outputs."""
    if isinstance(model, keras.Sequential):
        model = keras.Model(model.inputs, model.outputs)
    is_graph = hasattr(model, "operations")  # of a subclass with code of its own, only layers
    steps, values, weighted = [], images, None
    for layer in model.operations if is_graph else model.layers:
        if _has_weights(layer):
            weighted = layer
            break
        if isinstance(layer, _SCALING) if not is_graph else not _is_input(layer):
            steps.append(layer)
    if all(isinstance(one, keras.layers.Layer) for one in steps):
        for layer in steps:
            values = layer(values, training=False)
    else:  # operations on tensors
        values = keras.Model(model.inputs[0], steps[-1].output)(values, training=False)
    if isinstance(weighted, keras.Model):
        inner, values = _preprocess(weighted, values)
        steps += inner
    return steps, values


def _scaling_names(layer: Any) -> Iterator[str]:
    """Yield the names of the layers or operations of a step that may scale pixels."""
    if isinstance(layer, keras.Model):
        for inner in layer.layers:
            yield from _scaling_names(inner)
    elif isinstance(layer, _SCALING) or type(layer).__name__ in _ARITHMETIC:
        yield str(layer.name)


def _is_input(layer: Any) -> bool:
    return isinstance(layer, keras.layers.InputLayer)


def _has_weights(layer: Any) -> bool:
    """Return whether a layer has weights other than the statistics of a ``Normalization``."""
    if isinstance(layer, keras.Model):
        return any(map(_has_weights, layer.layers))
    is_normalization = isinstance(layer, keras.layers.Normalization)
    return bool(getattr(layer, "weights", ())) and not is_normalization
