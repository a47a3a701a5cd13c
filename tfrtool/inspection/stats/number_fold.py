"""Mean, spread, quantiles and histogram of numbers."""

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfrtool.inspection.stats.quantiles import EXACT_VALUES, Quantiles

BUCKETS = 10
"""Of a histogram, of equal width; as many as TFDV makes by default."""

_RANKS = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
_PIECE = 2**18
"""Numbers that are looked at a time: a record may have a list of millions."""


class Histogram(NamedTuple):
    """Buckets; each has its lower edge in it, and the last one the upper one, too."""

    edges: list[float]
    counts: list[int]


@dataclass(slots=True)
class NumberFold:
    """A fold over numbers, in the order in which they come; all but two are of finite ones."""

    count: int = 0
    nan: int = 0
    infinite: int = 0
    zeros: int = 0
    minimum: Any = None
    maximum: Any = None
    mean: float = 0.0
    squares: float = 0.0  # the sum of those of the differences from the mean
    quantiles: Quantiles = field(default_factory=Quantiles)

    def add(self, numbers: NDArray[Any], room: int = EXACT_VALUES) -> None:
        """Take in numbers."""
        for start in range(0, len(numbers), _PIECE):
            values = numbers[start : start + _PIECE]
            if values.dtype.kind == "f" and not (finite := np.isfinite(values)).all():
                nan = int(np.isnan(values).sum())
                self.nan += nan
                self.infinite += len(values) - int(finite.sum()) - nan
                values = values[finite]
            if not len(values):
                continue
            low, high = values.min(), values.max()
            mean, squares = float(low), 0.0
            if low < high:  # they often are alike: lengths of lists
                wide = values.astype(np.float64)
                mean = float(wide.mean())
                wide -= mean
                squares = float(np.dot(wide, wide))
            self._moments(len(values), mean, squares)
            self._span(low.item(), high.item())
            self.zeros += len(values) - int(np.count_nonzero(values))
            self.quantiles.add(values, room)

    def merge(self, other: "NumberFold", room: int = EXACT_VALUES) -> None:
        """Take in what another fold has seen."""
        self.nan += other.nan
        self.infinite += other.infinite
        self.zeros += other.zeros
        if other.count:
            self._moments(other.count, other.mean, other.squares)
            self._span(other.minimum, other.maximum)
            self.quantiles.merge(other.quantiles, room)

    def _moments(self, count: int, mean: float, squares: float) -> None:
        # Chan, Golub and LeVeque: Updating Formulae and a Pairwise Algorithm (1979).
        total, apart = self.count + count, mean - self.mean
        self.mean += apart * (count / total)
        self.squares += squares + apart * apart * (self.count * (count / total))
        self.count = total

    def _span(self, low: float, high: float) -> None:
        self.minimum = low if self.minimum is None else min(self.minimum, low)
        self.maximum = high if self.maximum is None else max(self.maximum, high)

    def histogram(self) -> Histogram | None:
        """Return it; None without a number."""
        if not self.count:
            return None
        low, high = float(self.minimum), float(self.maximum)
        edges = np.array([low, high])
        if low < high:  # of neighbours above 2**53 some edges are the same
            edges = np.unique(np.linspace(low, high, BUCKETS + 1))
        values, weights = self.quantiles.weighted()
        below = np.searchsorted(values.astype(np.float64), edges[1:-1])
        sums = np.append(np.append(0, np.cumsum(weights))[below], self.count)
        return Histogram(edges.tolist(), np.diff(sums, prepend=0).tolist())

    def counts(self) -> dict[Any, int]:
        """Return how often each number comes; nothing if they are too many to hold."""
        if not self.quantiles.exact:
            return {}
        values, counts = self.quantiles.weighted()
        return dict(zip(values.tolist(), counts.tolist(), strict=True))

    def to_json(self) -> dict[str, Any]:
        """Return what was seen; the standard deviation is that of all, as TFDV has it."""
        values, weights = self.quantiles.weighted()
        ranks = np.searchsorted(np.cumsum(weights), [rank * self.count for rank in _RANKS])
        found = zip(_RANKS, ranks, strict=True) if self.count else ()
        histogram = self.histogram()
        return {
            "count": self.count,
            "mean": self.mean if self.count else None,
            "std": math.sqrt(self.squares / self.count) if self.count else None,
            "min": self.minimum,
            "quantiles": {str(rank): values[min(at, len(values) - 1)].item() for rank, at in found},
            "max": self.maximum,
            "zeros": self.zeros,
            "nan": self.nan,
            "infinite": self.infinite,
            "distinct": len(values) if self.quantiles.exact else None,
            "rank_error": self.quantiles.error / max(self.count, 1),
            "histogram": histogram and histogram._asdict(),
        }
