"""What each option of a run does to it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.datasets import image_payload, write_foreign
from tests.more import more
from tests.photos import image_bytes
from tests.training.runs import planned, small_options
from tfrtool import train
from tfrtool.errors import UsageError
from tfrtool.loading.pipeline import load
from tfrtool.storage.progress import Progress
from tfrtool.training.models import build_classifier
from tfrtool.training.saved_model import load_model
from tfrtool.training.train_options import TrainOptions, canonical_name
from tfrtool.training.training_data import find_training_data

pytestmark = [pytest.mark.tf, pytest.mark.usefixtures("quick_base")]

HEAD: dict[str, Any] = {"model": "mobilenet", "weights": "none"}


def _part(options: dict[str, Any], tmp_path: Path, *, training: bool) -> tuple[Any, Any]:
    """Return all images that a run trains or validates on, as pixels, and their labels."""
    data = find_training_data(TrainOptions(**options), tmp_path)
    part = data.parts[0 if training else 1]
    whole = replace(part, batch_size=1000, training=False, epochs=1)
    ((images, labels),) = load(data.dataset, whole)
    return images.numpy(), labels.numpy()


def test_early_stopping_takes_the_best_weights(few: Path, tmp_path: Path) -> None:
    """A run that only gets worse ends after its patience, with the model of its best epoch."""
    import keras

    options = small_options(few, epochs=9, early_stopping=2, learning_rate=1.0, out=tmp_path)
    report = train(**options)
    assert report.stopped_early
    assert report.best_epoch is not None
    losses = [epoch.val_loss for epoch in report.epochs]
    assert len(losses) == report.best_epoch + 2
    best = losses[report.best_epoch - 1]
    assert best == min(loss for loss in losses if loss is not None)
    images, labels = _part(options, tmp_path, training=False)
    told = load_model(tmp_path / "model.keras").whole(images.astype("float32"))
    loss = float(keras.losses.SparseCategoricalCrossentropy()(labels, told))
    assert loss == pytest.approx(best, rel=1e-3)
    assert loss != pytest.approx(losses[-1], rel=1e-3)


@pytest.mark.parametrize(
    ("steps", "epochs", "changes"),
    [
        (2, 4, {"cache": "memory"}),
        more(8, 1, {"cache": "none", "augment": "flip"}),
        more(1, 8, HEAD | {"schedule": "cosine", "warm_up": 0.5}),
    ],
)
def test_steps_per_epoch(
    few: Path, tmp_path: Path, steps: int, epochs: int, changes: dict[str, Any]
) -> None:
    """Epochs of other lengths end with the same weights, if there are as many steps together."""
    options = small_options(few, batch_size=4, **changes)
    told: list[Progress] = []
    rates = {"warm_up": 2} if "warm_up" in changes else {}  # in epochs
    train(**options, out=tmp_path / "all")
    options |= {"epochs": epochs, "steps_per_epoch": steps, **rates}
    report = train(**options, out=tmp_path / "some", on_progress=told.append)
    weights = [load_model(tmp_path / name).core.get_weights() for name in ("all", "some")]
    for one, other in zip(*weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)
    assert [epoch.epoch for epoch in report.epochs] == [*range(1, epochs + 1)]
    done = [(one.done, one.total) for one in told if one.unit == "steps"]
    assert done == [(step, steps) for _ in range(epochs) for step in range(1, steps + 1)]


@pytest.mark.more
def test_notebooks_show_the_progress_of_keras(
    few: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a notebook's kernel Keras prints its bars, unless a function gets the progress."""
    notebook = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=None))
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    train(**small_options(few, epochs=1, on_progress=lambda _: None))
    assert capsys.readouterr().out == ""
    train(**small_options(few, epochs=1))
    assert "accuracy:" in capsys.readouterr().out


