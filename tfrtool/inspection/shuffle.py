"""How well a split is shuffled, from the labels of its records in file order.

What a bad order costs is seen in the batches: their mixes of labels vary more than those of
batches that are drawn at random. So that is what is measured here, on a scale where 1 is chance.
"""

from __future__ import annotations

import enum
import math
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from tfrtool.inspection.buffer import (
    SIGMAS,
    TOLERANCE,
    BufferNeed,
    batch_size,
    interleave,
    moments,
    needed_buffer,
)
from tfrtool.inspection.runs import (
    chance_of_sorted,
    expected_longest_run,
    expected_runs,
    find_runs,
)

__all__ = ["Order", "ShuffleQuality", "measure_order"]

_SLIGHT = 0.02
"""A part of the runs that may be missing or too many before that is of any consequence."""

_RISK = 0.001
"""What probability a sorted order must be below to be taken for intended: aabb may be chance."""

_FEWEST = 16
"""Records that an order is told from; of 8 in two halves, one order in 35 is sorted by chance."""


class Order(enum.Enum):
    """What the order of a split is; the values are part of the JSON output."""

    SHUFFLED = "shuffled"
    REGULAR = "regular"
    """Not by chance, as with labels that take turns, but batches have an even mix all the same."""
    PARTLY_SORTED = "partly_sorted"
    UNEVEN_SHARDS = "uneven_shards"
    """Each shard is shuffled, but the shards have mixes of their own."""
    SORTED = "sorted"
    ONE_LABEL = "one_label"
    TOO_FEW = "too_few"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffleQuality:
    """What the order of a split's labels is like.

    Attributes:
        order: in a word.
        records: how many records have a label.
        runs: the number of runs of one label, from the first shard on to the last.
        expected_runs: that number by chance.
        runs_z: how many standard deviations lie between; below -3 the labels are clumped, above 3
            they alternate too regularly for chance. None where the number can't vary.
        longest_run: the length of the longest run, in records.
        longest_label: its label's code.
        expected_longest_run: that length by chance.
        batch: the size of the batches that are looked at; `BATCH`, or less in small splits.
        batch_spread: by how much the mixes of such batches vary in file order: the ratio of their
            variance to that of random batches. 1 is chance, `batch` is one label a batch.
        batch_noise: the standard deviation of `batch_spread` in a random order.
        shard_spread: the same ratio for the shards' mixes; None where there is one shard.
        shard_noise: its standard deviation, if the records were dealt to the shards at random.
        buffer: records that ``shuffle`` of tf.data must hold; 1 where the order is good already.
        interleaved_buffer: the same if shards are read in turn; None where there is one alone.
    """

    order: Order
    records: int
    runs: int
    expected_runs: float
    runs_z: float | None
    longest_run: int
    longest_label: int
    expected_longest_run: float
    batch: int
    batch_spread: float
    batch_noise: float
    shard_spread: float | None
    shard_noise: float
    buffer: int
    interleaved_buffer: int | None

    def __post_init__(self) -> None:
        if not 1 <= self.longest_run <= self.records or not 1 <= self.buffer <= self.records:
            raise ValueError("runs and buffers have 1 record to all of them")

    @property
    def shards_are_alike(self) -> bool:
        """Whether chance explains how the shards' mixes of labels differ."""
        return self.shard_spread is None or self.shard_spread <= 1 + SIGMAS * self.shard_noise

    @property
    def verdict(self) -> str:
        """What the order is like and what to do about it, in words."""
        held = f"shuffle with a buffer of at least {self.buffer:,}"
        if self.buffer == self.records:
            held = (
                f"shuffle with a buffer of all {self.records:,}, or write it anew in random order"
            )
        return {
            Order.SHUFFLED: "well shuffled",
            Order.REGULAR: f"regular, with runs of up to {self.longest_run:,}, but evenly mixed",
            Order.PARTLY_SORTED: f"partly sorted: runs of up to {self.longest_run:,}; {held}",
            Order.UNEVEN_SHARDS: f"shuffled within shards, but their label mixes differ; {held}",
            Order.SORTED: f"sorted by label; {held}",
            Order.ONE_LABEL: "one label only",
            Order.TOO_FEW: "too few records to tell",
        }[self.order]


