"""The default pipeline compared with the naive and the notebook's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.training.runs import small_options
from tfrtool import UsageError, train

pytestmark = [pytest.mark.tf, pytest.mark.usefixtures("quick_base")]


@pytest.mark.several
def test_all_are_measured(few: Path) -> None:
    """A frozen base gives all recipes the same losses; each is measured in its own process."""
    options = small_options(few, learning_rate=1e-9, epochs=1)
    report = train(**options, compare=True, compare_rounds=1)
    naive, notebook, ours = report.compared
    assert [one.recipe for one in (naive, notebook, ours)] == ["naive", "notebook", "tfrtool"]
    for one in report.compared:
        assert one.loss == pytest.approx(ours.loss, abs=1e-3)
        assert one.val_loss == pytest.approx(ours.val_loss, abs=1e-3)
        assert one.memory_bytes is not None
        assert 2**20 < one.memory_bytes < 2**29
        assert one.cpu_seconds > 0
        assert one.images_per_second == pytest.approx(14 / one.seconds, abs=0.2)
    data = report.to_json()
    assert data["ratios"]["naive"]["seconds"]["median"] == data["speedup"] == report.speedup
    assert data["speedup"] == pytest.approx(naive.seconds / ours.seconds, abs=1e-3)
    assert [run["recipe"] for run in data["runs"]] == ["naive", "notebook", "tfrtool"]


@pytest.mark.parametrize(
    "changes",
    [
        {"recipe": "naive"},
        {"resume": True, "out": Path("run")},
        {"model": lambda _size, _classes: None, "trainable": "all"},
    ],
    ids=["recipe", "resume", "model"],
)
def test_what_can_not_be_compared_is_refused(changes: dict[str, Any]) -> None:
    """It is a usage error, before anything is read."""
    with pytest.raises(UsageError):
        train(**small_options(Path("nowhere"), **changes), compare=True)
