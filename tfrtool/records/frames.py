"""Intact records one behind the other, found together: in C where that is built, or in Python."""

import sys
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, chain, pairwise, takewhile
from typing import Any, overload

from tfrtool.records.framing import (
    CRC,
    FOOTER_AND_HEADER,
    FOOTER_SIZE,
    FRAME_SIZE,
    HEADER,
    HEADER_SIZE,
    MASK_DELTA,
    MAX_RECORD_BYTES,
    Fault,
    Record,
    crc32c,
    header,
)
from tfrtool.records.tally import payload_key

_INTERFACE = 7

native: Any = None
"""The functions in C; None if they could not be compiled, or are those of an older version."""

with suppress(ImportError):
    from tfrtool.records import _frames

    if getattr(_frames, "interface", 0) == _INTERFACE:
        native = _frames

_LENGTHS_KNOWN = 4096
"""Lengths whose CRCs are kept; images of one dataset have some thousands of different ones."""

_LONG = 4096
"""Mean bytes of payloads that are not worth being joined where they lie."""

HAS_BOXES, HAS_LISTS = 1, 2
"""Features with ``/bbox`` in their names, and feature lists."""

_CRC_HALF = int(sys.byteorder == "little")
"""Which half of a key in memory is the CRC: `payload_key` has it in the upper one."""

_NEW_RECORD = tuple.__new__  # Record's own would check what needs no check


class Frames(Sequence[Record]):
    """Consecutive intact records in a stretch of a stream; each is made when it is asked for.

    Attributes:
        data: the bytes.
        starts: where each frame starts in ``data``, and where the last one ends, as uint64.
        keys: the `payload_key` of each payload, as uint64.
        first: the index of the first record.
        offset: the stream's offset of ``data[0]``.
    """

    __slots__ = ("data", "first", "keys", "offset", "starts")

    def __init__(
        self, data: bytes, starts: memoryview, keys: memoryview, first: int, offset: int
    ) -> None:
        """Take what was found."""
        self.data, self.starts, self.keys = data, starts, keys
        self.first, self.offset = first, offset

    def __len__(self) -> int:
        return len(self.keys)

    @overload
    def __getitem__(self, item: int) -> Record: ...
    @overload
    def __getitem__(self, item: slice) -> "Frames": ...
    def __getitem__(self, item: int | slice) -> "Record | Frames":
        """Return a record, or the records of a slice without a step."""
        first, end, _ = (
            item if isinstance(item, slice) else slice(item, item + 1 or None)
        ).indices(len(self))
        end = max(first, end)
        part = Frames(
            self.data,
            self.starts[first : end + 1],
            self.keys[first:end],
            self.first + first,
            self.offset,
        )
        if isinstance(item, slice):
            return part
        for record in part:
            return record
        raise IndexError(item)

    def __iter__(self) -> Iterator[Record]:
        data, offset, new = self.data, self.offset, _NEW_RECORD
        starts = iter(self.starts.tolist())
        start = next(starts)
        for index, (end, crc) in enumerate(
            zip(starts, self.crcs.tolist(), strict=True), self.first
        ):
            payload = data[start + HEADER_SIZE : end - FOOTER_SIZE]
            yield new(Record, (index, offset + start, payload, crc))
            start = end

    @property
    def crcs(self) -> memoryview:
        """The masked CRCs of the payloads, as uint32."""
        return self.keys.cast("B").cast("I")[_CRC_HALF::2]

    @property
    def stored(self) -> bytes:
        """The bytes of the frames, as they are in the stream."""
        return self.data[self.starts[0] : self.starts[-1]]

    @classmethod
    def of(cls, records: Sequence[Record]) -> "Frames":
        """Return records one behind the other, such as those between two blocks of a file."""
        if isinstance(records, Frames):
            return records
        sizes = [len(record.payload) + FRAME_SIZE for record in records]
        data = b"".join(
            header(len(record.payload)) + record.payload + CRC.pack(record.payload_crc)
            for record in records
        )
        starts = memoryview(array("Q", accumulate(sizes, initial=0)))
        keys = memoryview(keys_of(records))
        return cls(data, starts, keys, records[0].index, records[0].offset)

    @classmethod
    def joined(cls, parts: Sequence["Frames"]) -> "Frames | None":
        """Return parts of a stream together; None if something else is between them."""
        if len(parts) == 1:
            return parts[0]
        import numpy as np  # small files are read without it

        starts, end = list[Any](), 0
        for part, following in pairwise(parts):
            if (part.first + len(part), part._end) != (following.first, following._start):
                return None
        for part in parts:
            here = np.frombuffer(part.starts, np.uint64)
            starts.append(here[:-1] - here[0] + end)
            end += int(here[-1] - here[0])
        joined = np.concatenate([*starts, [end]]).astype(np.uint64)
        data = b"".join(memoryview(part.data)[part.starts[0] : part.starts[-1]] for part in parts)
        keys = memoryview(b"".join(part.keys for part in parts)).cast("Q")
        return cls(
            data,
            memoryview(joined.data).cast("B").cast("Q"),
            keys,
            parts[0].first,
            parts[0]._start,
        )

    @property
    def _start(self) -> int:
        """The offset of the first record in the stream."""
        return self.offset + int(self.starts[0])

    @property
    def _end(self) -> int:
        """The offset in the stream where the last record ends."""
        return self.offset + int(self.starts[-1])

    def check_examples(self) -> tuple[bytes, int] | None:
        """Say of each record with a byte whether it may be something other than an Example.

        Those that are none for certain are written as every writer writes Examples and
        SequenceExamples; `HAS_BOXES` and `HAS_LISTS` say what is among them. None without C.
        """
        if native is None:
            return None
        found: tuple[bytes, int] = native.check_examples(self.data, self.starts)
        return found

    def match_features(self, features: "array[int]", keys: bytes) -> bytes:
        """Say of each record with a byte whether it may have other features than these.

        A feature is eight numbers, as `match_features` in C takes them; those of a record that has
        none other for certain are each there once, in an Example that is canonical.
        """
        found: bytes = native.match_features(self.data, self.starts, features, keys)
        return found

    def features_json(
        self, most: int, describe: Callable[[bytes], bytes]
    ) -> tuple[bytes, memoryview]:
        """Return the features of all records as JSON objects in ASCII, and where each ends.

        There is none of what is not an Example as every writer writes it with keys in ASCII, or is
        longer than ``most`` bytes.
        Strings that aren't plain text are described by a function, as JSON, too.
        """
        text, ends = native.features_json(self.data, self.starts, most, describe)
        return text, memoryview(ends).cast("q")


