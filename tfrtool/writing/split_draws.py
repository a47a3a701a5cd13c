"""Splits: drawn by names and a seed; by groups; or so that each holds its share of every label.

Shares of labels are those of iterative stratification (K. Sechidis, G. Tsoumakas, I. Vlahavas: On
the Stratification of Multi-Label Data, ECML PKDD 2011): the rarest label first, its images go where
most of them are still wanted. Here labels stay in the order of how many images have them at first,
so that rows can be sorted once, on the disk; and images of a label are given out in the order of
their draws, a stretch for each split, so that one more of them moves few others. Images that stay
together, or have a label several times, come before the rest, the largest first.
"""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import accumulate, chain, groupby
from operator import itemgetter

from tfrtool.errors import UsageError
from tfrtool.sources.items import Item
from tfrtool.storage.limits import MAX_CLASSES
from tfrtool.storage.scratch.external_sort import ExternalSort, column, forgetting
from tfrtool.writing.image_audit import Audit
from tfrtool.writing.record_values import labels_of
from tfrtool.writing.write_options import WriteOptions

_LITTLE = 1e-6
"""Of an image: what is less is an error of rounding."""

_Unit = tuple[int, int, Mapping[int, int]]
"""Images that stay together: the first of them, how many there are, and how often each label."""


def splitter(splits: Mapping[str, float], seed: int) -> Callable[[str], str]:
    """Return what tells the name of the split that a key belongs to.

    The key and the seed alone decide, so that an image that is added moves no other into another
    split. Each key is a draw of its own, even over the fractions for names of any kind: n images
    give a split n * fraction, with a standard deviation of sqrt(n * fraction * (1 - fraction)).
    """
    digest, names = hasher("splits", seed), list(splits)
    ends = list(accumulate(list(splits.values())[:-1]))
    return lambda key: names[bisect_right(ends, int.from_bytes(digest(key), "big") / 2**64)]


def hasher(purpose: str, seed: int) -> Callable[[str], bytes]:
    """Return what makes 8 bytes of a key that look random, and are the same on every machine."""
    start = blake2b(
        digest_size=8, key=seed.to_bytes(8, "little", signed=True), person=purpose.encode()
    )

    def digest(key: str) -> bytes:
        state = start.copy()
        state.update(key.encode("utf-8", "surrogateescape"))
        return state.digest()

    return digest


def draw_splits(
    audit: Audit, options: WriteOptions
) -> tuple[Callable[[int, Item], str], tuple[object, ...]]:
    """Return what tells the split of an item, given with its position; and columns it looks up."""
    items, groups = audit.source.items, audit.source.groups
    firsts = firsts_of(audit)

    def name(position: int, item: Item) -> str:
        """Return what is drawn by: the group, or the key; of copies, that of the first."""
        if first := firsts[position]:
            position = first - 1
        if groups and groups[position]:
            return f"{groups[position]:016x}"
        return items[position].key if first else item.key

    if not options.stratify:
        draw = splitter(options.splits, options.seed)
        return lambda position, item: draw(name(position, item)), (firsts, groups)
    splits, digest = [*options.splits], hasher("splits", options.seed)
    numbers = _stratified(
        audit,
        firsts,
        [*options.splits.values()],
        lambda position: digest(name(position, items[position])),
    )
    return lambda position, _: splits[numbers[(firsts[position] or position + 1) - 1]], (
        firsts,
        numbers,
    )


def firsts_of(audit: Audit) -> memoryview:
    """For each image one more than the position of the first that it goes with; 0 for that itself.

    Images of one group, and exact copies, go together, and so do those that go with the same.
    """
    if not audit.source.groups:
        return audit.leaders
    leaders, groups, codes = audit.leaders, audit.source.groups, audit.notable.codes
    good = ((groups[at], at) for at in forgetting(audit.good(), groups, codes))
    alike = ExternalSort(audit.scratch, (row for row in good if row[0]))
    firsts = column("Q", len(groups), audit.scratch)

    def first(position: int) -> int:
        while up := firsts[position]:
            firsts[position] = firsts[up - 1] or up
            position = up - 1
        return position

    def grouped() -> Iterator[tuple[int, int]]:
        for _, rows in groupby(alike, key=itemgetter(0)):
            leader = -1
            for _, at in rows:
                leader = at if leader < 0 else leader
                yield leader, at

    copies = ((leader - 1, at) for at, leader in enumerate(leaders) if leader)
    for one, other in forgetting(chain(copies, grouped()), firsts, leaders):
        low, high = sorted((first(one), first(other)))
        if low != high:
            firsts[high] = low + 1
    for at, up in enumerate(forgetting(firsts, firsts)):
        if up:  # what is before it knows its own first already
            firsts[at] = firsts[up - 1] or up
    return firsts


