"""Training runs, on small drawings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import tfrtool
from tests.datasets import flip_bit, image_payload, write_foreign, write_pets
from tests.photos import write_class_folders
from tests.training.runs import small_options, write_drawings
from tfrtool import train
from tfrtool.errors import CorruptShardError, DatasetError, UsageError
from tfrtool.loading.cache.cache_plan import CachePlan
from tfrtool.loading.pipeline.load_options import Cache
from tfrtool.records.framing import Record
from tfrtool.records.reader import read_records
from tfrtool.storage.progress import Progress, silent
from tfrtool.training.run.train_options import TrainOptions
from tfrtool.training.run.train_report import EpochReport, TrainPlan
from tfrtool.training.run.training_data import find_training_data, plan_run_cache

pytestmark = pytest.mark.tf


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the drawings of the fixtures as a dataset."""
    return write_drawings(tmp_path_factory.mktemp("pets") / "pets")


def test_the_demo_learns(pets: Path) -> None:
    """With the demo's options, the cnn tells cats from dogs: over 0.9 of those it never saw."""
    report = train(**small_options(pets, image_size=64, epochs=12, learning_rate=1e-3))
    assert report.epochs[-1].val_accuracy is not None
    assert report.epochs[-1].val_accuracy > 0.9


def test_same_seed_same_history(pets: Path) -> None:
    """A run is repeated by its seed, and another seed gives another run."""
    first, second, third = (
        [epoch.loss for epoch in train(**small_options(pets, seed=seed)).epochs]
        for seed in (1, 1, 2)
    )
    assert first == pytest.approx(second, rel=1e-3)
    assert first != pytest.approx(third, rel=1e-3)


@pytest.mark.parametrize("recipe", ["tfrtool", "notebook", "naive"])
def test_every_recipe_trains_on_all_images(pets: Path, recipe: str) -> None:
    """Plan, steps and epochs are told in order, with the counts of the dataset."""
    plans: list[TrainPlan] = []
    epochs: list[EpochReport] = []
    steps: list[Progress] = []
    report = train(
        **small_options(pets, recipe=recipe),
        on_plan=plans.append,
        on_epoch=epochs.append,
        on_progress=steps.append,
    )
    assert tuple(epochs) == report.epochs
    assert [epoch.epoch for epoch in epochs] == [1, 2]
    (plan,) = plans
    assert (plan.train_images, plan.validation_images) == (155, 44)
    assert plan.recipe == recipe
    assert [(step.what, step.done, step.total) for step in steps] == [
        (f"epoch {epoch}", done, 10) for epoch in (1, 2) for done in range(1, 11)
    ]
    assert f"loss {epochs[0].loss:.4f}" in steps[9].note
    for epoch in epochs:
        assert 0 <= epoch.accuracy <= 1
        assert 0 <= epoch.input_wait_fraction <= 1
        assert epoch.images_per_second > 0


def test_loss_and_accuracy_are_over_the_whole_epoch(pets: Path) -> None:
    """With a model that doesn't change, training and evaluation of one split agree."""
    options = small_options(
        pets, split="validation", validation="train", epochs=1, learning_rate=1e-12
    )
    swapped = dict(options, split="train", validation="validation")
    first, second = train(**options).epochs[0], train(**swapped).epochs[0]
    assert first.loss == pytest.approx(second.val_loss, rel=1e-3)
    assert first.accuracy == pytest.approx(second.val_accuracy, abs=1e-6)
    assert second.loss == pytest.approx(first.val_loss, rel=1e-3)


def test_validation_defaults_and_choices(pets: Path) -> None:
    """The split named validation is the default; a fraction is held out of the training split."""
    assert _plan(small_options(pets, epochs=1)).validation_images == 44
    held = _plan(small_options(pets, epochs=1, validation=0.25))
    assert held.train_images + held.validation_images == 155
    assert 0.2 < held.validation_images / 155 < 0.3


def _plan(options: dict[str, Any]) -> TrainPlan:
    return train(**options).plan


def test_without_validation_nothing_is_validated(tmp_path: Path) -> None:
    """Where there is no split to validate on, the fields are empty."""
    directory = write_foreign(tmp_path / "d", [[image_payload(n % 2) for n in range(8)]])
    report = train(**small_options(directory, epochs=1))
    assert report.plan.validation_images == 0
    assert report.epochs[0].val_loss is None
    assert report.epochs[0].to_json()["val_accuracy"] is None


@pytest.mark.parametrize(
    ("changes", "cache"),
    [
        ({"cache": "memory"}, "memory"),
        ({"cache": "none"}, "none"),
        ({"epochs": 1}, "none"),
        ({}, "memory"),
        ({"recipe": "naive"}, "none"),
        ({"recipe": "notebook"}, "memory"),
    ],
)
def test_cache_is_planned(pets: Path, changes: dict[str, Any], cache: str) -> None:
    """The cache is what was asked for, or what fits, and there is a reason for it."""
    plan = _plan(small_options(pets, **changes))
    assert plan.cache == cache
    assert plan.cache_reason