class FrameScan:
    """Finds intact records one behind the other, as long as they are held to their ends.

    It stops at whatever is not one, or not to be believed, and makes nothing of it.
    """

    def __init__(self, limit: int, *, verify: bool) -> None:
        """Set the longest payload, and whether the CRCs of payloads are checked."""
        self._limit, self._verify = limit, verify
        self._known: dict[int, int] = {}  # lengths and their masked CRCs

    def find(
        self, data: bytes, position: int, stop: int, index: int, offset: int
    ) -> tuple[Sequence[Record], int]:
        """Return the records from a position on that start before ``stop``, and where they end.

        The first has this index; ``data`` is at this offset of the stream.
        """
        if native is None:
            return self._find_in_python(data, position, stop, index, offset)
        found, keys = native.scan(data, position, stop, self._limit, self._verify)
        starts = memoryview(found).cast("Q")
        return Frames(data, starts, memoryview(keys).cast("Q"), index, offset), starts[-1]

    def _find_in_python(
        self, data: bytes, position: int, stop: int, index: int, offset: int
    ) -> tuple[Frames, int]:
        """Find records in Python: the hot path of the whole tool where nothing is compiled.

        A record costs two CRCs, one copy of its payload, and as little else as Python allows: the
        CRC of a length that was met before is looked up, and a payload's CRC is unpacked together
        with the next header, for which the last record that is held is left out.
        """
        verify, limit, known = self._verify, self._limit, self._known
        starts, keys, filled = [position], list[int](), min(len(data), stop) - HEADER_SIZE
        is_held = position <= filled
        length, length_crc = HEADER.unpack_from(data, position) if is_held else (0, 0)
        while is_held:
            if known.get(length) != length_crc:
                crc = crc32c(data[position : position + 8])  # a call would cost as much again
                crc = (((crc >> 15) | (crc << 17)) + MASK_DELTA) & 0xFFFFFFFF
                if length > limit or crc != length_crc:
                    break
                if len(known) == _LENGTHS_KNOWN:
                    known.clear()
                known[length] = length_crc
            body = position + HEADER_SIZE
            end = body + length
            after = end + FOOTER_SIZE
            if after > filled:
                break
            payload_crc, next_length, next_crc = FOOTER_AND_HEADER.unpack_from(data, end)
            if verify:
                crc = crc32c(data[body:end])
                if (((crc >> 15) | (crc << 17)) + MASK_DELTA) & 0xFFFFFFFF != payload_crc:
                    break
            starts.append(after)
            keys.append(payload_crc << 32 | length)  # a call of `payload_key` costs a tenth
            position, length, length_crc = after, next_length, next_crc
        ends, found = memoryview(array("Q", starts)), memoryview(array("Q", keys))
        return Frames(data, ends, found, index, offset), position


