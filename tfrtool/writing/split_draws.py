"""Splits: drawn by names and a seed; by groups; or so that each holds its share of every label.

Shares of labels are those of iterative stratification (K. Sechidis, G. Tsoumakas, I. Vlahavas: On
the Stratification of Multi-Label Data, ECML PKDD 2011): the rarest label first, its images go where
most of them are still wanted. Here labels stay in the order of how many images have them at first;
and images of a label are given out in the order of their draws, a stretch for each split, so that
one more of them moves few others. Images that stay together, or have a label several times, come
before the rest, the largest first.
"""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from tfrtool.errors import UsageError
from tfrtool.sources.items import Item, Source
from tfrtool.storage.limits import MAX_CLASSES
from tfrtool.writing.image_findings import SourceFindings, first_alike
from tfrtool.writing.image_task import RecordMaker
from tfrtool.writing.write_options import WriteOptions

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tfrtool.writing.image_findings import Firsts

    Numbers = npt.NDArray[np.uint16]

_LITTLE = 1e-6
"""Of an image: what is less is an error of rounding."""


def split_drawer(splits: Mapping[str, float], seed: int) -> Callable[[str], int]:
    """Return a function from a key to the number of its split.

    The key and the seed alone decide, so that an image that is added moves no other into another
    split. Each key is a draw of its own, even over the fractions for names of any kind: n images
    give a split n * fraction, with a standard deviation of sqrt(n * fraction * (1 - fraction)).
    """
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


def draw_splits(
    source: Source, maker: RecordMaker, findings: SourceFindings, options: WriteOptions
) -> tuple["Numbers", int]:
    """Draw the split of each image of a source, all of which were checked.

    Images of one group, and exact copies, go together, and so do those that go with the same.

    Returns:
        The number of the split of each image, and how many images go where another one goes.
    """
    import numpy as np

    firsts = _firsts(source, findings)
    if options.stratify:
        numbers = _stratified(source, maker, findings, options, firsts)
    else:
        draw = split_drawer(options.splits or {}, options.seed)
        numbers = np.zeros(len(firsts), np.uint16)
        for at, (item, first) in enumerate(zip(source.items, firsts.data, strict=True)):
            if not first:
                numbers[at] = draw(drawn_by(item))
    followers = np.flatnonzero(firsts)
    numbers[followers] = numbers[firsts[followers].astype(np.int64) - 1]
    return numbers, len(followers)


def drawn_by(item: Item) -> str:
    """Return what the split of an image is drawn by: its group, or else its key."""
    return f"{item.group:016x}" if item.group else item.key


def _firsts(source: Source, findings: SourceFindings) -> "Firsts":
    """For each image 1 + the position of the first that it goes with; 0 for that itself."""
    import numpy as np

    copies, count = findings.first_copies, len(source.items)
    if not source.grouped:
        return copies
    groups = np.fromiter((item.group for item in source.items), np.uint64, count)
    groups[np.frombuffer(findings.digests, np.uint64) == 0] = 0
    grouped, first_of = first_alike(groups), np.zeros(count, np.uint32)
    up_of = first_of.data

    def first(position: int) -> int:
        while up := up_of[position]:
            up_of[position] = up_of[up - 1] or up
            position = up - 1
        return position

    for pairs in (copies, grouped):
        for at in np.flatnonzero(pairs):
            low, high = sorted((first(int(at)), first(int(pairs[at]) - 1)))
            if low != high:
                up_of[high] = low + 1
    for later in np.flatnonzero(first_of).tolist():  # what is before it knows its own first already
        up_of[later] = up_of[up_of[later] - 1] or up_of[later]
    return first_of


def _stratified(
    source: Source,
    maker: RecordMaker,
    findings: SourceFindings,
    options: WriteOptions,
    firsts: "Firsts",
) -> "Numbers":
    """Return the number of the split of each image, so that each split has its share of labels.

    That of an image which goes where another one goes is that of the latter.
    """
    import numpy as np

    digest, ids, counts = hasher("splits", options.seed), dict[str, int](), list[int]()
    draws, ranks = np.zeros(len(firsts), np.uint64), np.full(len(firsts), -1, np.int32)
    together = firsts != 0
    together[firsts[together].astype(np.int64) - 1] = True
    labels, sizes = dict[int, list[int]](), Counter[int]()  # of images with several, or together
    images = 0
    rows = zip(source.items, findings.digests, firsts.data, together, strict=True)
    for at, (item, good, first, is_led) in enumerate(rows):
        if not good:
            continue
        label_ids = [ids.setdefault(label, len(ids)) for label in maker.labels_of(item) or [""]]
        if len(ids) > MAX_CLASSES:
            what = "too many different labels for --stratify"
            raise UsageError(what, expected=f"at most {MAX_CLASSES:,}")
        counts += [0] * (len(ids) - len(counts))
        for label in label_ids:
            counts[label] += 1
        images += 1
        if not first:
            draws[at] = int.from_bytes(digest(drawn_by(item)), "big")
        if is_led or len(label_ids) > 1:
            unit = first - 1 if first else at
            labels.setdefault(unit, []).extend(label_ids)
            sizes[unit] += 1
        else:
            ranks[at] = label_ids[0]
    named = sorted((count, label) for label, count in zip(ids, counts, strict=True))
    rank_of = np.zeros(len(ids), np.int32)
    rank_of[[ids[label] for _, label in named]] = np.arange(len(ids))
    alone = np.flatnonzero(ranks >= 0)
    ranks[alone] = rank_of[ranks[alone]]
    wanted = _Wanted([*(options.splits or {}).values()], [*(count for count, _ in named), images])
    numbers, large = np.zeros(len(firsts), np.uint16), []
    pairs_of = dict[int, tuple[tuple[int, int], ...]]()  # of images alone with several labels
    for at, label_ids in labels.items():
        pairs = tuple(sorted(Counter(rank_of[label_ids].tolist()).items()))
        if sizes[at] == 1 and pairs[0][1] == 1:
            ranks[at], pairs_of[at] = pairs[0][0], pairs
        else:
            large.append((-len(label_ids), int(draws[at]), at, pairs))
    for _, _, at, pairs in sorted(large):
        numbers[at] = wanted.best(sizes[at], pairs)
        wanted.give(int(numbers[at]), sizes[at], pairs)
    alone = np.flatnonzero(ranks >= 0)
    alone = alone[np.lexsort((draws[alone], ranks[alone]))]
    bounds = np.searchsorted(ranks[alone], np.arange(len(ids) + 1)).tolist()
    for rank, (start, end) in enumerate(pairwise(bounds)):
        quotas = wanted.quotas(rank, end - start) if start < end else []
        for split, (low, high) in enumerate(pairwise(accumulate(quotas, initial=start))):
            members = alone[low:high]
            numbers[members] = split
            wanted.give(split, len(members), [(rank, len(members))])
            for at in members.tolist() if pairs_of else ():
                wanted.give(split, 0, pairs_of.get(at, ())[1:])
    return numbers


class _Wanted:
    """How many images of each label each split still wants, and how many of all."""

    def __init__(self, shares: Sequence[float], counts: Sequence[int]) -> None:
        total = math.fsum(shares)
        self._shares = [share / total for share in shares]
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
            left, total = self._left[rank], self._counts[rank]
            over = count if max(self._shares) * total > count - _LITTLE else 0
            for split, share in enumerate(self._shares):
                scores[split] += count * (2 * left[split] - over) / (total * share)
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
            behind = [split for split in splits if left[split] - quotas[split] > _LITTLE] or splits
            quotas[max(behind, key=lambda split: lags[split] - quotas[split])] += 1
        return quotas
