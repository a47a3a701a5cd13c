"""The schema fold, fed by batches of Examples at once, for shards of many records."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfrtool.examples.arrow.arrays import Ints
from tfrtool.examples.arrow.scan import FLOATS, INTEGERS, NONE, STRINGS, Found, Keys, WireScan
from tfrtool.examples.content import describe_all
from tfrtool.examples.example import LARGE
from tfrtool.examples.schema_fold import (
    DESCRIBED,
    MAX_NAME_BYTES,
    MAX_NAMES,
    FeatureStatistics,
    SchemaFold,
    ValueStatistics,
)
from tfrtool.records.payloads import sizes_of

_KINDS = {STRINGS: "bytes_list", FLOATS: "float_list", INTEGERS: "int64_list"}


class _KindValues(NamedTuple):
    """The values of one kind that a feature has in payloads."""

    owner: Ints  # the payloads that have it
    counts: Ints  # how many values each has
    numbers: NDArray[Any]  # one after the other
    strings: Sequence[bytes] = ()


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
        found = scan.find(scan.context, Keys(tuple(names)))
        new_keys = list[bytes]()
        new = np.flatnonzero(found.key_index < 0)
        if new.size and not scan.irregular.any():
            new_keys = scan.strings(found.key[new], found.key_end[new]).unique().to_pylist()
            found = scan.find(scan.context, Keys((*names, *new_keys)))
        columns = self._columns(scan, found, len(names) + len(new_keys))
        size = self._name_bytes + sum(map(len, new_keys))
        fits = len(new_keys) <= room and size <= MAX_NAME_BYTES
        if columns is None or scan.sequence.any() or scan.irregular.any() or not fits:
            return False
        for key in new_keys:
            self._begin(key, names)
        self._last = []
        self.records += len(payloads)
        for feature, by_kind in zip(names.values(), columns, strict=True):
            for tag, values in by_kind.items():
                if tag == NONE:
                    feature.unset += len(values.owner)
                else:
                    self._add_values(feature, _KINDS[tag], values, index)
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

    def _add_values(
        self, feature: FeatureStatistics, kind: str, values: _KindValues, index: int
    ) -> None:
        counts = values.counts
        statistics = feature.kinds.get(kind)
        if statistics is None:
            statistics = feature.start(kind, (self._source, index + int(values.owner[0])))
        statistics.present += len(counts)
        statistics.stretch(int(counts.min()), int(counts.max()))
        statistics.several += int(np.count_nonzero(counts > 1))
        statistics.empty += int(np.count_nonzero(counts == 0))
        if kind == "bytes_list":
            if self._content:
                statistics.content.update(describe_all(values.strings))
            if self._values:
                for start in range(0, len(values.strings), DESCRIBED):  # `take` looks at each
                    statistics.take(kind, values.strings[start : start + DESCRIBED])
        elif self._values:
            _add_numbers(statistics, values.numbers)


def _values_of(scan: WireScan, tag: int, owner: Ints, start: Ints, end: Ints) -> _KindValues:
    """Return the values of features of one kind."""
    nothing = start[:0]
    if tag == INTEGERS:
        numbers, counts = scan.integers(owner, start, end)
        return _KindValues(owner, counts, numbers)
    if tag == FLOATS:
        floats = np.require(scan.packed(start, end).view("<f4"), requirements="A")
        return _KindValues(owner, (end - start) >> 2, floats)
    if tag == STRINGS:
        first, stop, counts = scan.children(owner, start, end)
        places = zip(first.tolist(), stop.tolist(), strict=True)
        return _KindValues(owner, counts, nothing, [scan.data[at:until] for at, until in places])
    return _KindValues(owner, nothing, nothing)


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
        statistics.add_numbers(low.item(), high.item(), numbers.tolist)
