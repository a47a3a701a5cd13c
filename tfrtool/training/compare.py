"""The same training with the naive recipe, to see what ours is worth."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tfrtool.errors import UsageError
from tfrtool.loading.options import Recipe
from tfrtool.training.features_precision import Precision
from tfrtool.training.listener import Listener
from tfrtool.training.options import KNOBS, TrainOptions
from tfrtool.training.report import TrainReport
from tfrtool.training.train import train

__all__ = ["Comparison", "check_comparable", "train_and_compare"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two runs of one process, on the same images, with the same seed.

    Attributes:
        ours: as it was asked for.
        naive: with the naive recipe, in float32.
    """

    ours: TrainReport
    naive: TrainReport

    @property
    def speedup(self) -> float:
        """How many times faster ours was, from the dataset's opening to the trained model."""
        return self.naive.seconds / self.ours.seconds

    def to_json(self) -> Mapping[str, Any]:
        """Return the last object that ``train --compare --json`` prints."""
        return {
            **self.ours.to_json(),
            "naive_seconds": round(self.naive.seconds, 3),
            "naive_cpu_seconds": round(self.naive.cpu_seconds, 3),
            "naive_epochs": [epoch.to_json() for epoch in self.naive.epochs],
            "speedup": round(self.speedup, 3),
        }


def check_comparable(options: TrainOptions) -> None:
    """Check that the naive recipe can do the same.

    Raises:
        UsageError: it can't.
    """
    obstacles = {
        "the naive recipe": options.recipe is Recipe.NAIVE,
        "augmented images, which the naive recipe doesn't have": options.augment is not None,
        "a part of a run": options.resume,
        "runs that end early, each at an epoch of its own": options.early_stopping is not None,
    }
    for obstacle, is_there in obstacles.items():
        if is_there:
            raise UsageError(f"nothing can be compared with {obstacle}")


def train_and_compare(
    options: TrainOptions, listener: Listener, naive_listener: Listener
) -> Comparison:
    """Train as asked for, and then with the naive recipe.

    Both times go from the dataset's opening to the trained model, the building of the model
    included, and what is saved is ours. Ours comes first: the second run finds TensorFlow warm and
    the shards in memory.

    Args:
        options: what, on what, and how long.
        listener: is told of our run.
        naive_listener: is told of the other.

    Raises:
        UsageError: the naive recipe can't do the same.
    """
    check_comparable(options)
    ours = _train(options, listener)
    gc.collect()
    without: dict[str, Any] = dict.fromkeys(KNOBS)
    naive = replace(
        options,
        recipe=Recipe.NAIVE,
        cache=None,
        cache_directory=None,
        deterministic=True,
        precision=Precision.FLOAT32,
        out=None,
        tensorboard=None,
        profile=False,
        **without,
    )
    return Comparison(ours=ours, naive=_train(naive, naive_listener))


def _train(options: TrainOptions, listener: Listener) -> TrainReport:
    return train(options, listener.on_plan, listener.on_epoch, listener.on_step, listener.on_phase)
