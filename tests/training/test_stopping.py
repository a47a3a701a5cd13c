"""When a run ends early."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.runs import epoch_report
from tfrtool.training.run.stopping import best_epoch, is_over
from tfrtool.training.run.train_report import EpochReport


def _epochs(*losses: float, validated: bool = True) -> list[EpochReport]:
    name = "val_loss" if validated else "loss"
    return [epoch_report(number, **{name: loss}) for number, loss in enumerate(losses, 1)]


@pytest.mark.parametrize("validated", [True, False])
def test_best_is_the_lowest(validated: bool) -> None:
    """The best epoch has the lowest val_loss, or loss where nothing is validated."""
    assert best_epoch(_epochs(3.0, 1.0, 2.0, validated=validated)).epoch == 2


def test_first_of_equals_is_best() -> None:
    """An epoch that is as good as an earlier one is no progress."""
    assert best_epoch(_epochs(1.0, 1.0)).epoch == 1


def test_a_loss_that_is_no_number_is_the_worst() -> None:
    """A run that diverged goes back to what it was before."""
    assert best_epoch(_epochs(math.nan, 5.0, math.nan)).epoch == 2


@pytest.mark.parametrize(
    ("losses", "patience", "over"),
    [
        ((), 1, False),
        ((3.0,), 1, False),
        ((3.0, 4.0), 1, True),
        ((3.0, 4.0), 2, False),
        ((3.0, 4.0, 2.0), 2, False),
        ((3.0, 4.0, 3.0), 2, True),
        ((3.0, 4.0, 5.0), None, False),
    ],
)
def test_patience(losses: tuple[float, ...], patience: int | None, over: bool) -> None:
    """A run is over after so many epochs that were no better than one before them."""
    assert is_over(_epochs(*losses), patience) is over


@given(losses=st.lists(st.floats(0, 10), min_size=1, max_size=20), patience=st.integers(1, 5))
def test_the_last_epochs_decide(losses: list[float], patience: int) -> None:
    """It is over exactly when the lowest loss is as old as the patience."""
    age = len(losses) - 1 - losses.index(min(losses))
    assert is_over(_epochs(*losses), patience) is (age >= patience)
