"""Finding the next record after damage.

TFRecord has no sync markers; what can be recognised is a header, by the CRC of its length. Almost
no place needs that CRC to be computed: a length below 2**32 has four zero bytes in its upper
half, so that only the neighbourhood of runs of zeros is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tfrtool.records.crc import crc32c, extend_crc32c, mask
from tfrtool.records.framing import CRC, FOOTER_SIZE, FRAME_SIZE, HEADER, HEADER_SIZE
from tfrtool.records.window import BLOCK_SIZE, Window

LOOKAHEAD = 16 * 1024 * 1024
"""Bytes searched beyond a whole record for a better place to go on from.

A payload may itself hold records, so that the first record found after a damaged header may lie
inside the damaged record. The place where the damaged record's own payload CRC holds is better.
"""

_LEAST_LOOKAHEAD = 1024
_AT_ONCE = 4 * LOOKAHEAD
_PASSES = 4
"""What `SearchBudget` allows: bytes a search, bytes at once, and bytes for each of the stream."""
_CANDIDATE = 1024
"""What a look at one header costs, as the bytes without headers that take as long; measured."""

_ZEROS = re.compile(rb"\x00{4,}")
_ZERO_LENGTH = HEADER.pack(0, mask(crc32c(bytes(8))))
_FOUR_GIB = 1 << 32


class Landing(NamedTuple):
    """Where to go on after damage.

    Attributes:
        offset: where a whole record starts, or the end of the stream.
        proven: whether exactly one record lies between the damage and here, because its payload
            and the CRC behind it fit together.
    """

    offset: int
    proven: bool


class SearchBudget:
    """How far searches may still look beyond the place that they come back to.

    What is looked at there is read again. In a stream with damage everywhere, as a transfer that
    changed its line breaks makes it, all searches to their full length would take time by the
    square of its size. Together they may look at 64 MiB in vain, and at four times the stream.

    So it is with headers that are made to mislead, each with a length that reaches far: after so
    many bytes of payloads whose CRCs don't hold (``misled``), no more are believed to start a
    record.
    """

    def __init__(self) -> None:
        """Begin at the start of a stream."""
        self._spent = 0
        self.misled = 0

    def reach(self, offset: int) -> int:
        """Return how many bytes a search from ``offset`` on may look at in vain."""
        left = _AT_ONCE + _PASSES * offset - self._spent
        return min(max(left, _LEAST_LOOKAHEAD), LOOKAHEAD)

    def spend(self, size: int, candidates: int) -> None:
        """Note that ``size`` bytes with some headers among them were looked at in vain."""
        self._spent += max(size, 0) + _CANDIDATE * candidates

    def trusts(self, offset: int) -> bool:
        """Return whether a header at ``offset`` may still be taken for a record's."""
        return self.misled <= _AT_ONCE + _PASSES * offset


def headers(data: bytes) -> Iterator[int]:
    """Yield every position in ``data`` where a length below 4 GiB and its CRC stand."""
    last = len(data) - HEADER_SIZE
    for zeros in _ZEROS.finditer(data):
        first, end = zeros.span()
        # The lower half of the length is not zero, so the run starts within or behind it ...
        for position in range(max(first - 4, 0), min(first, end - 7, last + 1)):
            length, crc = HEADER.unpack_from(data, position)
            if length < _FOUR_GIB and mask(crc32c(data[position : position + 8])) == crc:
                yield position
        # ... or all of it is zero, and the run ends with it, for its CRC starts with 0x29.
        position = end - 8
        if 0 <= position <= last and data.startswith(_ZERO_LENGTH, position):
            yield position


