"""Hopping from header to header: where the records of an uncompressed shard end."""

from __future__ import annotations

import os
from collections.abc import Callable, MutableSequence
from functools import partial
from typing import BinaryIO

from tfrtool.records.crc import MASK_DELTA, crc32c
from tfrtool.records.framing import FRAME_SIZE, HEADER, HEADER_SIZE, MAX_RECORD_BYTES

__all__ = ["hop", "reader_at"]

_BLOCK = 64 * 1024
_LONG = 4096
"""Records from this size on, in bytes: a call for each header is faster than to read it all."""

_HEADERS_KNOWN = 1024
"""Headers whose CRC is not computed again: many, where records have a few lengths only."""


def hop(file: BinaryIO, size: int, ends: MutableSequence[int] | None = None) -> tuple[int, int]:
    """Go through the records without reading their payloads.

    Stops where the stream ends, or before it, at a record that is cut or whose length's CRC does
    not hold: all is well if the returned offset is ``size``.

    Args:
        file: an uncompressed shard, open at any position.
        size: its size, in bytes.
        ends: where to append the offset behind each record, if these are wanted.

    Returns:
        The number of records, and the offset behind the last one.
    """
    read_at = reader_at(file)
    append = None if ends is None else ends.append
    steps = _Steps()
    get = steps.get
    records, offset, step = 0, 0, 0
    while offset + HEADER_SIZE <= size:
        if step < _LONG:
            block = read_at(_BLOCK, offset)
            position, last = 0, len(block) - HEADER_SIZE
            while position <= last:
                head = block[position : position + HEADER_SIZE]
                step = get(head) or steps.learn(head)
                if not step or offset + position + step > size:
                    return records, offset + position
                position += step
                records += 1
                if append is not None:
                    append(offset + position)
            offset += position
        else:
            while True:
                head = read_at(HEADER_SIZE, offset)
                step = get(head) or steps.learn(head)
                end = offset + step
                if not step or end > size:
                    return records, offset
                offset = end
                records += 1
                if append is not None:
                    append(offset)
                if step < _LONG or offset + HEADER_SIZE > size:
                    break
    return records, offset


class _Steps(dict[bytes, int]):
    """Headers whose CRC holds, and the sizes of their records, frames included."""

    def learn(self, head: bytes) -> int:
        """Return the size of the record that a header starts, in bytes; 0 if it is damaged."""
        if len(head) < HEADER_SIZE:  # the file became shorter
            return 0
        length, stored = HEADER.unpack(head)
        crc = crc32c(head[:8])
        if (((crc >> 15) | (crc << 17)) + MASK_DELTA) & 0xFFFFFFFF != stored:
            return 0
        if length > MAX_RECORD_BYTES:
            return 0
        if len(self) < _HEADERS_KNOWN:
            self[head] = FRAME_SIZE + length
        return int(FRAME_SIZE + length)


def reader_at(file: BinaryIO) -> Callable[[int, int], bytes]:
    """Return a function of a size and an offset that reads there, both in bytes.

    Where the system can, it leaves the position of ``file`` alone, and may be called by several
    threads and forked processes at once.
    """
    if hasattr(os, "pread"):
        return partial(os.pread, file.fileno())

    def seek_and_read(size: int, offset: int) -> bytes:
        file.seek(offset)
        return file.read(size)

    return seek_and_read
