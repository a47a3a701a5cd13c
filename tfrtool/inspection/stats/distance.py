"""How far two distributions are from each other, as TensorFlow Data Validation defines it.

The formulas are those of ``tensorflow_data_validation/anomalies/metrics.cc``, of version 1.16.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfrtool.inspection.stats.number_fold import NumberFold

_PER_BIN, _FEWEST_BINS, _MOST_BINS = 100, 10, 1000
"""Numbers for each bin, of the side with fewer, and how many bins there are. From 1,000 numbers on,
samples of one distribution come out at most 0.004 apart."""


def l_infinity(
    counts: Mapping[Any, int], others: Mapping[Any, int], totals: Sequence[int] = ()
) -> float | None:
    """Return the greatest difference of a value's part of all; None where a side has none.

    The ``totals`` say how many there are in all, where not all are held.
    """
    first, second = totals or (sum(counts.values()), sum(others.values()))
    if not first or not second:
        return None
    parts = (counts.get(v, 0) / first - others.get(v, 0) / second for v in {*counts, *others})
    return max(map(abs, parts))


def jensen_shannon(left: NumberFold, right: NumberFold) -> float | None:
    """Return the Jensen-Shannon divergence in bits, 0 to 1; None where a side has no values.

    Both sides are counted in the same bins, which are quantiles of both together, or each value in
    its own where they are few. TFDV gives each side ten bins between its own minimum and maximum,
    so one outlier moves all of them, and equal distributions come out far from each other. NaN and
    infinities are one more bin each; TFDV counts them as different values on each side.
    """
    values = np.unique(np.append(left.values, right.values))
    shares = []
    for fold in (left, right):
        counts = np.zeros(len(values) + 2)
        counts[np.searchsorted(values, fold.values)] = fold.counts
        counts[-2:] = fold.nan, fold.infinite
        total = fold.count + fold.nan + fold.infinite
        if not total:
            return None
        shares.append(counts / total)
    sample_size = min(len(one.values) if one.error else one.count for one in (left, right))
    most = min(max(sample_size // _PER_BIN, _FEWEST_BINS), _MOST_BINS)
    if len(values) > most:
        both = (shares[0] + shares[1])[:-2]
        ranks = (np.cumsum(both) - both / 2) / both.sum()
        bins = np.minimum(ranks * most, most - 1).astype(np.int64)
        shares = [np.append(np.bincount(bins, one[:-2]), one[-2:]) for one in shares]
    p, q = shares
    middle = (p + q) / 2
    return float(min(max((_divergence(p, middle) + _divergence(q, middle)) / 2, 0.0), 1.0))


def _divergence(p: NDArray[np.float64], q: NDArray[np.float64]) -> float:
    shared = (p > 0) & (q > 0)
    return float(np.sum(p[shared] * np.log2(p[shared] / q[shared])))
