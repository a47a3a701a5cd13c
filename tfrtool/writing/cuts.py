"""Where one shard of a split ends and the next starts.

By number, shards have as many records each. By size, they are cut where their bytes are even. If
these bytes were estimated and a shard that was written is off by more than a tenth, all are cut
and written once more by the sizes that the records turned out to have. That can't miss: each cut
is within half a record of its place. The first cut depends on images and options alone, and the
second one on that; so the shards are the same on any number of workers and after interruptions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise

from tfrtool.errors import UsageError

Cut = Callable[[str, Sequence[int]], Sequence[int]]
"""Tells where each shard starts, and where the last one ends: takes the split, and the positions
of its items, in order, in the source."""


def cut_by_number(shards: int) -> Cut:
    """Return what cuts each split into so many shards; it may raise a UsageError."""

    def cut(split: str, members: Sequence[int]) -> list[int]:
        if shards > len(members):
            raise UsageError(
                f"split {split!r} has too few images for its shards",
                expected=f"at most {len(members)} shards",
                found=shards,
            )
        return shard_boundaries(len(members), shards)

    return cut


def shard_boundaries(records: int, shards: int) -> list[int]:
    """Return where each shard starts, and the end: ``round(records * i / shards)``, as in TFDS."""
    return [round(records * index / shards) for index in range(shards + 1)]


def cut_by_size(records: Sequence[int], shard_bytes: int) -> Cut:
    """Return what cuts a split into even shards, the fewest that have at most so many bytes.

    A shard may have one record more, since none is cut. Their sizes go by the items' positions.
    """

    def cut(_: str, members: Sequence[int]) -> list[int]:
        ends = [0, *accumulate(records[position] for position in members)]
        whole = ends[-1]
        count = -(-whole // shard_bytes)
        # Each record goes to the even share that its middle lies in.
        shares = [(start + end) * count // (2 * whole) for start, end in pairwise(ends)]
        starts = [at for at in range(1, len(shares)) if shares[at] != shares[at - 1]]
        return [0, *starts, len(members)]

    return cut


def cut_as_before(records: Mapping[str, Sequence[int]]) -> Cut:
    """Return what cuts splits into shards of so many records; not at all where these don't fit."""

    def cut(split: str, members: Sequence[int]) -> Sequence[int]:
        counts = records.get(split, ())
        fit = all(isinstance(count, int) and count > 0 for count in counts)
        bounds = [0, *accumulate(counts)] if fit else [0]
        return bounds if bounds[-1] == len(members) else [0, len(members)]

    return cut


def fits(shards: Iterable[tuple[str, int]], shard_bytes: int) -> bool:
    """Tell whether the shards of each split, given with their bytes, have the size asked for.

    None is larger than that by more than a tenth; and none is smaller than an even share of the
    fewest shards that are a tenth below it.
    """
    splits: dict[str, list[int]] = {}
    for split, size in shards:
        splits.setdefault(split, []).append(size)
    for sizes in splits.values():
        share = sum(sizes) / math.ceil(sum(sizes) / (0.9 * shard_bytes))
        if not all(0.9 * share <= size <= 1.1 * shard_bytes for size in sizes):
            return False
    return True