def test_cache_that_does_not_fit_is_not_made(pets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With little free memory, images are decoded again instead."""
    monkeypatch.setattr("tfrtool.training.run.training_data.available_memory", lambda: 1_000_000)
    monkeypatch.setattr("tfrtool.training.run.training_data.free_disk", lambda _: 1_000_000)
    plan = _plan(small_options(pets))
    assert plan.cache == "none"
    assert "1.0 MiB are free" in plan.cache_reason


def test_features_that_do_not_fit_are_not_kept(pets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen base's outputs, 1,280 numbers of each of 199 images, are held against memory."""

    def planned(free: int, cache: Any = None) -> CachePlan:
        monkeypatch.setattr("tfrtool.training.run.training_data.available_memory", lambda: free)
        monkeypatch.setattr("tfrtool.training.run.training_data.free_disk", lambda _: 0)
        options = TrainOptions(
            dataset=pets, trainable="head", weights="none", image_size=32, cache=cache
        )
        return plan_run_cache(options, find_training_data(options, pets, silent), None)

    needed = 199 * (1280 * 4 + 8)
    enough = planned(3 * needed)
    assert enough.cache is Cache.FEATURES
    assert "1.0 MiB of float32" in enough.reason
    assert planned(needed).cache is Cache.NONE
    with pytest.raises(UsageError, match="does not fit"):
        planned(needed, cache="features")


def test_out_holds_a_whole_model(pets: Path, tmp_path: Path) -> None:
    """The saved model takes pixels, and tells cats and dogs as well as the run said."""
    import keras

    out = tmp_path / "run"
    report = train(**small_options(pets, image_size=64, epochs=12, learning_rate=1e-3, out=out))
    assert sorted(path.name for path in out.iterdir()) == [
        "checkpoint",
        "history.json",
        "history.png",
        "labels.txt",
        "model.keras",
    ]
    assert (out / "labels.txt").read_text() == "cat\ndog\n"
    history = json.loads((out / "history.json").read_text())
    assert history["epochs"] == [epoch.to_json() for epoch in report.epochs]
    with Image.open(out / "history.png") as image:
        assert image.format == "PNG"
    model = keras.models.load_model(out / "model.keras")
    right = total = 0
    for path in pets.glob("*-validation.tfrecord-*"):
        with path.open("rb") as file:
            for item in read_records(file):
                assert isinstance(item, Record)
                pixels, label = _decoded(item.payload)
                right += int(np.argmax(model.predict(pixels, verbose=0)) == label)
                total += 1
    assert right / total == pytest.approx(report.epochs[-1].val_accuracy, abs=1.5 / total)


def _decoded(payload: bytes) -> tuple[Any, int]:
    import tensorflow as tf

    example = tf.train.Example.FromString(payload).features.feature
    image = tf.io.decode_jpeg(example["image"].bytes_list.value[0], channels=3)
    label = example["label"].int64_list.value[0]
    return tf.image.resize(image, (64, 64))[None], label


def test_out_is_not_overwritten(pets: Path, tmp_path: Path) -> None:
    """A directory with a model in it is refused, before any time is spent."""
    (tmp_path / "model.keras").write_bytes(b"precious")
    with pytest.raises(UsageError):
        train(**small_options(pets, out=tmp_path))
    assert (tmp_path / "model.keras").read_bytes() == b"precious"


def test_damaged_payload_is_named(tmp_path: Path) -> None:
    """A record that fails its CRC stops the run with the file, the record and the offset."""
    first = image_payload(0)
    directory = write_foreign(tmp_path / "d", [[image_payload(1)], [first, image_payload(1)]])
    path = sorted(directory.iterdir())[1]
    (directory / "label.labels.txt").write_text("cat\ndog\n")
    offset = len(first) + 16
    flip_bit(path, offset + 40)
    with pytest.raises(CorruptShardError) as caught:
        train(**small_options(directory))
    error = caught.value
    assert (error.path, error.record, error.offset) == (str(path), 1, offset)


def test_undecodable_image_is_an_error(tmp_path: Path) -> None:
    """A record whose image doesn't decode ends in one clear line."""
    good = [image_payload(n % 2) for n in range(4)]
    bad = image_payload(0, data=b"\xff\xd8\xff no image")
    directory = write_foreign(tmp_path / "d", [[*good, bad]])
    with pytest.raises(DatasetError) as caught:
        train(**small_options(directory))
    assert "\n" not in str(caught.value)


def test_one_class_is_an_error(tmp_path: Path) -> None:
    """There is nothing to tell apart in one class."""
    source = write_class_folders(tmp_path / "photos", ("cat",))
    tfrtool.write(source=source, dataset=tmp_path / "pets")
    with pytest.raises(DatasetError, match="two classes"):
        train(**small_options(tmp_path / "pets"))


def test_same_split_twice_is_refused(tmp_path: Path) -> None:
    """Training and validating on one split would measure nothing."""
    with pytest.raises(UsageError):
        train(**small_options(write_pets(tmp_path), validation="train"))


def test_label_beyond_the_classes_is_an_error(tmp_path: Path) -> None:
    """A label that has no class name is no silent NaN."""
    directory = write_foreign(tmp_path / "d", [[image_payload(n) for n in (0, 1, 2)]])
    (directory / "label.labels.txt").write_text("cat\ndog\n")
    with pytest.raises(DatasetError):
        train(**small_options(directory, epochs=1))


@pytest.mark.parametrize(
    "changes",
    [
        {"epochs": 0},
        {"batch_size": 0},
        {"image_size": 8},
        {"learning_rate": 0.0},
        {"seed": -1},
        {"validation": 1.5},
        {"recipe": "naive", "cache": "memory"},
        {"recipe": "naive", "cycle_length": 2},
        {"recipe": "notebook", "augment": "flip"},
        {"recipe": "notebook", "deterministic": False},
        {"recipe": "naive", "resume": True, "out": Path("run")},
        {"resume": True},
        {"profile": True},
        {"early_stopping": 0},
        {"shuffle_buffer": 0},
        {"prefetch": -1},
        {"cache": "memory", "cache_directory": Path("c")},
        {"weights": "imagenet"},
    ],
)
def test_impossible_options_are_refused(changes: dict[str, Any]) -> None:
    """Options that can't be meant, or don't go together, are a usage error."""
    with pytest.raises(UsageError):
        train(**small_options(Path("d"), **changes))
