"""The schema fold, fed by batches of Examples at once, for shards of many records."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfrtool.examples.arrow.scan import (
    FLOATS,
    INTEGERS,
    NONE,
    SCANNED,
    STRINGS,
    Found,
    Keys,
    WireScan,
)
from tfrtool.examples.content import (
    FIRST_BYTES,
    PNG_HEAD,
    PRINTABLE_ASCII,
    describe_bytes,
    png_form,
)
from tfrtool.examples.example import LARGE
from tfrtool.examples.schema_fold import (
    DESCRIBED,
    DISTINCT_BYTES,
    MAX_NAME_BYTES,
    MAX_NAMES,
    FeatureStatistics,
    SchemaFold,
    ValueStatistics,
)
from tfrtool.records.payloads import Ints, sizes_of

_SHORT_TEXT = 256
"""Mean bytes of strings up to which looking at all bytes at once takes less time; measured."""

_IS_PRINTABLE = np.isin(np.arange(256), [*PRINTABLE_ASCII])
_STARTS_MEDIA = np.isin(np.arange(256), [*FIRST_BYTES])
"""By the value of a byte."""

_KINDS = {STRINGS: "bytes_list", FLOATS: "float_list", INTEGERS: "int64_list"}


class _KindValues(NamedTuple):
    """The values of one kind that a feature has in payloads."""

    owner: Ints  # the payloads that have it
    counts: Ints  # how many values each has
    numbers: NDArray[Any]  # one after the other; of strings where they start
    ends: Ints  # of strings


class BatchSchemaFold(SchemaFold):
    """A schema fold that takes payloads of a batch together if they are as most writers write them.

    It finds the same as `SchemaFold`.
    """

    def add_batch(self, payloads: Sequence[bytes], index: int) -> list[int]:
        """Add payloads of consecutive records; `index` belongs to the first.

        Returns the places of those that are not Examples or SequenceExamples.
        """
        if sizes_of(payloads).max(initial=0) <= LARGE and self._add_scanned(payloads, index):
            return []
        return [
            at
            for at, payload in enumerate(payloads)
            if not self.add_payload(payload, index=index + at)
        ]

    def _add_scanned(self, payloads: Sequence[bytes], index: int) -> bool:
        """Add payloads if all are usual Examples; otherwise add nothing."""
        names, room = self._maps[0], MAX_NAMES - sum(map(len, self._maps))
        scan = WireScan(payloads)
        if scan.sequence.any():
            return False
        found = scan.find(scan.context, Keys(tuple(names)))
        new_keys = list[bytes]()
        new = np.flatnonzero(found.key_index < 0)
        if new.size and not scan.irregular.any():
            keys = _slices(scan.data, found.key[new], found.key_end[new])
            new_keys = [*dict.fromkeys(keys)]
            size = self._name_bytes + sum(map(len, new_keys))
            if len(new_keys) > room or size > MAX_NAME_BYTES:
                return False
            found = scan.find(scan.context, Keys((*names, *new_keys)))
        columns = self._columns(scan, found, len(names) + len(new_keys))
        if columns is None or scan.irregular.any():
            return False
        for key in new_keys:
            self._begin(key, names)
        self._last = []
        self.records += len(payloads)
        for feature, by_kind in zip(names.values(), columns, strict=True):
            for tag, values in by_kind.items():
                if tag == NONE:
                    feature.unset += len(values.owner)
                    continue
                statistics = self._add_counts(feature, _KINDS[tag], values, index)
                if tag == STRINGS:
                    self._add_strings(statistics, scan, values)
                elif self._values:
                    _add_numbers(statistics, values.numbers)
        return True

    def _columns(
        self, scan: WireScan, found: Found, count: int
    ) -> list[dict[int, _KindValues]] | None:
        """Return the values of each feature by kind; None if strings are too many to describe."""
        kinds, starts, ends = scan.kinds(found.owner, found.value, found.end)
        cuts = np.searchsorted(found.key_index[found.order], np.arange(count + 1))
        columns = list[dict[int, _KindValues]]()
        for entries in np.split(found.order, cuts)[1:-1]:
            by_kind = dict[int, _KindValues]()
            of_feature = kinds[entries]
            for tag in np.flatnonzero(np.bincount(of_feature)).tolist():
                chosen = entries[of_feature == tag]
                owner, start, end = found.owner[chosen], starts[chosen], ends[chosen]
                by_kind[tag] = values = _values_of(scan, tag, owner, start, end)
                if tag == STRINGS and values.counts.max() > DESCRIBED:
                    return None
            columns.append(by_kind)
        return columns

    def _add_counts(
        self, feature: FeatureStatistics, kind: str, values: _KindValues, index: int
    ) -> ValueStatistics:
        counts = values.counts
        statistics = feature.kinds.get(kind)
        if statistics is None:
            statistics = feature.start(kind, (self._source, index + int(values.owner[0])))
        statistics.present += len(counts)
        statistics.stretch(int(counts.min()), int(counts.max()))
        statistics.several += int(np.count_nonzero(counts > 1))
        statistics.empty += int(np.count_nonzero(counts == 0))
        return statistics

    def _add_strings(
        self, statistics: ValueStatistics, scan: WireScan, values: _KindValues
    ) -> None:
        """Do what `ValueStatistics.describe` and `take` do, without an object for each string."""
        data, start, end = scan.data, values.numbers, values.ends
        if not len(start):
            return
        lengths, heads = end - start, scan.bytes_at(start)
        if self._content:
            statistics.content.update(_contents(scan, start, end, heads))
        if not self._values:
            return
        pngs = np.flatnonzero((heads == PNG_HEAD[0]) & (lengths >= len(PNG_HEAD)))
        statistics.pixels.update(map(png_form, _slices(data, start[pngs], end[pngs])))
        if len(pngs) < len(start):
            statistics.pixels.add(None)
        shortest, longest = int(lengths.min()), int(lengths.max())
        statistics.widen(shortest, longest)
        if longest > DISTINCT_BYTES:
            statistics.distinct = None
        for at in _while_counted(statistics, len(start)):
            statistics.count(_slices(data, start[at], end[at]))


def _while_counted(statistics: ValueStatistics, size: int) -> Iterator[slice]:
    """Yield slices of values as long as distinct ones are counted, so that few are held."""
    for at in range(0, size, SCANNED):
        if statistics.distinct is None:
            return
        yield slice(at, at + SCANNED)


def _contents(scan: WireScan, start: Ints, end: Ints, heads: NDArray[np.uint8]) -> Counter[str]:
    """Count what `describe_bytes` returns for strings: soon for short text."""
    lengths, others = end - start, np.arange(len(start))
    if lengths.mean() <= _SHORT_TEXT and _IS_PRINTABLE[scan.packed(start, end)].all():
        others = np.flatnonzero((lengths == 0) | _STARTS_MEDIA[heads])
    counts = Counter(map(describe_bytes, _slices(scan.data, start[others], end[others])))
    if len(others) < len(start):
        counts["text"] += len(start) - len(others)
    return counts


def _slices(data: bytes, start: Ints, end: Ints) -> Iterator[bytes]:
    for at, until in zip(start.tolist(), end.tolist(), strict=True):
        yield data[at:until]


def _values_of(scan: WireScan, tag: int, owner: Ints, start: Ints, end: Ints) -> _KindValues:
    """Return the values of features of one kind."""
    nothing = start[:0]
    if tag == INTEGERS:
        numbers, counts = scan.integers(owner, start, end)
        return _KindValues(owner, counts, numbers, nothing)
    if tag == FLOATS:
        floats = np.require(scan.packed(start, end).view("<f4"), np.float32, "A")
        return _KindValues(owner, (end - start) >> 2, floats, nothing)
    if tag == STRINGS:
        first, stop, counts = scan.children(owner, start, end)
        return _KindValues(owner, counts, first, stop)
    return _KindValues(owner, nothing, nothing, nothing)


def _add_numbers(statistics: ValueStatistics, numbers: NDArray[Any]) -> None:
    """Do what `ValueStatistics.take` does with the same numbers."""
    if numbers.dtype.kind == "f":
        finite = np.isfinite(numbers)
        if not finite.all():
            nan = int(np.count_nonzero(np.isnan(numbers)))
            statistics.nan += nan
            statistics.infinite += int(np.count_nonzero(~finite)) - nan
            numbers = numbers[finite]
    if len(numbers):
        # The first of equal ones: zero has two signs.
        low, high = (numbers[np.argmax(numbers == most)] for most in (numbers.min(), numbers.max()))
        statistics.widen(low.item(), high.item())
        for at in _while_counted(statistics, len(numbers)):
            statistics.count(numbers[at].tolist())