def bytes_of(records: Sequence[Record]) -> int:
    """Return how many bytes the payloads of consecutive records have together."""
    if isinstance(records, Frames):
        return int(records.starts[-1] - records.starts[0]) - FRAME_SIZE * len(records)
    return sum(len(record.payload) for record in records)


def crcs_of(records: Sequence[Record]) -> bytes:
    """Return the masked CRCs of the payloads, as uint32."""
    if isinstance(records, Frames):
        return records.crcs.tobytes()
    return array("I", [record.payload_crc for record in records]).tobytes()


def keys_of(records: Sequence[Record]) -> "memoryview | array[int]":
    """Return the `payload_key` of each record, as uint64."""
    if isinstance(records, Frames):
        return records.keys
    return array("Q", [payload_key(one.payload_crc, len(one.payload)) for one in records])


def in_batches(
    pieces: Iterable[Sequence[Record] | Fault],
    report: Callable[[Fault], None],
    batch_bytes: int,
    batch_records: int,
) -> Iterator[list[Record]]:
    """Yield records in lists that bound memory, and report the faults between them."""
    for parts in _parts_of_batches(pieces, report, batch_bytes, batch_records):
        yield [*chain.from_iterable(parts)]


def joined_batches(
    pieces: Iterable[Sequence[Record] | Fault],
    report: Callable[[Fault], None],
    batch_bytes: int,
    batch_records: int,
) -> Iterator[Sequence[Record]]:
    """Do what `in_batches` does, and yield `Frames` if they are records one behind the other."""
    for parts in _parts_of_batches(pieces, report, batch_bytes, batch_records):
        yield together(parts)


def together(parts: Sequence[Sequence[Record]]) -> Sequence[Record]:
    """Return parts of a stream as `Frames` if they are records one behind the other."""
    framed = sum(bytes_of(part) for part in parts if isinstance(part, Frames))
    joined = None
    if 2 * framed > sum(map(bytes_of, parts)):  # else there is more to frame than to gain
        joined = Frames.joined([*map(Frames.of, parts)])
    return [*chain.from_iterable(parts)] if joined is None else joined


def without_block(part: Sequence[Record]) -> Sequence[Record]:
    """Return records to keep; long payloads are copied so that their block can be released."""
    return [*part] if bytes_of(part) > _LONG * len(part) else part


def _parts_of_batches(
    pieces: Iterable[Sequence[Record] | Fault],
    report: Callable[[Fault], None],
    batch_bytes: int,
    batch_records: int,
) -> Iterator[list[Sequence[Record]]]:
    """Yield the records of each batch in parts."""
    parts, size, count = list[Sequence[Record]](), 0, 0
    for piece in pieces:
        if isinstance(piece, Fault):
            report(piece)
            continue
        rest = piece
        while rest:
            fitting = _count_fitting(rest, batch_bytes - size, batch_records - count)
            if not fitting and parts:
                yield parts
                parts, size, count = [], 0, 0
                continue
            part = rest[: fitting or 1]
            parts.append(without_block(part))
            size += bytes_of(part)
            count += len(part)
            rest = rest[len(part) :]
    if parts:
        yield parts


def _count_fitting(records: Sequence[Record], most_bytes: int, most: int) -> int:
    """Return how many records from the first on are not too many, and have not too many bytes."""
    if bytes_of(records) <= most_bytes:
        return min(most, len(records))
    if isinstance(records, Frames):
        start, starts, bound = records.starts[0], records.starts, range(len(records) + 1)
        fitting = bisect_right(
            bound, most_bytes, key=lambda count: starts[count] - start - FRAME_SIZE * count
        )
        return max(0, min(most, fitting - 1))
    sizes = accumulate(len(record.payload) for record in records)
    return min(most, sum(1 for _ in takewhile(lambda size: size <= most_bytes, sizes)))


def frame_starts(data: bytes, offset: int = 0) -> memoryview | None:
    """Return where frames start, one behind the other, and where the last one ends, as uint64.

    ``data`` is at this offset. Payloads are not checked. None without native code.
    """
    if native is None:
        return None
    starts, _ = native.scan(data, 0, len(data), MAX_RECORD_BYTES, False, offset)
    return memoryview(starts).cast("Q")


def picked(data: Any, starts: Any, sizes: Any) -> tuple[bytes, memoryview] | None:
    """Return frames in the order of their starts and sizes, which are uint64, with their keys.

    None if one of them isn't intact, or without native code.
    """
    found = None if native is None else native.pick(data, starts, sizes)
    return None if found is None else (found[0], memoryview(found[1]).cast("Q"))
