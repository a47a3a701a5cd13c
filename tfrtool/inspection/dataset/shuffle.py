"""How well a split is shuffled, and how its labels are spread over parts.

What a bad order costs is seen in the batches: their mixes of labels vary more than those of
batches that are drawn at random. "By chance" means: if all orders of the records are as likely.
"""

from __future__ import annotations

import enum
import math
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice

__all__ = [
    "MixDistance",
    "Order",
    "ShuffleQuality",
    "describe_balance",
    "interleave",
    "measure_order",
    "mix_distance",
]

BATCH = 32
"""Records in a batch: the default of Keras and of ``tfrtool train``."""

TOLERANCE = 0.25
"""How much more than by chance batches may vary: those of 32 then vary as random ones of 26 do."""

_CYCLE = 16
"""Shards that are read in turn: as many as tensorflow-datasets opens at a time by default."""

_SIGMAS = 3.0
"""Standard deviations that are taken for chance; a test beyond them is wrong once in 740 times."""

_SLIGHT = 0.02
"""A part of the runs that may be missing or too many before that is of any consequence."""

_RISK = 0.001
"""The probability that chance is left with: of an order that is sorted, of a mix that is far."""

_FEWEST = 16
"""Records that an order is told from; of 8 in two halves, one order in 35 is sorted by chance."""

_BALANCED, _NEARLY_BALANCED = 1.1, 1.5  # MNIST has 1.26 of one digit for each of another


class Order(enum.Enum):
    """What the order of a split is; the values are part of the JSON output."""

    SHUFFLED = "shuffled"
    REGULAR = "regular"
    """Not by chance, as with labels that take turns, but batches have an even mix all the same."""
    PARTLY_SORTED = "partly_sorted"
    UNEVEN_SHARDS = "uneven_shards"
    """Each shard is shuffled, but the shards have mixes of their own."""
    SORTED = "sorted"
    ONE_LABEL = "one_label"
    TOO_FEW = "too_few"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffleQuality:
    """What the order of a split's labels is like.

    Attributes:
        order: in a word.
        records: how many records have a label.
        runs: the number of runs of one label, from the first shard on to the last.
        expected_runs: that number by chance.
        runs_z: how many standard deviations lie between: below -3 the labels are clumped, above 3
            too regular for chance. None where the number can't vary.
        longest_run: the length of the longest run, in records.
        longest_label: its label's code.
        expected_longest_run: that length by chance.
        batch: the size of the batches that are looked at; `BATCH`, or less in small splits.
        batch_spread: the variance of the mixes of such batches in file order, over that of random
            batches. 1 is chance, `batch` is one label a batch.
        batch_noise: the standard deviation of `batch_spread` in a random order.
        shard_spread: the same ratio for the shards' mixes; None where there is one shard.
        shard_noise: its standard deviation, if the records were dealt to the shards at random.
        buffer: records that ``shuffle`` of tf.data must hold; 1 where the order is good already.
        interleaved_buffer: the same if shards are read in turn; None where there is one alone.
    """

    order: Order
    records: int
    runs: int
    expected_runs: float
    runs_z: float | None
    longest_run: int
    longest_label: int
    expected_longest_run: float
    batch: int
    batch_spread: float
    batch_noise: float
    shard_spread: float | None
    shard_noise: float
    buffer: int
    interleaved_buffer: int | None

    @property
    def shards_are_alike(self) -> bool:
        """Whether chance explains how the shards' mixes of labels differ."""
        return self.shard_spread is None or self.shard_spread <= 1 + _SIGMAS * self.shard_noise

    @property
    def verdict(self) -> str:
        """What the order is like and what to do about it, in words."""
        held = f"shuffle with a buffer of at least {self.buffer:,}"
        if self.buffer == self.records:
            held = f"shuffle with a buffer of all {self.buffer:,}, or write it anew in random order"
        return {
            Order.SHUFFLED: "well shuffled",
            Order.REGULAR: f"regular, with runs of up to {self.longest_run:,}, but evenly mixed",
            Order.PARTLY_SORTED: f"partly sorted: runs of up to {self.longest_run:,}; {held}",
            Order.UNEVEN_SHARDS: f"shuffled within shards, but their label mixes differ; {held}",
            Order.SORTED: f"sorted by label; {held}",
            Order.ONE_LABEL: "one label only",
            Order.TOO_FEW: "too few records to tell",
        }[self.order]


