"""The columns of payloads: the schema fold, fed by batches of short payloads at once."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tfrtool.examples.arrow.arrays import Bools, Ints, numbers_array, strings_array
from tfrtool.examples.arrow.columns import Column, Columns, Form
from tfrtool.examples.arrow.scan import (
    FIRST,
    FLOATS,
    INTEGERS,
    NONE,
    SCANNED,
    STRINGS,
    Found,
    WireScan,
    scanned,
)
from tfrtool.examples.example import DType, PayloadKind, classify_payload
from tfrtool.examples.schema_fold import FeatureStatistics, SchemaFold, ValueStatistics

_KINDS = {STRINGS: "bytes_list", FLOATS: "float_list", INTEGERS: "int64_list"}

_LONG = 32 * 1024
"""Payloads of more bytes, on average, are parsed one by one: a scan would copy them."""


class ColumnsFold(SchemaFold):
    """A schema fold that finds the narrowest columns which hold the payloads.

    Of values it only knows the types, and whether each record has one. Values are not decoded, and
    so a payload may be counted here that `decode_batch` finds to be broken.

    Attributes:
        kinds: how many payloads there were of each kind.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        super().__init__(content=False)
        self.kinds: Counter[PayloadKind] = Counter()

    def add(self, payloads: Sequence[bytes]) -> None:
        """Take in payloads, together less than 2 GiB."""
        for start in range(0, len(payloads), SCANNED):
            part = payloads[start : start + SCANNED]
            sequences, others = self.sequences, self._add_each(part)
            for index in others:
                event = classify_payload(part[index]) is PayloadKind.EVENT
                self.kinds[PayloadKind.EVENT if event else PayloadKind.UNKNOWN] += 1
            sequences, empty = self.sequences - sequences, part.count(b"")
            self.kinds[PayloadKind.EMPTY] += empty
            self.kinds[PayloadKind.SEQUENCE_EXAMPLE] += sequences
            self.kinds[PayloadKind.EXAMPLE] += len(part) - len(others) - empty - sequences

    def _add_each(self, payloads: Sequence[bytes]) -> Sequence[int]:
        """Take in payloads, and return the places of those that are not Examples."""
        if sum(map(len, payloads)) > _LONG * len(payloads):
            return [at for at, one in enumerate(payloads) if not self.add_payload(one)]
        _, refused = scanned(payloads, self._take_scan)
        self.records += len(payloads) - len(refused)
        return [*refused]

    def _take_scan(self, scan: WireScan) -> None:
        """Take in payloads if none of them is odd."""
        maps = [scan.features(one) for one in (scan.context, scan.lists)]
        places = [self._find(*one, scan) for one in zip(self._maps, maps, strict=True)]
        context, lists = maps
        first, stop, counts = scan.children(lists.owner, lists.value, lists.end)
        owners = np.repeat(lists.owner, counts)
        looks = (
            (places[0], *_look(scan, context.owner, context.value, context.end)),
            (
                np.repeat(places[1], counts),
                *_look(scan, owners, first, stop),
            ),
        )
        if scan.odd.any():
            return
        self.sequences += int(np.count_nonzero(scan.sequence))
        self._last = []
        for features, held, look in zip(self._maps, places, looks, strict=True):
            self.skipped += int(np.count_nonzero(held < 0))
            _count(tuple(features.values()), held, *look)

    def _find(self, features: dict[bytes, FeatureStatistics], found: Found, scan: WireScan) -> Ints:
        """Return the place of each entry's key; a new one gets a place if there is room."""
        places, _ = scan.find(found, strings_array(tuple(features)))
        new = np.flatnonzero((places < 0) & ~scan.odd[found.owner])
        if new.size:
            keys = found.key.take(numbers_array(new)).unique().to_pylist()
            if [key for key in keys if self._begin(key, features)]:
                places, _ = scan.find(found, strings_array(tuple(features)))
        return places

    def merge(self, other: SchemaFold) -> None:
        """Take in what another fold over other payloads has seen."""
        if isinstance(other, ColumnsFold):
            self.kinds += other.kinds
        super().merge(other)

    def columns(self) -> Columns:
        """Return the narrowest columns for what most payloads are, by name, feature lists last."""
        sequences = self.kinds[PayloadKind.SEQUENCE_EXAMPLE]
        parsed = sequences + self.kinds[PayloadKind.EXAMPLE]
        others = self.kinds[PayloadKind.EVENT], self.kinds[PayloadKind.UNKNOWN]
        if parsed < sum(others):
            return Columns(PayloadKind.UNKNOWN if others[1] else PayloadKind.EVENT)
        if not parsed:
            return Columns(PayloadKind.EMPTY)
        records = parsed + self.kinds[PayloadKind.EMPTY]
        columns = [_column(one, records) for one in self.features() if one.present or one.unset]
        kind = PayloadKind.SEQUENCE_EXAMPLE if sequences else PayloadKind.EXAMPLE
        return Columns(kind, tuple(columns))


def _look(scan: WireScan, rows: Ints, start: Ints, end: Ints) -> tuple[NDArray[np.uint8], Bools]:
    """Return what features hold, and which have another number of values than one."""
    kind, start, end = scan.kinds(rows, start, end)
    size = end - start
    several = np.where(kind == FLOATS, size != 4, size != 1)
    unsure = np.flatnonzero((kind == INTEGERS) & (size > 1) & (size <= 10))
    several[unsure] = scan.integers(rows[unsure], start[unsure], end[unsure])[1] != 1
    strings = np.flatnonzero((kind == STRINGS) & (size > 0))
    tag, _, stop, one = scan.field(start[strings], end[strings])
    more, _, _, two = scan.field(stop, end[strings])
    several[strings] = stop != end[strings]
    ok = one & (tag == FIRST) & (~several[strings] | (two & (more == FIRST)))
    scan.odd[rows[strings[~ok]]] = True
    return kind, several


def _count(
    features: Sequence[FeatureStatistics],
    entries: Ints,
    places: Ints,
    kinds: NDArray[np.uint8],
    several: Bools,
) -> None:
    """Count entries of a map by their places, and features or steps by places and kinds."""

    def counts(places: Ints) -> list[int]:
        found: list[int] = np.bincount(places[places >= 0], minlength=len(features)).tolist()
        return found

    for feature, count in zip(features, counts(entries), strict=True):
        feature.lists.present += count if feature.is_list else 0
    for feature, count in zip(features, counts(places[kinds == NONE]), strict=True):
        feature.unset += count
    for tag, name in _KINDS.items():
        found = kinds == tag
        some = counts(places[found]), counts(places[found & several])
        for feature, count, others in zip(features, *some, strict=True):
            if count:
                held = feature.kinds.setdefault(name, ValueStatistics())
                held.present += count
                held.several += others


def _column(feature: FeatureStatistics, records: int) -> Column:
    dtypes: list[DType | None] = [*feature.dtypes]
    # A step without a kind is null in its list.
    if feature.unset and not (feature.is_list and len(dtypes) == 1):
        dtypes.append(None)
    dtype = dtypes[0] if len(dtypes) == 1 else None
    form = Form.FEATURE if dtype is None else Form.LIST
    several = sum(kind.several for kind in feature.kinds.values())
    if dtype and not feature.is_list and feature.present == records and not several:
        form = Form.SCALAR
    return Column(key=feature.key, form=form, dtype=dtype, is_list=feature.is_list)
