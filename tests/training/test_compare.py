"""The default pipeline compared with the naive and the notebook's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.training.runs import small_options
from tfrtool import UsageError, train
from tfrtool.cli.commands.train_command import ratio_text, render_end
from tfrtool.training.compare import comparable_runs
from tfrtool.training.train_options import TrainOptions

pytestmark = [pytest.mark.tf, pytest.mark.usefixtures("quick_base")]


@pytest.mark.several
def test_all_are_measured(few: Path) -> None:
    """A frozen base gives all runs the same losses; each is measured in its own process."""
    progress: list[str] = []
    options = small_options(few, learning_rate=1e-9, epochs=2)
    options["on_progress"] = lambda one: progress.append(one.what)
    report = train(**options, compare=True, compare_rounds=1)
    naive, _, plain, ours = report.compared
    names = ["naive", "notebook", "no-features", "tfrtool"]
    assert [one.name for one in report.compared] == names
    assert [plain.cache, ours.cache] == ["memory", "features"]
    assert {f"{name}, run {n} of 4: epoch 1" for n, name in enumerate(names, 1)} <= {*progress}
    for one in report.compared:
        assert one.loss == pytest.approx(ours.loss, abs=1e-3)
        assert one.val_loss == pytest.approx(ours.val_loss, abs=1e-3)
        assert one.memory_bytes is not None
        assert 2**20 < one.memory_bytes < 2**29
        assert one.cpu_seconds > 0
        assert one.first_epoch_seconds + (one.later_epoch_seconds or 0) < one.seconds
        images = 20 * 2 / (one.first_epoch_seconds + (one.later_epoch_seconds or 0))
        assert one.images_per_second == pytest.approx(images, rel=0.1)
    data = report.to_json()
    assert data["ratios"]["tfrtool"]["seconds"]["median"] == data["speedup"] == report.speedup
    assert data["speedup"] == pytest.approx(naive.seconds / ours.seconds, abs=1e-3)
    assert [run["name"] for run in data["runs"]] == names
    assert data["gains"]["pipeline"] == pytest.approx(naive.seconds / plain.seconds, abs=1e-3)
    gain = data["gains"]["pipeline"] * data["gains"]["feature_cache"]
    assert gain == pytest.approx(data["speedup"], rel=0.01)
    text = render_end(report)
    assert "\n  no-features " in text
    assert f"of the {report.speedup:.2g}x in total, the pipeline gives" in text


@pytest.mark.parametrize("changes", [{}, {"autotune": True}, {"prefetch": 1, "cycle_length": 2}])
def test_each_run_has_options_that_go_together(few: Path, changes: dict[str, Any]) -> None:
    """The published ones have none of the caller's own pipeline."""
    runs = comparable_runs(TrainOptions(**small_options(few, compare=True, **changes)))
    assert [*runs] == ["naive", "notebook", "no-features", "tfrtool"]
    for name in ("naive", "notebook"):
        assert runs[name].recipe == name
        assert not any(getattr(runs[name], option) for option in changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"recipe": "naive"},
        {"resume": True, "out": Path("run")},
        {"model": lambda _size, _classes: None, "trainable": "all"},
        {"steps_per_epoch": 2},
    ],
    ids=["recipe", "resume", "model", "steps"],
)
def test_what_can_not_be_compared_is_refused(changes: dict[str, Any]) -> None:
    """It is a usage error, before anything is read."""
    with pytest.raises(UsageError):
        train(**small_options(Path("nowhere"), **changes), compare=True)


def test_ratios_are_short() -> None:
    """A ratio has two digits or its whole number, and a range if rounds differ."""
    assert ratio_text({"least": 0.951, "median": 1.2, "most": 99.4}) == "1.2x (0.95 to 99)"
    assert ratio_text({"least": 1480.2, "median": 1480.2, "most": 1480.2}) == "1,480x"
