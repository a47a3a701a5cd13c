"""Keras with another backend than TensorFlow: one error, before anything is loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tfrtool
from tests.training.runs import small_options


@pytest.mark.parametrize(
    ("words", "backend", "configured"),
    [
        (["train", "nosuch", "--model", "cnn"], "jax", None),
        (["evaluate", "run", "nosuch"], "torch", None),
        (["predict", "run", "nosuch.jpg"], None, "jax"),
    ],
)
def test_another_backend_is_one_error(
    words: list[str], backend: str | None, configured: str | None, tmp_path: Path
) -> None:
    """The backend is named before the plan is printed, whether or not it is installed."""
    (tmp_path / "keras.json").write_text(json.dumps({"backend": configured or "tensorflow"}))
    environment = {**os.environ, "KERAS_HOME": str(tmp_path), "KERAS_BACKEND": backend or ""}
    process = subprocess.run(
        [sys.executable, "-m", "tfrtool", *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (process.returncode, process.stdout) == (2, "")
    assert process.stderr == (
        f"tfrtool: error: Keras is set to the backend {backend or configured!r}, but tfrtool needs "
        "'tensorflow'; set KERAS_BACKEND=tensorflow\n"
    )


@pytest.mark.tf
def test_a_loaded_backend_is_an_error_in_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the program has loaded Keras with another backend, training and loading a model refuse."""
    import keras

    monkeypatch.setattr(keras.config, "backend", lambda: "jax")
    with pytest.raises(tfrtool.UsageError, match=r"'jax'.*set KERAS_BACKEND=tensorflow"):
        tfrtool.train(**small_options(tmp_path / "nowhere"))
    with pytest.raises(tfrtool.UsageError, match=r"'jax'.*set KERAS_BACKEND=tensorflow"):
        tfrtool.load_model(tmp_path / "nowhere")
