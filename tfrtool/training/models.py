"""The models: image in, probabilities out."""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np

from tfrtool.errors import WeightsError
from tfrtool.loading.options import Rescale
from tfrtool.training.options import (
    IMAGENET,
    NO_WEIGHTS,
    ModelName,
    RescaleTo,
    Trainable,
    learns_all,
)

__all__ = ["build_model", "rescale_for", "whole_model"]

_UNIT = Rescale(scale=1 / 255, offset=0.0)
_MOBILENET = Rescale(scale=1 / 127.5, offset=-1.0)
"""What keras.applications.mobilenet_v2.preprocess_input does: 0..255 to -1..1."""

_CORE = "core"
_FILTERS = (16, 32, 64, 64, 64)
_HIDDEN = 512


def rescale_for(model: ModelName, to: RescaleTo) -> Rescale:
    """Return how pixel values become what a model takes. The cnn's own range is 0 to 1."""
    if to is RescaleTo.UNIT or model is ModelName.CNN:
        return _UNIT
    return _MOBILENET


def build_model(
    model: ModelName, image_size: int, classes: int, weights: str, trainable: Trainable
) -> Any:
    """Build a classifier of rescaled images.

    Args:
        model: which.
        image_size: pixels both ways.
        classes: how many classes.
        weights: "imagenet", "none" or the path of a file: a .keras model that tfrtool trained, or
            a .weights.h5 or .h5 file of the base (of the whole, for the cnn).
        trainable: what learns.

    Returns:
        A ``keras.Model`` from float32 [batch, image_size, image_size, 3] to softmax probabilities,
        float32 [batch, classes].

    Raises:
        WeightsError: the weights can't be downloaded, found or loaded.
    """
    if model is ModelName.CNN:
        built = _cnn(image_size, classes)
        if weights != NO_WEIGHTS:
            _load(built, built, weights)
        return built
    return _mobilenet_v2(image_size, classes, weights, trainable)


def _mobilenet_v2(image_size: int, classes: int, weights: str, trainable: Trainable) -> Any:
    shape = (image_size, image_size, 3)
    try:
        # Keras tells of a download on stdout, which is for results.
        told = sys.stderr if sys.stderr.isatty() else io.StringIO()
        with contextlib.redirect_stdout(told):
            base = keras.applications.MobileNetV2(
                input_shape=shape,
                include_top=False,
                weights=IMAGENET if weights == IMAGENET else None,
            )
    except Exception as error:
        if weights != IMAGENET:
            raise
        # Keras raises a plain Exception where a download fails, from the one that says why.
        reason = getattr(error.__context__, "reason", None) or error
        raise WeightsError(
            f"the imagenet weights can't be downloaded: {' '.join(str(reason).split())[:200]}",
            hint="--weights none starts from random ones, --weights FILE takes a file, "
            "--model cnn needs none",
        ) from error
    all_of_it = learns_all(ModelName.MOBILENET_V2, trainable, weights)
    base.trainable = all_of_it
    inputs = keras.Input(shape)
    # A frozen base runs in inference mode, or its BatchNormalization would go on learning.
    features = base(inputs) if all_of_it else base(inputs, training=False)
    pooled = keras.layers.GlobalAveragePooling2D()(features)
    outputs = keras.layers.Dense(classes, activation="softmax")(pooled)
    built = keras.Model(inputs, outputs, name=_CORE)
    if weights not in (IMAGENET, NO_WEIGHTS):
        _load(built, base, weights)
    return built


def _cnn(image_size: int, classes: int) -> Any:
    """Five convolutions, as in the horses_or_humans example.

    That one doesn't pad, and needs images of 300 pixels; padding lets smaller ones through, and
    changes nothing else.
    """
    layers: list[Any] = [keras.Input((image_size, image_size, 3))]
    for filters in _FILTERS:
        layers.append(keras.layers.Conv2D(filters, 3, padding="same", activation="relu"))
        layers.append(keras.layers.MaxPooling2D(2))
    layers.append(keras.layers.Flatten())
    layers.append(keras.layers.Dense(_HIDDEN, activation="relu"))
    layers.append(keras.layers.Dense(classes, activation="softmax"))
    return keras.Sequential(layers, name=_CORE)


def _load(model: Any, base: Any, weights: str) -> None:
    """Load a file into a model, or into its base.

    A .keras file is a whole model that tfrtool saved: its weights go into the model.
    """
    path = Path(weights)
    if not path.is_file():
        raise WeightsError(
            "no such file", path=path, expected="imagenet, none or a file of weights"
        )
    try:
        if path.suffix == ".keras":
            saved = keras.models.load_model(path, compile=False, safe_mode=True)
            _copy(saved.get_layer(_CORE), model)
        else:
            base.load_weights(path)
    except (ValueError, OSError, KeyError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise WeightsError(f"does not fit the model: {reason}", path=path) from error


def _copy(source: Any, target: Any) -> None:
    values = source.get_weights()
    wanted = [tuple(weight.shape) for weight in target.weights]
    found = [np.shape(value) for value in values]
    if wanted != found:
        raise ValueError("the saved model has other layers, or another number of classes")
    target.set_weights(values)


def whole_model(core: Any, image_size: int, rescale: Rescale) -> Any:
    """Return a model from pixel values, 0 to 255, to probabilities, that shares the core's weights.

    It is what is saved: whoever loads it needs to know nothing about rescaling.
    """
    return keras.Sequential(
        [
            keras.Input((image_size, image_size, 3), name="pixels"),
            keras.layers.Rescaling(rescale.scale, rescale.offset),
            core,
        ],
        name="classifier",
    )
