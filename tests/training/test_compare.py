"""Ours beside the naive recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.training.runs import small_options, write_drawings
from tfrtool import TrainReport, UsageError, train
from tfrtool.training.run import train as verb
from tfrtool.training.run.train_options import TrainOptions
from tfrtool.training.run.train_report import EpochReport, TrainPlan


def _naive(report: TrainReport) -> TrainReport:
    assert report.naive is not None
    return report.naive


pytestmark = pytest.mark.tf


def test_both_are_trained(tmp_path: Path) -> None:
    """A frozen base gives both recipes the same losses; times are both's own, and ours is saved."""
    options = small_options(
        write_drawings(tmp_path / "pets"),
        model="mobilenet",
        weights="none",
        trainable="head",
        learning_rate=1e-5,
        out=tmp_path / "run",
        cycle_length=2,
    )
    epochs: list[EpochReport] = []
    ours = train(**options, compare=True, on_epoch=epochs.append)
    naive = _naive(ours)
    assert (ours.plan.recipe, naive.plan.recipe) == ("tfrtool", "naive")
    assert (ours.plan.cache, naive.plan.cache) == ("features", "none")
    assert tuple(epochs) == ours.epochs
    for one, other in zip(ours.epochs, naive.epochs, strict=True):
        assert one.loss == pytest.approx(other.loss, abs=1e-3)
        assert one.val_loss == pytest.approx(other.val_loss, abs=1e-3)
    data = ours.to_json()
    assert data["seconds"] > sum(epoch.seconds for epoch in ours.epochs)
    assert data["naive_seconds"] > sum(epoch.seconds for epoch in naive.epochs)
    assert data["speedup"] == pytest.approx(data["naive_seconds"] / data["seconds"], abs=1e-2)
    assert data["naive_cpu_seconds"] > 0
    assert data["naive_epochs"] == [epoch.to_json() for epoch in naive.epochs]
    for run, prefix in ((ours, ""), (naive, "naive_")):
        seconds = sum(epoch.seconds for epoch in run.epochs)
        start = data[f"{prefix}start_seconds"]
        assert data[f"{prefix}seconds"] == pytest.approx(start + seconds, abs=0.01)
    assert (tmp_path / "run" / "model.keras").is_file()


@pytest.mark.parametrize(
    "changes",
    [
        {"augment": "flip,rotate=20"},
        {"early_stopping": 1, "epochs": 9, "learning_rate": 0.3},
    ],
    ids=["augmented", "stopping early"],
)
def test_both_sides_have_it(tmp_path: Path, changes: dict[str, Any]) -> None:
    """The naive recipe augments by the same options, and stops by the same rule."""
    options = small_options(write_drawings(tmp_path / "pets"), **changes)
    plans: list[TrainPlan] = []
    ours = train(**options, compare=True, on_plan=plans.append)
    naive = _naive(ours)
    assert plans == [ours.plan]
    assert (ours.plan.recipe, naive.plan.recipe) == ("tfrtool", "naive")
    assert ours.plan.augment == naive.plan.augment == changes.get("augment")
    stopped = "early_stopping" in changes
    for run in (ours, naive):
        assert run.stopped_early == stopped
        assert stopped == (len(run.epochs) < options["epochs"])
    epochs = [run.epochs_seconds / len(run.epochs) for run in (ours, naive)]
    assert ours.epochs_speedup == pytest.approx(epochs[1] / epochs[0])


def test_neither_is_charged_with_what_happens_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both recipes have taken a step before the first of them is measured; no files are left."""
    begun: list[tuple[str, bool]] = []
    real: Any = vars(verb)["run_training"]

    def spied(options: TrainOptions, **others: Any) -> TrainReport:
        begun.append((options.recipe.value, options.out is not None))
        report: TrainReport = real(options, **others)
        return report

    monkeypatch.setattr(verb, "run_training", spied)
    options = small_options(write_drawings(tmp_path / "pets"), epochs=1, out=tmp_path / "run")
    train(**options, compare=True)
    assert begun == [("tfrtool", False), ("naive", False), ("tfrtool", True), ("naive", False)]


@pytest.mark.parametrize(
    "changes",
    [
        {"recipe": "naive"},
        {"resume": True, "out": Path("run")},
    ],
    ids=str,
)
def test_what_can_not_be_compared_is_refused(changes: dict[str, Any]) -> None:
    """What the naive recipe can't do is a usage error, before anything is read."""
    with pytest.raises(UsageError):
        train(**small_options(Path("nowhere"), **changes), compare=True)
