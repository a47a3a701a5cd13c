"""A run that trains more layers of another run's model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfrtool
from tests.training.runs import small_options
from tfrtool.cli import main
from tfrtool.training.saved_model import load_model

pytestmark = [pytest.mark.tf, pytest.mark.usefixtures("quick_base")]


def _changed_layers(before: Path, after: Path) -> set[str]:
    """Return the names of the layers whose weights differ between two saved models."""
    weights, others = (load_model(path).core.weights for path in (before, after))
    pairs = zip(weights, others, strict=True)
    return {one.path.split("/")[-2] for one, other in pairs if not np.array_equal(one, other)}


def test_layers_of_a_saved_model_are_trained(
    few: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """From the layer on, but for BatchNormalization, at a tenth of the head's rate."""
    words = ["train", str(few), "--model", "mobilenet", "--image-size", "32", "--epochs", "1"]
    first, second = tmp_path / "run", tmp_path / "run2"
    head = [*words, "--weights", "none", "--trainable", "head", "--out", str(first)]
    assert main(head) == 0
    assert "learning rate 0.001" in capfd.readouterr().out
    tuned = ["--weights", str(first / "model.keras"), "--trainable", "conv_pw_13"]
    assert main([*words, *tuned, "--out", str(second)]) == 0
    assert "learning rate 0.0001" in capfd.readouterr().out
    changed = _changed_layers(first / "model.keras", second / "model.keras")
    assert changed == {"conv_pw_13", "probabilities"}
    assert main([*words, "--resume", "--out", str(first), "--trainable", "conv_pw_13"]) == 2
    assert f"use --weights {first / 'model.keras'}, and another directory" in capfd.readouterr().err


def _frozen(size: int, classes: int) -> Any:
    """Return a model of which only the last layer learns."""
    import keras

    model = keras.Sequential(
        [
            keras.Input((size, size, 3)),
            keras.layers.Conv2D(2, 3, name="early"),
            keras.layers.Conv2D(2, 3, name="late"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(classes, activation="softmax", name="last"),
        ]
    )
    for layer in model.layers[:2]:
        layer.trainable = False
    return model


@pytest.mark.more
def test_frozen_layers_of_a_function_are_trained(few: Path, tmp_path: Path) -> None:
    """Those from the layer on, whatever the function froze; the layers before stay frozen."""
    options = small_options(few, model=_frozen, trainable="auto", epochs=1)
    saved = tmp_path / "run" / "model.keras"
    tfrtool.train(**options, out=tmp_path / "run")
    changes = {"weights": saved, "trainable": "late"}
    report = tfrtool.train(**options | changes, out=tmp_path / "run2")
    assert report.plan.made["effective"]["learning_rate"] == 0.0001
    assert _changed_layers(saved, tmp_path / "run2" / "model.keras") == {"late", "last"}
