"""The columns of payloads: the schema fold, fed by batches of short payloads at once."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tfrtool.examples.arrow.arrays import Ints, bools_array
from tfrtool.examples.arrow.columns import Column, Columns, with_kind
from tfrtool.examples.arrow.scan import (
    FLOATS,
    INTEGERS,
    NONE,
    SCANNED,
    STRINGS,
    Found,
    Keys,
    WireScan,
    scanned,
)
from tfrtool.examples.content import count_controls, is_plain_text, is_utf8
from tfrtool.examples.example import DType, PayloadKind, classify_payload, count_event_values
from tfrtool.examples.fields import Kind, Null, stored_values
from tfrtool.examples.schema_fold import FeatureStatistics, SchemaFold, ValueStatistics
from tfrtool.records.payloads import sizes_of

_KINDS = {STRINGS: "bytes_list", FLOATS: "float_list", INTEGERS: "int64_list"}

_LONG = 32 * 1024
"""Payloads of more bytes, on average, are parsed one by one: a scan would copy them."""


_FEW = 8
"""Payloads that are parsed one by one because a scan takes longer, as of a shard of one record."""


class ColumnsFold(SchemaFold):
    """A schema fold that finds the narrowest columns which hold the payloads.

    Of values it only knows the types, and whether each record has one. Values are not decoded, and
    so a payload may be counted here that `decode_batch` finds to be broken.

    Attributes:
        kinds: how many payloads there were of each kind.
        event_values: the most values in a summary of TensorBoard's.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        super().__init__(content=False, text=True)
        self.kinds: Counter[PayloadKind] = Counter()
        self.event_values = 0

    def add(self, payloads: Sequence[bytes]) -> None:
        """Take in payloads, together less than 2 GiB."""
        for start in range(0, len(payloads), SCANNED):
            part = payloads[start : start + SCANNED]
            sequences, others = self.sequences, self._add_each(part)
            for index in others:
                event = classify_payload(part[index]) is PayloadKind.EVENT
                self.kinds[PayloadKind.EVENT if event else PayloadKind.UNKNOWN] += 1
                if event:
                    self.event_values = max(self.event_values, count_event_values(part[index]))
            sequences = self.sequences - sequences
            empty = int(np.count_nonzero(sizes_of(part) == 0))
            self.kinds[PayloadKind.EMPTY] += empty
            self.kinds[PayloadKind.SEQUENCE_EXAMPLE] += sequences
            self.kinds[PayloadKind.EXAMPLE] += len(part) - len(others) - empty - sequences

    def _add_each(self, payloads: Sequence[bytes]) -> Sequence[int]:
        """Take in payloads, and return the places of those that are not Examples."""
        if len(payloads) < _FEW or sizes_of(payloads).sum() > _LONG * len(payloads):
            return [at for at, one in enumerate(payloads) if not self.add_payload(one)]
        _, refused = scanned(payloads, self._take_scan)
        self.records += len(payloads) - len(refused)
        return [*refused]

    def _take_scan(self, scan: WireScan) -> None:
        """Take in payloads if none of them is irregular."""
        context, lists = (
            self._find(features, where, scan)
            for features, where in zip(self._maps, (scan.context, scan.lists), strict=True)
        )
        places = context.key_index, lists.key_index
        first, stop, counts = scan.children(lists.owner, lists.value, lists.end)
        owners = np.repeat(lists.owner, counts)
        looks = (
            _Look.at(scan, places[0], context.owner, context.value, context.end),
            _Look.at(scan, np.repeat(places[1], counts), owners, first, stop),
        )
        others = [
            look.others_than_text(scan, tuple(features.values()))
            for features, look in zip(self._maps, looks, strict=True)
        ]
        if scan.irregular.any():
            return
        self.sequences += int(np.count_nonzero(scan.sequence))
        self._last = []
        parts = zip(self._maps, places, looks, others, strict=True)
        for features, indexes, look, found in parts:
            self.skipped += int(np.count_nonzero(indexes < 0))
            look.count_in(tuple(features.values()), indexes, found)

    def _find(
        self, features: dict[bytes, FeatureStatistics], where: tuple[Ints, Ints], scan: WireScan
    ) -> Found:
        """Find the entries of a map; a new key gets a place if there is room."""
        found = scan.find(where, Keys(tuple(features)))
        new = np.flatnonzero((found.key_index < 0) & ~scan.irregular[found.owner])
        if new.size:
            keys = scan.strings(found.key[new], found.key_end[new]).unique().to_pylist()
            if [key for key in keys if self._begin(key, features)]:
                return scan.find(where, Keys(tuple(features)))
        return found

    def merge(self, other: SchemaFold) -> None:
        """Take in what another fold over other payloads has seen."""
        if isinstance(other, ColumnsFold):
            self.kinds += other.kinds
            self.event_values = max(self.event_values, other.event_values)
        super().merge(other)

    def columns(self) -> Columns:
        """Return the narrowest columns for what most payloads are, by name, feature lists last.

        They keep every difference between payloads: a string is bytes, and a column has single
        values only if every record has one.
        """
        return self._columns(_column)

    def table_columns(self, *, lists: bool = False, exact: bool = True) -> Columns:
        """Return the columns as people expect them in a table.

        Strings that are all text are text, and a feature with at most one value in each record has
        nullable single values. A feature list with one value in each step is a list of values.

        Args:
            lists: whether the last two stay lists, of lists if they are feature lists.
            exact: whether records can be restored from the table; otherwise single values may be
                null for more than one reason.
        """

        def column(feature: FeatureStatistics, records: int) -> Column:
            found, dtypes = _column(feature, records), [*feature.dtypes] or [DType.STRING]
            if not lists and len(dtypes) == 1 and not found.is_scalar:
                null = _null_of(feature, records, exact=exact)
                if null is not None:
                    found = replace(found, item=stored_values(dtypes[0], null.info))
                elif _has_single_steps(feature):
                    found = replace(found, item=found.values)
            strings = feature.values.get(DType.STRING)
            if found.dtype is not DType.STRING:
                return found
            if strings is None or strings.is_text:
                return with_kind(found, Kind.TEXT)
            return with_kind(found, Kind.BYTES, is_utf8=strings.is_utf8)

        return self._columns(column)

    def _columns(self, column: Callable[[FeatureStatistics, int], Column]) -> Columns:
        sequences = self.kinds[PayloadKind.SEQUENCE_EXAMPLE]
        parsed = sequences + self.kinds[PayloadKind.EXAMPLE]
        others = self.kinds[PayloadKind.EVENT], self.kinds[PayloadKind.UNKNOWN]
        if parsed < sum(others):
            return Columns(PayloadKind.UNKNOWN if others[1] else PayloadKind.EVENT)
        if not parsed:
            return Columns(PayloadKind.EMPTY)
        records = parsed + self.kinds[PayloadKind.EMPTY]
        columns = [column(one, records) for one in self.features() if one.present or one.unset]
        kind = PayloadKind.SEQUENCE_EXAMPLE if sequences else PayloadKind.EXAMPLE
        return Columns(kind, tuple(columns))


