"""A scan of the wire format of many payloads at once, with numpy.

What it understands is the form in which writers write: one field of each sort, a key and a value in
each map entry, no key twice, one kind in a feature, packed numbers. Whatever is not of this form is
`odd`, and left to protobuf: what protobuf makes of it is written again in this form, by
`canonical`. A length is held against the end of what it is in before it is used.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from tfrtool.examples.example import DType, holds_features
from tfrtool.examples.proto import example_pb2 as pb
from tfrtool.records.wire import read_spans

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_FIRST, _SECOND = 0x0A, 0x12
"""The tags of fields 1 and 2 where they have a length."""

NONE, STRINGS, FLOATS, INTEGERS = 0, 0x0A, 0x12, 0x1A
"""The tags of a feature's kinds; none where it has no kind."""

TAGS = {DType.STRING: STRINGS, DType.FLOAT32: FLOATS, DType.INT64: INTEGERS}

_FEW = 32
"""From fewer messages than this on, their fields are read one by one: as fast, and there may be
millions of them."""

_SHORT = 128
"""Bytes of a value on average, up to which an index of each byte is quicker than a slice."""


_SAME = 1024
"""Bytes of values that are all of one size, up to which they are taken eight bytes at a time."""


class Found(NamedTuple):
    """Features: each one's record, key and value by where they are."""

    owner: Ints  # the record, by its index
    key: Ints
    key_end: Ints
    value: Ints
    end: Ints


class Kinds(NamedTuple):
    """What features hold: the kind, and where the packed numbers or the list of strings are."""

    kind: NDArray[np.uint8]
    start: Ints
    end: Ints
    ok: Bools  # false where it is odd


