"""Runs that are left and gone on with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.training.runs import saved_variables, small_options, write_drawings
from tfrtool import train
from tfrtool.errors import UsageError
from tfrtool.training.run.checkpoints import CHECKPOINTS
from tfrtool.training.run.train_report import EpochReport

pytestmark = pytest.mark.tf

HEAD = {"model": "mobilenet", "weights": "none", "trainable": "head"}


class _LeftError(Exception):
    """What ends a run in the middle."""


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the drawings of the fixtures as a dataset."""
    return write_drawings(tmp_path_factory.mktemp("pets") / "pets")


def _leave(options: dict[str, Any], after: int) -> None:
    """Train, and end with an error when an epoch is done."""

    def leave(epoch: EpochReport) -> None:
        if epoch.epoch == after:
            raise _LeftError

    with pytest.raises(_LeftError):
        train(**options, on_epoch=leave)


def _numbers(epochs: tuple[EpochReport, ...]) -> list[tuple[float | None, ...]]:
    return [(e.epoch, e.loss, e.accuracy, e.val_loss, e.val_accuracy) for e in epochs]


@pytest.mark.parametrize(
    ("changes", "cache"),
    [
        ({"validation": 0.25, "early_stopping": 3}, "memory"),
        ({"cache": "none", "augment": "flip,rotate=20"}, "none"),
        (HEAD, "features"),
    ],
    ids=["memory", "augmented", "features"],
)
def test_it_ends_where_an_uninterrupted_run_would(
    pets: Path, tmp_path: Path, changes: dict[str, Any], cache: str
) -> None:
    """Order, draws, weights, optimizer and history are those of the run that wasn't left.

    The steps are the same, in the same order, on the same numbers: the tolerance is for how
    threads share a sum, which TensorFlow leaves open.
    """
    options = small_options(pets, epochs=3, **changes)
    whole = train(**dict(options, out=tmp_path / "whole"))
    _leave(dict(options, out=tmp_path / "left"), after=1)
    assert not (tmp_path / "left" / "model.keras").exists()
    resumed = train(**dict(options, out=tmp_path / "left", resume=True))
    assert (resumed.plan.cache, resumed.plan.epochs_before) == (cache, 1)
    for one, other in zip(_numbers(resumed.epochs), _numbers(whole.epochs), strict=True):
        assert one == pytest.approx(other, rel=1e-4)
    first, second = (saved_variables(tmp_path / name) for name in ("whole", "left"))
    assert set(first) == set(second)
    assert any(name.startswith("best/") for name in first) == ("early_stopping" in changes)
    for name, value in first.items():
        np.testing.assert_allclose(value, second[name], rtol=1e-3, atol=1e-6)
    history = json.loads((tmp_path / "left" / "history.json").read_text())
    assert [epoch["epoch"] for epoch in history["epochs"]] == [1, 2, 3]
    assert (tmp_path / "left" / "model.keras").is_file()


def test_a_finished_run_is_told_and_can_be_prolonged(pets: Path, tmp_path: Path) -> None:
    """Without more epochs nothing is trained; with more, they follow as if asked for at once."""
    options = small_options(pets, out=tmp_path / "run", resume=True)
    first = train(**options)
    again = train(**options)
    assert again.plan.epochs_before == 2
    assert again.epochs == first.epochs
    longer = train(**dict(options, epochs=3))
    whole = train(**dict(options, epochs=3, out=None, resume=False))
    assert [epoch.loss for epoch in longer.epochs] == pytest.approx(
        [epoch.loss for epoch in whole.epochs], rel=1e-4
    )


def test_a_model_that_was_not_saved_is_saved(pets: Path, tmp_path: Path) -> None:
    """A run that was left between its last epoch and its model needs no epoch more."""
    options = small_options(pets, epochs=1, out=tmp_path / "run")
    _leave(options, after=1)
    train(**dict(options, resume=True))
    assert (tmp_path / "run" / "model.keras").is_file()


def test_other_options_are_refused(pets: Path, tmp_path: Path) -> None:
    """A run can't go on as another; what differs is named, and nothing is changed."""
    options = small_options(pets, epochs=2, out=tmp_path / "run")
    _leave(options, after=1)
    before = (tmp_path / "run" / CHECKPOINTS / "checkpoint").read_bytes()
    for changes, name in (
        ({"learning_rate": 0.5}, "learning rate"),
        ({"seed": 4}, "seed"),
        ({"validation": "train", "split": "validation"}, "split"),
        ({"cache": "none"}, "cache"),
    ):
        with pytest.raises(UsageError, match=name):
            train(**dict(options, resume=True, **changes))
    assert (tmp_path / "run" / CHECKPOINTS / "checkpoint").read_bytes() == before


def test_a_run_is_not_begun_over_another(pets: Path, tmp_path: Path) -> None:
    """Without resume, a directory with a checkpoint is refused."""
    options = small_options(pets, epochs=1, out=tmp_path / "run")
    _leave(options, after=1)
    with pytest.raises(UsageError, match="a run already"):
        train(**options)


def test_the_cache_stays_what_it_was(
    pets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order of images depends on the cache, so that it isn't planned anew."""
    options = small_options(pets, epochs=2, out=tmp_path / "run")
    _leave(options, after=1)
    monkeypatch.setattr("tfrtool.training.run.training_data.available_memory", lambda: 1_000_000)
    assert train(**dict(options, resume=True)).plan.cache == "memory"
