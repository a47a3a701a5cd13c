"""Ours beside the naive recipe."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.training.runs import small_options, write_drawings
from tfrtool.errors import UsageError
from tfrtool.loading.augment_options import parse_augment
from tfrtool.loading.options import Recipe
from tfrtool.training.compare import train_and_compare
from tfrtool.training.listener import Listener
from tfrtool.training.model_choice import ModelName, Trainable
from tfrtool.training.report import EpochReport


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
    assert (tmp_path / "run" / "model.keras").is_file()


@pytest.mark.parametrize(
    "changes",
    [
        {"recipe": Recipe.NAIVE},
        {"augment": parse_augment("flip")},
        {"early_stopping": 1},
        {"resume": True, "out": Path("run")},
    ],
    ids=str,
)
def test_what_can_not_be_compared_is_refused(changes: dict[str, Any]) -> None:
    """What the naive recipe can't do is a usage error, before anything is read."""
    options = replace(small_options(Path("nowhere")), **changes)
    with pytest.raises(UsageError):
        train_and_compare(options, Listener(), Listener())
