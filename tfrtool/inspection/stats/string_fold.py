"""How often each string comes, in bounded memory."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tfrtool.examples.content import describe_bytes
from tfrtool.inspection.stats.number_fold import EXACT_VALUES
from tfrtool.inspection.summary.summary_json import value_json
from tfrtool.records.crc import crc32c

LONGEST = 256
"""Bytes of a string that is held; of a longer one its length, its CRC and its first bytes are."""

_HEAD = 48
_HASHES = 2**14
"""Hashes that are held: the number of different strings is off by a hundredth, mostly."""

String = bytes | tuple[int, int, bytes]


@dataclass(slots=True)
class StringFold:
    """A fold over strings: exact up to ``room`` different ones.

    Of more those are held that come often, as Agarwal and others merge the summaries of Misra and
    Gries ("Mergeable Summaries", 2012): the greatest count for which there is no room comes off
    all of them. How many there are is told from the smallest hashes, as by Bar-Yossef and others
    ("Counting Distinct Elements in a Data Stream", 2002).
    """

    counts: dict[String, int] = field(default_factory=dict)
    short: int = 0  # by how much counts may be too low, at most; 0 while all strings are held
    hashes: NDArray[np.uint32] = field(default_factory=lambda: np.zeros(0, np.uint32))

    def add(self, values: pa.Array, room: int = EXACT_VALUES) -> None:
        """Take in a binary array without nulls."""
        counted = values.value_counts()
        held, counts = counted.field("values").to_pylist(), counted.field("counts").to_pylist()
        if max(map(len, held), default=0) > LONGEST:
            held = list(map(_key, held))
        self._take(zip(held, counts, strict=True), room)

    def merge(self, other: "StringFold", room: int = EXACT_VALUES) -> None:
        """Take in what another fold has seen; what comes out depends on the order."""
        self.short += other.short
        self.hashes = np.union1d(self.hashes, other.hashes)[:_HASHES]
        self._take(other.counts.items(), room)

    def _take(self, counts: Iterable[tuple[String, int]], room: int) -> None:
        held = self.counts
        for value, count in counts:
            held[value] = held.get(value, 0) + count
        if len(held) > room:
            self.hashes = self._smallest()
            cut = sorted(held.values(), reverse=True)[room]
            self.counts = {value: count - cut for value, count in held.items() if count > cut}
            self.short += cut

    def _smallest(self) -> NDArray[np.uint32]:
        """Return the smallest hashes of all strings."""
        crcs = (crc32c(one) if isinstance(one, bytes) else one[1] for one in self.counts)
        hashes = np.fromiter(crcs, np.uint32, len(self.counts))
        # The CRCs of strings that are alike are alike; these constants are of Wellons' lowbias32.
        for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B), (16, 1)):
            hashes = (hashes ^ hashes >> shift) * np.uint32(factor)
        return np.union1d(self.hashes, hashes)[:_HASHES]

    def distinct(self) -> int:
        """Return how many different strings there are; about so many if counts are short."""
        if not self.short:
            return len(self.counts)
        smallest = self._smallest()
        if len(smallest) < _HASHES:
            return len(smallest)
        return round((_HASHES - 1) * 2**32 / int(smallest[-1]))


def _key(value: bytes) -> String:
    return value if len(value) <= LONGEST else (len(value), crc32c(value), value[:_HEAD])


def string_json(value: String) -> Any:
    """Return a string of a fold as JSON values: of a long one its length, CRC-32C and content."""
    if isinstance(value, bytes):
        return value_json(value)
    size, crc, head = value
    return {"bytes": size, "crc32c": f"{crc:08x}", "content": describe_bytes(head)}