class _Others(NamedTuple):
    """The indexes of features with strings that are not text, and of those not valid UTF-8."""

    binary: set[int]
    invalid: set[int]

    def add(self, index: int, *, is_utf8: bool) -> None:
        self.binary.add(index)
        if not is_utf8:
            self.invalid.add(index)


class _Look(NamedTuple):
    """What a scan sees of features."""

    feature_index: Ints  # -1 where there was no room for the feature
    owner: Ints  # the record
    kind: NDArray[np.uint8]
    start: Ints  # where its strings or packed numbers are
    end: Ints
    number: NDArray[np.uint8]  # of its values; 2 for more

    @classmethod
    def at(
        cls, scan: WireScan, feature_index: Ints, owner: Ints, start: Ints, end: Ints
    ) -> "_Look":
        """Look at features."""
        kind, start, end, number = scan.kinds_and_numbers(owner, start, end)
        return cls(feature_index, owner, kind, start, end, number)

    def others_than_text(self, scan: WireScan, features: Sequence[FeatureStatistics]) -> _Others:
        """Return the places of the features that are UTF-8 so far, and have other strings here."""
        others = _Others(set(), set())
        live = [
            "bytes_list" not in one.kinds or one.kinds["bytes_list"].is_utf8 for one in features
        ]
        strings = np.flatnonzero(
            (self.kind == STRINGS) & (self.feature_index >= 0) & (self.number > 0)
        )
        strings = strings[np.array(live, np.bool_)[self.feature_index[strings]]]
        owner, feature_index = self.owner[strings], self.feature_index[strings]
        first, stop, counts = scan.children(owner, self.start[strings], self.end[strings])
        if scan.irregular.any():
            return others
        feature_index = np.repeat(feature_index, counts)
        # The first value shows it in most cases: images are not copied.
        firsts = np.full(len(features), -1)
        firsts[feature_index[::-1]] = np.arange(len(feature_index))[::-1]
        is_valid = np.ones(len(features), np.bool_)
        for which in firsts[firsts >= 0].tolist():
            if not is_utf8(scan.data[first[which] : stop[which]]):
                others.add(int(feature_index[which]), is_utf8=False)
                is_valid[feature_index[which]] = False
        rest = is_valid[feature_index]  # np.isin would import masked arrays
        feature_index, values = feature_index[rest], scan.strings(first[rest], stop[rest])
        if not are_text(values):
            for index in np.flatnonzero(np.bincount(feature_index)).tolist():
                strings_here = values.filter(bools_array(feature_index == index))
                if not are_text(strings_here):
                    others.add(index, is_utf8=_are_utf8(strings_here))
        return others

    def count_in(
        self, features: Sequence[FeatureStatistics], entries: Ints, others: _Others
    ) -> None:
        """Count entries of a map by their places, and features or steps by places and kinds."""

        def counts(places: Ints) -> list[int]:
            found: list[int] = np.bincount(places[places >= 0], minlength=len(features)).tolist()
            return found

        for feature, count in zip(features, counts(entries), strict=True):
            feature.lists.present += count if feature.is_list else 0
        for feature, count in zip(
            features, counts(self.feature_index[self.kind == NONE]), strict=True
        ):
            feature.unset += count
        for tag, name in _KINDS.items():
            found = self.kind == tag
            masks = (found, found & (self.number == 0), found & (self.number == 2))
            columns = zip(
                features, *(counts(self.feature_index[one]) for one in masks), strict=True
            )
            for index, (feature, count, empty, several) in enumerate(columns):
                if count:
                    statistics = feature.kinds.setdefault(name, ValueStatistics())
                    statistics.present += count
                    statistics.empty += empty
                    statistics.several += several
                    statistics.is_text &= index not in others.binary
                    statistics.is_utf8 &= index not in others.invalid


