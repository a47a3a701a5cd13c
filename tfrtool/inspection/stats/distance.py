"""How far two distributions are from each other, as TensorFlow Data Validation defines it.

The formulas are those of ``tensorflow_data_validation/anomalies/metrics.cc``, of version 1.16.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfrtool.inspection.stats.number_fold import NumberFold


def l_infinity(
    some: Mapping[Any, int], others: Mapping[Any, int], totals: Sequence[int] = ()
) -> float | None:
    """Return the greatest difference of a value's part of all; None where a side has none.

    The ``totals`` say how many there are in all, where not all are held.
    """
    first, second = totals or (sum(some.values()), sum(others.values()))
    if not first or not second:
        return None
    parts = (some.get(v, 0) / first - others.get(v, 0) / second for v in {*some, *others})
    return max(map(abs, parts))


def jensen_shannon(some: NumberFold, others: NumberFold) -> float | None:
    """Return the Jensen-Shannon divergence in bits, 0 to 1; None where a side has no values.

    Both histograms are brought to the union of their edges, with the numbers of a bucket spread
    evenly over it. Equal numbers alone are a bucket without width, which only its like matches.
    NaN and infinities are one more bucket each; TFDV holds those of one side for others than those
    of the other side, so that data with NaN is far from itself.
    """
    first, second = some.histogram(), others.histogram()
    edges = np.unique([edge for one in (first, second) if one for edge in one["edges"]])
    parts = []
    for fold, histogram in ((some, first), (others, second)):
        odd = [fold.nan, fold.infinite]
        total = fold.count + sum(odd)
        if not total:
            return None
        parts.append(np.append(_spread(histogram, edges), odd) / total)
    p, q = parts
    middle = (p + q) / 2
    return float(min(max((_divergence(p, middle) + _divergence(q, middle)) / 2, 0.0), 1.0))


def _spread(
    histogram: Mapping[str, list[Any]] | None, edges: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return how many numbers are between edges, and then how many are a point at each."""
    points = np.zeros(len(edges))
    between = np.zeros(max(len(edges) - 1, 0))
    if histogram is not None:
        held, counts = histogram["edges"], histogram["counts"]
        if held[0] == held[-1]:
            points[np.searchsorted(edges, held[0])] = counts[0]
        else:
            between = np.diff(np.interp(edges, held, np.append(0, np.cumsum(counts))))
    return np.append(between, points)


def _divergence(p: NDArray[np.float64], q: NDArray[np.float64]) -> float:
    some = (p > 0) & (q > 0)
    return float(np.sum(p[some] * np.log2(p[some] / q[some])))
