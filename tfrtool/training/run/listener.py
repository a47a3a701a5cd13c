"""Who is told how a run goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tfrtool.training.run.train_report import EpochReport, TrainPlan

__all__ = ["Listener", "Phase", "Step"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """How far an epoch has come.

    Attributes:
        epoch: its number, from 1.
        done: steps so far.
        total: steps in all.
        loss: mean loss so far.
        accuracy: accuracy so far.
    """

    epoch: int
    done: int
    total: int
    loss: float
    accuracy: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """How far something has come that is done before the first epoch.

    Attributes:
        name: what is done, in one or two words.
        done: how much so far.
        total: how much in all.
    """

    name: str
    done: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Who is told what, as a run goes on.

    Attributes:
        on_plan: called once, before the first step.
        on_epoch: called after each epoch.
        on_step: called after each step.
        on_phase: called while something is done before the first epoch.
    """

    on_plan: Callable[[TrainPlan], None] = lambda _: None
    on_epoch: Callable[[EpochReport], None] = lambda _: None
    on_step: Callable[[Step], None] = lambda _: None
    on_phase: Callable[[Phase], None] = lambda _: None
