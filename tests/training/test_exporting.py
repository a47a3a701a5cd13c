"""Models in the forms that other programs run."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfrtool
from tests.training.conftest import Told
from tests.training.runs import small_options
from tfrtool.cli import main
from tfrtool.errors import TrainingError, UsageError
from tfrtool.training import exporting

pytestmark = [pytest.mark.tf, pytest.mark.usefixtures("quick_base")]


@pytest.mark.more
def test_both_forms(finished: Told, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """They give the probabilities of the Keras model; a run is exported after its training."""
    import tensorflow as tf

    shutil.copytree(finished.out, tmp_path / "run")
    run = ["train", str(finished.options["dataset"]), "--resume", "--out", str(tmp_path / "run")]
    run += ["--tensorboard", str(tmp_path)]
    assert main([*run, "--export", "tflite", "--export", "saved_model"]) == 0
    output = capfd.readouterr()
    assert f"exported {tmp_path / 'run' / 'model.tflite'}: probabilities differ by " in output.out
    assert output.err == ""
    model = tfrtool.load_model(tmp_path / "run")
    pixels = np.random.default_rng(0).integers(0, 256, (1, 32, 32, 3)).astype(np.float32)
    expected = np.asarray(model.whole(pixels))
    saved = tf.saved_model.load(str(tmp_path / "run" / "saved_model"))
    np.testing.assert_allclose(saved.serve(pixels), expected, atol=1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lite = tf.lite.Interpreter(str(tmp_path / "run" / "model.tflite"))
    lite.allocate_tensors()
    lite.set_tensor(lite.get_input_details()[0]["index"], pixels)
    lite.invoke()
    found = lite.get_tensor(lite.get_output_details()[0]["index"])
    np.testing.assert_allclose(found, expected, atol=1e-5)
    history = tmp_path / "run" / "history.json"
    exported = json.loads(history.read_text())["run"]["exported"]
    assert exported["tflite"]["path"] == str(tmp_path / "run" / "model.tflite")
    assert exported.keys() == {"tflite", "saved_model"}
    assert exported["saved_model"]["difference"] <= 1e-5
    (tmp_path / "run" / "saved_model" / "notes.txt").write_text("mine")
    assert main([*run, "--export", "saved_model"]) == 2
    assert "did not write, such as notes.txt" in capfd.readouterr().err
    assert (tmp_path / "run" / "saved_model" / "notes.txt").read_text() == "mine"
    assert not list((tmp_path / "run").glob(".tfrtool-*"))


def _lacking(size: int, classes: int) -> Any:
    """Return a model with an operation that TFLite lacks."""
    import keras

    layers = [keras.Input((size, size, 3)), keras.layers.GlobalAveragePooling2D()]
    layers += [_Betainc(), keras.layers.Dense(classes, activation="softmax")]
    return keras.Sequential(layers)


def _Betainc() -> Any:  # noqa: N802 - it stands for a class that needs Keras
    import keras
    import tensorflow as tf

    @keras.saving.register_keras_serializable("tests")
    class Betainc(keras.layers.Layer):  # type: ignore[misc]
        def call(self, values: Any) -> Any:
            return tf.math.betainc(values + 1.0, values + 2.0, values * 0.5)

        def compute_output_shape(self, shape: Any) -> Any:
            return shape

    return Betainc()


@pytest.mark.more
def test_an_operation_that_tflite_lacks(
    few: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is named, the model is kept, and nothing is half-written."""
    options = small_options(few, model=_lacking, trainable="auto", epochs=1, out=tmp_path / "run")
    with pytest.raises(TrainingError, match=r"can't be exported as tflite: TFLite .* Betainc$"):
        tfrtool.train(**options, export="tflite")
    names = {path.name for path in (tmp_path / "run").iterdir() if not path.is_dir()}
    assert "model.keras" in names
    assert not any("tflite" in name or name.startswith(".tfrtool-") for name in names)
    assert "Betainc" not in capfd.readouterr().err


def test_other_probabilities_are_no_export(
    finished: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was there before stays."""
    shutil.copytree(finished.out, tmp_path / "run")
    (tmp_path / "run" / "model.tflite").write_text("before")
    monkeypatch.setattr(exporting, "_tflite", lambda _model, _made, _pixels: np.ones((1, 2)))
    options = dict(finished.options, out=tmp_path / "run", resume=True, export=["tflite"])
    options |= {"tensorboard": None, "profile": False}
    with pytest.raises(TrainingError, match=r"other values.*at most 0\.001, found "):
        tfrtool.train(**options)
    assert (tmp_path / "run" / "model.tflite").read_text() == "before"


@pytest.mark.parametrize("changes", [{"export": "tflite"}, {"export": "onnx", "out": Path("r")}])
def test_impossible_exports(changes: dict[str, Any]) -> None:
    """There must be a place for it, and such a form."""
    with pytest.raises(UsageError):
        tfrtool.train(**small_options(Path("nowhere"), **changes))
