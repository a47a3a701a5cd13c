"""Every way that ``train`` can train takes each option of the optimization as plain Keras does.

A batch has all images, so that losses don't depend on the order in which a cache has them.
"""

from __future__ import annotations

import functools
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfrtool
from tests.more import thinned
from tests.process import replica_runs
from tests.training.runs import small_options

pytestmark = pytest.mark.tf

WAYS: dict[str, dict[str, Any]] = {
    "memory": {"cache": "memory"},
    "disk": {"cache": "disk"},
    "none": {"cache": "none"},
    "features": {"cache": "features"},
    "float16": {"cache": "memory", "precision": "mixed_float16"},
}

DEFAULTS: dict[str, Any] = {"optimizer": "sgd", "learning_rate": 0.2, "epochs": 4, "batch_size": 14}

OPTIONS: dict[str, dict[str, Any]] = {
    "sgd": {},
    "adam": {"optimizer": "adam", "learning_rate": 0.01},
    "adamw": {"optimizer": "adamw", "learning_rate": 0.01},
    "rmsprop": {"optimizer": "rmsprop", "learning_rate": 0.01},
    "lion": {"optimizer": "lion", "learning_rate": 0.01},
    "decay": {"schedule": "cosine"},
    "warm-up": {"warm_up": 2},
    "warm-up and decay": {"warm_up": 1, "schedule": "cosine"},
    "smoothing": {"label_smoothing": 0.2},
    "class weights": {"balance_classes": True},
    "early stopping": {"early_stopping": 1, "learning_rate": 2.0},
    # Of such a narrow range, each image gets the same.
    "augmentation": {"augment": "contrast=2:2.000001"},
}

FIGURES = ("loss", "accuracy", "val_loss", "val_accuracy")


def _options(few: Path, option: str, way: str = "memory") -> dict[str, Any]:
    model = f"{replica_runs.__file__}:frozen_model"
    options = small_options(str(few), model=model, trainable="all", **DEFAULTS)
    return options | WAYS[way] | OPTIONS[option]


@functools.cache
def _expected(few: Path, option: str) -> list[list[float]]:
    """Return the figures of each epoch, by Keras and NumPy."""
    import keras
    import tensorflow as tf

    chosen, dataset = DEFAULTS | OPTIONS[option], tfrtool.dataset(few)
    parts = [
        next(dataset.load(split, image_size=32, batch_size=14, training=False).as_numpy_iterator())
        for split in ("train", "validation")
    ]
    (images, labels), (validated, classes) = parts
    if "augment" in chosen:
        images = np.clip(tf.image.adjust_contrast(images, 2.0).numpy(), 0, 1)
    epochs, rate, warm_up = chosen["epochs"], chosen["learning_rate"], chosen.get("warm_up", 0)

    def rate_of(epoch: int) -> float:
        if epoch < warm_up:
            return float(rate * epoch / warm_up)
        part = (epoch - warm_up) / (epochs - warm_up) if "schedule" in chosen else 0.0
        return float(rate * (1 + math.cos(math.pi * part)) / 2)

    optimizer = {
        "sgd": keras.optimizers.SGD(momentum=0.9),
        "adam": keras.optimizers.Adam(),
        "adamw": keras.optimizers.AdamW(),
        "rmsprop": keras.optimizers.RMSprop(),
        "lion": keras.optimizers.Lion(),
    }[chosen["optimizer"]]
    model = replica_runs.frozen_model(32, 2)
    loss = keras.losses.CategoricalCrossentropy(label_smoothing=chosen.get("label_smoothing", 0))
    model.compile(optimizer, loss, metrics=["accuracy"])
    callbacks: list[Any] = [keras.callbacks.LearningRateScheduler(rate_of)]
    if "early_stopping" in chosen:
        callbacks.append(keras.callbacks.EarlyStopping(patience=chosen["early_stopping"]))
    weights = dict(enumerate(len(labels) / (2 * np.bincount(labels))))
    history = model.fit(
        images,
        np.eye(2)[labels],
        batch_size=len(images),
        epochs=epochs,
        validation_data=(validated, np.eye(2)[classes]),
        class_weight=weights if "balance_classes" in chosen else None,
        callbacks=callbacks,
        verbose=0,
    ).history
    return [[history[name][epoch] for name in FIGURES] for epoch in range(len(history["loss"]))]


@pytest.mark.parametrize(
    "pair", thinned(((way, option) for option in OPTIONS for way in WAYS), every=19), ids=" ".join
)
def test_each_option_does_what_keras_does(
    few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pair: tuple[str, str]
) -> None:
    """The figures of each epoch are those of Keras without tfrtool, and the same epoch is kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # of the cache on disk
    way, option = pair
    expected, options = _expected(few, option), _options(few, option, way)
    report = tfrtool.train(**options)
    # No frozen base gives features of images that change.
    is_changed = way == "features" and option == "augmentation"
    assert report.plan.cache == ("memory" if is_changed else options["cache"])
    tolerance = 0.02 if way == "float16" else 1e-3 if option == "augmentation" else 1e-4
    found = [[epoch.logs[name] for name in FIGURES] for epoch in report.epochs]
    assert found == [pytest.approx(figures, rel=tolerance) for figures in expected]
    if option == "early stopping":
        best = 1 + int(np.argmin([figures[2] for figures in expected]))
        assert report.stopped_early
        assert report.saved_epoch == report.best_epoch == best


@pytest.mark.more
def test_each_option_does_on_two_devices_what_keras_does(few: Path, tmp_path: Path) -> None:
    """The figures of each epoch are those of Keras on one device."""
    runs = {option: {**_options(few, option), "strategy": "mirrored"} for option in OPTIONS}
    (tmp_path / "runs.json").write_text(json.dumps(runs))
    program = f"from tests.process import replica_runs as r; r.compare_devices({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[2], check=True)
    for option, (epochs,) in json.loads((tmp_path / "epochs.json").read_text()).items():
        found = [[epoch[name] for name in FIGURES] for epoch in epochs]
        assert found == [pytest.approx(one, rel=1e-3) for one in _expected(few, option)], option


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"strategy": "mirrored"}, "requires a GPU"),
    ({"strategy": "mirrored", "recipe": "naive"}, "--strategy"),
    ({"cache": "memory", "recipe": "notebook"}, "--cache"),
    ({"cache": "memory", "precision": "bfloat16"}, "bfloat16 requires a frozen base"),
    ({"precision": "bfloat16", "augment": "flip"}, "bfloat16 requires a frozen base"),
    ({"task": "regression", "label_feature": "label", "label_smoothing": 0.1}, "--label-smoothing"),
    (
        {"task": "regression", "label_feature": "label", "balance_classes": True},
        "--balance-classes",
    ),
    ({"warm_up": 5}, "--warm-up 5 must not exceed --epochs 4"),
]


@pytest.mark.parametrize(("changes", "what"), REFUSED)
def test_what_does_not_go_together_is_refused(
    few: Path, changes: dict[str, Any], what: str
) -> None:
    """No option is left out in silence."""
    with pytest.raises(tfrtool.UsageError) as caught:
        tfrtool.train(**_options(few, "sgd") | {"cache": "auto"} | changes)
    assert what in str(caught.value)
