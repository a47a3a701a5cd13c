"""Models that users bring: functions in modules and files, and models that are there."""

from __future__ import annotations

import json
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
from tfrtool.errors import UsageError, WeightsError

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


@pytest.mark.parametrize("kind", ["logits", more("file")])
def test_a_compiled_model(kind: str, few: Path, tmp_path: Path, capfd: Any) -> None:
    """Loss, metrics and optimizer are its own: ``fit`` on the same batches gives its weights."""
    import keras

    def build(size: int, _classes: int) -> Any:
        frozen = keras.layers.Conv2D(4, 3, trainable=kind == "file")
        layers = [keras.Input((size, size, 3)), frozen, keras.layers.GlobalAveragePooling2D()]
        if kind == "file":
            model = keras.Sequential([*layers, keras.layers.Dense(1, "sigmoid")])
            rate = keras.optimizers.schedules.ExponentialDecay(0.5, 1, 0.5)
            model.compile(keras.optimizers.SGD(rate), "binary_crossentropy", metrics=["accuracy"])
            return model
        model = keras.Sequential([*layers, keras.layers.Dense(2)])
        loss = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1)
        model.compile("rmsprop", loss, metrics=["mae"])
        return model

    keras.utils.set_random_seed(0)
    expected, out = build(16, 2), tmp_path / "run"
    if kind == "file":
        expected.save(tmp_path / "own.keras")
        words = ["--model", str(tmp_path / "own.keras"), "--image-size", "16", "--out", str(out)]
        assert main(["train", str(few), *words, "--epochs", "1", "--json"]) == 0
        epoch = json.loads(capfd.readouterr().out.splitlines()[0])
        made = json.loads((out / "run.json").read_text())["effective"]
        assert (made["optimizer"], made["learning_rate"]) == ("SGD", 0.5)
    else:
        report = tfrtool.train(few, model=build, image_size=16, epochs=1, out=out)
        epoch = report.epochs[0].logs
        assert report.plan.cache == "features"  # all images are in one batch, in any order
    parts = [
        tfrtool.dataset(few).load(name, image_size=16, training=name == "train", one_hot=one_hot)
        for one_hot in [kind == "logits"]
        for name in ("train", "validation")
    ]
    fitted = expected.fit(parts[0], validation_data=parts[1], shuffle=False, verbose=0)
    assert len(fitted.history) == 4
    for name, (value,) in fitted.history.items():
        assert epoch[name] == pytest.approx(value, rel=1e-4)
    saved = tfrtool.load_model(out)
    for one, other in zip(saved.core.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4)
    images = next(iter(parts[1]))[0]
    scores = saved.whole(images * 255).numpy()
    np.testing.assert_allclose(scores.sum(1), 1, rtol=1e-5)
    with pytest.raises(WeightsError, match="it is a model that tfrtool saved, not your own"):
        tfrtool.train(few, model=str(out / "model.keras"), image_size=16)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"optimizer": "adam"}, "--optimizer can't be used with a compiled model"),
        ({"label_smoothing": 0.1}, "--label-smoothing can't be used with a compiled"),
        ({"outputs": "probabilities"}, "contradicts the compiled loss"),
        ({"augment": "cutmix=1"}, "require a compiled loss that takes one-hot labels"),
        ({"metrics": [], "learning_rate": 0.125}, None),
        ({"metrics": ["seconds"]}, "a compiled metric can't have the name seconds"),
    ],
)
def test_options_of_a_compiled_model(changes: dict[str, Any], problem: str, few: Path) -> None:
    """A rate replaces that of the model; what contradicts it is an error."""
    import keras

    metrics = changes.pop("metrics", None)

    def build(size: int, classes: int) -> Any:
        layers = [keras.Input((size, size, 3)), keras.layers.GlobalAveragePooling2D()]
        model = keras.Sequential([*layers, keras.layers.Dense(classes)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.5), loss, metrics=metrics)
        return model

    options: dict[str, Any] = {"model": build, "image_size": 16, **changes}
    if problem is None:
        effective = planned(dataset=few, **options).made["effective"]
        assert effective["learning_rate"] == 0.125
        return
    with pytest.raises(UsageError, match=problem):
        tfrtool.train(few, **options)