@pytest.mark.parametrize("model", ["cnn", pytest.param("mobilenet", marks=pytest.mark.more)])
def test_validation_steps(few: Path, tmp_path: Path, model: str) -> None:
    """Only so many batches are validated on, with and without cached features."""
    import keras

    options = small_options(few, epochs=1, batch_size=3, validation=0.5, out=tmp_path / "run")
    options |= {"validation_steps": 2} | (HEAD if model != "cnn" else {})
    report = train(**options)
    assert report.plan.validation_images == 6
    images, labels = _part(options, tmp_path, training=False)
    assert len(images) == 6
    scores = load_model(tmp_path / "run" / "model.keras").whole(images.astype("float32"))
    loss = float(keras.losses.SparseCategoricalCrossentropy()(labels, scores))
    assert report.epochs[0].val_loss == pytest.approx(loss, rel=1e-3)
    options["out"] = None
    with pytest.raises(UsageError, match="steps 4 is too large: 7 validation images make 3 batch"):
        planned(**options | {"validation_steps": 4})
    with pytest.raises(UsageError, match="--validation-steps requires validation images"):
        planned(**options | {"validation": None, "split": "train,validation"})


def test_normalization_is_that_of_the_images_trained_on(few: Path, tmp_path: Path) -> None:
    """Each channel has mean 0 and deviation 1 over the training part."""
    options = small_options(few, rescale="dataset", validation=0.25, epochs=1)
    rescale = planned(**options).rescale
    pixels, _ = _part(options, tmp_path, training=True)
    rescaled = pixels.astype(np.float64) * rescale.scale + rescale.offset
    np.testing.assert_allclose(rescaled.mean((0, 1, 2)), 0, atol=1e-6)
    np.testing.assert_allclose(rescaled.std((0, 1, 2)), 1, atol=1e-6)


@pytest.mark.parametrize(("name", "first"), [("probabilities", 6), ("hidden", 5), ("all", 0)])
def test_a_layer_and_all_after_it_are_trained(name: str, first: int) -> None:
    """From a layer on there is more to train than in the head, and less than in all."""
    core = build_classifier("cnn", 32, 2, "none", name).core
    layers = [layer for layer in core.layers if layer.weights]
    assert [layer.trainable for layer in layers] == [number >= first for number in range(7)]


@pytest.mark.parametrize(
    ("side", "image_size", "expected"), [(28, None, 32), (100, None, 128), (28, 64, 64)]
)
def test_small_images_are_not_blown_up(
    tmp_path: Path, side: int, image_size: int | None, expected: int
) -> None:
    """Without a size, the cnn's is the images' own, as far as it can be, and 300 at most."""
    data = image_bytes("PNG", mode="L", size=(side, side - 8))
    payloads = [image_payload(number % 2, data=data) for number in range(4)]
    directory = write_foreign(tmp_path / "d", [payloads])
    options = dict(small_options(directory, epochs=1), image_size=image_size)
    assert find_training_data(TrainOptions(**options), tmp_path).training.image_size == expected


def test_the_loader_is_told_what_was_asked_for(pets: Path, tmp_path: Path) -> None:
    """Every knob reaches the loader; what is validated on is neither augmented nor mixed."""
    augment = "flip"
    knobs: dict[str, Any] = {
        "cycle_length": 2,
        "block_length": 3,
        "parallel_calls": 4,
        "batched_parse": 8,
        "shuffle_buffer": 5,
        "prefetch": 0,
        "deterministic": False,
        "cache_directory": tmp_path / "cache",
        "seed": 6,
        "batch_size": 7,
    }
    options = small_options(pets, augment=augment, **knobs)
    data = find_training_data(TrainOptions(**options), tmp_path)
    training, validation = data.parts
    for name, value in knobs.items():
        assert getattr(training, name) == value
        assert getattr(validation, name) == value
    assert (str(training.augment), validation.augment) == (augment, None)
    assert (training.training, validation.training) == (True, False)


@pytest.mark.more
def test_features_are_made_once(few: Path) -> None:
    """A frozen base is run once an image, whatever the epochs, and validation is the same.

    The graph for inference multiplies in another order than Keras does: float32 has 24 bits.
    """
    phases: list[Progress] = []
    options = small_options(few, **HEAD, batch_size=16, learning_rate=1e-9)
    kept = train(**options, on_progress=phases.append)
    uncached = train(**options, cache="none")
    assert [one.plan.cache for one in (kept, uncached)] == ["features", "none"]
    features = [phase for phase in phases if phase.what == "features"]
    assert features[-1].done == features[-1].total == 14 + 6
    assert sorted({phase.done for phase in features}) == [phase.done for phase in features]
    for one, other in zip(kept.epochs, uncached.epochs, strict=True):
        assert one.loss == pytest.approx(other.loss, abs=1e-3)
        assert one.val_loss == pytest.approx(other.val_loss, abs=1e-3)


