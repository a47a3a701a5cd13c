"""Runs whose figures are known: seeds, order, caches, steps and validation stay what they were."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.training.runs import small_options

pytestmark = pytest.mark.tf

FIGURES = ("loss", "accuracy", "val_loss", "val_accuracy")

CNN = [
    [0.758795, 0.571429, 0.682778, 0.5],
    [0.689608, 0.571429, 0.679261, 0.5],
    [0.675684, 0.571429, 0.673867, 0.5],
]
FROZEN = [
    [0.702339, 0.5, 0.692852, 0.5],
    [0.698936, 0.5, 0.682914, 0.5],
    [0.677623, 0.5, 0.676942, 0.5],
]
"""Of each epoch. Processors differ in how they round float32."""


def _history(dataset: Path, out: Path, **changes: Any) -> tuple[list[list[float]], dict[str, Any]]:
    """Train; return the figures of each epoch in history.json, and what it says of the run."""
    options = {"epochs": 3, "batch_size": 4, "seed": 7, **changes}
    tfrtool.train(**small_options(dataset, out=out, **options))
    history = json.loads((out / "history.json").read_text())
    return [[epoch[name] for name in FIGURES] for epoch in history["epochs"]], history["run"]


def test_history_of_a_cnn(few: Path, tmp_path: Path) -> None:
    """Initial weights, the order of a memory cache, and an augmentation depend on the seed."""
    augment = {"augment": "flip,brightness=0.2"}
    epochs, run = _history(few, tmp_path / "run", trainable="all", learning_rate=0.003, **augment)
    assert (run["cache"], run["train_images"], run["validation_images"]) == ("memory", 14, 6)
    assert epochs == [pytest.approx(expected, abs=2e-4) for expected in CNN]


def test_history_of_a_frozen_base(
    few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The features of MobileNetV2 are cached; the order in which the head sees them is seeded.

    With larger scales in BatchNormalization, its features differ from image to image.
    """
    import keras

    build = keras.applications.MobileNetV2

    @functools.wraps(build)
    def distinguishing(**options: Any) -> Any:
        model = build(**options)
        for layer in model.layers:
            if isinstance(layer, keras.layers.BatchNormalization):
                layer.gamma.assign(layer.gamma * 3)
        return model

    monkeypatch.setattr(keras.applications, "MobileNetV2", distinguishing)
    epochs, run = _history(few, tmp_path / "run", model="mobilenet_v2", weights="none")
    assert (run["cache"], run["train_images"], run["validation_images"]) == ("features", 14, 6)
    assert epochs == [pytest.approx(expected, abs=2e-4) for expected in FROZEN]
