"""Models that we save, in a process that has Keras and nothing of ours."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tests.process.forking import Forking

pytestmark = [pytest.mark.tf, pytest.mark.skipif(os.name != "posix", reason="needs forks")]

PLAIN_KERAS = """
import os, sys, keras, numpy
os.chdir({folder!r})
assert not any(name.startswith("tfrtool") for name in sys.modules)
model = keras.models.load_model("m.keras", safe_mode=True)
numpy.save("out.npy", model.predict(numpy.load("pixels.npy"), verbose=0))
assert not any(name.startswith("tfrtool") for name in sys.modules)
"""


def test_plain_keras_loads_it(forking: Forking, tmp_path: Path) -> None:
    """Who has Keras and the file needs nothing else: no custom objects, no unsafe mode."""
    import keras

    from tfrtool.loading.decoding import rescaler
    from tfrtool.loading.options import Rescale
    from tfrtool.training.models import build_classifier
    from tfrtool.training.saved_model import ModelFacts, save_model

    rescale = Rescale(scale=1.0, offset=(-103.939, -116.779, -123.68), bgr=True)
    keras.utils.set_random_seed(0)
    core = build_classifier("cnn", 32, 3, "none").core
    facts = ModelFacts(model="cnn", image_size=32, class_names=("cat", "d\u00f6g", "a\nb"))
    save_model(tmp_path / "m.keras", core, rescale, facts)
    pixels = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3)).astype(np.uint8)
    np.save(tmp_path / "pixels.npy", pixels)
    errors = tmp_path / "errors"
    program = PLAIN_KERAS.format(folder=str(tmp_path))
    forking.start(["--version"], Path(os.devnull), errors, first=program)
    assert forking.wait() == 0, errors.read_text()
    expected = np.asarray(core(rescaler(rescale)(pixels)))
    assert np.allclose(np.load(tmp_path / "out.npy"), expected, atol=1e-5)
