"""How labels are spread over the parts of a dataset."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

_RISK = 0.001
"""The probability with which chance alone takes one of the parts beyond the limit."""

_BALANCED, _NEARLY_BALANCED = 1.1, 1.5  # MNIST has 1.26 of one digit for each of another


@dataclass(frozen=True, slots=True)
class MixDistance:
    """How far a part's mix of labels is from that of the whole.

    Attributes:
        mix_distance: the share of the part's records that would need another label, 0 to 1.
        mix_distance_by_chance: what it is on the average, if the part is drawn at random.
        mix_distance_limit: what chance does not go beyond, but once in a thousand datasets.
    """

    mix_distance: float
    mix_distance_by_chance: float
    mix_distance_limit: float

    @property
    def is_chance(self) -> bool:
        """Whether chance alone explains the distance."""
        return self.mix_distance <= self.mix_distance_limit


def mix_distance(
    part: Mapping[int, int], whole: Mapping[int, int], *, parts: int = 1
) -> MixDistance:
    """Measure how far the mix of a part is from that of the whole that it belongs to.

    One other record moves the distance of m records by 1 / m at most, so that the limit is that
    of McDiarmid's inequality, which holds for drawing without replacement too.

    Args:
        part: the number of the part's records by label.
        whole: the number of all records by label, the part's included.
        parts: how many parts are measured; the more, the farther one of them gets by chance.
    """
    size, total = sum(part.values()), sum(whole.values())
    if size == 0 or size == total:
        return MixDistance(0.0, 0.0, 0.0 if size else 1.0)
    distance = sum(abs(part.get(k, 0) / size - n / total) for k, n in whole.items()) / 2
    classes = Counter(whole.values())
    deviation = sum(n * _mean_deviation(total, k, size) for k, n in sorted(classes.items()))
    chance = deviation / (2 * size)
    slack = math.sqrt(math.log(max(parts, 1) / _RISK) / (2 * size))
    return MixDistance(distance, chance, min(chance + slack, 1.0))


def _mean_deviation(n: int, count: int, size: int) -> float:
    """Return how far the number of a label of ``count`` of n is off in a draw, on the average."""
    # De Moivre's sum: Diaconis and Zabell, "Closed form summation" (1991).
    above = count * size // n + 1
    rest = n - count - size + above
    if above > min(count, size) or rest <= 0:
        return 0.0
    chance = log_choose(count, above) + log_choose(n - count, size - above) - log_choose(n, size)
    return 2 * above * rest / n * math.exp(chance)


def log_choose(n: int, k: int) -> float:
    """Return the natural logarithm of n over k."""
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def describe_balance(counts: Mapping[str, int]) -> str:
    """Return in words how records are spread over labels, by the number of records of each."""
    there = {label: count for label, count in counts.items() if count}
    if len(there) < 2:
        return f"all are {next(iter(there))}" if there else "no labels"
    most, least = max(there, key=there.__getitem__), min(there, key=there.__getitem__)
    ratio = there[most] / there[least]
    if there[most] - there[least] <= 1 or ratio <= _BALANCED:
        return "balanced"
    times = f"{ratio:.2f}" if ratio < 2 else f"{ratio:.1f}" if ratio < 10 else f"{ratio:,.0f}"
    text = f"{most} is {times} times as frequent as {least}"
    return f"nearly balanced: {text}" if ratio <= _NEARLY_BALANCED else text
