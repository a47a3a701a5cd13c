"""Ours beside the naive recipe."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.training.runs import small_options, write_drawings
from tfrtool.errors import UsageError
from tfrtool.loading.augment.augment_options import parse_augment
from tfrtool.loading.pipeline.load_options import Recipe
from tfrtool.training.models.model_choice import ModelName, Trainable
from tfrtool.training.run.compare import train_and_compare
from tfrtool.training.run.listener import Listener
from tfrtool.training.run.train import train
from tfrtool.training.run.train_options import TrainOptions
from tfrtool.training.run.train_report import EpochReport, TrainPlan, TrainReport

pytestmark = pytest.mark.tf


def test_both_are_trained(tmp_path: Path) -> None:
    """A frozen base gives both recipes the same losses; times are both's own, and ours is saved."""
    options = small_options(
        write_drawings(tmp_path / "pets"),
        model=ModelName.MOBILENET_V2,
        weights="none",
        trainable=Trainable.HEAD,
        learning_rate=1e-5,
        out=tmp_path / "run",
        cycle_length=2,
    )
    ours: list[EpochReport] = []
    naive: list[EpochReport] = []
    both = train_and_compare(
        options, Listener(on_epoch=ours.append), Listener(on_epoch=naive.append)
    )
    assert (both.ours.plan.recipe, both.naive.plan.recipe) == ("tfrtool", "naive")
    assert (both.ours.plan.cache, both.naive.plan.cache) == ("features", "none")
    assert (tuple(ours), tuple(naive)) == (both.ours.epochs, both.naive.epochs)
    for one, other in zip(ours, naive, strict=True):
        assert one.loss == pytest.approx(other.loss, abs=1e-3)
        assert one.val_loss == pytest.approx(other.val_loss, abs=1e-3)
    data = both.to_json()
    assert data["seconds"] > sum(epoch.seconds for epoch in ours)
    assert data["naive_seconds"] > sum(epoch.seconds for epoch in naive)
    assert data["speedup"] == pytest.approx(data["naive_seconds"] / data["seconds"], abs=1e-2)
    assert data["naive_cpu_seconds"] > 0
    for run, prefix in ((both.ours, ""), (both.naive, "naive_")):
        epochs = sum(epoch.seconds for epoch in run.epochs)
        start = data[f"{prefix}start_seconds"]
        assert data[f"{prefix}seconds"] == pytest.approx(start + epochs, abs=0.01)
    assert (tmp_path / "run" / "model.keras").is_file()


@pytest.mark.parametrize(
    "changes",
    [
        {"augment": parse_augment("flip,rotate=20")},
        {"early_stopping": 1, "epochs": 9, "learning_rate": 0.3},
    ],
    ids=["augmented", "stopping early"],
)
def test_both_sides_have_it(tmp_path: Path, changes: dict[str, Any]) -> None:
    """The naive recipe augments by the same options, and stops by the same rule."""
    options = small_options(write_drawings(tmp_path / "pets"), **changes)
    plans: list[TrainPlan] = []
    both = train_and_compare(
        options, Listener(on_plan=plans.append), Listener(on_plan=plans.append)
    )
    assert [plan.recipe for plan in plans] == ["tfrtool", "naive"]
    augment = None if options.augment is None else str(options.augment)
    assert [plan.augment for plan in plans] == [augment, augment]
    stopped = options.early_stopping is not None
    for run in (both.ours, both.naive):
        assert run.stopped_early == stopped
        assert stopped == (len(run.epochs) < options.epochs)
    epochs = [run.epochs_seconds / len(run.epochs) for run in (both.ours, both.naive)]
    assert both.epochs_speedup == pytest.approx(epochs[1] / epochs[0])


def test_neither_is_charged_with_what_happens_once(tmp_path: Path) -> None:
    """Both recipes have taken a step before the first of them is measured; no files are left."""
    options = small_options(write_drawings(tmp_path / "pets"), epochs=1, out=tmp_path / "run")
    seen: list[tuple[str, bool]] = []

    def spy(recipe: str) -> Listener:
        return Listener(on_plan=lambda plan: seen.append((recipe, plan.recipe == recipe)))

    steps = _count_begun(options, spy("tfrtool"), spy("naive"))
    assert seen == [("tfrtool", True), ("naive", True)]
    assert steps == ["tfrtool", "naive", "tfrtool", "naive"]


def _count_begun(options: TrainOptions, ours: Listener, naive: Listener) -> list[str]:
    """Return the recipes of all runs that are begun, in turn."""
    begun: list[str] = []

    def spied(given: TrainOptions, *listeners: Any) -> TrainReport:
        begun.append(given.recipe.value)
        return train(given, *listeners)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tfrtool.training.run.compare.train", spied)
        train_and_compare(options, ours, naive)
    return begun


@pytest.mark.parametrize(
    "changes",
    [
        {"recipe": Recipe.NAIVE},
        {"resume": True, "out": Path("run")},
    ],
    ids=str,
)
def test_what_can_not_be_compared_is_refused(changes: dict[str, Any]) -> None:
    """What the naive recipe can't do is a usage error, before anything is read."""
    options = replace(small_options(Path("nowhere")), **changes)
    with pytest.raises(UsageError):
        train_and_compare(options, Listener(), Listener())
