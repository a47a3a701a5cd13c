"""Mixes of labels: how far the mix of a part is from that of the whole, and how far by chance."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__all__ = ["MixDistance", "describe_balance", "expected_mix_distance", "mix_distance"]

_RISK = 0.001
"""The probability with which chance alone may put any of the parts beyond the limit."""

_BALANCED = 1.1
"""Times that one label is as frequent as another without a word about it."""

_NEARLY_BALANCED = 1.5
"""Chosen so that MNIST (1.26) and CIFAR (1) are not called imbalanced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MixDistance:
    """How far a part's mix of labels is from that of the whole.

    The distance is the total variation distance: half the sum, over the labels, of the difference
    between their shares. It is the share of the part's records that would have to have another
    label: 0 for the same mix, 1 for none in common.

    Attributes:
        distance: 0 to 1.
        chance: what it is on the average, if the part's records are drawn at random.
        limit: what chance does not go beyond, but once in a thousand datasets.
    """

    distance: float
    chance: float
    limit: float

    @property
    def is_chance(self) -> bool:
        """Whether chance alone explains the distance."""
        return self.distance <= self.limit


def mix_distance(
    part: Mapping[int, int], whole: Mapping[int, int], *, parts: int = 1
) -> MixDistance:
    """Measure how far the mix of a part is from that of the whole that it belongs to.

    The limit is the mean plus ``sqrt(log(parts / 0.001) / (2 m))`` for a part of m records: one
    other record moves the distance by 1 / m at most, and McDiarmid's inequality holds for drawing
    without replacement too (El-Yaniv and Pechyony, "Transductive Rademacher complexity", 2009).

    Args:
        part: the number of the part's records by label.
        whole: the number of all records by label, the part's included.
        parts: how many parts are measured; the more, the farther one of them gets by chance.
    """
    size, total = sum(part.values()), sum(whole.values())
    if size == 0 or size == total:
        return MixDistance(distance=0.0, chance=0.0, limit=0.0 if size else 1.0)
    distance = sum(abs(part.get(k, 0) / size - n / total) for k, n in whole.items()) / 2
    chance = expected_mix_distance(whole.values(), size)
    slack = math.sqrt(math.log(max(parts, 1) / _RISK) / (2 * size))
    return MixDistance(distance=distance, chance=chance, limit=min(chance + slack, 1.0))


def expected_mix_distance(counts: Iterable[int], size: int) -> float:
    """Return how far the mix of ``size`` records, drawn at random, is from the whole on average.

    Exact. The number x of records of a label that has K of N is hypergeometric, and its mean
    absolute deviation has a closed form, as De Moivre's for the binomial (Diaconis and Zabell,
    "Closed form summation for classical distributions", 1991): the terms (x - mean) P(x)
    telescope, so that with a the first whole number above the mean::

        E|x - mean| = 2 a (N - K - size + a) P(a) / N

    For a part that is large, and small beside the whole, the result is nearly the sum over the
    labels of ``sqrt(p (1 - p) / (2 pi size))``, as a normal distribution has it.

    Args:
        counts: the number of all records of each label.
        size: the number of records that are drawn.
    """
    classes = Counter(count for count in counts if count)
    n = sum(count * times for count, times in classes.items())
    if not 0 < size <= n:
        raise ValueError(f"1 to {n} records can be drawn, not {size}")
    deviation = sum(
        times * _mean_deviation(n, count, size) for count, times in sorted(classes.items())
    )
    return deviation / (2 * size)


def _mean_deviation(n: int, count: int, size: int) -> float:
    """Return the mean absolute deviation of a hypergeometric number."""
    above = count * size // n + 1
    rest = n - count - size + above
    if above > min(count, size) or rest <= 0:
        return 0.0
    chance = _log_choose(count, above) + _log_choose(n - count, size - above)
    return 2 * above * rest / n * math.exp(chance - _log_choose(n, size))


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def describe_balance(counts: Mapping[str, int]) -> str:
    """Return in words how the records are spread over the labels.

    Args:
        counts: the number of records of each label.
    """
    there = {label: count for label, count in counts.items() if count}
    if not there:
        return "no labels"
    most, least = max(there, key=there.__getitem__), min(there, key=there.__getitem__)
    if len(there) == 1:
        return f"all are {most}"
    ratio = there[most] / there[least]
    if there[most] - there[least] <= 1 or ratio <= _BALANCED:
        return "balanced"
    text = f"{most} is {_times(ratio)} times as frequent as {least}"
    return f"nearly balanced: {text}" if ratio <= _NEARLY_BALANCED else text


def _times(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 2 else f"{ratio:.1f}" if ratio < 10 else f"{ratio:,.0f}"