@pytest.mark.parametrize(
    "changes",
    [
        {**HEAD, "trainable": "all"},
        {**HEAD, "augment": "flip"},
        {**HEAD, "cache": "memory"},
        {**HEAD, "recipe": "naive"},
        {},
    ],
    ids=str,
)
def test_bfloat16_is_for_features(changes: dict[str, Any]) -> None:
    """Where no features are kept, there is nothing to gain, and it is refused."""
    with pytest.raises(UsageError, match="bfloat16"):
        train(**small_options(Path("d"), precision="bfloat16", **changes))


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("rescale", "model, unit, dataset, none"),
        ("recipe", "tfrtool, notebook, naive"),
        ("cache", "auto, features, memory, disk, none"),
        ("precision", "float32, bfloat16, mixed_bfloat16, mixed_float16"),
        ("on_error", "stop, skip"),
    ],
)
@pytest.mark.parametrize("word", ["nonsense", "", 7])
def test_unknown_words_are_refused(name: str, known: str, word: object) -> None:
    """What is no word of a choice is an error that lists the known ones."""
    with pytest.raises(UsageError) as caught:
        train(**{"dataset": "nowhere", name: word})  # type: ignore[arg-type]
    assert caught.value.expected == f"one of {known}"
    assert caught.value.what.endswith(f" {word!r}")


@pytest.mark.parametrize("text", ["", "_", "../model", "2fast", "resnet 50\n"])
def test_what_is_no_name_is_refused(text: str) -> None:
    """Text that can't be a name at all is a usage error, before Keras is asked."""
    with pytest.raises(UsageError):
        canonical_name(text)


@pytest.mark.parametrize(
    ("trainable", "weights", "trained"),
    [
        ("auto", "none", "all"),
        ("auto", "imagenet", "head"),
        ("auto", "file.h5", "head"),
        ("head", "none", "head"),
        ("all", "imagenet", "all"),
        ("conv5_block1_out", "none", "conv5_block1_out"),
    ],
)
def test_which_layers_are_trained(trainable: str, weights: str, trained: str) -> None:
    """All are where it is asked for, and by default where there are no weights to begin with."""
    options = TrainOptions(dataset="d", trainable=trainable, weights=weights)
    assert options.trained == trained


@pytest.mark.parametrize(
    ("changes", "rate"),
    [
        ({}, 1e-3),
        ({"weights": "none"}, 3e-4),
        ({"weights": "none", "trainable": "head"}, 1e-3),
        ({"weights": "none", "trainable": "block_12"}, 3e-4),
        ({"trainable": "all"}, 1e-4),
        ({"trainable": "block_12"}, 1e-4),
        ({"weights": "file.keras", "trainable": "all"}, 1e-4),
        ({"model": "cnn"}, 3e-4),
        ({"model": "cnn", "trainable": "head"}, 1e-3),
        ({"model": "cnn", "weights": "file.keras"}, 1e-3),
        ({"model": "cnn", "weights": "file.keras", "trainable": "hidden"}, 1e-4),
        ({"model": "cnn", "trainable": "hidden"}, 3e-4),
        ({"model": "cnn", "learning_rate": 0.5}, 0.5),
    ],
)
def test_learning_rate_goes_by_what_learns(changes: dict[str, Any], rate: float) -> None:
    """Loaded layers take smaller steps than random ones, and those smaller ones than a head."""
    assert TrainOptions(dataset="d", **changes).rate == pytest.approx(rate)


@pytest.mark.parametrize(
    ("model", "size", "weights"),
    [("cnn", 300, "none"), ("mobilenet_v2", 224, "imagenet"), ("efficientnet_b3", 300, "imagenet")],
)
def test_defaults_are_the_models_own(model: str, size: int, weights: str) -> None:
    """Size and weights come from the model, unless they are given."""
    options = TrainOptions(dataset="d", model=model)
    assert (options.size, options.initial_weights) == (size, weights)
    given = TrainOptions(dataset="d", model=model, image_size=64, weights="w.h5")
    assert (given.size, given.initial_weights) == (64, "w.h5")