class WireBuffer:
    """Messages one after the other, of which many are read at a time."""

    def __init__(self, parts: Sequence[bytes]) -> None:
        """Join the parts; what is read beyond the end of one is looked at, and not believed."""
        lengths = np.fromiter(map(len, parts), np.int64, len(parts))
        self.ends = np.cumsum(lengths)
        self.starts = self.ends - lengths
        self.data = memoryview(b"".join([*parts, bytes(24 - int(lengths.sum()) % 8)]))
        self.bytes = np.frombuffer(self.data, np.uint8)
        self._eights = np.frombuffer(self.data, "<u8")

    def _tags(self, at: Ints) -> NDArray[np.uint8]:
        return self.bytes.take(at, mode="clip")

    def field(self, at: Ints, end: Ints) -> tuple[NDArray[np.uint8], Ints, Ints, Bools]:
        """Read a field with a length at each place: its tag, where it starts and stops.

        The last says where there is such a field, which stops before ``end``; where there is none,
        or its length is longer than it must be, the others mean nothing.
        """
        low = self.bytes.take(at + 1, mode="clip")
        first = at + 2
        size = low.astype(np.int64)
        more = np.flatnonzero(low & 0x80)
        if more.size:
            size[more] &= 0x7F
            for shift in (7, 14, 21, 28):
                low = self.bytes.take(first[more], mode="clip")
                size[more] |= (low & 0x7F).astype(np.int64) << shift
                size[more[low == 0]] = 1 << 40  # longer than it must be
                first[more] += 1
                more = more[low > 0x7F]
                if not more.size:
                    break
            size[more] = 1 << 40
        stop = first + size
        return self._tags(at), first, stop, stop <= end

    def children(self, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints, Bools]:
        """Read messages that have nothing but field 1, with a length, any number of times.

        Returns, of all those fields in order, where they start and where they stop; then how many
        there are in each message, and which messages are odd. Messages are given in order, too.
        """
        counts, odd = np.zeros(len(start), np.int64), np.zeros(len(start), np.bool_)
        starts, stops = [start[:0]], [start[:0]]
        live = np.flatnonzero(start < end)
        at, stop = start[live], end[live]
        while live.size > _FEW or (live.size and len(starts) < _FEW):
            tag, first, last, ok = self.field(at, stop)
            ok &= tag == _FIRST
            if not ok.all():
                odd[live[~ok]] = True
                live, first, last, stop = live[ok], first[ok], last[ok], stop[ok]
            starts.append(first)
            stops.append(last)
            counts[live] += 1
            on = last < stop
            live, at, stop = (live, last, stop) if on.all() else (live[on], last[on], stop[on])
        for one, begin, close in zip(live.tolist(), at.tolist(), stop.tolist(), strict=True):
            try:
                spans = np.array(list(read_spans(self.data, begin, close)), np.int64)
            except ValueError:
                spans = np.zeros((1, 3), np.int64)
            if (spans[:, 0] != _FIRST).any():
                odd[one] = True
                continue
            starts.append(spans[:, 1])
            stops.append(spans[:, 2])
            counts[one] += len(spans)
        if len(starts) == 2:
            return starts[1], stops[1], counts, odd
        # Each field starts where the one before it has stopped, or later.
        return np.sort(np.concatenate(starts)), np.sort(np.concatenate(stops)), counts, odd

    def kinds(self, start: Ints, end: Ints) -> Kinds:
        """Return what features hold that are at these places."""
        tag, first, stop, ok = self.field(start, end)
        none = start == end
        ok = none | (ok & (stop == end) & ((tag == STRINGS) | (tag == FLOATS) | (tag == INTEGERS)))
        kind = np.where(none | ~ok, np.uint8(NONE), tag)
        # Of numbers there is one more field, in which they are packed, unless there are none.
        packed = np.flatnonzero((kind > STRINGS) & (first < end))
        tag, begin, stop, there = self.field(first[packed], end[packed])
        there &= (tag == _FIRST) & (stop == end[packed])
        there &= (kind[packed] == INTEGERS) | ((stop - begin) % 4 == 0)
        ok[packed] &= there
        first[packed] = begin
        return Kinds(kind, np.where(ok & ~none, first, end), end, ok)

    def string(self, start: Ints, end: Ints) -> tuple[Bools, Bools]:
        """Return which lists of strings have one, and which seem to have more."""
        tag, _, stop, ok = self.field(start, end)
        ok &= tag == _FIRST
        tag, _, _, more = self.field(stop, end)
        return ok & (stop == end), ok & more & (tag == _FIRST)

    def words(self, at: Ints) -> NDArray[np.uint64]:
        """Return the eight bytes at each place as a number."""
        place = at >> 3
        shift = (at & 7).astype(np.uint64) << np.uint64(3)
        low: NDArray[np.uint64] = self._eights.take(place, mode="clip") >> shift
        high = self._eights.take(place + 1, mode="clip") << np.uint64(1)
        low |= high << (np.uint64(63) - shift)
        return low

    def gather(self, start: Ints, size: Ints) -> NDArray[np.uint8]:
        """Return the bytes from each place, one after the other."""
        total = int(size.sum())
        same = int(size[0]) if len(size) else 0
        if same * len(size) == total and 2 < same <= _SAME and (size == same).all():
            words = self.words(start[:, np.newaxis] + np.arange(0, same, 8))
            return words.view(np.uint8)[:, :same].ravel()
        if total > _SHORT * len(start):
            ends = (start + size).tolist()
            data = self.data
            parts = [data[a:b] for a, b in zip(start.tolist(), ends, strict=True)]
            return np.frombuffer(b"".join(parts), np.uint8)
        before = np.cumsum(size) - size
        return self.bytes.take(np.repeat(start - before, size) + np.arange(total), mode="clip")

    def integers(self, start: Ints, end: Ints) -> tuple[Ints, Ints, Bools]:
        """Return the packed int64 at these places; how many each is; and which are odd."""
        size = end - start
        data = self.gather(start, size)
        last = np.cumsum(size)
        stops = np.flatnonzero(data < 0x80) + 1  # each number ends with a byte without high bit
        counts = np.diff(np.searchsorted(stops, last, "right"), prepend=0)
        if len(stops) == len(data):
            return data.astype(np.int64), counts, np.zeros(len(size), np.bool_)
        lengths = np.diff(stops, prepend=0)
        held = size > 0
        odd = np.zeros(len(size), np.bool_)
        odd[held] = data[last[held] - 1] > 0x7F
        wrong = (lengths > 10) | ((lengths == 10) & (data[stops - 1] > 1))
        odd[np.searchsorted(last, stops[wrong] - 1, "right")] = True
        if odd.any():
            values, counts, _ = self.integers(start, np.where(odd, start, end))
            return values, counts, odd
        values = np.zeros(len(stops), np.uint64)
        begin = stops - lengths
        for place in range(int(lengths.max(initial=0))):
            longer = slice(None) if place == 0 else np.flatnonzero(lengths > place)
            byte = data[begin[longer] + place] & np.uint8(0x7F)
            values[longer] |= byte.astype(np.uint64) << np.uint64(7 * place)
        return values.view(np.int64), counts, odd


