"""Splits: drawn by names and a seed; by groups; or so that each holds its share of every label.

Shares of labels are those of iterative stratification (K. Sechidis, G. Tsoumakas, I. Vlahavas: On
the Stratification of Multi-Label Data, ECML PKDD 2011): the rarest label first, its images go where
most of them are still wanted. Here labels stay in the order of how many images have them at first,
so that rows can be sorted once, on the disk; and images of a label are given out in the order of
their draws, a stretch for each split, so that one more of them moves few others. Images that stay
together, or have a label several times, come before the rest, the largest first.
"""

import math
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import accumulate, chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tfrtool.errors import UsageError
from tfrtool.sources.items import Item, Source
from tfrtool.storage.limits import MAX_CLASSES
from tfrtool.storage.sorted_rows import SortedRows
from tfrtool.writing.image_findings import SourceFindings, first_alike, integers
from tfrtool.writing.image_records import RecordMaker
from tfrtool.writing.write_options import WriteOptions

if TYPE_CHECKING:
    from tfrtool.writing.image_findings import Firsts

_LITTLE = 1e-6
"""Of an image: what is less is an error of rounding."""


def splitter(splits: Mapping[str, float], seed: int) -> Callable[[str], str]:
    """Return a function from a key to the name of its split.

    The key and the seed alone decide, so that an image that is added moves no other into another
    split. Each key is a draw of its own, even over the fractions for names of any kind: n images
    give a split n * fraction, with a standard deviation of sqrt(n * fraction * (1 - fraction)).
    """
    names, number = list(splits), _drawer(splits, seed)
    return lambda key: names[number(key)]


def _drawer(splits: Mapping[str, float], seed: int) -> Callable[[str], int]:
    digest, ends = hasher("splits", seed), list(accumulate(list(splits.values())[:-1]))
    return lambda key: bisect_right(ends, int.from_bytes(digest(key), "big") / 2**64)


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


class SplitDraws:
    """Gives each image of a source that was looked at its split.

    Images of one group, and exact copies, go together, and so do those that go with the same.

    Attributes:
        led: how many images go where another one goes.
    """

    def __init__(
        self,
        source: Source,
        maker: RecordMaker,
        findings: SourceFindings,
        options: WriteOptions,
        scratch: Path | None,
    ) -> None:
        """Find out what goes together; stratified splits are drawn at once."""
        firsts = _firsts(source, findings)
        self.led = int((firsts != 0).sum())
        self._firsts = memoryview(firsts.data)
        self._draw = _drawer(options.splits, options.seed)
        self._numbers = array("I")
        self._stratified = options.stratify
        if options.stratify:
            shares = [*options.splits.values()]
            digest = hasher("splits", options.seed)
            images = _Images(source, maker, findings, digest, self._firsts)
            self._numbers = _stratified(images, shares, scratch)

    def number(self, position: int, item: Item) -> int:
        """Return the number of an image's split; to be asked for all positions, in their order."""
        first = self._firsts[position]
        if self._stratified:
            return self._numbers[first - 1 if first else position]
        if len(self._numbers) < position:
            self._numbers.extend([0] * (position - len(self._numbers)))
        number = self._numbers[first - 1] if first else self._draw(drawn_by(item))
        self._numbers.append(number)
        return number


def drawn_by(item: Item) -> str:
    """Return what the split of an image is drawn by: its group, or else its key."""
    return f"{item.group:016x}" if item.group else item.key


def _firsts(source: Source, findings: SourceFindings) -> "Firsts":
    """For each image 1 more than the position of the first that it goes with; 0 for that itself."""
    import numpy as np

    copies, count = findings.first_copies, len(source.items)
    if not source.grouped:
        return copies
    groups = np.fromiter((item.group for item in source.items), np.uint64, count)
    groups[findings.digests == 0] = 0
    grouped = first_alike(groups)
    del groups
    if not copies.any():
        return grouped
    firsts = np.zeros(count, np.uint32)
    first_of = memoryview(firsts.data)

    def first(position: int) -> int:
        while up := first_of[position]:
            first_of[position] = first_of[up - 1] or up
            position = up - 1
        return position

    for pairs in (copies, grouped):
        for at in np.flatnonzero(pairs):
            low, high = sorted((first(int(at)), first(int(pairs[at]) - 1)))
            if low != high:
                first_of[high] = low + 1
    for later in np.flatnonzero(firsts).tolist():
        up = first_of[later]  # what is before it knows its own first already
        first_of[later] = first_of[up - 1] or up
    return firsts


class _Images(NamedTuple):
    """The images to stratify, and what is drawn by."""

    source: Source
    maker: RecordMaker
    findings: SourceFindings
    digest: Callable[[str], bytes]
    firsts: memoryview

    def good(self) -> Iterator[tuple[int, Item, list[str]]]:
        """Yield the position of each image that can be written, the image, and its labels."""
        digests = integers(self.findings.digests)
        for at, (item, digest) in enumerate(zip(self.source.items, digests, strict=True)):
            if digest:
                yield at, item, self.maker.labels_of(item) or [""]


def _stratified(images: _Images, shares: Sequence[float], scratch: Path | None) -> "array[int]":
    """Return the number of the split of each image that is the first of those that go together."""
    firsts, counts, total = images.firsts, Counter[str](), 0
    numbers = array("I", bytes(array("I").itemsize * len(firsts)))
    for at, _, labels in images.good():
        counts.update(labels)
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

    def units() -> Iterator[tuple[int, bytes, int, Mapping[int, int]]]:
        """Yield images that stay together: the first, its draw, how many, how often each label."""
        together = SortedRows[tuple[int, bytes, tuple[int, ...]]](scratch)
        for at, item, labels in images.good():
            found = tuple(ranks[label] for label in labels)
            draw = b"" if firsts[at] else images.digest(drawn_by(item))
            if firsts[at] or numbers[at]:
                together.add((firsts[at] - 1 if firsts[at] else at, draw, found))
            else:
                yield at, draw, 1, {found[0]: 1} if len(found) == 1 else Counter(found)
        for at, rows in groupby(together, key=itemgetter(0)):
            members = [*rows]  # the first one comes first
            often = Counter(chain.from_iterable(found for *_, found in members))
            yield at, members[0][1], len(members), often

    rows = SortedRows[tuple[int, int, int, bytes, int, int, tuple[tuple[int, int], ...]]](
        scratch, by=5
    )
    singles = Counter[int]()
    for at, draw, count, often in units():
        pairs = tuple(sorted(often.items()))
        rank, times = pairs[0]
        single = count == times == 1
        singles[rank] += single
        order = (rank, 0) if single else (0, -sum(often.values()))
        rows.add((int(single), *order, draw, at, count, pairs))
    wanted = _Wanted(shares, [*(counts[label] for label in rarest_first), total])
    last, quotas = -1, [0]
    for alone, rank, _, _, at, count, pairs in rows:
        if not alone:
            split = wanted.best(count, pairs)
        else:
            if last != rank:
                last, quotas = rank, wanted.quotas(rank, singles[rank])
            split = next(number for number, quota in enumerate(quotas) if quota)
            quotas[split] -= 1
        wanted.give(split, count, pairs)
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
