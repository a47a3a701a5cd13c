"""How often each string occurs, in bounded memory."""

import hashlib
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfrtool.examples.arrow.arrays import numbers_array
from tfrtool.examples.content import describe_bytes
from tfrtool.inspection.stats.number_fold import EXACT_VALUES
from tfrtool.inspection.summary.summary_json import value_json
from tfrtool.records.framing import crc32c

LONGEST = 256
"""Bytes of a string that is held; of a longer one its length, its CRC and its first bytes are."""

_HEAD = 48
_HASHES = 2**14
"""Hashes that are kept to estimate the number of distinct strings, to 0.8 % (Bar-Yossef 2002)."""


class StringFold:
    """A fold over strings, exact up to ``room`` different ones.

    Of more, the least frequent are dropped: counts are then too low, by ``error`` at most. This is
    the mergeable form of Misra and Gries' counters (Agarwal et al., Mergeable Summaries, 2012).

    Attributes:
        counts: how often each string occurs, by the key that `string_json` takes.
        error: by how much counts may be too low; 0 while all strings are held.
    """

    def __init__(self) -> None:
        self.counts: Counter[bytes] = Counter()
        self.error = 0
        self._hashes = np.zeros(0, np.uint64)  # the smallest; none while all strings are held

    def add(self, values: pa.Array, room: int = EXACT_VALUES) -> None:
        """Add a binary array without nulls."""
        is_long = np.from_dlpack(pc.binary_length(values)) > LONGEST
        # Long ones are not copied, and hardly ever come twice.
        found = Counter(_long_key(values[n].as_buffer()) for n in np.flatnonzero(is_long).tolist())
        if found:
            values = values.take(numbers_array(np.flatnonzero(~is_long)))
        counted = values.value_counts()
        keys = (b"=" + value for value in counted.field("values").to_pylist())
        found.update(dict(zip(keys, counted.field("counts").to_pylist(), strict=True)))
        self._add(found, room)

    def merge(self, other: "StringFold", room: int = EXACT_VALUES) -> None:
        """Add what another fold has seen."""
        if other.error and not self.error:
            self._hash(self.counts)
        self.error += other.error
        self._keep(other._hashes)
        self._add(other.counts, room)

    def _add(self, counts: Counter[bytes], room: int) -> None:
        if self.error:
            self._hash(counts)
        self.counts.update(counts)
        if len(self.counts) > room:
            if not self.error:
                self._hash(self.counts)
            least = sorted(self.counts.values(), reverse=True)[room]
            self.error += least
            self.counts = Counter(
                {key: count - least for key, count in self.counts.items() if count > least}
            )

    def _hash(self, keys: Iterable[bytes]) -> None:
        digests = b"".join(hashlib.blake2b(key, digest_size=8).digest() for key in keys)
        self._keep(np.frombuffer(digests, np.uint64))

    def _keep(self, hashes: "np.ndarray[Any, np.dtype[np.uint64]]") -> None:
        if len(hashes):
            self._hashes = np.unique(np.append(self._hashes, hashes))[:_HASHES]

    def distinct(self) -> int:
        """Return how many different strings there are; an estimate if counts have an error."""
        if not self.error:
            return len(self.counts)
        if len(self._hashes) < _HASHES:
            return len(self._hashes)
        return round((_HASHES - 1) / (int(self._hashes[-1]) + 1) * 2**64)


def _long_key(value: pa.Buffer) -> bytes:
    crc = crc32c(np.frombuffer(value, np.uint8))
    return b"~%d %08x %s" % (value.size, crc, value[:_HEAD].to_pybytes())


def string_json(key: bytes) -> Any:
    """Return a string of a fold as JSON values: of a long one its length, CRC-32C and content."""
    if key.startswith(b"="):
        return value_json(key[1:])
    size, crc, head = key[1:].split(b" ", 2)
    return {"bytes": int(size), "crc32c": crc.decode(), "content": describe_bytes(head)}
