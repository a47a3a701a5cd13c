"""Runs of one label: how many there are and how long they get, and what chance alone would give.

All functions are of a sequence of labels, or of the number of records of each label. "Chance"
means that all orders of the same records are equally likely.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress, islice
from operator import ne

__all__ = ["Runs", "chance_of_sorted", "expected_longest_run", "expected_runs", "find_runs"]

_STEPS = 1000
"""Points at which a long sum is taken; its terms fall slowly there, so that few are enough."""

_NEGLIGIBLE = 1e-9
"""A probability that adds nothing to a number that is shown with three digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """The runs of a sequence: stretches of one label, as long as they go.

    Attributes:
        count: how many there are.
        longest: the length of the longest, in records.
        label: the label of the first that is so long.
    """

    count: int
    longest: int
    label: int


def find_runs(codes: Sequence[int]) -> Runs:
    """Find the runs of a sequence of at least one label."""
    if not len(codes):
        raise ValueError("a sequence without labels has no runs")
    count = longest = start = at = 0
    for end in _ends(codes):
        count += 1
        if end - start > longest:
            longest, at = end - start, start
        start = end
    return Runs(count=count, longest=longest, label=codes[at])


def _ends(codes: Sequence[int]) -> Iterator[int]:
    # Comparing in C, without a copy of the sequence: this is done for each record.
    changes = map(ne, codes, islice(codes, 1, None))
    yield from compress(range(1, len(codes)), changes)
    yield len(codes)


def expected_runs(counts: Iterable[int]) -> tuple[float, float]:
    """Return how many runs chance gives, and the standard deviation of that number.

    The runs test of Wald and Wolfowitz ("On a test whether two samples are from the same
    population", 1940), for any number of labels: Barton and David, "Multiple runs" (1957). The
    number of runs is nearly normal where n is not small, so that the distance from the mean in
    standard deviations (z) is a test of randomness. With n_k records of label k, and n in all::

        mean      n + 1 - S2 / n                           S2 = sum n_k^2, S3 = sum n_k^3
        variance  (S2 (S2 + n (n + 1)) - 2 n S3 - n^3) / (n^2 (n - 1))

    Args:
        counts: the number of records of each label.
    """
    counts = [count for count in counts if count]
    n = sum(counts)
    if n < 2:
        return float(n), 0.0
    squares = sum(count**2 for count in counts)
    cubes = sum(count**3 for count in counts)
    # In whole numbers, for the terms nearly cancel each other.
    variance = (squares * (squares + n * (n + 1)) - 2 * n * cubes - n**3) / (n**2 * (n - 1))
    return n + 1 - squares / n, math.sqrt(max(variance, 0.0))


def chance_of_sorted(counts: Iterable[int]) -> float:
    """Return the probability that a random order has each label in one run alone.

    Of the n! / (n_1! n_2! ...) orders, K! are so.
    """
    counts = [count for count in counts if count]
    logarithm = math.lgamma(len(counts) + 1) - math.lgamma(sum(counts) + 1)
    logarithm += sum(math.lgamma(count + 1) for count in counts)
    return math.exp(min(logarithm, 0.0))


def expected_longest_run(counts: Iterable[int]) -> float:
    """Return how long the longest run is on the average by chance, in records.

    The number of runs of at least m records of label k has the mean, exactly::

        (n - n_k + 1) * [n_k (n_k - 1) ... (n_k - m + 1)] / [n (n - 1) ... (n - m + 1)]

    because m given places hold label k with the probability of that quotient, and the place
    before them, if there is one, must hold another. Long runs are rare and far from each other,
    so that their number is nearly Poisson (Arratia, Goldstein and Gordon, "Poisson approximation
    and the Chen-Stein method", 1990): with lambda the sum of these means over all labels, the
    longest run has m records or more with probability 1 - exp(-lambda), and the sum of this over
    all m is its mean. For two labels alike it is the known log2(n) + 1/3 or so (Schilling, "The
    longest run of heads", 1990).

    Args:
        counts: the number of records of each label.
    """
    classes = Counter(count for count in counts if count)
    n = sum(count * times for count, times in classes.items())
    largest = max(classes, default=0)
    if largest == n:
        return float(n)

    def mean(m: int) -> float:
        return sum(times * _mean_of_runs(n, count, m) for count, times in classes.items())

    def reached(m: int) -> float:
        return -math.expm1(-mean(m))

    # Below `sure` a run is certain; from `never` on there is none. Both by bisection.
    sure = _last(lambda m: reached(m) > 1 - _NEGLIGIBLE, 1, largest)
    # A smaller label's mean falls faster with m: where it is negligible once, it stays so.
    for count in [c for c, t in classes.items() if t * _mean_of_runs(n, c, sure) < 1e-12]:
        if count != largest:
            del classes[count]
    never = 1 + _last(lambda m: reached(m) > _NEGLIGIBLE, sure, largest)
    step = -(-(never - sure) // _STEPS)
    total = float(sure)
    for low in range(sure, never, step):
        high = min(low + step, never)
        # The terms low + 1 ... high, by the trapezium through both ends.
        first, last = reached(low), reached(high)
        total += (high - low) * (first + last) / 2 - (first - last) / 2
    return max(total, math.ceil(largest / (n - largest + 1)))


def _last(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Return the last number of which ``holds`` is true, from ``low`` on, where it is or may be."""
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def _mean_of_runs(n: int, count: int, m: int) -> float:
    """Return how many runs of ``m`` records or more a label of ``count`` of ``n`` has by chance."""
    if m > count:
        return 0.0
    logarithm = math.lgamma(count + 1) - math.lgamma(count - m + 1)
    logarithm -= math.lgamma(n + 1) - math.lgamma(n - m + 1)
    return (n - count + 1) * math.exp(logarithm)