class Search:
    """Searches in one stream, for records of up to ``limit`` bytes."""

    def __init__(self, window: Window, limit: int) -> None:
        """Begin at the start of a stream."""
        self._window = window
        self._limit = limit
        self._budget = SearchBudget()

    def find_next(self, damaged: int, start: int, *, near: bool = False) -> Landing | None:
        """Find where to go on after a record whose length can't be believed.

        Its header starts at ``damaged``; ``start``, above that, is the first offset to look at. The
        end of that record is returned, where it can be proven; else the next whole record, unless
        only the former is looked for (``near``); None where there is neither. The window holds the
        bytes from there on.
        """
        window = self._window
        body = damaged + HEADER_SIZE
        crc, covered = 0, body  # the CRC of the stream from `body` to `covered`
        first: int | None = None
        position = start
        candidates = 0  # those looked at in vain
        reach = self._budget.reach(damaged)
        last = start + reach if near else None  # the last offset to look at, once that is known
        outer = window.pinned
        try:
            while last is None or position <= last:
                kept = (outer, covered, first)
                window.pinned = min(offset for offset in kept if offset is not None)
                held = min(window.load(position, BLOCK_SIZE), BLOCK_SIZE)
                for place in headers(window.view(position, position + held)):
                    candidate = position + place
                    if last is not None and candidate > last:
                        break
                    candidates += near or first is not None
                    if candidate - FOOTER_SIZE >= body:
                        upto = candidate - FOOTER_SIZE
                        crc = extend_crc32c(crc, window.view(covered, upto))
                        covered = upto
                        # Should the payload start with a record, then that record's length and its
                        # CRC are the 8 bytes of a payload and their CRC, too.
                        if mask(crc) == CRC.unpack(window.view(upto, candidate))[0] and (
                            candidate - body != HEADER_SIZE or self._record_at(candidate)
                        ):
                            return Landing(candidate, proven=True)
                    if first is None and self._record_at(candidate):
                        first = candidate
                        last = candidate + reach if last is None else last
                if held < BLOCK_SIZE:
                    end = window.end
                    if end - FOOTER_SIZE >= body and (last is None or end <= last):
                        crc = extend_crc32c(crc, window.view(covered, end - FOOTER_SIZE))
                        if mask(crc) == CRC.unpack(window.view(end - FOOTER_SIZE, end))[0]:
                            return Landing(end, proven=True)
                    break
                # A header may lie across the edge of the block.
                position += held - (HEADER_SIZE - 1)
                if position - FOOTER_SIZE > covered:
                    crc = extend_crc32c(crc, window.view(covered, position - FOOTER_SIZE))
                    covered = position - FOOTER_SIZE
        finally:
            window.pinned = outer
        vain = covered - (start if first is None or near else first)
        self._budget.spend(vain, candidates)
        return None if first is None else Landing(first, proven=False)

    def find_chain(self, start: int) -> int | None:
        """Find the first of a chain of whole records that ends where the stream ends.

        After a record whose length reaches beyond the end, whole records are its neighbours, if
        bytes were taken out of the stream; or a part of its payload, if the stream was cut. Only
        the former lead up to the very end. A chain of 16 MiB is believed without going on to it.
        The window still holds the bytes from the start of the chain on.
        """
        window, seen = self._window, set[int]()
        position = start
        try:
            while True:
                held = window.load(position, BLOCK_SIZE)
                for place in headers(window.view(position, window.end)):
                    window.pinned = position + place
                    if self._chain_reaches(position + place, None, seen):
                        return position + place
                window.pinned = None
                if held < BLOCK_SIZE:
                    return None
                position += held - (HEADER_SIZE - 1)
        finally:
            window.pinned = None

    def find_chain_to(self, start: int, end: int) -> int | None:
        """Find the first of a chain of whole records that ends at ``end`` exactly.

        Where bytes were taken out of a payload, its length reaches into the records that follow
        it, and may end between two of them by chance. Records that a payload holds can't do that:
        the payload's own CRC stands between them and its end. The window must hold all from
        ``start`` on.
        """
        seen = set[int]()
        for place in headers(self._window.view(start, end)):
            if self._chain_reaches(start + place, end, seen):
                return start + place
        return None

    def _chain_reaches(self, first: int, end: int | None, seen: set[int]) -> bool:
        """Return whether whole records follow each other from ``first`` to ``end``.

        None is the end of the stream, or 16 MiB on. Offsets that were visited lead nowhere.
        """
        window, offset = self._window, first
        while offset not in seen and (end is None or offset < end):
            if end is None and (offset > first + LOOKAHEAD or window.load(offset, 1) == 0):
                return True
            if not self._record_at(offset):
                return False
            seen.add(offset)
            length, _ = HEADER.unpack_from(window.buffer, offset - window.start)
            offset += FRAME_SIZE + length
        return offset == end

    def _record_at(self, offset: int) -> bool:
        """Return whether a whole record, both CRCs included, starts at ``offset``."""
        window = self._window
        if window.load(offset, HEADER_SIZE) < HEADER_SIZE or not self._budget.trusts(offset):
            return False
        length, crc = HEADER.unpack_from(window.buffer, offset - window.start)
        if mask(crc32c(window.view(offset, offset + 8))) != crc or length > self._limit:
            return False
        size = FRAME_SIZE + length
        held = window.load(offset, size)
        if held >= size:
            end = offset + HEADER_SIZE + length
            stored = CRC.unpack(window.view(end, end + FOOTER_SIZE))[0]
            if mask(crc32c(window.view(offset + HEADER_SIZE, end))) == stored:
                return True
        self._budget.misled += min(held, size)
        return False