def _stratified(
    audit: Audit, firsts: Sequence[int], shares: Sequence[float], draw: Callable[[int], bytes]
) -> memoryview:
    """Return the number of the split of each image that is the first of those that go together."""
    source, scratch = audit.source, audit.scratch
    numbers, counts = column("Q", len(source.items), scratch), Counter[str]()
    total = 0
    columns = (firsts, numbers, audit.notable.codes, source.groups)
    for at in forgetting(audit.good(), *columns):
        counts.update(labels_of(source, at) or ("",))
        total += 1
        if firsts[at]:
            numbers[firsts[at] - 1] = 1  # it is not alone
        if len(counts) > MAX_CLASSES:
            raise UsageError(
                "too many different labels for --stratify",
                expected=f"at most {MAX_CLASSES:,}",
            )
    rarest_first = sorted(counts, key=lambda label: (counts[label], label))
    ranks = {label: rank for rank, label in enumerate(rarest_first)}

    def units() -> Iterator[_Unit]:
        together = ExternalSort[tuple[int, tuple[int, ...]]](scratch)
        for at in forgetting(audit.good(), *columns):
            found = tuple(ranks[label] for label in labels_of(source, at) or ("",))
            if first := firsts[at] or (numbers[at] and at + 1):
                together.add((first - 1, found))
            else:
                yield at, 1, {found[0]: 1} if len(found) == 1 else Counter(found)
        for at, rows in groupby(together, key=itemgetter(0)):
            some = [found for _, found in rows]
            yield at, len(some), Counter(chain.from_iterable(some))

    rows = ExternalSort[tuple[bool, int, int, bytes, int, int, tuple[tuple[int, int], ...]]](
        scratch
    )
    singles = Counter[int]()
    for at, images, held in units():
        labels = tuple(sorted(held.items()))
        rank, count = labels[0]
        single = images == count == 1
        singles[rank] += single
        order = (rank, 0) if single else (0, -sum(held.values()))
        rows.add((single, *order, draw(at), at, images, labels))
    wanted = _Wanted(shares, [*(counts[label] for label in rarest_first), total])
    last, quotas = -1, [0]
    for single, rank, _, _, at, images, labels in forgetting(rows, numbers):
        if not single:
            split = wanted.best(images, labels)
        else:
            if last != rank:
                last, quotas = rank, wanted.quotas(rank, singles[rank])
            split = next(number for number, quota in enumerate(quotas) if quota)
            quotas[split] -= 1
        wanted.give(split, images, labels)
        numbers[at] = split
    return numbers


class _Wanted:
    """How many images of each label each split still wants, and how many of all."""

    def __init__(self, shares: Sequence[float], counts: Sequence[int]) -> None:
        whole = math.fsum(shares)
        self._shares = [share / whole for share in shares]
        self._counts = counts  # the last one is that of all images
        self._left = [[share * count for share in self._shares] for count in self._counts]

    def give(self, split: int, images: int, labels: Sequence[tuple[int, int]]) -> None:
        """Give a split some images, with so many of each of these labels."""
        for rank, count in (*labels, (-1, images)):
            self._left[rank][split] -= count

    def best(self, images: int, labels: Sequence[tuple[int, int]]) -> int:
        """Return the split for images that stay together, with so many of each of these labels.

        It is the one that lowers most the squares of what is wanted, as shares of what was wanted
        first. Of a label that no split ever wanted so many of, it counts only who wants more: else
        what is rare all went to the largest split.
        """
        scores = [0.0] * len(self._shares)
        for rank, count in (*labels, (-1, images)):
            left, whole = self._left[rank], self._counts[rank]
            over = count if max(self._shares) * whole > count - _LITTLE else 0
            for split, share in enumerate(self._shares):
                scores[split] += count * (2 * left[split] - over) / (whole * share)
        return max(range(len(scores)), key=scores.__getitem__)

    def quotas(self, rank: int, count: int) -> list[int]:
        """Return how many of the last images of a label, each of which has it once, a split gets.

        These are the largest remainders; but what is left over goes to splits that lag most behind
        their share of all images, for else those of small shares got nothing rare.
        """
        left, quotas = self._left[rank], [max(0, math.floor(w + _LITTLE)) for w in self._left[rank]]
        splits = range(len(left))
        for _ in range(sum(quotas) - count):  # another split has more of it than its share
            taken = [split for split in splits if quotas[split]]
            quotas[min(taken, key=lambda split: left[split] - quotas[split])] -= 1
        rest = sum(self._left[-1]) - count
        lags = [w - share * rest for w, share in zip(self._left[-1], self._shares, strict=True)]
        for _ in range(count - sum(quotas)):
            some = [split for split in splits if left[split] - quotas[split] > _LITTLE] or splits
            quotas[max(some, key=lambda split: lags[split] - quotas[split])] += 1
        return quotas
