"""Finding the next record after damage.

TFRecord has no sync markers; what can be recognised is a header, by the CRC of its length. Almost
no place needs that CRC to be computed: a length below 2**32 has four zero bytes in its upper
half, so that only the neighbourhood of runs of zeros is looked at.
"""

import re
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from tfrtool.records.framing import (
    CRC,
    FOOTER_SIZE,
    FRAME_SIZE,
    HEADER,
    HEADER_SIZE,
    LENGTH,
    crc32c,
    extend_crc32c,
    mask,
)
from tfrtool.records.stream import BLOCK_SIZE, Window

LOOKAHEAD = 16 * 1024 * 1024
"""Bytes searched beyond a whole record for a better place to go on from.

A payload may itself hold records, so that the first record found after a damaged header may lie
inside the damaged record. The place where the damaged record's own payload CRC holds is better.
"""

_LEAST_LOOKAHEAD = 1024
_AT_ONCE = 4 * LOOKAHEAD
_CANDIDATE = 1024
"""What a look at one header costs, as the bytes without headers that take as long; measured."""

_FOUR_GIB = 1 << 32
_ZEROS = re.compile(rb"\x00{4,}")


class ResyncPoint(NamedTuple):
    """Where to go on after damage.

    Attributes:
        offset: where a whole record starts, or the end of the stream.
        proven: whether exactly one record lies between the damage and here, because its payload
            and the CRC behind it fit together.
    """

    offset: int
    proven: bool


def headers(data: bytes) -> Iterator[int]:
    """Yield every position in ``data`` where a length below 4 GiB and its CRC stand."""
    for position in header_positions(data):
        length, crc = HEADER.unpack_from(data, position)
        if length < _FOUR_GIB and mask(crc32c(data[position : position + 8])) == crc:
            yield position


def header_positions(data: bytes) -> Iterator[int]:
    """Yield every position in ``data`` where a length below 4 GiB and its checksum may stand."""
    last = len(data) - HEADER_SIZE
    for zeros in _ZEROS.finditer(data):
        # The upper half of the length lies within the run, and the lower half before it; or all of
        # it is zero, and ends where the run does, for its checksum doesn't start with zero.
        first, end = zeros.span()
        yield from range(max(first - 4, 0), min(first, end - 7, last + 1))
        if first <= end - 8 <= last:
            yield end - 8


def big_endian_positions(data: bytes) -> Iterator[int]:
    """Yield every position in ``data`` where a big-endian length and its checksum may stand."""
    last = len(data) - HEADER_SIZE
    for zeros in _ZEROS.finditer(data):
        first, end = zeros.span()
        yield from range(max(first, end - 8), min(end - 3, last + 1))


