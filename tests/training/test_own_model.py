"""Models that users bring: functions in modules and files, and models that are there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfrtool
from tests.more import more
from tests.training.runs import planned, small_options
from tfrtool.cli import main
from tfrtool.errors import UsageError

pytestmark = pytest.mark.tf

SOURCE = """
import keras
from keras.layers import Dense, Flatten, GlobalAveragePooling2D, Lambda

def small(size, classes):
    return keras.Sequential([
        keras.Input((size, size, 3)), GlobalAveragePooling2D(), Dense(4, name="first"),
        Dense(classes, activation="softmax"),
    ])

def wide(size, classes):
    return small(size, classes + 1)

def fixed(size, classes):
    return small(48, classes)

def flat(size, classes):
    model = small(48, classes)
    return keras.Sequential([keras.Input((48, 48, 3)), Flatten(), Dense(classes)])

def logits(size, classes):
    return keras.Sequential([keras.Input((size, size, 3)), GlobalAveragePooling2D(),
                             Dense(classes, bias_initializer="ones")])

def text(size, classes):
    return "a model"

def angry(size, classes):
    raise ValueError("not today")

def secret(size, classes):
    return keras.Sequential([keras.Input((size, size, 3)), Lambda(lambda x: x[:, 0, 0]),
                             Dense(classes, activation="softmax")])

number = 5
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a file with functions, in the current directory."""
    path = tmp_path / "their_models.py"
    path.write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(sys.modules, "their_models", raising=False)
        yield path


@pytest.mark.parametrize("place", ["their_models", more("absolute")])
def test_a_function_is_trained(
    place: str, file: Path, few: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A module of the current directory, or a file; what comes out predicts and evaluates."""
    place = str(file) if place == "absolute" else place
    words = ["train", str(few), "--model", f"{place}:small", "--image-size", "32", "--epochs", "1"]
    assert main([*words, "--out", "run"]) == 0
    assert f"{place}:small at 32 px, 26 trainable parameters" in capfd.readouterr().out
    assert tfrtool.load_model("run").facts.model == f"{place}:small"
    assert tfrtool.evaluate("run", few).images == 6


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("their_models:wide", r"expected \[batch, 2\], found \[batch, 3\]"),
        ("their_models:flat", "images of 32 pixels: Input 0"),
        ("their_models:logits", "not return probabilities"),
        ("their_models:text", "not return a keras.Model.*found str"),
        ("their_models:angry", "raised ValueError: not today"),
        ("their_models:secret", "Lambda layer.*register_keras_serializable"),
        ("their_models:nothing", "no function 'nothing'"),
        ("their_models:number", "no function 'number'"),
        ("no_such_module:small", "can't be imported: ModuleNotFoundError"),
        ("no_such_file.py:small", "can't be imported: FileNotFoundError: no such file"),
        (5, "invalid model: .*found int"),
    ],
)
@pytest.mark.usefixtures("file")
def test_what_is_no_model(name: Any, problem: str, few: Path) -> None:
    """Each is one error before anything is trained, and no run is begun."""
    with pytest.raises(UsageError, match=problem):
        tfrtool.train(**small_options(few, model=name, trainable="auto"))


def test_a_file_takes_no_librarys_place(file: Path, few: Path) -> None:
    """Whoever calls it json.py is told, and json stays what it was."""
    path = file.rename(file.with_name("json.py"))
    loaded = sys.modules["json"]
    with pytest.raises(UsageError, match="'json'"):
        tfrtool.train(**small_options(few, model=f"{path}:small", trainable="auto"))
    assert sys.modules["json"] is loaded


def test_a_model_that_is_there(few: Path, tmp_path: Path) -> None:
    """A keras.Model is trained as it is, at its own size; a function is called for one."""
    import keras

    def build(size: int, classes: int) -> Any:
        layers = [keras.Input((size, size, 3)), keras.layers.GlobalAveragePooling2D()]
        return keras.Sequential([*layers, keras.layers.Dense(classes, activation="softmax")])

    model = build(40, 2)
    before = [np.array(weight) for weight in model.get_weights()]
    report = tfrtool.train(few, model=model, epochs=1, out=tmp_path / "run", learning_rate=0.1)
    assert report.plan.image_size == 40
    after = model.get_weights()
    assert not all(map(np.array_equal, before, after))
    saved = tfrtool.load_model(tmp_path / "run").core.get_weights()
    assert all(map(np.array_equal, saved, after))
    assert planned(dataset=few, model=build, image_size=36).model.endswith("build")
    with pytest.raises(UsageError, match="no ImageNet weights"):
        tfrtool.train(few, model=build, weights="imagenet")


def test_the_layers_that_are_trained(few: Path, file: Path) -> None:
    """The head is the last layer; a name is one of the user's own layers."""
    options = small_options(few, model=f"{file}:small", epochs=1)
    counts = {
        trainable: planned(**options | {"trainable": trainable}).trainable_parameters
        for trainable in ("head", "first")
    }
    assert counts == {"head": 10, "first": 26}
    with pytest.raises(UsageError, match="has no layer 'nope'"):
        tfrtool.train(**options | {"trainable": "nope"})