def measure_order(shards: Sequence[Sequence[int]]) -> ShuffleQuality | None:
    """Measure how well a split is shuffled; None if it has no labels.

    Args:
        shards: the labels of each shard's records in their order, as numbers below 2**16.
    """
    shards = [shard for shard in shards if len(shard)]
    if not shards:
        return None
    codes = array("H", chain.from_iterable(shards)) if len(shards) > 1 else shards[0]
    counts = Counter(codes)
    runs, longest, longest_label = _find_runs(codes)
    mean, deviation = _expected_runs(counts.values())
    z = (runs - mean) / deviation if deviation else None
    shard_spread, shard_noise = _spread_of(shards, counts)
    spread, noise, buffer, interleaved = 1.0, 0.0, 1, None
    in_order = runs == len(counts) and _chance_of_sorted(counts.values()) < _RISK
    if len(counts) == 1:
        order = Order.ONE_LABEL
    elif len(codes) < _FEWEST:
        order = Order.TOO_FEW
    else:
        # What the number of runs shows already need not be forgiven as chance in the batches.
        sigmas = _SIGMAS if z is None or z > -_SIGMAS else 0.0
        spread, noise, buffer = _needed_buffer(codes, math.inf if in_order else sigmas)
        if len(shards) > 1:
            _, _, interleaved = _needed_buffer(array("H", interleave(shards)), sigmas)
        if in_order:
            order, buffer = Order.SORTED, len(codes)
        elif buffer > 1:
            differ = len(shards) > 1 and _is_shuffled_within(shards)
            order = Order.UNEVEN_SHARDS if differ else Order.PARTLY_SORTED
        elif spread < 1 - TOLERANCE - _SIGMAS * noise or (
            z is not None and abs(z) > _SIGMAS and abs(runs - mean) > _SLIGHT * mean
        ):
            order = Order.REGULAR
        else:
            order = Order.SHUFFLED
    return ShuffleQuality(
        order=order,
        records=len(codes),
        runs=runs,
        expected_runs=mean,
        runs_z=z,
        longest_run=longest,
        longest_label=longest_label,
        expected_longest_run=_longest_by_chance(counts.values()),
        batch=_batch_size(len(codes)),
        batch_spread=spread,
        batch_noise=noise,
        shard_spread=shard_spread,
        shard_noise=shard_noise,
        buffer=buffer,
        interleaved_buffer=interleaved,
    )


def _find_runs(codes: Iterable[int]) -> tuple[int, int, int]:
    """Return how many runs of one label there are, the first longest one's length, its label."""
    count = longest = label = 0
    for code, group in groupby(codes):
        count += 1
        length = sum(1 for _ in group)
        if length > longest:
            longest, label = length, code
    return count, longest, label


def _expected_runs(counts: Collection[int]) -> tuple[float, float]:
    """Return how many runs chance gives, and the standard deviation of that number."""
    # The runs test for any number of labels: Barton and David, "Multiple runs" (1957).
    n = sum(counts)
    if n < 2:
        return float(n), 0.0
    squares = sum(count**2 for count in counts)
    cubes = sum(count**3 for count in counts)
    # In whole numbers, for the terms nearly cancel each other.
    variance = (squares * (squares + n * (n + 1)) - 2 * n * cubes - n**3) / (n**2 * (n - 1))
    return n + 1 - squares / n, math.sqrt(max(variance, 0.0))


def _chance_of_sorted(counts: Collection[int]) -> float:
    """Return the probability of one run a label: K! of the n! / (n_1! n_2! ...) orders."""
    logarithm = math.lgamma(len(counts) + 1) - math.lgamma(sum(counts) + 1)
    return math.exp(min(logarithm + sum(math.lgamma(count + 1) for count in counts), 0.0))


