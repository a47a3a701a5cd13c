"""How records become batches."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from tfrtool.errors import UsageError

__all__ = ["Cache", "Holdout", "LoadOptions", "Recipe", "Rescale"]


class Recipe(enum.Enum):
    """Which pipeline is built; the values are those of the CLI.

    TFRTOOL is ours. NOTEBOOK is the published one: interleave with cycle 4 and block 1, map on
    all cores, float32 cache in memory, shuffle 1024, batch, prefetch. NAIVE has none of these:
    one shard after the other, one record after the other.
    """

    TFRTOOL = "tfrtool"
    NOTEBOOK = "notebook"
    NAIVE = "naive"


class Cache(enum.Enum):
    """Where decoded images are kept between epochs; the values are those of the CLI."""

    MEMORY = "memory"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescale:
    """The linear map from pixel values, 0 to 255, to what a model takes: ``x * scale + offset``."""

    scale: float
    offset: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdout:
    """A part of a split: every so many records, evenly spread in the order of reading.

    Attributes:
        fraction: the part that is held out, above 0 and below 1.
        held_out: whether this is that part, or the rest.
    """

    fraction: float
    held_out: bool

    def __post_init__(self) -> None:
        if not 0 < self.fraction < 1:
            raise UsageError(
                "the part to hold out is impossible",
                expected="a fraction above 0 and below 1",
                found=self.fraction,
            )

    def count(self, records: int) -> int:
        """Return how many of ``records`` records belong to this part."""
        held = int(records * self.fraction)
        return held if self.held_out else records - held


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """How records become batches of images and labels.

    Attributes:
        image_size: images are resized to this many pixels, both ways.
        split: which split of the dataset.
        rescale: applied to pixel values last, in float32; 0 to 1 by default.
        batch_size: images in a batch; the last batch of an epoch may have fewer.
        recipe: which pipeline.
        cache: where decoded images are kept; of the other recipes, NOTEBOOK keeps float32 images
            in memory and NAIVE nothing, whatever this says.
        training: whether the order changes from epoch to epoch; without, it is always the same.
        seed: decides that order.
        cycle_length: shards read at a time; None is 4, or all if there are fewer.
        block_length: records taken from a shard in a row.
        parallel_calls: images decoded at a time; None is the number of cores.
        shuffle_buffer: images to draw the next from; None is all of them where they are cached,
            and 1024 elsewhere.
        prefetch: batches made ahead.
        holdout: only this part of the split.
    """

    image_size: int
    split: str = "train"
    rescale: Rescale = Rescale(scale=1 / 255, offset=0.0)
    batch_size: int = 32
    recipe: Recipe = Recipe.TFRTOOL
    cache: Cache = Cache.NONE
    training: bool = True
    seed: int = 0
    cycle_length: int | None = None
    block_length: int = 1
    parallel_calls: int | None = None
    shuffle_buffer: int | None = None
    prefetch: int = 2
    holdout: Holdout | None = None

    def __post_init__(self) -> None:
        for name in ("image_size", "batch_size", "block_length"):
            self._require(name, 1)
        for name in ("cycle_length", "parallel_calls", "shuffle_buffer"):
            if getattr(self, name) is not None:
                self._require(name, 1)
        self._require("prefetch", 0)

    def _require(self, name: str, least: int) -> None:
        if getattr(self, name) < least:
            raise UsageError(
                f"impossible {name.replace('_', ' ')}",
                expected=f"at least {least}",
                found=getattr(self, name),
            )
