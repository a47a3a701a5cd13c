"""The shuffle buffer that an order of labels needs, and orders that reading gives them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

__all__ = [
    "BATCH",
    "SIGMAS",
    "TOLERANCE",
    "BufferNeed",
    "batch_size",
    "interleave",
    "moments",
    "needed_buffer",
]

BATCH = 32
"""Records in a batch: the default of Keras and of ``tfrtool train``."""

TOLERANCE = 0.25
"""How much more than by chance batches may vary: those of 32 then vary as random ones of 26 do."""

CYCLE = 16
"""Shards that are read in turn: as many as tensorflow-datasets opens at a time by default."""

SIGMAS = 3.0
"""Standard deviations that are taken for chance; a test beyond them is wrong once in 740 times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferNeed:
    """What an order asks of ``shuffle``.

    Attributes:
        spread: the variance of the mixes of batches, over that of random batches.
        noise: the standard deviation of `spread` in a random order.
        buffer: the records that must be held; 1 where the order is good already.
    """

    spread: float
    noise: float
    buffer: int


def needed_buffer(codes: Sequence[int], sigmas: float = SIGMAS) -> BufferNeed:
    """Return how much batches vary in this order, and the shuffle buffer that they need.

    ``shuffle(B)`` of tf.data gives out records at random from the B that it holds, so that a
    batch is drawn at random from about B neighbours. Let P be the sum of p (1 - p) over the
    labels' shares p, and V(B) the mean squared distance (summed over the labels) between the mix
    of B neighbours and the whole. A batch of b then has a squared distance of::

        V(B) + (P - V(B)) / b * (B - b) / (B - 1)

    on the average: that of its neighbourhood, and that of a sample from it. A random batch has
    ``P / b * (n - b) / (n - 1)``. The ratio of the two has the mean 1 in a random order, for any
    B, exactly. The buffer needed is the smallest B = b, 2 b, 4 b ... for which it is at most
    1 + `TOLERANCE`: 1, which is no buffer, if B = b is enough, and all n records if nothing less
    is. V is measured over windows that lie side by side. In truth records stay in the buffer for
    longer than B steps as often as not, which makes for somewhat better batches than this says:
    for labels in blocks, half the buffer would do.

    The time is linear in the number of records, and the memory in the number of labels.

    Args:
        codes: the labels.
        sigmas: how many standard deviations of the measured ratio are forgiven as chance, taking
            windows as independent draws. 0 where something else shows that it isn't chance.
    """
    n = len(codes)
    batch = batch_size(n)
    shares = {code: count / n for code, count in Counter(codes).items()}
    second, noise = moments(shares.values())
    random = (1 - second) / batch * (n - batch) / max(n - 1, 1)
    if random <= 0:
        return BufferNeed(spread=1.0, noise=0.0, buffer=1)
    spread, chance, buffer = 1.0, 0.0, n
    for window, (count, squares) in _deviations(codes, shares, batch):
        between = squares / (count * window**2)
        inside = (1 - second - between) / batch * (window - batch) / (window - 1)
        ratio = (between + inside) / random
        deviation = noise / math.sqrt(count) * batch / window
        if window == batch:
            spread, chance = ratio, deviation
        if ratio <= 1 + TOLERANCE + sigmas * deviation:
            buffer = 1 if window == batch else window
            break
    return BufferNeed(spread=spread, noise=chance, buffer=buffer)


def batch_size(records: int) -> int:
    """Return `BATCH`, or the power of two that there are at least eight of in few records."""
    return max(min(BATCH, 1 << max(records // 8, 1).bit_length() - 1), 2)


def _deviations(
    codes: Sequence[int], shares: dict[int, float], batch: int
) -> Iterator[tuple[int, tuple[int, float]]]:
    """Yield for each window size how many windows there are, and their squared distances summed.

    A window of a size is two of the size before: each is counted once, in records, and its
    distance from a mean mix p follows from what it has of each label, sum (c - w p)^2.
    """
    second = sum(share**2 for share in shares.values())
    sums: list[tuple[int, float]] = []
    waiting: list[Counter[int] | None] = []
    for start in range(0, len(codes) - batch + 1, batch):
        counts = Counter(codes[start : start + batch])
        size = batch
        for level in range(len(codes).bit_length()):
            if level == len(sums):
                sums.append((0, 0.0))
                waiting.append(None)
            squares = sum([count**2 for count in counts.values()])
            mean = sum([count * shares[code] for code, count in counts.items()])
            done, total = sums[level]
            squared = squares - 2 * size * mean + size**2 * second
            sums[level] = done + 1, total + max(squared, 0.0)
            other = waiting[level]
            if other is None:
                waiting[level] = counts
                break
            waiting[level] = None
            other.update(counts)
            counts = other
            size *= 2
    for level, found in enumerate(sums):
        yield batch << level, found


def interleave(shards: Sequence[Sequence[int]], cycle: int = CYCLE) -> Iterator[int]:
    """Yield the labels in the order of ``Dataset.interleave`` of tf.data, a record a turn.

    Args:
        shards: the labels of each shard.
        cycle: how many shards are open at a time.
    """
    waiting = iter(shards)
    slots = [iter(shard) for shard in islice(waiting, cycle)]
    while slots:
        open_still = []
        for slot in slots:
            code = next(slot, None)
            if code is not None:
                yield code
                open_still.append(slot)
            elif (following := next(waiting, None)) is not None:
                # The slot misses this turn; the next shard has its first at the next one.
                open_still.append(iter(following))
        slots = open_still


def moments(shares: Collection[float]) -> tuple[float, float]:
    """Return the sum of squared shares, and the relative noise of a squared distance.

    A mix of many records is nearly normal around the whole, with the covariance C of one draw
    over their number. Its squared distance has the mean tr C = 1 - sum p^2 and the variance
    2 tr C^2, tr C^2 = sum p^2 - 2 sum p^3 + (sum p^2)^2.
    """
    second = sum(share**2 for share in shares)
    third = sum(share**3 for share in shares)
    if second >= 1:
        return second, 0.0
    return second, math.sqrt(2 * max(second - 2 * third + second**2, 0.0)) / (1 - second)
