"""What to measure of a loader, and how often."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tfrtool.errors import UsageError
from tfrtool.storage.locations import take_paths

__all__ = ["BenchOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """What to measure of a loader, and how often.

    Attributes:
        dataset: the directory of a dataset.
        split: which split of it.
        image_size: images are resized to this many pixels, both ways; 224 is what most
            classifiers take.
        batch_size: images in a batch.
        epochs: how many epochs each pipeline goes through, 2 or more: the first fills the cache.
        rounds: how often each pipeline is measured, in turn with the others.
        limit: how many images are enough; as many shards are read as it takes to have them.
    """

    dataset: Path
    split: str = "train"
    image_size: int = 224
    batch_size: int = 32
    epochs: int = 2
    rounds: int = 3
    limit: int = 2000

    def __post_init__(self) -> None:
        take_paths(self, "dataset")
        least = {"image_size": 1, "batch_size": 1, "epochs": 2, "rounds": 1, "limit": 1}
        for name, number in least.items():
            if getattr(self, name) < number:
                raise UsageError(
                    f"impossible {name.replace('_', ' ')}",
                    expected=f"at least {number}",
                    found=getattr(self, name),
                )
