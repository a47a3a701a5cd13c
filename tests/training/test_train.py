"""Training runs, on small drawings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.datasets import flip_bit, image_payload, write_foreign
from tests.more import more
from tests.photos import write_class_folders
from tests.training.conftest import Told
from tests.training.runs import planned, small_options
from tfrtool import train
from tfrtool.errors import DatasetError, UsageError
from tfrtool.loading.cache import CachePlan
from tfrtool.training.train_options import TrainOptions
from tfrtool.training.train_report import TrainReport
from tfrtool.training.training_data import find_training_data, plan_run_cache

pytestmark = pytest.mark.tf


@pytest.mark.more
def test_same_seed_same_history(finished: Told, pets: Path) -> None:
    """A run is repeated by its seed, on an opened dataset too."""
    options = dict(finished.options, out=None, tensorboard=None, profile=False)
    options |= {"dataset": tfrtool.dataset(str(pets)), "epochs": 1, "cache": "memory"}
    (again,) = train(**options).epochs
    assert again.loss == pytest.approx(finished.epochs[0].loss, rel=1e-3)


def test_plan_steps_and_epochs_are_told_in_order(finished: Told) -> None:
    """What callbacks are told has the counts of the dataset, and is what is reported."""
    report, epochs = finished.report, finished.epochs
    assert tuple(epochs) == report.epochs
    assert [epoch.epoch for epoch in epochs] == [1, 2]
    assert finished.plans == [report.plan]
    assert (report.plan.train_images, report.plan.validation_images) == (155, 44)
    steps = [step for step in finished.progress if step.unit == "steps"]
    assert [(step.what, step.done, step.total) for step in steps] == [
        (f"epoch {epoch}", done, 10) for epoch in (1, 2) for done in range(1, 11)
    ]
    assert f"loss {epochs[0].loss:.4f}" in steps[9].note
    _check_epochs(report)
    names = ["checkpoint", "history.json", "history.png", "labels.txt", "model.best.keras"]
    names += ["model.keras", "run.json"]
    assert sorted(path.name for path in finished.out.iterdir()) == names
    assert (finished.out / "labels.txt").read_text() == "cat\ndog\n"
    history = json.loads((finished.out / "history.json").read_text())
    assert history["epochs"] == [epoch.to_json() for epoch in epochs]
    assert (finished.out / "history.png").read_bytes().startswith(b"\x89PNG")


def test_several_splits_are_one(tmp_path: Path) -> None:
    """As in cross-validation: all folds but one are trained on, also if a record is damaged."""
    source = write_class_folders(tmp_path / "photos", count=6)
    folds = {"f0": 0.5, "f1": 0.25, "f2": 0.25}
    tfrtool.write(source, tmp_path / "d", splits=folds, shards=1)
    dataset = tfrtool.dataset(tmp_path / "d")
    options = small_options(tmp_path / "d", split="f0,f1", validation="f2", cache="none")
    counts = [dataset.split(name).records for name in folds]
    plan = planned(**options)
    assert (plan.train_images, plan.validation_images) == (counts[0] + counts[1], counts[2])
    parts = [
        batch[0].numpy()
        for split in ("f0", "f1", "f0,f1")
        for batch in dataset.load(split, image_size=8, training=False, batch_size=99)
    ]
    assert sorted(map(bytes, [*parts[0], *parts[1]])) == sorted(map(bytes, parts[2]))
    flip_bit(next((tmp_path / "d").glob("*-f0.tfrecord*")), 200)
    plan = planned(**options, on_error="skip")
    assert (plan.train_images, plan.skipped) == (counts[0] + counts[1] - 1, 1)
    for split, problem in (("f0,f2", "'f2' can't be used for both"), ("f0,f0", "a split twice")):
        with pytest.raises(UsageError, match=problem):
            train(**options | {"split": split})


def test_slices_of_one_split(pets: Path) -> None:
    """Parts of a split are trained and validated on, if they have no record in common."""
    options = small_options(pets, split="train[:80%]", validation="train[80%:]")
    plan = planned(**options)
    assert (plan.train_images, plan.validation_images) == (124, 31)
    with pytest.raises(UsageError, match="'train' can't be used for both"):
        planned(**options | {"validation": "train[79%:]"})


def _check_epochs(report: TrainReport) -> None:
    for epoch in report.epochs:
        assert 0 <= epoch.logs["accuracy"] <= 1
        assert 0 <= epoch.input_wait_fraction <= 1
        assert epoch.images_per_second > 0


@pytest.mark.parametrize(("recipe", "cache"), [more("notebook", "memory"), ("naive", "none")])
def test_every_recipe_trains_on_all_images(few: Path, recipe: str, cache: str) -> None:
    """The published recipes train on the same images, each with its own cache."""
    report = train(**small_options(few, recipe=recipe, batch_size=4))
    plan = report.plan
    assert (plan.train_images, plan.validation_images) == (14, 6)
    assert (plan.recipe, plan.cache) == (recipe, cache)
    _check_epochs(report)


def test_validation_defaults_and_choices(pets: Path, tmp_path: Path) -> None:
    """The split named validation is the default; a fraction is held out of the training split."""

    def counts(**changes: Any) -> list[int]:
        options = TrainOptions(**small_options(pets, **changes))
        return find_training_data(options, tmp_path).images

    assert counts() == [155, 44]
    trained, held = counts(validation=0.25)
    assert trained + held == 155
    assert 0.2 < held / 155 < 0.3
    assert counts(split="validation", validation="train") == [44, 155]


def test_without_validation_nothing_is_validated(tmp_path: Path) -> None:
    """Where there is no split to validate on; test_multi_label.py has the epochs of such a run."""
    directory = write_foreign(tmp_path / "d", [[image_payload(n % 2) for n in range(8)]])
    assert planned(**small_options(directory, epochs=1)).validation_images == 0


def _planned(tmp_path: Path, options: dict[str, Any], feature_size: int = 1280) -> CachePlan:
    made = TrainOptions(**options)
    size = feature_size if made.model != "cnn" else None
    return plan_run_cache(made, find_training_data(made, tmp_path), None, feature_size=size)


@pytest.mark.parametrize(
    ("changes", "cache"),
    [
        ({"cache": "memory"}, "memory"),
        ({"cache": "none"}, "none"),
        ({"epochs": 1}, "none"),
        ({}, "memory"),
        ({"model": "mobilenet", "trainable": "head"}, "features"),
        ({"model": "mobilenet", "trainable": "head", "augment": "flip"}, "memory"),
        (
            {"model": "mobilenet", "trainable": "head", "cache": "features", "augment": "flip"},
            "memory",
        ),
    ],
)
def test_cache_is_planned(pets: Path, tmp_path: Path, changes: dict[str, Any], cache: str) -> None:
    """The cache is what was asked for, or what fits, and there is a reason for it."""
    plan = _planned(tmp_path, small_options(pets, **changes))
    assert plan.cache == cache
    assert plan.reason


def test_caches_that_do_not_fit_are_not_made(
    pets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With little free memory, images are decoded again instead.

    A frozen base's outputs, 1,280 numbers of each of 199 images, are held against memory.
    """

    def planned(free: int, **changes: Any) -> CachePlan:
        monkeypatch.setattr("tfrtool.training.training_data.available_memory", lambda: free)
        monkeypatch.setattr("tfrtool.training.training_data.free_disk", lambda _: 0)
        return _planned(tmp_path, small_options(pets, **changes))

    plan = planned(1_000_000)
    assert plan.cache == "none"
    assert "1.0 MiB free" in plan.reason
    head = {"model": "mobilenet_v2", "trainable": "head"}
    needed = 199 * (1280 * 4 + 8)
    assert planned(3 * needed, **head).cache == "features"
    assert planned(needed, **head).cache == "none"
    with pytest.raises(UsageError, match="does not fit"):
        planned(needed, **head, cache="features")


