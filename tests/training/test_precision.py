"""Layers that compute in 16 bits, with weights in float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfrtool
from tests.more import more
from tests.training.runs import small_options
from tfrtool.cli.commands.train_command import render_plan
from tfrtool.errors import UsageError

pytestmark = [pytest.mark.tf, pytest.mark.usefixtures("quick_base")]

BOTH = ("mixed_bfloat16", "mixed_float16")


def _build(size: int, classes: int) -> Any:
    import keras

    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((size, size, 3)),
            layers.Conv2D(4, 3),
            layers.GlobalAveragePooling2D(),
            layers.Dense(classes),
            layers.Activation("softmax"),
        ]
    )


@pytest.mark.parametrize(
    ("policy", "changes"),
    [
        (BOTH[1], {"trainable": "all"}),
        more(BOTH[1], {"model": _build, "trainable": "all"}),
        more(BOTH[0], {"model": "mobilenet", "weights": "none", "cache": "features"}),
        more(BOTH[0], {"model": "mobilenet", "weights": "none", "trainable": "conv_pw_13"}),
    ],
    ids=["cnn", "own", "features", "tuned"],
)
@pytest.mark.more
def test_all_but_the_last_layer_compute_in_16_bits(
    policy: str, changes: dict[str, Any], few: Path, tmp_path: Path
) -> None:
    """Weights and probabilities are float32, and the saved model predicts what the run's did."""
    import keras

    options = small_options(few, precision=policy, out=tmp_path / "run", epochs=1, **changes)
    report = tfrtool.train(**options)
    assert keras.config.dtype_policy().name == "float32"
    assert any(f"{policy} is slower" in text for text in report.plan.warnings)
    assert report.to_json()["warnings"] == list(report.plan.warnings)
    assert policy in render_plan(report.plan)
    saved = tfrtool.load_model(tmp_path / "run").core
    layers = [
        one for one in saved._flatten_layers() if one.weights and not isinstance(one, keras.Model)
    ]
    computed = sorted(layer.compute_dtype for layer in layers)
    assert computed == sorted([policy.removeprefix("mixed_")] * (len(layers) - 1) + ["float32"])
    assert {weight.dtype for weight in saved.weights} == {"float32"}
    images = np.random.default_rng(0).random((3, 32, 32, 3), np.float32)
    ours = np.asarray(saved(images, training=False))
    assert ours.dtype == "float32"
    np.testing.assert_allclose(np.sum(ours, 1), 1, rtol=1e-5)
    if "cache" in changes:  # a later run has a precision of its own
        model = options["out"] / "model.keras"
        tfrtool.train(**options | {"weights": model, "precision": "float32", "out": tmp_path / "b"})
        layers = tfrtool.load_model(tmp_path / "b").core._flatten_layers()
        assert {layer.compute_dtype for layer in layers} == {"float32"}


def test_a_model_that_is_there_has_its_precision(few: Path) -> None:
    """It is not changed."""
    with pytest.raises(UsageError, match="--precision"):
        tfrtool.train(few, model=_build(32, 2), precision="mixed_float16")