class WireScan(WireBuffer):
    """Payloads, of which some are odd.

    Attributes:
        odd: which payloads are not of the form that is understood here, as far as was seen.
        sequence: which have feature lists.
    """

    def __init__(self, payloads: Sequence[bytes]) -> None:
        """Find the two maps of each payload."""
        super().__init__(payloads)
        self.odd = np.zeros(len(payloads), np.bool_)
        first, stop = self._map(_FIRST, self.starts)
        self.context = first, stop
        self.sequence = stop < self.ends
        self.lists = self._map(_SECOND, stop)
        self.odd |= self.lists[1] != self.ends

    def _map(self, tag: int, at: Ints) -> tuple[Ints, Ints]:
        """Return where a map is; nothing, and where what follows starts, if it is not there."""
        there = np.flatnonzero((self._tags(at) == tag) & (at < self.ends))
        first, stop = at.copy(), at.copy()
        _, begin, close, ok = self.field(at[there], self.ends[there])
        self.odd[there[~ok]] = True
        there = there[ok]
        first[there], stop[there] = begin[ok], close[ok]
        return first, stop

    def features(self, maps: tuple[Ints, Ints]) -> Found:
        """Return the entries of one of the two maps of all records, in order."""
        start, end, counts, odd = self.children(*maps)
        owner = np.repeat(np.arange(len(counts)), counts)
        self.odd |= odd
        tag, key, key_end, ok = self.field(start, end)
        ok &= tag == _FIRST
        tag, value, stop, there = self.field(key_end, end)
        ok &= there & (tag == _SECOND) & (stop == end)
        if ok.all():
            return Found(owner, key, key_end, value, end)
        self.odd[owner[~ok]] = True
        return Found(owner[ok], key[ok], key_end[ok], value[ok], end[ok])


def canonical(payload: bytes, *, again: bool = False) -> bytes:
    """Return an Example or SequenceExample as protobuf has it, as `WireScan` understands it.

    `ValueError` if it is none, or what came of it is odd ``again``.
    """
    if again:
        raise ValueError(f"its {len(payload)} bytes can't be scanned")
    try:
        message = pb.SequenceExample.FromString(payload)
    except DecodeError as error:
        raise ValueError(f"its {len(payload)} bytes are no tf.train.Example") from error
    if not holds_features(message):
        raise ValueError("it is neither a tf.train.Example nor a tf.train.SequenceExample")
    message.DiscardUnknownFields()
    features = _unique(message.context, "feature")
    steps = [entry.value for entry in features]
    if message.HasField("feature_lists"):
        for entry in _unique(message.feature_lists, "feature_list"):
            steps += entry.value.feature
    for step in steps:
        if step.HasField("float_list"):  # ``place`` is a field of ours, and not of TensorFlow's
            step.float_list.ClearField("place")
        elif step.HasField("int64_list"):
            step.int64_list.ClearField("place")
    return message.SerializeToString()


def _unique(message: Any, name: str) -> Any:
    """Leave the last entry of each key in a map, and give each a key and a value."""
    entries = getattr(message, name)
    last = {entry.key: entry for entry in entries}
    if len(last) < len(entries):
        kept = [type(entry).FromString(entry.SerializeToString()) for entry in last.values()]
        message.ClearField(name)  # takes no time, unlike deleting a part
        getattr(message, name).extend(kept)
    for entry in getattr(message, name):
        entry.key = entry.key
        entry.value.SetInParent()
    return getattr(message, name)