def test_one_class_is_an_error(tmp_path: Path) -> None:
    """There is nothing to tell apart in one class."""
    source = write_class_folders(tmp_path / "photos", ("cat",))
    tfrtool.write(source, tmp_path / "pets")
    with pytest.raises(DatasetError, match="two classes"):
        train(**small_options(tmp_path / "pets"))


@pytest.mark.parametrize(
    "changes",
    [
        {"batch_size": 0},
        {"image_size": 8},
        {"image_size": 0},
        {"learning_rate": 0.0},
        {"learning_rate": 1001.0},
        {"seed": -1},
        {"recipe": "notebook", "deterministic": False},
        {"recipe": "naive", "steps_per_epoch": 2},
        {"recipe": "naive", "resume": True, "out": Path("run")},
        {"early_stopping": 0},
        {"prefetch": -1},
        {"cache": "memory", "cache_directory": Path("c")},
    ],
)
def test_impossible_options_are_refused(changes: dict[str, Any]) -> None:
    """Options that can't be meant, or don't go together, are a usage error."""
    with pytest.raises(UsageError):
        train(**small_options(Path("d"), **changes))


def test_unknown_options_are_told_with_the_known_ones() -> None:
    """A keyword that is misspelt is a usage error that suggests the right one."""
    with pytest.raises(TypeError, match=r"'epoch'.*epochs"):
        train("d", epoch=3)  # type: ignore[call-arg]
