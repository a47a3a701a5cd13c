"""Inferring the columns of payloads, as a fold."""

from collections import Counter
from collections.abc import Iterable, Sequence

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
from tfrtool.examples.inference import MAX_NAME_BYTES, MAX_NAMES

_KINDS = {NONE: None, STRINGS: DType.STRING, FLOATS: DType.FLOAT32, INTEGERS: DType.INT64}


_RECORDS, _SEVERAL, _FIRST_KIND = range(3)


class _Seen:
    """What was seen of the features of one of the two maps."""

    def __init__(self) -> None:
        self.keys: dict[bytes, int] = {}  # each with its place in what follows
        self.index = strings_array(())
        # The records that have it; how often another number of values than one; then each kind.
        self.counts = np.zeros((0, _FIRST_KIND + len(_KINDS)), np.int64)

    def add(self, keys: Sequence[bytes]) -> None:
        """Make places for new keys."""
        self.keys.update(zip(keys, range(len(self.keys), len(self.keys) + len(keys)), strict=True))
        self.index = strings_array(tuple(self.keys))
        self.counts = np.pad(self.counts, ((0, len(keys)), (0, 0)))

    def count(self, what: int, places: Ints) -> None:
        """Count the features at these places; they may be none."""
        self.counts[:, what] += np.bincount(places[places >= 0], minlength=len(self.keys))


class ColumnsFold:
    """A fold over payloads that finds the narrowest columns which hold them.

    Folds over parts can be merged into the fold over the whole, and pickled on the way. Memory is
    bounded by `MAX_NAMES`; up to that, the order makes no difference. Values are not decoded, and
    so a payload may be counted here that `decode_batch` finds to be broken.

    Attributes:
        kinds: how many payloads there were of each kind.
        skipped: features of records that are in no column, for there are too many names.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self.kinds: Counter[PayloadKind] = Counter()
        self.skipped = 0
        self._maps = _Seen(), _Seen()  # a context, and feature lists
        self._name_bytes = 0

    def add(self, payloads: Sequence[bytes]) -> None:
        """Take in payloads, together less than 2 GiB."""
        for start in range(0, len(payloads), SCANNED):
            part = payloads[start : start + SCANNED]
            sequences, refused = scanned(part, self._take)
            for index in refused:
                event = classify_payload(part[index]) is PayloadKind.EVENT
                self.kinds[PayloadKind.EVENT if event else PayloadKind.UNKNOWN] += 1
            empty = part.count(b"")
            self.kinds[PayloadKind.EMPTY] += empty
            self.kinds[PayloadKind.SEQUENCE_EXAMPLE] += sequences
            self.kinds[PayloadKind.EXAMPLE] += len(part) - len(refused) - empty - sequences

    def _take(self, scan: WireScan) -> int:
        """Take in payloads if none of them is odd; return how many have feature lists."""
        maps = [scan.features(one) for one in (scan.context, scan.lists)]
        places = [self._find(*one, scan) for one in zip(self._maps, maps, strict=True)]
        context, lists = maps
        first, stop, counts = scan.children(lists.owner, lists.value, lists.end)
        steps = _look(scan, np.repeat(lists.owner, counts), first, stop)
        looks = (
            (places[0], *_look(scan, context.owner, context.value, context.end)),
            (np.repeat(places[1], counts), *steps),
        )
        if scan.odd.any():
            return 0
        for seen, held, (found, kinds, several) in zip(self._maps, places, looks, strict=True):
            self.skipped += int(np.count_nonzero(held < 0))
            seen.count(_RECORDS, held)
            seen.count(_SEVERAL, found[several])
            for what, kind in enumerate(_KINDS, _FIRST_KIND):
                seen.count(what, found[kinds == kind])
        return int(np.count_nonzero(scan.sequence))

    def _find(self, seen: _Seen, found: Found, scan: WireScan) -> Ints:
        """Return the place of each entry's key; a new one gets a place if there is room."""
        places, _ = scan.find(found, seen.index)
        new = (places < 0) & ~scan.odd[found.owner]
        if new.any() and self._add(
            seen, found.key.take(numbers_array(np.flatnonzero(new))).unique().to_pylist()
        ):
            places, _ = scan.find(found, seen.index)
        return places

    def _add(self, seen: _Seen, keys: Iterable[bytes]) -> int:
        """Make places for new keys, if there is room, and return for how many there was."""
        names = sum(len(one.keys) for one in self._maps)
        kept = []
        for key in keys:
            if names < MAX_NAMES and self._name_bytes + len(key) <= MAX_NAME_BYTES:
                kept.append(key)
                names += 1
                self._name_bytes += len(key)
        seen.add(kept)
        return len(kept)

    def has_room(self, other: "ColumnsFold") -> bool:
        """Return whether all names of both surely have room, so that their order is no matter."""
        names = sum(len(one.keys) for one in (*self._maps, *other._maps))
        size = self._name_bytes + other._name_bytes
        skipped = self.skipped + other.skipped
        return names <= MAX_NAMES and size <= MAX_NAME_BYTES and not skipped

    def merge(self, other: "ColumnsFold") -> None:
        """Take in what another fold over other payloads has seen."""
        self.kinds += other.kinds
        self.skipped += other.skipped
        for seen, more in zip(self._maps, other._maps, strict=True):
            self._add(seen, [key for key in more.keys if key not in seen.keys])
            for key, there in more.keys.items():
                here = seen.keys.get(key)
                if here is None:
                    self.skipped += int(more.counts[there, _RECORDS])
                else:
                    seen.counts[here] += more.counts[there]

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
        columns = [
            _column(key, is_list, seen.counts[place].tolist(), records)
            for is_list, seen in zip((False, True), self._maps, strict=True)
            for key, place in sorted(seen.keys.items())
            if seen.counts[place, _RECORDS]
        ]
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


def _column(key: bytes, is_list: bool, counts: Sequence[int], records: int) -> Column:
    there, several, *found = counts
    dtypes = [kind for kind, count in zip(_KINDS.values(), found, strict=True) if count]
    dtype = dtypes[0] if len(dtypes) == 1 else None
    # A step without a kind is null in its list.
    if is_list and len(dtypes) == 2 and None in dtypes:
        dtype = dtypes[1]
    form = Form.FEATURE if dtype is None else Form.LIST
    if dtype and not is_list and there == records and not several:
        form = Form.SCALAR
    return Column(key=key, form=form, dtype=dtype, is_list=is_list)
