"""How often each string comes, in bounded memory."""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import datasketches
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfrtool.examples.arrow.arrays import numbers_array
from tfrtool.examples.content import describe_bytes
from tfrtool.inspection.stats.number_fold import EXACT_VALUES
from tfrtool.inspection.summary.summary_json import value_json
from tfrtool.records.crc import crc32c

LONGEST = 256
"""Bytes of a string that is held; of a longer one its length, its CRC and its first bytes are."""

_HEAD = 48
_LEAST, _DISTINCT = 8, 14  # base 2 logarithms of the sizes of sketches: 192 strings, 16 KiB


class StringFold:
    """A fold over strings: exact up to ``room`` different ones.

    Of more there are DataSketches' sketches of frequent items and HyperLogLog, which draw nothing
    at random.
    """

    def __init__(self) -> None:
        self._held: Counter[bytes] = Counter()  # by `_key`; empty when there are sketches
        self._frequent: Any = None
        self._distinct: Any = None

    def __getstate__(self) -> tuple[Any, ...]:
        """Return what goes to another process."""
        if self._frequent is None:
            return self._held, None, None
        distinct = self._distinct.get_result().serialize_updatable()
        return self._held, self._frequent.serialize(), distinct

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        """Take that back."""
        self._held, self._frequent, self._distinct = state
        if self._frequent is not None:
            self._frequent = datasketches.frequent_strings_sketch.deserialize(state[1])
            self._distinct = datasketches.hll_union(_DISTINCT)
            self._distinct.update(datasketches.hll_sketch.deserialize(state[2]))

    def add(self, values: pa.Array, room: int = EXACT_VALUES) -> None:
        """Take in a binary array without nulls."""
        is_long = np.from_dlpack(pc.greater(pc.binary_length(values), LONGEST).cast(pa.uint8()))
        # Long ones are not copied, and hardly ever come twice.
        long = Counter(_long_key(values[n].as_buffer()) for n in np.flatnonzero(is_long).tolist())
        if long:
            values = values.take(numbers_array(np.flatnonzero(is_long == 0)))
        counted = values.value_counts()
        held, counts = counted.field("values").to_pylist(), counted.field("counts").to_pylist()
        keys = [b"=" + value for value in held]
        self._take(chain(zip(keys, counts, strict=True), long.items()), room)

    def merge(self, other: "StringFold", room: int = EXACT_VALUES) -> None:
        """Take in what another fold has seen; what comes out depends on the order."""
        if other._frequent is not None:
            self._sketch(room)
            self._frequent.merge(other._frequent)
            self._distinct.update(other._distinct.get_result())
        self._take(other._held.items(), room)

    def _take(self, counts: Iterable[tuple[bytes, int]], room: int) -> None:
        if self._frequent is None:
            for key, count in counts:
                self._held[key] += count
            if len(self._held) > room:
                self._sketch(room)
            return
        for key, count in counts:
            text = key.decode("latin-1")
            self._frequent.update(text, count)
            self._distinct.update(text)

    def _sketch(self, room: int) -> None:
        """Go over to sketches."""
        if self._frequent is None:
            held = self._held
            size = max(_LEAST, (4 * room // 3).bit_length())  # three quarters of it are used
            self._frequent = datasketches.frequent_strings_sketch(size)
            self._distinct = datasketches.hll_union(_DISTINCT)
            self._held = Counter()
            self._take(held.items(), room)

    @property
    def counts(self) -> Mapping[bytes, int]:
        """How often each string comes that is held, at least, by what `string_json` takes."""
        if self._frequent is None:
            return self._held
        every = datasketches.frequent_items_error_type.NO_FALSE_NEGATIVES
        found = self._frequent.get_frequent_items(every, 0)
        return {key.encode("latin-1"): low for key, _, low, _ in found}

    @property
    def short(self) -> int:
        """How far counts may be too low; 0 while all strings are held."""
        # The upper bound of a key that there is not.
        return 0 if self._frequent is None else int(self._frequent.get_upper_bound(""))

    def distinct(self) -> int:
        """Return how many different strings there are; about so many if counts are short."""
        return round(self._distinct.get_estimate()) if self.short else len(self.counts)


def _long_key(value: pa.Buffer) -> bytes:
    crc = crc32c(np.frombuffer(value, np.uint8))
    return b"~%d %08x %s" % (value.size, crc, value[:_HEAD].to_pybytes())


def string_json(key: bytes) -> Any:
    """Return a string of a fold as JSON values: of a long one its length, CRC-32C and content."""
    if key.startswith(b"="):
        return value_json(key[1:])
    size, crc, head = key[1:].split(b" ", 2)
    return {"bytes": int(size), "crc32c": crc.decode(), "content": describe_bytes(head)}
