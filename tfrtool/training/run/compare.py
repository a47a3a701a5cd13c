"""The same training with the naive recipe, to see what ours is worth."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tfrtool.errors import UsageError
from tfrtool.loading.pipeline.load_options import Cache, Recipe
from tfrtool.training.features.features_precision import Precision
from tfrtool.training.run.listener import Listener
from tfrtool.training.run.train import train
from tfrtool.training.run.train_options import KNOBS, TrainOptions
from tfrtool.training.run.train_report import TrainReport

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

    @property
    def epochs_speedup(self) -> float:
        """How many times faster an epoch of ours was in the mean."""
        ours, naive = self.ours, self.naive
        theirs = naive.epochs_seconds / len(naive.epochs)
        return theirs / (ours.epochs_seconds / len(ours.epochs))

    def to_json(self) -> Mapping[str, Any]:
        """Return the last object that ``train --compare --json`` prints."""
        return {
            **self.ours.to_json(),
            "start_seconds": round(self.ours.start_seconds, 3),
            "naive_seconds": round(self.naive.seconds, 3),
            "naive_start_seconds": round(self.naive.start_seconds, 3),
            "naive_cpu_seconds": round(self.naive.cpu_seconds, 3),
            "naive_epochs": [epoch.to_json() for epoch in self.naive.epochs],
            "speedup": round(self.speedup, 3),
            "epochs_speedup": round(self.epochs_speedup, 3),
        }


def check_comparable(options: TrainOptions) -> None:
    """Check that the naive recipe can do the same.

    Raises:
        UsageError: it can't.
    """
    obstacles = {
        "the naive recipe": options.recipe is Recipe.NAIVE,
        "a part of a run": options.resume,
    }
    for obstacle, is_there in obstacles.items():
        if is_there:
            raise UsageError(f"nothing can be compared with {obstacle}")


def train_and_compare(
    options: TrainOptions, listener: Listener, naive_listener: Listener
) -> Comparison:
    """Train as asked for, and then with the naive recipe.

    Both are begun beforehand, up to their first step, so that neither is charged with what happens
    once in a process: loading libraries, starting threads, reading the shards from the disk. Both
    times then go from the dataset's opening to the trained model; building and tracing the model,
    which each run does anew, is told apart from the epochs. What is saved is ours.

    Args:
        options: what, on what, and how long.
        listener: is told of our run.
        naive_listener: is told of the other.

    Raises:
        UsageError: the naive recipe can't do the same.
    """
    check_comparable(options)
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
    _warm_up(options)
    _warm_up(naive)
    ours = _train(options, listener)
    return Comparison(ours=ours, naive=_train(naive, naive_listener))


class _WarmError(Exception):
    """What ends a run that is only begun."""


def _warm_up(options: TrainOptions) -> None:
    """Begin a run, and end it after its first step."""

    def end(_: object) -> None:
        raise _WarmError

    begun = replace(options, out=None, tensorboard=None, profile=False)
    if options.recipe is Recipe.TFRTOOL and not _keeps_features(options):
        # A cache on disk would be written as a whole before the first step.
        begun = replace(begun, cache=Cache.NONE, cache_directory=None)
    with contextlib.suppress(_WarmError):
        _train(begun, Listener(on_step=end, on_phase=end))


def _keeps_features(options: TrainOptions) -> bool:
    frozen = options.freezes_base and options.augment is None
    return frozen and options.cache in (None, Cache.FEATURES)


def _train(options: TrainOptions, listener: Listener) -> TrainReport:
    gc.collect()  # what an earlier run held
    return train(options, listener.on_plan, listener.on_epoch, listener.on_step, listener.on_phase)
