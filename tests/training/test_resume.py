"""Runs that are left and gone on with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.more import more
from tests.training.runs import planned, saved_variables, small_options
from tfrtool import train
from tfrtool.errors import DatasetError, TrainingError, UsageError
from tfrtool.training.checkpoint import CHECKPOINT
from tfrtool.training.saved_model import load_model
from tfrtool.training.train_report import EpochReport

pytestmark = [pytest.mark.tf, pytest.mark.usefixtures("quick_base")]

HEAD = {"model": "mobilenet", "weights": "none"}

FREE = 95_000
"""Bytes of which these runs' caches take more than half: unasked, they would not be made."""


class _LeftError(Exception):
    """What ends a run in the middle."""


def _leave(options: dict[str, Any], after: int) -> None:
    """Train, and end with an error when an epoch is done."""

    def leave(epoch: EpochReport) -> None:
        if epoch.epoch == after:
            raise _LeftError

    with pytest.raises(_LeftError):
        train(**options, on_epoch=leave)


@pytest.fixture(scope="module")
def left(few: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the options of a run that was left after the first of its two epochs."""
    out = tmp_path_factory.mktemp("left") / "run"
    options = small_options(few, trainable="all", cache="memory", batch_size=4, out=out)
    _leave(options, after=1)
    return options


@pytest.fixture
def copied(left: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    """Return the options of a copy of it."""
    return dict(left, out=shutil.copytree(left["out"], tmp_path / "run"))


def numbers(epochs: tuple[EpochReport, ...]) -> list[tuple[float | None, ...]]:
    """Return what does not depend on how fast it went."""
    return [(e.epoch, e.loss, e.accuracy, e.val_loss, e.val_accuracy) for e in epochs]


def _dropping(size: int, classes: int) -> Any:
    """Return a model whose steps draw random numbers."""
    import keras

    layers = [keras.Input((size, size, 3)), keras.layers.Flatten(), keras.layers.Dropout(0.5)]
    return keras.Sequential([*layers, keras.layers.Dense(classes, activation="softmax")])


@pytest.mark.parametrize(
    ("changes", "cache", "free"),
    [
        ({"trainable": "all", "validation": 0.25, "early_stopping": 3}, "memory", FREE),
        more(
            {
                "cache": "none",
                "augment": "rotate=20,mixup=1,cutmix=1",
                "optimizer": "sgd",
                "schedule": "cosine",
            },
            "none",
            0,
        ),
        ({"model": _dropping, "trainable": "auto", "steps_per_epoch": 3}, "memory", FREE),
        more(HEAD, "features", FREE),
        more(HEAD | {"steps_per_epoch": 6}, "features", FREE),
    ],
    ids=["memory", "augmented", "dropout", "features", "steps"],
)
def test_it_ends_where_an_uninterrupted_run_would(
    few: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    cache: str,
    free: int,
) -> None:
    """Order, draws, weights, optimizer and history are those of the run that wasn't left.

    The steps are the same, in the same order, on the same numbers: the tolerance is for how
    threads share a sum, which TensorFlow leaves open. The order of images depends on the cache,
    so that it isn't planned anew where less memory is free.
    """
    options = small_options(few, epochs=3, batch_size=4, **changes)

    def keep(epoch: EpochReport) -> None:
        if epoch.epoch == 1:  # as it would be if the run were killed now
            shutil.copytree(tmp_path / "whole", tmp_path / "left")

    whole = train(**dict(options, out=tmp_path / "whole"), on_epoch=keep)
    assert not (tmp_path / "left" / "model.keras").exists()
    monkeypatch.setattr("tfrtool.training.training_data.available_memory", lambda: free)
    resumed = train(**dict(options, out=tmp_path / "left", resume=True))
    assert (resumed.plan.cache, resumed.plan.epochs_before) == (cache, 1)
    for one, other in zip(numbers(resumed.epochs), numbers(whole.epochs), strict=True):
        assert one == pytest.approx(other, rel=1e-4)
    first, second = (saved_variables(tmp_path / name) for name in ("whole", "left"))
    assert first == second
    history = json.loads((tmp_path / "left" / "history.json").read_text())
    assert [epoch["epoch"] for epoch in history["epochs"]] == [1, 2, 3]
    assert (tmp_path / "left" / "model.keras").is_file()


@pytest.mark.more
def test_a_schedule_has_its_epochs(copied: dict[str, Any]) -> None:
    """A learning rate that has come down to 0 at the end can't go on with more epochs."""
    record = copied["out"] / "run.json"
    record.write_text(record.read_text().replace('"schedule": null', '"schedule": "cosine"'))
    with pytest.raises(UsageError, match="expected --epochs 2, found --epochs 4"):
        train(**dict(copied, schedule="cosine", epochs=4, resume=True))


def test_a_loss_that_is_not_finite_ends_the_run(few: Path, tmp_path: Path) -> None:
    """It is said where, and the checkpoint of the epoch before stays; no model is saved."""
    import keras

    def spoil(epoch: int, logs: object) -> None:
        del logs
        if epoch == 1:
            weight = spoiling.model.trainable_weights[0]
            weight.assign(weight * float("nan"))

    spoiling = keras.callbacks.LambdaCallback(on_epoch_begin=spoil)
    options = small_options(few, epochs=2, out=tmp_path / "run")
    kept: list[bytes] = []

    def keep(_epoch: EpochReport) -> None:
        kept.append((tmp_path / "run" / CHECKPOINT).read_bytes())

    with pytest.raises(TrainingError, match=r"epoch 2: the loss .* nan.*epoch 1 is kept"):
        train(**options, callbacks=[spoiling], on_epoch=keep)
    assert not (tmp_path / "run" / "model.keras").exists()
    assert kept == [(tmp_path / "run" / CHECKPOINT).read_bytes()]
    assert planned(**dict(options, resume=True)).epochs_before == 1


@pytest.mark.more
def test_a_model_that_was_not_saved_is_saved(copied: dict[str, Any]) -> None:
    """A run that was left between its last epoch and its model needs no epoch more.

    An earlier version recorded fewer options, and defaults in place of null. A later one may have
    recorded more: the run is not resumed without them.
    """
    record = copied["out"] / "run.json"
    values = json.loads(record.read_text())
    later = {**values, "options": values["options"] | {"sharpness": 3}}
    for name in ("channels", "task", "label_smoothing", "warm_up"):
        del values["options"][name]
    earlier = {"optimizer": "adam", "schedule": "constant", "head": "softmax"}
    values["options"] |= earlier | {"outputs": "probabilities"}
    record.write_text(json.dumps(later))
    with pytest.raises(DatasetError, match="option 'sharpness' is unknown to this version"):
        train(out=copied["out"], resume=True)
    record.write_text(json.dumps(values))
    assert train(**dict(copied, epochs=1, resume=True)).plan.epochs_before == 1
    assert (copied["out"] / "model.keras").is_file()


def test_other_options_are_refused(left: dict[str, Any]) -> None:
    """A run can't go on as another; what differs is named, and nothing is changed."""
    file = left["out"] / CHECKPOINT
    before = file.read_bytes()
    for changes, name in (
        ({"learning_rate": 0.5}, "--learning-rate 0.5"),
        ({"seed": 4}, "--seed 4"),
        ({"validation": "train", "split": "validation"}, "split"),
        ({"cache": "none"}, "cache"),
    ):
        with pytest.raises(UsageError, match=name):
            train(**dict(left, resume=True, **changes))
    with pytest.raises(UsageError, match="--resume"):
        train(**left)
    assert file.read_bytes() == before


def _without(text: bytes) -> Any:
    return lambda data: data.replace(text, text.upper())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda _: b"", "another version"),
        (lambda data: data[:30], "damaged"),
        (lambda data: data[:24] + b"\xff" * 8 + data[32:], "header is too long"),
        (lambda data: data[:-1], "weights are damaged"),
        (lambda data: data + b"x", "weights are damaged"),
        (lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:], "weights are damaged"),
        (_without(b"memory"), "damaged.*MEMORY"),
        (_without(b"epochs"), "damaged.*epochs"),
        (_without(b"float32"), "another model"),
    ],
)
def test_a_damaged_checkpoint_is_one_error(
    copied: dict[str, Any], change: Any, reason: str
) -> None:
    """It names the file; nothing is believed that doesn't fit the model."""
    path = copied["out"] / CHECKPOINT
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DatasetError, match=f"unusable checkpoint: .*{reason}") as caught:
        train(**dict(copied, resume=True))
    assert caught.value.path == str(path)


