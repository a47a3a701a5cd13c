"""How well a split is shuffled, by how much the label mix varies between batches in file order."""

import enum
import math
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, groupby

BATCH = 32
"""Records in a batch: the default of Keras and of ``tfrtool train``."""

TOLERANCE = 0.25
"""How much more than random batches those in file order may vary."""

_SIGMAS = 3.0
"""Standard deviations that are taken for chance."""

_RARE = 1 / 740
"""The share of random orders that are beyond these."""

_FEWEST = 16
"""Records that an order is judged from; of 8 in two halves, one in 35 is sorted by chance."""


class Order(enum.Enum):
    """What the order of a split is; the values are part of the JSON output."""

    SHUFFLED = "shuffled"
    PARTLY_SORTED = "partly_sorted"
    UNEVEN_SHARDS = "uneven_shards"
    """Each shard is shuffled, but their label mixes differ."""
    SORTED = "sorted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffleQuality:
    """What the order of a split's labels is like."""

    shuffle: str  # the order and what to do about it, in words
    order: Order
    longest_run: int  # the most records of one label in a row
    batch: int  # the size of the batches that are compared: `BATCH`, or less in small splits
    batch_spread: float
    """The variance of the mixes of such batches in file order, over that of random batches: 1 is
    random, `batch` is one label per batch."""
    shuffle_buffer: int  # records that ``shuffle`` of tf.data must hold; 1 where the order is good


def measure_order(shards: Sequence[Sequence[int]]) -> ShuffleQuality | None:
    """Measure how well a split is shuffled; None if it has too few records or labels.

    ``shards`` has each shard's labels in order, as numbers below 2**16.
    """
    shards = [shard for shard in shards if len(shard)]
    codes = array("H", chain.from_iterable(shards))
    n, labels = len(codes), len(set(codes))
    if n < _FEWEST or labels < 2:
        return None
    lengths = [sum(1 for _ in run) for _, run in groupby(codes)]
    batch, spread, buffer = _needed_buffer(codes)
    # Of all orders, this share is sorted: the orders of the labels, by those of all records.
    counts = Counter(codes).values()
    chance = math.lgamma(labels + 1) + sum(math.lgamma(c + 1) for c in counts) - math.lgamma(n + 1)
    if len(lengths) == labels and chance < math.log(_RARE):
        order, words, buffer = Order.SORTED, "sorted by label", n
    elif buffer == 1:
        order, words = Order.SHUFFLED, "well shuffled"
    elif len(shards) > 1 and all(_is_shuffled(shard) for shard in shards):
        order = Order.UNEVEN_SHARDS
        words = "shuffled within shards, but label mixes differ between shards"
    else:
        order = Order.PARTLY_SORTED
        words = f"partly sorted, longest run of one label: {max(lengths):,}"
    if buffer == n:
        words += f"; shuffle with a buffer of all {n:,} records, or rewrite it in random order"
    elif buffer > 1:
        words += f"; shuffle with a buffer of at least {buffer:,} records"
    return ShuffleQuality(
        shuffle=words,
        order=order,
        longest_run=max(lengths),
        batch=batch,
        batch_spread=spread,
        shuffle_buffer=buffer,
    )


def _is_shuffled(codes: Sequence[int]) -> bool:
    return len(codes) < _FEWEST or len(set(codes)) < 2 or _needed_buffer(codes)[2] == 1


def _needed_buffer(codes: Sequence[int]) -> tuple[int, float, int]:
    """Return the size of batches, how much they vary in this order, and the buffer they need.

    ``shuffle(B)`` of tf.data draws a batch of b at random from about B neighbours. Let P be the
    sum of p (1 - p) over the labels' shares p, and V(B) the mean squared distance between the mix
    of B neighbours and the whole. The batch then has one of V(B) + (P - V(B)) / b * (B - b) / (B
    - 1) on the average; a random one has P / b * (n - b) / (n - 1). The buffer is the smallest
    B = b, 2 b, 4 b ... whose ratio of the two is at most 1 + `TOLERANCE`, chance apart: 1, without
    a buffer, if B = b is enough, and all n records if nothing less is.
    """
    n = len(codes)
    # In few records, the power of two that there are at least eight of.
    batch = window = max(min(BATCH, 1 << (n // 8).bit_length() - 1), 2)
    shares = {code: count / n for code, count in Counter(codes).items()}
    squares = sum(share**2 for share in shares.values())
    # The mix of many records is nearly normal around that of the whole.
    variance = 2 * (squares - 2 * sum(share**3 for share in shares.values()) + squares**2)
    noise = math.sqrt(max(variance, 0.0)) / (1 - squares)
    random = (1 - squares) / batch * (n - batch) / (n - 1)
    spread = 1.0
    while window <= n:
        starts = range(0, n - window + 1, window)
        parts = [Counter(codes[start : start + window]) for start in starts]
        distances = sum(
            count * (count - 2 * window * shares[code])
            for part in parts
            for code, count in part.items()
        )
        between = max(distances / len(parts) / window**2 + squares, 0.0)
        within = (1 - squares - between) / batch * (window - batch) / (window - 1)
        ratio = (between + within) / random
        if window == batch:
            spread = ratio
        chance = _SIGMAS * noise / math.sqrt(len(parts)) * batch / window
        if ratio <= 1 + TOLERANCE + chance:
            return batch, spread, 1 if window == batch else window
        window *= 2
    return batch, spread, n
