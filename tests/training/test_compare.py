"""Ours beside the naive recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.training.runs import small_options
from tfrtool import UsageError, train
from tfrtool.training.run import train as verb
from tfrtool.training.run.train_options import TrainOptions
from tfrtool.training.run.train_report import EpochReport, TrainPlan, TrainReport

pytestmark = [pytest.mark.tf, pytest.mark.usefixtures("quick_base")]


def _naive(report: TrainReport) -> TrainReport:
    assert report.naive is not None
    return report.naive


def test_both_are_trained(few: Path) -> None:
    """A frozen base gives both recipes the same losses; times are both's own."""
    options = small_options(
        few,
        model="mobilenet",
        weights="none",
        learning_rate=1e-5,
        cycle_length=2,
    )
    epochs: list[EpochReport] = []
    ours = train(**options, compare=True, on_epoch=epochs.append)
    naive = _naive(ours)
    runs = [(run.plan.options.recipe.value, run.plan.cache.cache.value) for run in (ours, naive)]
    assert runs == [("tfrtool", "features"), ("naive", "none")]
    assert tuple(epochs) == ours.epochs
    for one, other in zip(ours.epochs, naive.epochs, strict=True):
        assert one.loss == pytest.approx(other.loss, abs=1e-3)
        assert one.val_loss == pytest.approx(other.val_loss, abs=1e-3)
    data = ours.to_json()
    assert data["seconds"] > sum(epoch.seconds for epoch in ours.epochs)
    assert data["naive_seconds"] > sum(epoch.seconds for epoch in naive.epochs)
    assert data["speedup"] == pytest.approx(data["naive_seconds"] / data["seconds"], abs=1e-2)


def test_both_sides_have_it(few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The naive recipe augments by the same options, stops by the same rule, and saves nothing.

    It was begun before ours is measured, so that ours isn't charged with what happens once.
    """
    begun: list[tuple[str, bool]] = []
    real: Any = vars(verb)["TrainingRun"]

    def spied(options: TrainOptions, *others: Any) -> Any:
        begun.append((options.recipe.value, options.out is not None))
        return real(options, *others)

    monkeypatch.setattr(verb, "TrainingRun", spied)
    changes = {"augment": "rotate=20", "early_stopping": 1, "epochs": 9, "learning_rate": 1.0}
    options = small_options(few, **changes, out=tmp_path / "run")
    plans: list[TrainPlan] = []
    ours = train(**options, compare=True, on_plan=plans.append)
    assert begun == [("naive", False), ("tfrtool", True), ("naive", False)]
    assert plans == [ours.plan]
    for run in (ours, _naive(ours)):
        assert str(run.plan.options.augment) == changes["augment"]
        assert run.stopped_early
        assert len(run.epochs) < 9
    assert (tmp_path / "run" / "model.keras").is_file()


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
