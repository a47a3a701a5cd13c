"""A scan of the wire format of many payloads at once, with numpy.

What it understands is the form in which writers write: one field of each sort, a key and a value in
each map entry, no key twice, one kind in a feature, packed numbers. Whatever is not of this form is
`irregular`, and left to protobuf: what protobuf makes of it is written again in this form, by
`canonical`. A length is held against the end of what it is in before it is used.

Arrow is imported where it is needed: C finds keys and numbers without it.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from tfrtool.examples.example import DType, holds_features, parse_message
from tfrtool.records import frames
from tfrtool.records.payloads import LONG_STRING, Bools, Ints, Payloads
from tfrtool.records.wire import read_spans
from tfrtool.storage.limits import MAX_FEATURES, MAX_FIELDS

if TYPE_CHECKING:
    import pyarrow as pa

FIRST, SECOND = 0x0A, 0x12
"""The tags of fields 1 and 2 where they have a length."""

NONE, STRINGS, FLOATS, INTEGERS = 0, 0x0A, 0x12, 0x1A
"""The tags of a feature's kinds; none where it has no kind."""

_Taken = TypeVar("_Taken")

TAGS = {DType.STRING: STRINGS, DType.FLOAT32: FLOATS, DType.INT64: INTEGERS}

SCANNED = 4096
"""Payloads that are scanned together: their numbers stay near the processor."""

_FEW = 32
"""From fewer messages than this on, their fields are read one by one: as fast, and there may be
millions of them."""


_LARGEST = 2 * MAX_FIELDS
"""Bytes of a payload that can't have more than `MAX_FIELDS` fields: each has two at least."""

_MOST_BYTES = 2**31 - 1024
"""Bytes of payloads that are scanned where they are: Arrow counts those of strings in 32 bits."""


