"""One epoch: step after step, and what they brought."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from tfrtool.training.models.trainable import Learner, Score
from tfrtool.training.run.feed import Feed
from tfrtool.training.run.listener import Step
from tfrtool.training.run.train_report import EpochReport

__all__ = ["Head", "run_epoch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What came before an epoch's first step, and counts as part of it.

    Attributes:
        seconds: how long it took.
        waited: how much of that was waiting for images.
    """

    seconds: float = 0.0
    waited: float = 0.0


def run_epoch(
    learner: Learner,
    number: int,
    feeds: tuple[Feed, Feed | None],
    on_step: Callable[[Step], None],
    before: Head = Head(),
) -> EpochReport:
    """Train for one epoch, and validate.

    Args:
        learner: what learns.
        number: the epoch's, from 1.
        feeds: the batches to train on, and those to validate on.
        on_step: called after each step.
        before: time that was spent for this epoch already.
    """
    start = time.perf_counter()
    training, validation = feeds
    score = Score()
    for done, (inputs, labels) in enumerate(training.epoch(), 1):
        score += learner.train(inputs, labels)
        step = Step(
            epoch=number,
            done=done,
            total=training.steps,
            loss=score.mean_loss,
            accuracy=score.accuracy,
        )
        on_step(step)
    trained = time.perf_counter() - start + before.seconds
    val_loss = val_accuracy = None
    if validation is not None:
        told = Score()
        for inputs, labels in validation.epoch():
            told += learner.evaluate(inputs, labels)
        val_loss, val_accuracy = told.mean_loss, told.accuracy
    return EpochReport(
        epoch=number,
        seconds=time.perf_counter() - start + before.seconds,
        images_per_second=training.images / trained,
        loss=score.mean_loss,
        accuracy=score.accuracy,
        val_loss=val_loss,
        val_accuracy=val_accuracy,
        input_wait_fraction=min((training.waited + before.waited) / trained, 1.0),
    )