def measure_order(shards: Sequence[Sequence[int]]) -> ShuffleQuality | None:
    """Measure how well a split is shuffled; None if it has no labels.

    Args:
        shards: the labels of each shard's records in their order, as numbers below 2**16.
    """
    shards = [shard for shard in shards if len(shard)]
    if not shards:
        return None
    codes = array("H", chain.from_iterable(shards)) if len(shards) > 1 else shards[0]
    counts = Counter(codes)
    runs = find_runs(codes)
    mean, deviation = expected_runs(counts.values())
    z = (runs.count - mean) / deviation if deviation else None
    shard_spread, shard_noise = _spread_of(shards, counts)
    order, interleaved = _plain_order(runs.count, counts), None
    need = BufferNeed(spread=1.0, noise=0.0, buffer=1)
    buffer = 1
    if order in (None, Order.SORTED):
        sigmas = SIGMAS if z is None or z > -SIGMAS else 0.0
        need = needed_buffer(codes, sigmas)
        buffer = need.buffer
        if len(shards) > 1:
            interleaved = needed_buffer(array("H", interleave(shards)), sigmas).buffer
        if order is Order.SORTED:
            buffer = len(codes)
        elif buffer > 1:
            differ = len(shards) > 1 and _is_shuffled_within(shards)
            order = Order.UNEVEN_SHARDS if differ else Order.PARTLY_SORTED
        elif need.spread < 1 - TOLERANCE - SIGMAS * need.noise or (
            z is not None and abs(z) > SIGMAS and abs(runs.count - mean) > _SLIGHT * mean
        ):
            order = Order.REGULAR
    return ShuffleQuality(
        order=order or Order.SHUFFLED,
        records=len(codes),
        runs=runs.count,
        expected_runs=mean,
        runs_z=z,
        longest_run=runs.longest,
        longest_label=runs.label,
        expected_longest_run=expected_longest_run(counts.values()),
        batch=batch_size(len(codes)),
        batch_spread=need.spread,
        batch_noise=need.noise,
        shard_spread=shard_spread,
        shard_noise=shard_noise,
        buffer=buffer,
        interleaved_buffer=interleaved,
    )


def _plain_order(runs: int, counts: Counter[int]) -> Order | None:
    """Return what the order is where that is seen from the number of runs alone."""
    if len(counts) == 1:
        return Order.ONE_LABEL
    if counts.total() < _FEWEST:
        return Order.TOO_FEW
    if runs == len(counts) and chance_of_sorted(counts.values()) < _RISK:
        return Order.SORTED
    return None


def _spread_of(shards: Sequence[Sequence[int]], counts: Counter[int]) -> tuple[float | None, float]:
    """Return by how much the shards' mixes vary, over what chance gives, and the noise in that.

    A shard of m records counts with m times the squared distance of its mix from the whole: that
    has the same mean by chance for all of them, but for a factor (n - m) / (n - 1).
    """
    n = counts.total()
    if len(shards) < 2 or len(counts) < 2:
        return None, 0.0
    shares = {code: count / n for code, count in counts.items()}
    second, noise = moments(shares.values())
    found = expected = 0.0
    for shard in shards:
        size = len(shard)
        part = Counter(shard)
        squared = sum([(count / size - shares[code]) ** 2 for code, count in part.items()])
        # The labels that the shard has none of are as far off as their whole share.
        squared += second - sum([shares[code] ** 2 for code in part])
        found += size * max(squared, 0.0)
        expected += (1 - second) * (n - size) / (n - 1)
    return found / expected, noise / math.sqrt(len(shards) - 1)


def _is_shuffled_within(shards: Sequence[Sequence[int]]) -> bool:
    """Return whether each shard, by itself, has about as many runs as chance gives it."""
    found, expected, variance = 0, 0.0, 0.0
    for shard in shards:
        mean, deviation = expected_runs(Counter(shard).values())
        found += find_runs(shard).count
        expected += mean
        variance += deviation**2
    slack = max(SIGMAS * math.sqrt(variance), _SLIGHT * expected)
    # One label a shard leaves nothing to be shuffled within it.
    return variance > 0 and expected - found <= slack