class Keys:
    """Keys of features that are looked for, in some order."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        """Take different keys."""
        self.keys = keys
        self.data = b"".join(keys)
        self.ends = np.cumsum([*map(len, keys)], dtype=np.int64)
        self.order = np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)

    def __len__(self) -> int:
        return len(self.ends)


class Found(NamedTuple):
    """The entries of one map of each record, in order."""

    owner: Ints  # the record, by its index
    key_index: Ints  # of its key among those that were looked for; -1 where it is none
    key: Ints  # where the key is
    key_end: Ints
    value: Ints  # where the feature is
    end: Ints
    order: Ints  # the entries by place; of one place they are in order


class WireScan:
    """Payloads in sequence; some can't be scanned, and are called irregular.

    Values read beyond the end of a message are discarded. Each method takes the payload that its
    messages belong to (``owner``), which becomes irregular if one of them is.

    Attributes:
        data: the payloads, joined.
        irregular: which payloads are not of the form that is understood here, as far as was seen.
        sequence: which have feature lists.
    """

    def __init__(self, payloads: Sequence[bytes]) -> None:
        """Find the two maps of each payload."""
        if not isinstance(payloads, Payloads) or len(payloads.data) > _MOST_BYTES:
            payloads = Payloads.joined(payloads)
        self.data, starts, self._ends = payloads.data, payloads.starts, payloads.ends
        self._bytes = np.frombuffer(self.data, np.uint8)
        self.irregular = np.zeros(len(starts), np.bool_)
        self._fields = Counter[int]()  # read one by one, by payload
        # Where C does the same, it need not count the fields.
        is_short = payloads.sizes.max(initial=0) <= _LARGEST
        self._native = frames.native if is_short else None
        first, stop = self._map(FIRST, starts)
        self.context = first, stop
        self.sequence = stop < self._ends
        self.lists = self._map(SECOND, stop)
        self.irregular |= self.lists[1] != self._ends

    def _map(self, tag: int, at: Ints) -> tuple[Ints, Ints]:
        """Return where a map is; nothing, and where what follows starts, if it is not there."""
        present = np.flatnonzero((self.bytes_at(at) == tag) & (at < self._ends))
        first, stop = at.copy(), at.copy()
        _, begin, close, ok = self.field(at[present], self._ends[present])
        self.irregular[present[~ok]] = True
        present = present[ok]
        first[present], stop[present] = begin[ok], close[ok]
        return first, stop

    def bytes_at(self, at: Ints) -> NDArray[np.uint8]:
        """Return the byte at each place; behind the data, its last one."""
        return self._bytes.take(at, mode="clip")

    def field(self, at: Ints, end: Ints) -> tuple[NDArray[np.uint8], Ints, Ints, Bools]:
        """Read a field with a length at each place: its tag, where it starts and stops.

        The last says where there is such a field, which stops before ``end``; where there is none,
        or its length is longer than it must be, the others mean nothing.
        """
        low = self._bytes.take(at + 1, mode="clip")
        first = at + 2
        size = low.astype(np.int64)
        more = np.flatnonzero(low & 0x80)
        if more.size:
            size[more] &= 0x7F
            for shift in (7, 14, 21, 28):
                low = self._bytes.take(first[more], mode="clip")
                size[more] |= (low & 0x7F).astype(np.int64) << shift
                size[more[low == 0]] = 1 << 40  # longer than it must be
                first[more] += 1
                more = more[low > 0x7F]
                if not more.size:
                    break
            size[more] = 1 << 40
        stop = first + size
        return self.bytes_at(at), first, stop, stop <= end

    def children(
        self, owner: Ints, start: Ints, end: Ints, most: int = 2**31
    ) -> tuple[Ints, Ints, Ints]:
        """Read messages that have nothing but field 1, with a length, at most ``most`` times.

        Returns, of all those fields in order, where they start and where they stop; then how many
        there are in each message. Messages are given in order, too.
        """
        if self._native is None:
            return self._children(owner, start, end, most)
        numbers, marks, *found = self._native.fields_of(self.data, start, end, most)
        self._mark(owner, marks)
        starts, stops = (np.frombuffer(one, np.int64) for one in found)
        return starts, stops, np.frombuffer(numbers, np.int64)

    def _children(self, owner: Ints, start: Ints, end: Ints, most: int) -> tuple[Ints, Ints, Ints]:
        """Do what `children` does without C."""
        counts = np.zeros(len(start), np.int64)
        found = list[tuple[Ints, Ints, Ints]]()  # the messages, and a field of each
        live = np.flatnonzero(start < end)
        at, stop = start[live], end[live]
        while live.size > _FEW or (live.size and len(found) < _FEW):
            tag, first, last, ok = self.field(at, stop)
            ok &= tag == FIRST
            if not ok.all():
                self.irregular[owner[live[~ok]]] = True
                live, first, last, stop = live[ok], first[ok], last[ok], stop[ok]
            found.append((live, first, last))
            counts[live] += 1
            on = last < stop
            live, at, stop = (live, last, stop) if on.all() else (live[on], last[on], stop[on])
        several = len(found)
        for index, begin, close in zip(live.tolist(), at.tolist(), stop.tolist(), strict=True):
            of_payload = int(owner[index])
            spans = islice(read_spans(self.data, begin, close), most + 1)
            try:
                fields = np.fromiter(chain.from_iterable(spans), np.int64).reshape(-1, 3)
            except ValueError:
                fields = np.zeros((1, 3), np.int64)
            self._fields[of_payload] += len(fields)
            too_many = counts[index] + len(fields) > most or self._fields[of_payload] > MAX_FIELDS
            if too_many or (fields[:, 0] != FIRST).any():
                self.irregular[of_payload] = True
                continue
            found.append((np.array([index]), fields[:, 1], fields[:, 2]))
            counts[index] += len(fields)
        if len(found) == 1 and several:
            return found[0][1], found[0][2], counts
        return (*_in_order(found, several, counts), counts)

    def kinds(self, owner: Ints, start: Ints, end: Ints) -> tuple[NDArray[np.uint8], Ints, Ints]:
        """Return the kinds of features, and where their packed numbers or their strings are."""
        if self._native is not None:
            tags, starts, _, marks = self._native.feature_kinds(self.data, start, end, False)
            self._mark(owner, marks)
            return np.frombuffer(tags, np.uint8), np.frombuffer(starts, np.int64), end
        tag, first, stop, ok = self.field(start, end)
        none = start == end
        ok = none | (ok & (stop == end) & ((tag == STRINGS) | (tag == FLOATS) | (tag == INTEGERS)))
        kind = np.where(none | ~ok, np.uint8(NONE), tag)
        # Of numbers there is one more field, in which they are packed, unless there are none.
        packed = np.flatnonzero((kind > STRINGS) & (first < end))
        tag, begin, stop, valid = self.field(first[packed], end[packed])
        valid &= (tag == FIRST) & (stop == end[packed])
        valid &= (kind[packed] == INTEGERS) | ((stop - begin) % 4 == 0)
        ok[packed] &= valid
        first[packed] = begin
        kind[~ok] = NONE
        self.irregular[owner[~ok]] = True
        return kind, np.where(kind == NONE, end, first), end

    def kinds_and_numbers(
        self, owner: Ints, start: Ints, end: Ints
    ) -> tuple[NDArray[np.uint8], Ints, Ints, NDArray[np.uint8]]:
        """Return what `kinds` does, and the number of values of each feature; 2 for more."""
        if self._native is not None:
            *found, marks = self._native.feature_kinds(self.data, start, end, True)
            self._mark(owner, marks)
            kind, number = (np.frombuffer(one, np.uint8) for one in found[::2])
            return kind, np.frombuffer(found[1], np.int64), end, number
        kind, start, end = self.kinds(owner, start, end)
        size = end - start
        number = np.minimum(np.where(kind == FLOATS, (size + 3) >> 2, size), 2).astype(np.uint8)
        unsure = np.flatnonzero((kind == INTEGERS) & (size > 1) & (size <= 10))
        counts = self.integers(owner[unsure], start[unsure], end[unsure])[1]
        number[unsure] = np.minimum(counts, 2)
        strings = np.flatnonzero((kind == STRINGS) & (size > 0))
        tag, _, stop, first_ok = self.field(start[strings], end[strings])
        more, _, _, second_ok = self.field(stop, end[strings])
        several = stop != end[strings]
        number[strings] = 1 + several
        ok = first_ok & (tag == FIRST) & (~several | (second_ok & (more == FIRST)))
        self.irregular[owner[strings[~ok]]] = True
        return kind, start, end, number

    def _mark(self, owner: Ints, marks: bytes) -> None:
        """Make the payloads irregular whose messages have marks."""
        if 1 in marks:
            self.irregular[owner[np.frombuffer(marks, np.bool_)]] = True

    def strings(self, start: Ints, end: Ints) -> "pa.Array":
        """Return what is at these places, which are in order, as a binary array."""
        from tfrtool.examples.arrow.arrays import strings_at

        return strings_at(self.data, start, end)

    def packed(self, start: Ints, end: Ints) -> NDArray[np.uint8]:
        """Return the bytes at these places, which are in order, one after the other."""
        if len(start) == 1:
            return self._bytes[start[0] : end[0]]
        size = int((end - start).sum())
        if frames.native is not None and size <= LONG_STRING * len(start):
            return np.frombuffer(frames.native.bytes_at(self.data, start, end)[0], np.uint8)
        content = self.strings(start, end).buffers()[2]
        return np.frombuffer(content or b"", np.uint8, size)

    def integers(self, owner: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        """Return the packed int64 at these places, and how many are at each."""
        if self._native is not None:
            counts, marks, values = self._native.integers_at(self.data, start, end)
            self._mark(owner, marks)
            return np.frombuffer(values, np.int64), np.frombuffer(counts, np.int64)
        size = end - start
        data = self.packed(start, end)
        last = np.cumsum(size)
        if not len(data) or data.max() < 0x80:  # each is one byte, which takes less memory to see
            return data.astype(np.int64), size
        stops = np.flatnonzero(data < 0x80) + 1  # each number ends with a byte without high bit
        counts = np.diff(np.searchsorted(stops, last, "right"), prepend=0)
        lengths = np.diff(stops, prepend=0)
        nonempty = size > 0
        malformed = np.zeros(len(size), np.bool_)
        malformed[nonempty] = data[last[nonempty] - 1] > 0x7F
        wrong = (lengths > 10) | ((lengths == 10) & (data[stops - 1] > 1))
        malformed[np.searchsorted(last, stops[wrong] - 1, "right")] = True
        if malformed.any():
            self.irregular[owner[malformed]] = True
            return self.integers(owner, start, np.where(malformed, start, end))
        values = np.zeros(len(stops), np.uint64)
        begin = stops - lengths
        for byte_index in range(int(lengths.max(initial=0))):
            longer = slice(None) if byte_index == 0 else np.flatnonzero(lengths > byte_index)
            byte = data[begin[longer] + byte_index] & np.uint8(0x7F)
            values[longer] |= byte.astype(np.uint64) << np.uint64(7 * byte_index)
        return values.view(np.int64), counts

    def find(self, maps: tuple[Ints, Ints], keys: Keys) -> Found:
        """Return the entries of one of the two maps of all records.

        Payloads that have one of the keys twice become irregular.
        """
        every = np.arange(len(self.irregular))
        if self._native is not None:
            known = keys.data, keys.ends, keys.order
            marks, *arrays = self._native.find_entries(self.data, *maps, *known, MAX_FEATURES)
            self._mark(every, marks)
            return Found(*(np.frombuffer(one, np.int64) for one in arrays))
        start, end, counts = self.children(every, *maps, MAX_FEATURES)
        owner = np.repeat(every, counts)
        tag, key, key_end, ok = self.field(start, end)
        ok &= tag == FIRST
        tag, value, stop, value_ok = self.field(key_end, end)
        ok &= value_ok & (tag == SECOND) & (stop == end)
        if not ok.all():
            self.irregular[owner[~ok]] = True
            parts = (owner, key, key_end, value, end)
            owner, key, key_end, value, end = (part[ok] for part in parts)
        indexes, order = self._looked_up(owner, self.strings(key, key_end), keys)
        return Found(owner, indexes, key, key_end, value, end, order)

    def _looked_up(self, owner: Ints, found: "pa.Array", keys: Keys) -> tuple[Ints, Ints]:
        """Return the place of each key that was found, and the order by place."""
        import pyarrow.compute as pc

        from tfrtool.examples.arrow.arrays import numbers_array, strings_array

        nowhere = numbers_array(np.full(len(owner), -1, np.int32))
        indexes = pc.coalesce(pc.index_in(found, value_set=strings_array(keys.keys)), nowhere)
        places: Any = np.from_dlpack(indexes)
        # Numbers of 16 bits are sorted by their digits, which takes no time.
        order = np.argsort(
            places.astype(np.int16) if len(keys) < 1 << 15 else places, kind="stable"
        )
        first, second = order[:-1], order[1:]
        twice = (places[first] == places[second]) & (owner[first] == owner[second])
        self.irregular[owner[second[twice & (places[second] >= 0)]]] = True
        return places, order


def _in_order(
    found: Sequence[tuple[Ints, Ints, Ints]], several: int, counts: Ints
) -> tuple[Ints, Ints]:
    """Return where the fields of messages start and stop, message by message.

    The first ``several`` parts have one field of each of some messages, the others the last fields
    of one message.
    """
    ends = np.cumsum(counts)
    starts, stops = (np.empty(ends[-1] if len(ends) else 0, np.int64) for _ in range(2))
    for number, (messages, first, stop) in enumerate(found):
        if number < several:
            places = ends[messages] - counts[messages] + number
        else:
            places = np.arange(ends[messages[0]] - len(first), ends[messages[0]])
        starts[places], stops[places] = first, stop
    return starts, stops


def scanned(
    payloads: Sequence[bytes], take: Callable[[WireScan], _Taken]
) -> tuple[_Taken, dict[int, str]]:
    """Return what ``take`` returns for payloads; protobuf rewrites the irregular ones first.

    Payloads that aren't Examples are empty, and returned with the reason.
    ``take`` is called again with another scan if it finds irregular payloads.
    """
    again, refused = set[int](), dict[int, str]()
    while True:
        scan = WireScan(payloads)
        taken = take(scan)
        if not scan.irregular.any():
            return taken, refused
        payloads = [*payloads]
        for index in np.flatnonzero(scan.irregular).tolist():
            try:
                payloads[index] = canonical(payloads[index], again=index in again)
            except ValueError as error:
                payloads[index], refused[index] = b"", str(error)
            again.add(index)


def canonical(payload: bytes, *, again: bool = False) -> bytes:
    """Return an Example or SequenceExample as protobuf has it, as `WireScan` understands it.

    `ValueError` if it is none, or what came of it is irregular ``again``.
    """
    if again:
        raise ValueError(f"payload ({len(payload)} bytes) can't be decoded")
    try:
        message = parse_message(payload)
    except DecodeError as error:
        raise ValueError(f"payload ({len(payload)} bytes) is not a tf.train.Example") from error
    if not holds_features(message):
        raise ValueError("not a tf.train.Example or SequenceExample")
    message.DiscardUnknownFields()
    _unique(message.context, "feature")
    if message.HasField("feature_lists"):
        _unique(message.feature_lists, "feature_list")
    return message.SerializeToString()


def _unique(message: Any, name: str) -> None:
    """Leave the last entry of each key in a map, and give each a key and a value."""
    entries = getattr(message, name)
    last = {entry.key: entry for entry in entries}
    if len(last) < len(entries):
        unique = [type(entry).FromString(entry.SerializeToString()) for entry in last.values()]
        message.ClearField(name)  # takes no time, unlike deleting a part
        getattr(message, name).extend(unique)
    for entry in getattr(message, name):
        entry.key = entry.key
        entry.value.SetInParent()
