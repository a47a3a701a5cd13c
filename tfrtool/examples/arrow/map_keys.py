"""Finding keys among the entries of many maps at once."""

import random
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tfrtool.examples.arrow.scan import Found, Ints, WireBuffer, WireScan

_LONGEST = 64
"""Bytes of a key that is compared with numpy; a longer one is looked up by itself."""

_Words = NDArray[np.uint64]


class MapKeys:
    """Keys, each with its place among them, and an index of them by their lengths and a hash.

    A hash only says where to look: a key is found if all its bytes are the same.
    """

    def __init__(self, keys: Sequence[bytes]) -> None:
        """Index the keys, all of them different."""
        self._count = len(keys)
        self._long = {key: place for place, key in enumerate(keys) if len(key) > _LONGEST}
        self._factor = np.uint64(random.getrandbits(64) | 1)
        self._short: dict[int, tuple[Ints, _Words, list[_Words]]] = {}
        for length in sorted({len(key) for key in keys if len(key) <= _LONGEST}):
            places = np.array([place for place, key in enumerate(keys) if len(key) == length])
            buffer = WireBuffer([keys[place] for place in places])
            words = self._words(buffer, buffer.starts, length)
            hashes = self._hash(words)
            if len(np.unique(hashes)) < len(hashes):
                self.__init__(keys)  # type: ignore[misc]
            order = np.argsort(hashes)
            self._short[length] = places[order], hashes[order], [word[order] for word in words]

    def __len__(self) -> int:
        return self._count

    @staticmethod
    def _words(data: WireBuffer, at: Ints, length: int) -> list[_Words]:
        """Return all bytes of keys of one length as numbers; the last two may overlap."""
        if length < 8:
            return [data.words(at) & np.uint64((1 << 8 * length) - 1)]
        return [data.words(at + one) for one in (*range(0, length - 8, 8), length - 8)]

    def _hash(self, words: list[_Words]) -> _Words:
        found: _Words = words[0] * self._factor
        for word in words[1:]:
            found = (found ^ found >> np.uint64(32) ^ word) * self._factor
        return found

    def find(self, scan: WireScan, found: Found) -> tuple[Ints, Ints]:
        """Return the place of each entry's key, -1 where it is none; and the entries by place.

        Payloads that have one of the keys twice become odd.
        """
        size = found.key_end - found.key
        places = np.full(len(size), -1)
        for length, (known, hashes, parts) in self._short.items():
            maybe = np.flatnonzero(size == length)
            words = self._words(scan, found.key[maybe], length)
            if len(known) == 1:
                near = np.zeros(len(maybe), np.int64)
            else:
                near = np.searchsorted(hashes, self._hash(words))
                near = np.minimum(near, len(hashes) - 1)
            same = np.ones(len(maybe), np.bool_)
            for word, part in zip(words, parts, strict=True):
                same &= part[near] == word
            places[maybe[same]] = known[near[same]]
        if self._long:
            for one in np.flatnonzero(size > _LONGEST).tolist():
                key = bytes(scan.data[found.key[one] : found.key_end[one]])
                places[one] = self._long.get(key, -1)
        # Numbers of 16 bits are sorted by their digits, which takes no time.
        small = places.astype(np.int16 if len(self) < 1 << 15 else np.int64)
        order = np.argsort(small, kind="stable")
        first, second = order[:-1], order[1:]
        twice = (places[first] == places[second]) & (found.owner[first] == found.owner[second])
        scan.odd[found.owner[second[twice & (places[second] >= 0)]]] = True
        return places, order