def _longest_by_chance(counts: Iterable[int]) -> float:
    """Return about how long the longest run is by chance, in records.

    Long runs are rare, so that their number is nearly Poisson with the mean lambda: the longest
    has m records or more with probability 1 - exp(-lambda(m)), and the sum over all m is its mean.
    """
    classes = Counter(counts)
    n = sum(count * times for count, times in classes.items())
    if n in classes:
        return float(n)
    total, m, chance = 1.0, 2, 1.0
    while chance > 1e-9 and m <= max(classes):
        step = max(m // 64, 1)  # the terms of long runs fall slowly: one of them stands for many
        middle = m + (step - 1) // 2
        # That m given places hold one label, and the place before them another.
        number = sum(
            times * (n - k + 1) * math.exp(_log_choose(n - middle, k - middle) - _log_choose(n, k))
            for k, times in classes.items()
            if middle <= k
        )
        chance = -math.expm1(-number)
        total += step * chance
        m += step
    return total


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _needed_buffer(codes: Sequence[int], sigmas: float) -> tuple[float, float, int]:
    """Return how much batches vary in this order, the noise in that, and the buffer they need.

    ``shuffle(B)`` of tf.data draws a batch of b at random from about B neighbours. Let P be the
    sum of p (1 - p) over the labels' shares p, and V(B) the mean squared distance between the mix
    of B neighbours and the whole. The batch then has one of V(B) + (P - V(B)) / b * (B - b) / (B
    - 1) on the average; a random one has P / b * (n - b) / (n - 1). The buffer is the smallest
    B = b, 2 b, 4 b ... whose ratio of the two is at most 1 + `TOLERANCE` and so many standard
    deviations: 1, which is no buffer, if B = b is enough, and all n records if nothing less is.
    """
    n = len(codes)
    batch = window = _batch_size(n)
    shares = {code: count / n for code, count in Counter(codes).items()}
    second, noise = _moments(shares.values())
    random = (1 - second) / batch * (n - batch) / max(n - 1, 1)
    spread, chance = 1.0, 0.0
    while window <= n and random > 0:
        parts = [codes[at : at + window] for at in range(0, n - window + 1, window)]
        between = sum(_distance(Counter(part), shares, second) for part in parts) / len(parts)
        inside = (1 - second - between) / batch * (window - batch) / (window - 1)
        ratio = (between + inside) / random
        deviation = noise / math.sqrt(len(parts)) * batch / window
        if window == batch:
            spread, chance = ratio, deviation
        if ratio <= 1 + TOLERANCE + sigmas * deviation:
            return spread, chance, 1 if window == batch else window
        window *= 2
    return spread, chance, n if random > 0 else 1


def _batch_size(records: int) -> int:
    """Return `BATCH`, or the power of two that there are at least eight of in few records."""
    return max(min(BATCH, 1 << max(records // 8, 1).bit_length() - 1), 2)


def _moments(shares: Collection[float]) -> tuple[float, float]:
    """Return the sum of squared shares, and the relative noise of a squared distance."""
    # The mix of many records is nearly normal around that of the whole.
    second = sum(share**2 for share in shares)
    variance = 2 * (second - 2 * sum(share**3 for share in shares) + second**2)
    return second, math.sqrt(max(variance, 0.0)) / (1 - second) if second < 1 else 0.0


def _distance(part: Counter[int], shares: Mapping[int, float], second: float) -> float:
    """Return the squared distance of a part's mix from the whole's, whose squares sum up so."""
    size = part.total()
    squares = sum([count * (count - 2 * size * shares[code]) for code, count in part.items()])
    return max(squares / size**2 + second, 0.0)


def interleave(shards: Sequence[Sequence[int]], cycle: int = _CYCLE) -> Iterator[int]:
    """Yield the labels in the order of ``Dataset.interleave`` of tf.data, a record a turn."""
    waiting = map(iter, shards)
    slots = list(islice(waiting, cycle))
    while slots:
        still_open = []
        for slot in slots:
            if (code := next(slot, None)) is not None:
                yield code
                still_open.append(slot)
            else:  # the slot misses this turn; the next shard has its first at the next one
                still_open += islice(waiting, 1)
        slots = still_open


def _spread_of(shards: Sequence[Sequence[int]], counts: Counter[int]) -> tuple[float | None, float]:
    """Return by how much the shards' mixes vary, over what chance gives, and the noise in that."""
    if len(shards) < 2 or len(counts) < 2:
        return None, 0.0
    n = counts.total()
    shares = {code: count / n for code, count in counts.items()}
    second, noise = _moments(shares.values())
    found = sum(len(shard) * _distance(Counter(shard), shares, second) for shard in shards)
    expected = sum((1 - second) * (n - len(shard)) / (n - 1) for shard in shards)
    return found / expected, noise / math.sqrt(len(shards) - 1)


def _is_shuffled_within(shards: Sequence[Sequence[int]]) -> bool:
    """Return whether each shard, by itself, has about as many runs as chance gives it."""
    found = sum(_find_runs(shard)[0] for shard in shards)
    by_chance = [_expected_runs(Counter(shard).values()) for shard in shards]
    expected = sum(mean for mean, _ in by_chance)
    deviation = math.hypot(*(one for _, one in by_chance))
    # One label a shard leaves nothing to be shuffled within it.
    return deviation > 0 and expected - found <= max(_SIGMAS * deviation, _SLIGHT * expected)


@dataclass(frozen=True, slots=True, kw_only=True)
class MixDistance:
    """How far a part's mix of labels is from that of the whole.

    Attributes:
        distance: the share of the part's records that would have to have another label, 0 to 1.
        chance: what it is on the average, if the part's records are drawn at random.
        limit: what chance does not go beyond, but once in a thousand datasets.
    """

    distance: float
    chance: float
    limit: float

    @property
    def is_chance(self) -> bool:
        """Whether chance alone explains the distance."""
        return self.distance <= self.limit


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
        return MixDistance(distance=0.0, chance=0.0, limit=0.0 if size else 1.0)
    distance = sum(abs(part.get(k, 0) / size - n / total) for k, n in whole.items()) / 2
    classes = Counter(whole.values())
    deviation = sum(n * _mean_deviation(total, k, size) for k, n in sorted(classes.items()))
    chance = deviation / (2 * size)
    slack = math.sqrt(math.log(max(parts, 1) / _RISK) / (2 * size))
    return MixDistance(distance=distance, chance=chance, limit=min(chance + slack, 1.0))


def _mean_deviation(n: int, count: int, size: int) -> float:
    """Return how far the number of a label of ``count`` of n is off in a draw, on the average."""
    # De Moivre's sum: Diaconis and Zabell, "Closed form summation" (1991).
    above = count * size // n + 1
    rest = n - count - size + above
    if above > min(count, size) or rest <= 0:
        return 0.0
    chance = _log_choose(count, above) + _log_choose(n - count, size - above)
    return 2 * above * rest / n * math.exp(chance - _log_choose(n, size))


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
