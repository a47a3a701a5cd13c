"""Rectangular and gray images, from the loader to a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfrtool
from tests.training.runs import planned, small_options
from tfrtool.cli import main
from tfrtool.errors import UsageError

pytestmark = [pytest.mark.tf, pytest.mark.usefixtures("quick_base")]


@pytest.mark.parametrize("decode", ["exact", "fast"])
@pytest.mark.parametrize("recipe", ["tfrtool", "naive"])
def test_loaded_images(few: Path, tf: Any, recipe: Any, decode: Any) -> None:
    """They are what TensorFlow makes of the records: resized, then in gray."""
    if recipe != "tfrtool" and decode == "fast":
        pytest.skip("other recipes decode exactly")
    dataset = tfrtool.dataset(few)
    options: dict[str, Any] = {"image_size": (44, 18), "training": False, "rescale": None}
    options |= {"recipe": recipe, "decode": decode, "batch_size": 99}
    options |= {"cycle_length": 1} if recipe == "tfrtool" else {}  # in the order of the records
    ((pixels, _),) = dataset.load("validation", channels=1, **options)
    ((colors, _),) = dataset.load("validation", **options)
    assert (pixels.shape[1:], colors.shape[1:]) == ((18, 44, 1), (18, 44, 3))
    gray = tf.image.rgb_to_grayscale(tf.cast(colors, tf.float32))
    assert np.abs(np.float32(pixels) - gray).max() <= 0.501
    payloads = [
        tfrtool.parse_example(one.payload) for one in tfrtool.open_records(few, split="validation")
    ]
    expected = [tf.image.resize(tf.io.decode_jpeg(one["image"]), (18, 44)) for one in payloads]
    if decode == "exact":
        assert np.abs(np.float32(colors) - np.stack(expected)).max() <= 0.501


@pytest.mark.more
def test_a_run(few: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A cnn of rectangular gray images is trained, resumed, evaluated and predicts."""
    out = tmp_path / "run"
    words = ["train", str(few), "--model", "cnn", "--image-size", "48x36", "--channels", "1"]
    words += ["--augment", "flip,contrast", "--rescale", "dataset", "--batch-size", "4"]
    assert main([*words, "--epochs", "1", "--out", str(out)]) == 0
    assert "cnn at 48x36 px" in capsys.readouterr().out
    assert main(["train", str(few), "--resume", "--out", str(out)]) == 0
    model = tfrtool.load_model(out)
    assert (model.facts.image_size, model.whole.input_shape) == ((48, 36), (None, 36, 48, 1))
    report = tfrtool.evaluate(out, few, split="validation")
    ((pixels, labels),) = tfrtool.dataset(few).load(
        "validation", image_size=(48, 36), channels=1, rescale=None, training=False, batch_size=99
    )
    scores = model.whole(np.float32(pixels)).numpy()
    assert report.accuracy == pytest.approx(np.mean(scores.argmax(1) == labels.numpy()))


@pytest.mark.more
def test_own_models(few: Path) -> None:
    """A function of one's own gets width and height; frozen bases are cached in any shape."""
    import keras

    sizes = []

    def build(size: Any, classes: int) -> Any:
        sizes.append(size)
        layers = [keras.Input((8, 12, 1)), keras.layers.Conv2D(2, 3, trainable=False)]
        layers += [keras.layers.Flatten(), keras.layers.Dense(classes, activation="softmax")]
        return keras.Sequential(layers)

    options = small_options(few, epochs=1, model=build, trainable="all", channels=1)
    report = tfrtool.train(**{**options, "image_size": (12, 8), "cache": "features"})
    assert (sizes, report.plan.cache) == ([(12, 8)], "features")
    plan = planned(**{**options, "model": build((12, 8), 2), "image_size": None})
    assert plan.image_size == (12, 8)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"image_size": (64, 16)}, "at least 32"),
        ({"image_size": (64, 0)}, "image-size"),
        ({"image_size": (64, 64, 3)}, "image-size"),
        ({"channels": 2}, "channels"),
        ({"channels": 1, "model": "mobilenet_v2"}, "--channels 1 requires"),
        ({"channels": 1, "augment": "hue"}, "--augment hue requires --channels 3"),
    ],
)
def test_what_is_not_possible(few: Path, changes: Any, text: str) -> None:
    """A size, a number of channels or an augmentation that can't be is named."""
    with pytest.raises(UsageError, match=text):
        tfrtool.train(**{**small_options(few, epochs=1, model="cnn"), **changes})