class Search:
    """Searches in one stream, for records of up to ``limit`` bytes.

    What is looked at beyond the place that a search comes back to is read again. In a stream with
    damage everywhere, as a transfer that changed its line breaks makes it, all searches to their
    full length would take time by the square of its size. So together they may look at 64 MiB in
    vain, and at four times the stream. The same holds for headers that are made to mislead, each
    with a length that reaches far: after that many bytes of payloads with wrong CRCs, no further
    header is accepted.
    """

    def __init__(self, window: Window, limit: int) -> None:
        """Begin at the start of a stream."""
        self._window = window
        self._limit = limit
        self._spent = self._misled = 0

    @property
    def is_unused(self) -> bool:
        """Whether nothing was looked at in vain, so that another search would go on alike."""
        return not self._spent and not self._misled

    def find_next(self, damaged: int, start: int, *, near: bool = False) -> ResyncPoint | None:
        """Find where to go on after a record that is not whole.

        Its header starts at ``damaged``; ``start``, above that, is the first offset to look at. The
        end of that record is returned, where it can be proven; else the next whole record; None
        where there is neither, or none is ``near``. The window holds the bytes from there on.
        """
        window = self._window
        body = damaged + HEADER_SIZE
        crc, covered = 0, body  # of the stream from `body` to `covered`
        first: int | None = None
        candidates = 0  # those looked at in vain
        reach = min(max(_allowed(damaged) - self._spent, _LEAST_LOOKAHEAD), LOOKAHEAD)
        position, last, outer = start, start + reach if near else None, window.pinned
        try:
            while last is None or position <= last:
                needed = [at for at in (outer, covered, first) if at is not None]
                window.pinned = min(needed, default=None)
                loaded = min(window.load(position, BLOCK_SIZE), BLOCK_SIZE)
                starts = headers(window.view(position, position + loaded))
                ends = [window.end] if loaded < BLOCK_SIZE else []
                for candidate in chain((position + at for at in starts), ends):
                    if last is not None and candidate > last:
                        break
                    candidates += first is not None
                    upto = candidate - FOOTER_SIZE
                    if upto >= body:
                        crc = extend_crc32c(crc, window.view(covered, upto))
                        covered = upto
                        # Should the payload start with a record, then that record's length and its
                        # CRC are the 8 bytes of a payload and their CRC, too.
                        if CRC.pack(mask(crc)) == window.view(upto, candidate) and (
                            upto - body != LENGTH.size
                            or candidate in ends
                            or self._record_at(candidate)
                        ):
                            return ResyncPoint(candidate, proven=True)
                    if first is None and self._record_at(candidate):
                        first = candidate
                        last = candidate + reach if last is None else last
                if ends:
                    break
                # A header may lie across the edge of the block.
                position += loaded - (HEADER_SIZE - 1)
                if position - FOOTER_SIZE > covered:
                    crc = extend_crc32c(crc, window.view(covered, position - FOOTER_SIZE))
                    covered = position - FOOTER_SIZE
        finally:
            window.pinned = outer
        self._spent += max(covered - (start if first is None else first), 0)
        self._spent += _CANDIDATE * candidates
        return None if first is None else ResyncPoint(first, proven=False)

    def find_chain(self, start: int, end: int | None = None) -> int | None:
        """Find the first of a chain of whole records that ends at ``end``; None is the stream's.

        After a record whose length reaches beyond the end of the stream, whole records are its
        neighbours, if bytes were taken out of the stream; or a part of its payload, if it was cut.
        Only the former lead up to the very end. A chain of 16 MiB is believed without going on to
        it. Where the length of a record with bytes taken out ends between two of its neighbours by
        chance, these lead up to that place; what a payload holds does not, for its own CRC stands
        between. The window still holds the bytes from the start of the chain on, or from ``end``.
        """
        window, seen = self._window, set[int]()
        position, loaded = start, BLOCK_SIZE
        try:
            while loaded == BLOCK_SIZE and (end is None or position < end):
                loaded = min(window.load(position, BLOCK_SIZE), BLOCK_SIZE)
                stop = (
                    position + loaded if end is None else min(position + loaded, end + HEADER_SIZE)
                )
                for header in headers(window.view(position, stop)):
                    first = offset = window.pinned = position + header
                    while offset not in seen and (end is None or offset < end):
                        if not self._record_at(offset):
                            break
                        seen.add(offset)
                        offset += (
                            FRAME_SIZE + LENGTH.unpack_from(window.data, offset - window.start)[0]
                        )
                        if offset == end or (
                            end is None
                            and (offset > first + LOOKAHEAD or not window.load(offset, 1))
                        ):
                            return first
                window.pinned = end
                # A header may lie across the edge of the block.
                position += loaded - (HEADER_SIZE - 1)
            return None
        finally:
            window.pinned = None

    def _record_at(self, offset: int) -> bool:
        """Return whether a whole record, both CRCs included, starts at ``offset``."""
        window = self._window
        if window.load(offset, HEADER_SIZE) < HEADER_SIZE or self._misled > _allowed(offset):
            return False
        length, crc = HEADER.unpack_from(window.data, offset - window.start)
        if length > self._limit or mask(crc32c(LENGTH.pack(length))) != crc:
            return False
        loaded, end = window.load(offset, FRAME_SIZE + length), offset + HEADER_SIZE + length
        if loaded >= FRAME_SIZE + length and window.view(end, end + FOOTER_SIZE) == CRC.pack(
            mask(crc32c(window.view(offset + HEADER_SIZE, end)))
        ):
            return True
        self._misled += min(loaded, FRAME_SIZE + length)
        return False


def _allowed(offset: int) -> int:
    """Return how many bytes may have been looked at in vain at an offset of the stream."""
    return _AT_ONCE + 4 * offset