def are_text(values: pa.Array) -> bool:
    """Return whether all strings are plain text."""
    if len(values) < 2:
        return all(map(is_plain_text, values.to_pylist()))
    if not _are_utf8(values):
        return False
    data = values.buffers()[2]
    if data is None or not count_controls(data.to_pybytes()):
        return True
    return all(map(is_plain_text, values.to_pylist()))


def _are_utf8(values: pa.Array) -> bool:
    """Return whether all strings are valid UTF-8."""
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _column(feature: FeatureStatistics, records: int) -> Column:
    dtypes: list[DType | None] = [*feature.dtypes]
    # A step without a kind is null in its list.
    if feature.unset and not (feature.is_list and len(dtypes) == 1):
        dtypes.append(None)
    dtype = dtypes[0] if len(dtypes) == 1 else None
    others = sum(kind.several + kind.empty for kind in feature.kinds.values())
    if dtype and not feature.is_list and feature.present == records and not others:
        return Column(key=feature.key, item=stored_values(dtype))
    return Column.of_lists(feature.key, dtype, is_list=feature.is_list)


def _null_of(feature: FeatureStatistics, records: int, *, exact: bool) -> Null | None:
    """Return what null stands for if single values hold a feature of at most one type."""
    kinds = feature.kinds.values()
    if feature.is_list or any(kind.several for kind in kinds):
        return None
    reasons = {
        Null.ABSENT: records - feature.present - feature.unset,
        Null.EMPTY: sum(kind.empty for kind in kinds),
        Null.UNSET: feature.unset,
    }
    found = [null for null, count in reasons.items() if count]
    return found[0] if len(found) == 1 else None if exact else Null.ANY


def _has_single_steps(feature: FeatureStatistics) -> bool:
    """Return whether a feature is a feature list with one value in each step, and has any step."""
    kinds = feature.kinds.values()
    others = feature.unset + sum(kind.several + kind.empty for kind in kinds)
    return feature.is_list and bool(kinds) and not others
