"""The distribution of numbers in bounded memory, the same on any number of workers."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

EXACT_VALUES = 2**15
"""Distinct numbers up to which a distribution is exact; ImageNet-21k has 21,841 labels."""

_HELD = 2048
"""Values of one weight; twice as many halve the error."""

Numbers = NDArray[Any]


@dataclass(slots=True)
class Quantiles:
    """How often each number comes; of too many different ones, a sample with weights.

    The sample is that of Munro and Paterson (1980), and of Manku, Rajagopalan and Lindsay (1998):
    of sorted values of weight w every second one is kept, with weight 2 w, by turns the first and
    the second of each pair. A rank is then off by w at most, so that ``error`` is a bound and no
    estimate. DataSketches' KLL sketch does the same with random bits that can't be seeded; its
    t-digest is off by a twentieth of all ranks and more where some values come often.

    Attributes:
        error: by how much a rank may be off, at most.
        exact: whether it still holds all values.
    """

    error: int = 0
    exact: bool = True
    _values: Numbers | None = None
    _counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    _levels: list[Numbers] = field(default_factory=list)  # of a sample: of weight 1, 2, 4 ...
    _second: list[bool] = field(default_factory=list)  # of each level, which of a pair is next

    def add(self, values: Numbers, room: int = EXACT_VALUES) -> None:
        """Take in finite numbers; beyond ``room`` different ones it is a sample."""
        if self.exact:
            if len(values) and values.min() == values.max():
                self._count(values[:1], np.array([len(values)]), room)
                return
            unique, counts = np.unique(values, return_counts=True)
            self._count(unique, counts, room)
        else:
            self._hold(0, values)

    def merge(self, other: "Quantiles", room: int = EXACT_VALUES) -> None:
        """Take in other numbers; what comes out depends on the order."""
        if other._values is not None:
            self._count(other._values, other._counts, room)
        if not other.exact:
            self._sample()
            self.error += other.error
            for level, values in enumerate(other._levels):
                self._hold(level, values)

    def weighted(self) -> tuple[Numbers, NDArray[np.int64]]:
        """Return the values in order, and how many each stands for."""
        if self.exact:
            return np.zeros(0) if self._values is None else self._values, self._counts
        weights = [np.full(len(held), 1 << n, np.int64) for n, held in enumerate(self._levels)]
        values = np.concatenate(self._levels)
        order = np.argsort(values, kind="stable")
        return values[order], np.concatenate(weights)[order]

    def _count(self, values: Numbers, counts: NDArray[np.int64], room: int) -> None:
        """Take in values of which each comes as often as ``counts`` says."""
        if not self.exact:
            for level in range(int(counts.max(initial=0)).bit_length()):
                self._hold(level, values[counts >> level & 1 == 1])
            return
        if self._values is not None:
            both, where = np.unique(np.append(self._values, values), return_inverse=True)
            sums = np.zeros(len(both), np.int64)
            np.add.at(sums, where, np.append(self._counts, counts))
            values, counts = both, sums
        self._values, self._counts = values, counts
        if len(values) > room:
            self._sample()

    def _sample(self) -> None:
        if self.exact:
            values, counts = self.weighted()
            self.exact, self._values, self._counts = False, None, counts[:0]
            self._count(values, counts, 0)

    def _hold(self, level: int, values: Numbers) -> None:
        while len(self._levels) <= level:
            self._levels.append(values[:0])
            self._second.append(False)
        held = np.append(self._levels[level], values)
        if len(held) > _HELD:
            held.sort()
            pairs = held[: len(held) // 2 * 2]
            self.error += 1 << level
            second = self._second[level]
            self._second[level] = not second
            self._hold(level + 1, pairs[int(second) :: 2])
            held = held[len(pairs) :].copy()
        self._levels[level] = held
