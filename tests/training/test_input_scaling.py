"""Models that scale pixels themselves get them as 0 to 255, from training to prediction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfrtool
from tests.more import more
from tests.training.runs import planned, small_options
from tfrtool.cli import main

pytestmark = pytest.mark.tf

SIDE = 32


def _model(keras: Any, *first: Any) -> Any:
    """Return a model that begins with these layers or functions."""
    inputs = x = keras.Input((SIDE, SIDE, 3))
    for layer in first:
        x = layer(x)
    x = keras.layers.Conv2D(4, 3, trainable=False, name="fixed")(x)
    x = keras.layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, keras.layers.Dense(2, activation="softmax")(x))


def _nested(keras: Any) -> Any:
    """Return the layers of TensorFlow's tutorial: augmentation, then rescaling, in models."""
    layers = keras.layers
    augmentation = keras.Sequential([layers.RandomFlip("horizontal"), layers.RandomRotation(0.1)])
    return _model(keras, augmentation, keras.Sequential([layers.Rescaling(1 / 255)]))


def _application(keras: Any, name: str, **options: Any) -> Any:
    """Return a classifier on a model of keras.applications with preprocessing of its own."""
    shape = (SIDE, SIDE, 3)
    build = getattr(keras.applications, name)
    base = build(weights=None, include_top=False, input_shape=shape, pooling="avg", **options)
    dense = keras.layers.Dense(2, activation="softmax")
    return keras.Sequential([keras.Input(shape), base, dense])


def _normalization(keras: Any, highest: float) -> Any:
    return keras.layers.Normalization(mean=highest / 2, variance=(highest / 4) ** 2)


def _mobilenet_preprocessing(keras: Any) -> Any:
    return keras.applications.mobilenet_v2.preprocess_input


def _resnet_preprocessing(keras: Any) -> Any:
    return keras.applications.resnet50.preprocess_input


SCALING = {
    "rescaling": lambda keras: _model(keras, keras.layers.Rescaling(1 / 255)),
    "normalization": lambda keras: _model(keras, _normalization(keras, 255)),
    "nested": _nested,
    "division": lambda keras: _model(keras, lambda x: x / 255.0),
    "mobilenet": lambda keras: _model(keras, _mobilenet_preprocessing(keras)),
    "resnet": lambda keras: _model(keras, _resnet_preprocessing(keras)),
    "v3": lambda keras: _application(keras, "MobileNetV3Small", include_preprocessing=True),
    "efficientnet": lambda keras: _application(keras, "EfficientNetB0"),
    "v2": lambda keras: _application(keras, "EfficientNetV2B0"),
    "convnext": lambda keras: _application(keras, "ConvNeXtTiny"),
}
NOT_SCALING = {
    "plain": lambda keras: _model(keras, keras.layers.ZeroPadding2D()),
    "unit": lambda keras: _model(keras, keras.layers.Rescaling(2.0, -1.0)),
    "unit normalization": lambda keras: _model(keras, _normalization(keras, 1)),
    "clipped": lambda keras: _model(keras, keras.layers.ReLU(6.0)),
    "batch": lambda keras: _model(keras, keras.layers.BatchNormalization()),
    "without": lambda keras: _application(keras, "MobileNetV3Small", include_preprocessing=False),
}
LARGE = ("v3", "efficientnet", "v2", "convnext", "without")


@pytest.mark.parametrize(
    "kind", [more(one) if one in LARGE else one for one in (*SCALING, *NOT_SCALING)]
)
def test_scaling_is_found_when_the_model_is_built(kind: str, few: Path, tf: Any) -> None:
    """Layers, operations, nested models and models of keras.applications get 0 to 255."""
    build: Any = {**SCALING, **NOT_SCALING}[kind]

    def function(size: int, classes: int) -> Any:
        del size, classes
        return build(tf.keras)

    rescale = planned(**small_options(few, model=function, trainable="all")).rescale
    scale = 1.0 if kind in SCALING else 1 / 255
    assert [rescale.scale, rescale.offset] == [pytest.approx(scale), 0]


@pytest.mark.parametrize("cache", ["features", more("memory")])
def test_a_model_that_rescales_trains_as_without(cache: str, few: Path, tmp_path: Path) -> None:
    """Losses are those of the same model without its layer; the saved model takes pixels."""
    import keras

    found = []
    for first in ([], [keras.layers.Rescaling(1 / 255)]):
        out = tmp_path / f"run {len(first)}"
        options = small_options(few, trainable="all", epochs=1, out=out, learning_rate=0.1)
        keras.utils.set_random_seed(3)
        model = _model(keras, *first)
        found.append(tfrtool.train(**options | {"model": model, "cache": cache}).epochs[0])
    assert found[0].loss == pytest.approx(found[1].loss, rel=1e-4)
    assert found[0].val_loss == pytest.approx(found[1].val_loss, rel=1e-4)
    pixels = np.full((1, SIDE, SIDE, 3), 200, np.uint8)
    saved = tfrtool.load_model(out)
    assert saved.graph()(pixels).numpy() == pytest.approx(model(pixels).numpy(), abs=1e-5)


def test_the_plan_says_how_pixels_are_given(
    few: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line names the layer; pixels that are scaled twice are a warning."""
    source = "import keras\nL = keras.layers\ndef small(size, classes):\n  return keras.Sequential("
    source += "[keras.Input((size, size, 3)), L.Rescaling(1 / 255, name='scaler'), L.Flatten(), "
    source += "L.Dense(classes, activation='softmax')])\n"
    (tmp_path / "scaling.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    words = ["train", str(few), "--model", "scaling.py:small", "--image-size", "8", "--epochs", "1"]
    assert main(words) == 0
    shown = capsys.readouterr()
    assert "pixels   0 to 255; the model scales them itself (layer scaler)\n" in shown.out
    assert shown.err == ""
    assert main([*words, "--rescale", "unit"]) == 0
    shown = capsys.readouterr()
    assert "pixels   scaled to [0, 1]\n" in shown.out
    assert "the model scales pixels itself (layer scaler), and gets them scaled" in shown.err


def test_any_model_can_have_unscaled_pixels(few: Path) -> None:
    """With --rescale none, the cnn gets 0 to 255."""
    rescale = planned(**small_options(few, rescale="none")).rescale
    assert (rescale.scale, rescale.offset) == (1, 0)
