"""Hopping from header to header: where the records of an uncompressed shard end."""

from __future__ import annotations

import os
from collections.abc import Callable, MutableSequence
from typing import BinaryIO

from tfrtool.records.crc import MASK_DELTA, crc32c
from tfrtool.records.framing import FRAME_SIZE, HEADER, HEADER_SIZE, MAX_RECORD_BYTES

__all__ = ["hop", "reader_at"]

_BLOCK = 64 * 1024
_SHORT = 4096
"""Records below this size, in bytes: reading many in a block is faster than a call for each."""

_HEADERS_KNOWN = 1024
"""Headers whose CRC is not computed again: many, where records have a few lengths only."""


def hop(file: BinaryIO, size: int, ends: MutableSequence[int] | None = None) -> tuple[int, int]:
    """Go through the records without reading their payloads.

    Stops where the stream ends, or before it, at a header that is cut or whose CRC does not hold:
    all is well if the returned offset is ``size``.

    Args:
        file: an uncompressed shard, open at any position.
        size: its size, in bytes.
        ends: where to append the offset behind each record, if these are wanted.

    Returns:
        The number of records, and the offset behind the last one.
    """
    read_at = reader_at(file)
    append = None if ends is None else ends.append
    known: dict[bytes, int] = {}  # headers whose CRC holds, and the sizes of their records
    get, unpack = known.get, HEADER.unpack
    records, offset, step, wanted = 0, 0, 0, _BLOCK
    while offset < size:
        block = read_at(wanted, offset)
        position, last = 0, len(block) - HEADER_SIZE
        while position <= last:
            head = block[position : position + HEADER_SIZE]
            step = get(head, 0)
            if not step:
                length, stored = unpack(head)
                crc = crc32c(head[:8])
                if (((crc >> 15) | (crc << 17)) + MASK_DELTA) & 0xFFFFFFFF != stored:
                    return records, offset + position
                if length > MAX_RECORD_BYTES:
                    return records, offset + position
                step = FRAME_SIZE + length
                if len(known) < _HEADERS_KNOWN:
                    known[head] = step
            position += step
            records += 1
            if append is not None:
                append(offset + position)
        if position == 0:  # less than a header is left
            return records, offset
        if offset + position > size:  # the last record is cut
            if ends is not None:
                del ends[-1]
            return records - 1, offset + position - step
        offset += position
        wanted = _BLOCK if step < _SHORT else HEADER_SIZE
    return records, offset


def reader_at(file: BinaryIO) -> Callable[[int, int], bytes]:
    """Return a function of a size and an offset that reads there, both in bytes.

    Where the system can, it leaves the position of ``file`` alone, and may be called by several
    threads and forked processes at once.
    """
    if hasattr(os, "pread"):
        descriptor = file.fileno()
        return lambda size, offset: os.pread(descriptor, size, offset)

    def seek_and_read(size: int, offset: int) -> bytes:
        file.seek(offset)
        return file.read(size)

    return seek_and_read
