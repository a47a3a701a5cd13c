"""When more epochs bring nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tfrtool.training.run.train_report import EpochReport

__all__ = ["best_epoch", "is_over"]


def best_epoch(epochs: Sequence[EpochReport]) -> EpochReport:
    """Return the epoch of the lowest val_loss (loss, where nothing is validated), the first of it.

    Args:
        epochs: at least one.
    """
    return min(epochs, key=_told)


def is_over(epochs: Sequence[EpochReport], patience: int | None) -> bool:
    """Return whether the last ``patience`` epochs were no better than one before them."""
    if patience is None or not epochs:
        return False
    return epochs[-1].epoch - best_epoch(epochs).epoch >= patience


def _told(epoch: EpochReport) -> float:
    value = epoch.loss if epoch.val_loss is None else epoch.val_loss
    return math.inf if math.isnan(value) else value
