"""Mean, spread, quantiles and histogram of numbers in bounded memory."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

EXACT_VALUES = 2**15
"""Distinct numbers up to which a distribution is exact; ImageNet-21k has 21,841 labels."""

BUCKETS = 10
"""Of a histogram, of equal width; as many as TFDV makes by default."""

_RANKS = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
_PIECE = 2**18
"""Numbers that are looked at a time: a record may have a list of millions."""

_LEVELS = 8
"""Numbers of one weight that a sample holds are this part of its room; more halve the error."""


@dataclass(slots=True)
class NumberFold:
    """A fold over numbers, in the order in which they come; all but two are of finite ones.

    Of too many different numbers a sample is held, that of Munro and Paterson (1980), and of Manku,
    Rajagopalan and Lindsay (1998): of those whose count has the bit w, in order, every second one
    takes the w of its neighbour, by turns the first and the second of each pair. A rank is then off
    by w at most, so that ``error`` is a bound and no estimate. DataSketches' KLL sketch does the
    same with random bits that can't be seeded; its t-digest is off by a twentieth of all ranks and
    more where some values come often.
    """

    count: int = 0
    nan: int = 0
    infinite: int = 0
    zeros: int = 0
    minimum: Any = None
    maximum: Any = None
    mean: float = 0.0
    squares: float = 0.0  # the sum of those of the differences from the mean
    values: NDArray[Any] = field(default_factory=lambda: np.zeros(0, np.bool_))  # different, sorted
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    error: int = 0  # by how much a rank may be off, at most; 0 while all values are held
    turns: int = 0  # a bit for each w: which of a pair is next

    def add(self, numbers: NDArray[Any], room: int = EXACT_VALUES) -> None:
        """Take in numbers; beyond ``room`` different ones a sample is held."""
        for start in range(0, len(numbers), _PIECE):
            self.merge(_fold(numbers[start : start + _PIECE]), room)

    def merge(self, other: "NumberFold", room: int = EXACT_VALUES) -> None:
        """Take in what another fold has seen; what comes out depends on the order."""
        self.nan += other.nan
        self.infinite += other.infinite
        if not other.count:
            return
        low, high = (self.minimum, self.maximum) if self.count else (other.minimum, other.maximum)
        self.minimum, self.maximum = min(low, other.minimum), max(high, other.maximum)
        self.zeros += other.zeros
        # Chan, Golub and LeVeque: Updating Formulae and a Pairwise Algorithm (1979).
        total, shift = self.count + other.count, other.mean - self.mean
        self.mean += shift * (other.count / total)
        self.squares += other.squares + shift * shift * (self.count * (other.count / total))
        self.count = total
        self.error += other.error
        values = np.append(self.values, other.values)
        order = np.argsort(values, kind="stable")
        values, counts = values[order], np.append(self.counts, other.counts)[order]
        first = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
        self.values, self.counts = values[first], np.add.reduceat(counts, first)
        self._shrink(room)

    def _shrink(self, room: int) -> None:
        bit = 0
        while len(self.values) > room and self.counts.max() >> bit:
            with_bit = np.flatnonzero(self.counts >> bit & 1)
            if len(with_bit) > room // _LEVELS:
                pairs = with_bit[: len(with_bit) // 2 * 2].reshape(-1, 2)
                self.counts[pairs] -= 1 << bit
                self.counts[pairs[:, self.turns >> bit & 1]] += 2 << bit
                self.turns ^= 1 << bit
                self.error += 1 << bit
                nonzero = self.counts > 0
                self.values, self.counts = self.values[nonzero], self.counts[nonzero]
            bit += 1

    def histogram(self) -> dict[str, list[Any]] | None:
        """Return the ``edges`` of its buckets and their ``counts``; None without a number.

        Each bucket has its lower edge in it, and the last one the upper one, too.
        """
        if not self.count:
            return None
        low, high = float(self.minimum), float(self.maximum)
        edges = np.array([low, high])
        if low < high:  # of neighbours above 2**53 some edges are the same
            edges = np.sort(np.linspace(low, high, BUCKETS + 1))
            edges = edges[np.append(True, edges[1:] != edges[:-1])]
        below = np.searchsorted(self.values.astype(np.float64), edges[1:-1])
        sums = np.append(np.append(0, np.cumsum(self.counts))[below], self.count)
        return {"edges": edges.tolist(), "counts": np.diff(sums, prepend=0).tolist()}

    def distinct(self) -> dict[Any, int]:
        """Return how often each number comes; nothing if they are too many to hold."""
        if self.error:
            return {}
        return dict(zip(self.values.tolist(), self.counts.tolist(), strict=True))

    def to_json(self) -> dict[str, Any]:
        """Return what was seen; the standard deviation is that of all, as TFDV has it."""
        ranks = np.searchsorted(np.cumsum(self.counts), [rank * self.count for rank in _RANKS])
        found = zip(_RANKS, ranks, strict=True) if self.count else ()
        last = len(self.values) - 1
        return {
            "count": self.count,
            "mean": self.mean if self.count else None,
            "std": math.sqrt(self.squares / self.count) if self.count else None,
            "min": self.minimum,
            "quantiles": {str(rank): self.values[min(at, last)].item() for rank, at in found},
            "max": self.maximum,
            "zeros": self.zeros,
            "nan": self.nan,
            "infinite": self.infinite,
            "distinct": None if self.error else len(self.values),
            "rank_error": self.error / max(self.count, 1),
            "histogram": self.histogram(),
        }


def _fold(numbers: NDArray[Any]) -> NumberFold:
    """Return a fold over some numbers."""
    finite, nan, infinite = np.isfinite(numbers), 0, 0
    if not finite.all():
        nan = int(np.isnan(numbers).sum())
        infinite = len(numbers) - nan - int(finite.sum())
        numbers = numbers[finite]
    if not len(numbers):
        return NumberFold(nan=nan, infinite=infinite)
    values, counts = _distinct(numbers)
    wide = values.astype(np.float64)
    # Of numbers that are all alike the mean is the number.
    # (`np.dot` would start threads for it, which take a hundred times as long.)
    mean = float(wide[0] + ((wide - wide[0]) * counts).sum() / len(numbers))
    return NumberFold(
        count=len(numbers),
        nan=nan,
        infinite=infinite,
        zeros=int(counts[values == 0].sum()),
        minimum=values[0].item(),
        maximum=values[-1].item(),
        mean=mean,
        squares=float(((wide - mean) ** 2 * counts).sum()),
        values=values,
        counts=counts,
    )


def _distinct(numbers: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the different numbers in order, and how often each comes."""
    if numbers.dtype.kind == "i":
        low = numbers.min()
        if int(numbers.max()) - int(low) < 2 * len(numbers):  # as most labels and lengths are
            counts = np.bincount(numbers - low)
            values = np.flatnonzero(counts)
            return values.astype(numbers.dtype) + low, counts[values]
    return np.unique(numbers, return_counts=True)
