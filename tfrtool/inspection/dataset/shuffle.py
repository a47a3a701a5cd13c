"""How well a split is shuffled.

What a bad order costs is seen in the batches: their mixes of labels vary more than those of
batches that are drawn at random. "By chance" means: if all orders of the records are as likely.
"""

import enum
import math
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, groupby

BATCH = 32
"""Records in a batch: the default of Keras and of ``tfrtool train``."""

TOLERANCE = 0.25
"""How much more than by chance batches may vary: those of 32 then vary as random ones of 26 do."""

_SIGMAS = 3.0
"""Standard deviations that are taken for chance; a test beyond them is wrong once in 740 times."""

_FEWEST = 16
"""Records that an order is judged from; of 8 in two halves, one in 35 is sorted by chance."""


class Order(enum.Enum):
    """What the order of a split is; the values are part of the JSON output."""

    SHUFFLED = "shuffled"
    PARTLY_SORTED = "partly_sorted"
    UNEVEN_SHARDS = "uneven_shards"
    """Each shard is shuffled, but the shards have mixes of their own."""
    SORTED = "sorted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffleQuality:
    """What the order of a split's labels is like."""

    shuffle: str  # that, and what to do about it, in words
    order: Order  # the same in one word
    longest_run: int  # the most records of one label in a row
    batch: int  # the size of the batches that are looked at: `BATCH`, or less in small splits
    batch_spread: float
    """The variance of the mixes of such batches in file order, over that of random batches: 1 is
    chance, `batch` is one label a batch."""
    shuffle_buffer: int  # records that ``shuffle`` of tf.data must hold; 1 where the order is good


def measure_order(shards: Sequence[Sequence[int]]) -> ShuffleQuality | None:
    """Measure how well a split is shuffled; None if it has too few records, or one label at most.

    ``shards`` has each shard's labels in order, as numbers below 2**16.
    """
    shards = [shard for shard in shards if len(shard)]
    codes = array("H", chain.from_iterable(shards))
    n, labels = len(codes), len(set(codes))
    if n < _FEWEST or labels < 2:
        return None
    lengths = [sum(1 for _ in run) for _, run in groupby(codes)]
    # What the number of runs shows already need not be forgiven as chance in the batches.
    batch, spread, buffer = _needed_buffer(codes, 0.0 if _is_clumped([codes]) else _SIGMAS)
    if buffer == 1:
        order, words = Order.SHUFFLED, "well shuffled"
    elif len(lengths) == labels:
        order, words, buffer = Order.SORTED, "sorted by label", n
    elif len(shards) > 1 and not _is_clumped(shards):
        order = Order.UNEVEN_SHARDS
        words = "shuffled within shards, but label mixes differ between shards"
    else:
        order, words = (
            Order.PARTLY_SORTED,
            f"partly sorted, longest run of one label: {max(lengths):,}",
        )
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


def _is_clumped(parts: Iterable[Sequence[int]]) -> bool:
    """Return whether the parts, each by itself, have fewer runs of one label than by chance.

    The runs test for any number of labels: Barton and David, "Multiple runs" (1957).
    """
    excess = variance = 0.0
    for part in parts:
        n, counts = len(part), Counter(part).values()
        squares, cubes = sum(count**2 for count in counts), sum(count**3 for count in counts)
        if n > 1:
            excess += sum(1 for _ in groupby(part)) - (n + 1 - squares / n)
            # In whole numbers, for the terms nearly cancel each other.
            terms = squares * (squares + n * (n + 1)) - 2 * n * cubes - n**3
            variance += terms / (n**2 * (n - 1))
    return excess < -_SIGMAS * math.sqrt(variance)


def _needed_buffer(codes: Sequence[int], sigmas: float) -> tuple[int, float, int]:
    """Return the size of batches, how much they vary in this order, and the buffer they need.

    ``shuffle(B)`` of tf.data draws a batch of b at random from about B neighbours. Let P be the
    sum of p (1 - p) over the labels' shares p, and V(B) the mean squared distance between the mix
    of B neighbours and the whole. The batch then has one of V(B) + (P - V(B)) / b * (B - b) / (B
    - 1) on the average; a random one has P / b * (n - b) / (n - 1). The buffer is the smallest
    B = b, 2 b, 4 b ... whose ratio of the two is at most 1 + `TOLERANCE` and so many standard
    deviations: 1, which is no buffer, if B = b is enough, and all n records if nothing less is.
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
            sum([count * (count - 2 * window * shares[code]) for code, count in part.items()])
            for part in parts
        )
        between = max(distances / len(parts) / window**2 + squares, 0.0)
        inside = (1 - squares - between) / batch * (window - batch) / (window - 1)
        ratio = (between + inside) / random
        if window == batch:
            spread = ratio
        chance = noise / math.sqrt(len(parts)) * batch / window
        if ratio <= 1 + TOLERANCE + sigmas * chance:
            return batch, spread, 1 if window == batch else window
        window *= 2
    return batch, spread, n
