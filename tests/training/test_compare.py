"""Ours beside the naive and the published recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.training.runs import small_options
from tfrtool import UsageError, train
from tfrtool.training.run import compare as comparing
from tfrtool.training.run import train as verb
from tfrtool.training.run.train_options import TrainOptions
from tfrtool.training.run.train_report import EpochReport, TrainPlan, TrainReport

pytestmark = [pytest.mark.tf, pytest.mark.usefixtures("quick_base")]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train all in this process: another one takes seconds to start."""

    def call(_path: Path, function: Any, *arguments: Any) -> Any:
        return function(*arguments)

    monkeypatch.setattr(comparing, "in_own_process", call)


def _runs(report: TrainReport) -> list[TrainReport]:
    assert report.naive is not None
    assert report.notebook is not None
    return [report.naive, report.notebook, report]


@pytest.mark.several
@pytest.mark.usefixtures("here")
def test_all_are_trained(few: Path) -> None:
    """A frozen base gives all recipes the same losses; what they took is each one's own."""
    options = small_options(
        few,
        model="mobilenet",
        weights="none",
        learning_rate=1e-5,
        cycle_length=2,
    )
    epochs: list[EpochReport] = []
    ours = train(**options, compare=True, compare_rounds=2, on_epoch=epochs.append)
    runs = _runs(ours)
    kinds = [(run.plan.options.recipe.value, run.plan.cache.cache.value) for run in runs]
    assert kinds == [("naive", "none"), ("notebook", "memory"), ("tfrtool", "features")]
    assert tuple(epochs) == ours.epochs
    for run in runs:
        for one, other in zip(ours.epochs, run.epochs, strict=True):
            assert one.loss == pytest.approx(other.loss, abs=1e-3)
            assert one.val_loss == pytest.approx(other.val_loss, abs=1e-3)
    data = ours.to_json()
    names = ("naive_seconds", "notebook_seconds")
    assert [one["seconds"] for one in data["runs"][:2]] == [data[name] for name in names]
    for run, told in zip(runs, data["runs"], strict=True):
        assert len(run.again) == 1
        each = [one.seconds for one in (run, *run.again)]
        assert told["seconds_each"] == pytest.approx(each, abs=1e-3)
        assert told["seconds"] == pytest.approx(sum(each) / 2, abs=1e-3)
        assert each[0] > sum(epoch.seconds for epoch in run.epochs)
        assert told["recipe"] == run.plan.options.recipe.value
        assert told["images_per_second"] == pytest.approx(2 * 14 / told["seconds"], abs=0.2)
        assert told["loss"] == pytest.approx(run.epochs[-1].loss, abs=1e-6)
        assert 0 <= told["input_wait_fraction"] <= 1
        assert told["cpu_seconds"] > 0
    naive, _, tfrtool = data["runs"]
    for name in ("cpu_seconds", "seconds"):
        pairs = zip(naive[f"{name}_each"], tfrtool[f"{name}_each"], strict=True)
        least, most = sorted(one / ours for one, ours in pairs)
        found = data["ratios"]["naive"][name]
        assert found["least"] == pytest.approx(least, rel=0.01)
        assert found["most"] == pytest.approx(most, rel=0.01)
        assert found["median"] == pytest.approx((least + most) / 2, rel=0.01)
    assert data["speedup"] == data["ratios"]["naive"]["seconds"]["median"]


@pytest.mark.usefixtures("here")
@pytest.mark.several
def test_both_sides_have_it(few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The naive recipe augments by the same options, stops by the same rule, and saves nothing.

    It was begun before ours is measured, so that ours isn't charged with what happens once. The
    published recipe doesn't augment, and is left out with that reason.
    """
    begun: list[tuple[str, bool]] = []
    real: Any = vars(verb)["TrainingRun"]

    def spied(options: TrainOptions, *others: Any) -> Any:
        begun.append((options.recipe.value, options.out is not None))
        return real(options, *others)

    monkeypatch.setattr(verb, "TrainingRun", spied)
    changes = {"augment": "rotate=20", "early_stopping": 1, "epochs": 9, "learning_rate": 10.0}
    options = small_options(few, **changes, out=tmp_path / "run")
    plans: list[TrainPlan] = []
    ours = train(**options, compare=True, compare_rounds=1, on_plan=plans.append)
    names = ("naive", "tfrtool", "naive", "naive", "naive")
    assert begun == [(name, name == "tfrtool") for name in names]
    assert plans == [ours.plan]
    assert ours.naive is not None
    for run in (ours, ours.naive):
        assert str(run.plan.options.augment) == changes["augment"]
        assert run.stopped_early
        assert len(run.epochs) < 9
    assert ours.notebook is None
    assert "augment" in ours.to_json()["notebook_skipped"]
    assert (tmp_path / "run" / "model.keras").is_file()


@pytest.mark.usefixtures("here")
@pytest.mark.several
def test_a_model_is_the_same_for_all(few: Path) -> None:
    """A ``keras.Model`` that is given is trained by each recipe from the weights that it has.

    There is one step, whose loss is that before it.
    """
    import keras

    layers = keras.layers
    model = keras.Sequential(
        [keras.Input((32, 32, 3)), layers.Flatten(), layers.Dense(2, activation="softmax")]
    )
    before = [weight.numpy() for weight in model.weights]
    options = small_options(few, model=model, trainable="all", epochs=1, learning_rate=0.1)
    firsts = [run.epochs[0].loss for run in _runs(train(**options, compare=True, compare_rounds=1))]
    assert any((old != new.numpy()).any() for old, new in zip(before, model.weights, strict=True))
    assert firsts[1:] == pytest.approx(firsts[:1] * 2, abs=1e-3)


@pytest.mark.several
def test_memory_is_each_runs_own(few: Path) -> None:
    """Each published recipe is measured in a new process: what this one has had is not in it."""
    held = bytearray(2**30)
    held[:: 2**12] = b"x" * len(held[:: 2**12])
    del held
    ours = train(**small_options(few, epochs=1), compare=True, compare_rounds=1)
    for run in _runs(ours):
        assert run.memory_bytes is not None
        assert 2**20 < run.memory_bytes < 2**29


@pytest.mark.parametrize(
    "changes",
    [
        {"recipe": "naive"},
        {"resume": True, "out": Path("run")},
        {"strategy": "multi-worker"},
        {"model": lambda _size, _classes: None, "trainable": "all"},
    ],
    ids=["recipe", "resume", "strategy", "model"],
)
def test_what_can_not_be_compared_is_refused(changes: dict[str, Any]) -> None:
    """What the others can't do is a usage error, before anything is read."""
    with pytest.raises(UsageError):
        train(**small_options(Path("nowhere"), **changes), compare=True)
