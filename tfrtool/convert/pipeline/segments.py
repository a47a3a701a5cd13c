"""Stretches of shards: consecutive records, read and checked, as whole frames or as payloads."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import numpy as np

from tfrtool.errors import ShardError, os_errors_as
from tfrtool.records.crc import MASK_DELTA, crc32c, masked_crc32c
from tfrtool.records.framing import (
    CRC,
    FOOTER_SIZE,
    FRAME_SIZE,
    HEADER_SIZE,
    LENGTH,
    MAX_RECORD_BYTES,
    Fault,
    FaultKind,
    LocatedFault,
    holds_header,
)
from tfrtool.storage.opening import open_regular

_BLOCK = 1024 * 1024
_HEADERS_KNOWN = 4096
_WORTH_NO_COPY = 8192

OnFault = Callable[[LocatedFault], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Consecutive records of a shard.

    Attributes:
        path: the shard.
        start: where the first one's header starts in the uncompressed stream, in bytes.
        record: its index.
        records: how many there are.
        size: what they take in the uncompressed stream, frames included, in bytes.
        stamp: the shard's size and time of change (ns) as it was when this was planned.
        copy: an uncompressed copy of all whole records to read instead, if the shard is compressed
            or damaged; then ``start`` and ``record`` are those in the copy.
    """

    path: Path
    start: int
    record: int
    records: int
    size: int
    stamp: tuple[int, int]
    copy: Path | None = None

    @property
    def identity(self) -> str:
        """What the records are told by, in a fingerprint."""
        return repr((str(self.path.absolute()), self.stamp, self.start, self.record, self.records))


class Frames(NamedTuple):
    """Whole records in a row, whose CRCs hold; the data is theirs until the next but one."""

    record: int  # the index of the first
    data: memoryview
    spans: list[tuple[int, int]]  # where each payload starts and ends in the data
    keys: list[int]  # their `payload_key`

    @property
    def payloads(self) -> list[bytes]:
        """The payloads."""
        return [bytes(self.data[start:end]) for start, end in self.spans]


def stamp_of(file: BinaryIO) -> tuple[int, int]:
    """Return what changes when a file is written to: its size and its time of change."""
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns


def read_payloads(segment: Segment, on_fault: OnFault) -> Iterator[list[bytes]]:
    """Yield the payloads of a segment, about a megabyte at a time; damaged ones are faults."""
    for frames in read_frames(segment, on_fault):
        yield frames.payloads


def read_frames(segment: Segment, on_fault: OnFault) -> Iterator[Frames]:
    """Yield the records of a segment as they are, about a megabyte at a time.

    Both CRCs of each are checked. What doesn't hold is told to ``on_fault`` and left out.

    Raises:
        ShardError: the shard can't be read, or was changed since the segment was planned.
    """
    place = segment.copy or segment.path
    with os_errors_as(ShardError, place), open_regular(place, buffering=0) as file:
        _check_stamp(file, segment)
        offset, end, index = segment.start, segment.start + segment.size, segment.record
        wanted = _BLOCK
        sizes: dict[bytes, int] = {}  # of records, by their headers
        # Blocks are read into the same memory, in turns: to get it anew takes longer.
        block, other = np.empty(_BLOCK, np.uint8), np.empty(_BLOCK, np.uint8)
        while offset < end:
            block, other = other, block
            if len(block) < wanted:
                block = np.empty(wanted, np.uint8)
            file.seek(offset)
            whole = block.data[: min(wanted, end - offset)]
            data = whole[: cast(FileIO, file).readinto(whole)]
            position = first = size = 0
            spans, keys, number = [], [], index
            while (body := position + HEADER_SIZE) <= len(data):
                head = bytes(data[position:body])
                size = sizes.get(head, 0) or _size(head, sizes, segment)
                after = position + size
                if after > len(data):
                    break
                stop = after - FOOTER_SIZE
                # The library takes bytes, or an array, which is not copied.
                long = stop - body > _WORTH_NO_COPY
                crc = crc32c(block[body:stop] if long else bytes(data[body:stop]))
                crc = (((crc >> 15) | (crc << 17)) + MASK_DELTA) & 0xFFFFFFFF
                if CRC.unpack_from(data, stop)[0] == crc:
                    spans.append((body - first, stop - first))
                    keys.append(crc << 32 | stop - body)
                else:
                    if keys:
                        yield Frames(number, data[first:position], spans, keys)
                    frame = bytes(data[position:after])
                    on_fault(payload_fault(segment.path, index, offset + position, frame))
                    first, spans, keys, number = after, [], [], index + 1
                position, index = after, index + 1
            if not position and len(data) < min(max(size, HEADER_SIZE), end - offset, wanted):
                raise changed(segment.path)
            wanted = _BLOCK if position else max(size, 2 * wanted)
            if keys:
                yield Frames(number, data[first:position], spans, keys)
            offset += position
        if index != segment.record + segment.records:
            raise changed(segment.path)
        _check_stamp(file, segment)


def _size(head: bytes, sizes: dict[bytes, int], segment: Segment) -> int:
    (length,) = LENGTH.unpack_from(head)
    if length > MAX_RECORD_BYTES or not holds_header(head):
        raise changed(segment.path)  # for it was whole when the segment was planned
    if len(sizes) < _HEADERS_KNOWN:
        sizes[head] = FRAME_SIZE + length
    return FRAME_SIZE + int(length)


def payload_fault(path: Path, record: int, offset: int, frame: bytes) -> LocatedFault:
    """Return the fault of a record whose payload does not have its CRC."""
    payload = frame[HEADER_SIZE:-FOOTER_SIZE]
    stored, found = CRC.unpack(frame[-FOOTER_SIZE:])[0], masked_crc32c(payload)
    message = (
        f"the CRC of the payload does not hold: expected {stored:08x} as stored, "
        f"found {found:08x} for its {len(payload)} bytes"
    )
    fault = Fault(kind=FaultKind.PAYLOAD_CRC, offset=offset, record=record, message=message)
    return LocatedFault(path=path, fault=fault)


def _check_stamp(file: BinaryIO, segment: Segment) -> None:
    if segment.copy is None and stamp_of(file) != segment.stamp:
        raise changed(segment.path)


def changed(path: Path) -> ShardError:
    """Return the error of a source that is not any more what was planned for."""
    return ShardError("was changed while it was read", path=path)