@pytest.mark.more
def test_the_best_epoch_is_kept(few: Path, tmp_path: Path) -> None:
    """Its model is saved next to the last one, also if the run is resumed after it."""
    import keras

    def spoil(epoch: int, logs: object) -> None:
        del logs
        if epoch == 2:
            for weight in spoiling.model.trainable_weights:
                weight.assign(-9 * weight)

    spoiling = keras.callbacks.LambdaCallback(on_epoch_begin=spoil)
    options = small_options(few, epochs=3, out=tmp_path / "run")
    images = np.random.default_rng(0).random((8, 32, 32, 3), np.float32) * 255
    made: list[Any] = []

    def keep(_epoch: EpochReport) -> None:
        made.append(spoiling.model.get_weights())
        if len(made) == 3:  # as it would be if the run were killed now
            shutil.copytree(tmp_path / "run", tmp_path / "left")

    whole = train(**options, callbacks=[spoiling], on_epoch=keep)
    assert (whole.saved_epoch, whole.best_epoch < 3) == (3, True)
    names = ("model.keras", "model.best.keras")
    last, best = (load_model(tmp_path / "run" / name).whole(images) for name in names)
    assert not np.allclose(last, best)
    head = load_model(tmp_path / "run" / names[1]).core.get_layer("probabilities").get_weights()
    for weight, saved in zip(made[whole.best_epoch - 1], head, strict=True):
        np.testing.assert_array_equal(weight, saved)
    assert train(**dict(options, out=tmp_path / "left", resume=True)).best_epoch == whole.best_epoch
    again = load_model(tmp_path / "left" / "model.best.keras").whole(images)
    np.testing.assert_allclose(again, best, rtol=1e-5)
    record = json.loads((tmp_path / "left" / "history.json").read_text())["run"]["made"]
    assert record == json.loads((tmp_path / "left" / "run.json").read_text())
    assert record["options"]["seed"] == 0
    assert record["host"]["cores"] >= 1


def test_another_dataset_is_refused(left: dict[str, Any], pets: Path) -> None:
    """A run goes on with the images that it was begun with."""
    with pytest.raises(UsageError, match="another dataset"):
        train(**dict(left, dataset=pets, resume=True))
