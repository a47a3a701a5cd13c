"""Images that look alike: groups whose difference hashes differ in a few bits."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np

MOST_BITS = 3
"""Bits that hashes of near copies differ in at most: then one of four quarters is the same."""

_CROWD = 200
"""Hashes with the same quarter that are compared with each other; more are a common look."""


def near_copies(hashes: Any, most: int = 1000) -> tuple[list[list[int]], bool]:
    """Return groups of places in an array of uint64 whose hashes are alike, the largest first.

    Only equal hashes are compared where too many share a quarter of theirs. The second value says
    whether that was so, or more than ``most`` groups were found.
    """
    unique, inverse = np.unique(hashes, return_inverse=True)
    alike: defaultdict[int, set[int]] = defaultdict(set)
    crowded = False
    for quarter in range(4):
        for bucket in _buckets((unique >> np.uint64(16 * quarter)) & np.uint64(0xFFFF)):
            if len(bucket) > _CROWD:
                crowded = True
                continue
            for a, b in combinations(bucket, 2):
                if (int(unique[a]) ^ int(unique[b])).bit_count() <= MOST_BITS:
                    alike[a].add(b)
                    alike[b].add(a)
    # Each group around one that is like all others in it: a chain of likenesses leads anywhere.
    group_of = np.arange(len(unique))
    taken: set[int] = set()
    for centre in sorted(alike, key=lambda one: (-len(alike[one]), one)):
        if centre not in taken:
            members = [one for one in alike[centre] if one not in taken]
            group_of[members] = centre
            taken.update(members, [centre])
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for place, number in enumerate(group_of[inverse].tolist()):
        groups[number].append(place)
    found = sorted((g for g in groups.values() if len(g) > 1), key=lambda g: (-len(g), g[0]))
    return found[:most], crowded or len(found) > most


def _buckets(keys: Any) -> Iterator[list[int]]:
    """Yield the places of equal keys, where there are at least two."""
    order = np.argsort(keys, kind="stable")
    bounds = np.flatnonzero(np.diff(keys[order])) + 1
    for part in np.split(order, bounds):
        if len(part) > 1:
            yield part.tolist()
