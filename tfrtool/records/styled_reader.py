"""Reading files whose checksums are not TensorFlow's, in the style that the caller names."""

from collections.abc import Iterator
from typing import BinaryIO

from tfrtool.errors import ShardError
from tfrtool.records.checksum_styles import (
    ChecksumStyle,
    RecordFraming,
    detect_framing,
    framings_of,
    open_window,
)
from tfrtool.records.compression import Compression
from tfrtool.records.framing import HEADER_SIZE, LENGTH, Fault, FaultKind, Record, masked_crc32c
from tfrtool.records.resync import big_endian_positions, header_positions
from tfrtool.records.stream import BLOCK_SIZE, Window
from tfrtool.storage.remote_path import AnyPath

_MISLED_AT_ONCE = 64 << 20
"""Bytes of candidates for the next record that may be read in vain."""


class StyledReader:
    """Reads the records of one stream, once, in a given style.

    After damage, styles with checksums go on at the next record whose checksums match. With zero
    or missing checksums of lengths nothing shows where that is, and the rest is not read.

    Attributes:
        framing: how the records are framed.
    """

    def __init__(
        self, file: BinaryIO, compression: Compression, style: ChecksumStyle, path: AnyPath
    ) -> None:
        """Begin at the start of a file; `ShardError` if its first records have another style."""
        self._window, self._inflater = open_window(file, compression)
        self.framing = _checked_framing(self._window, style, path)
        self._index = 0
        self._is_certain = True  # whether `_index` is the index in the file
        self._misled = 0

    def read(self) -> Iterator[Record | Fault]:
        """Yield the records and faults, in the order of the file."""
        window, framing = self._window, self.framing
        following: int | None = 0
        offset = 0
        while following is not None and window.load(following, 1):
            offset = following
            length = framing.length_at(window, offset)
            item: Record | Fault
            if length is None:
                item, following = self._read_bad_header(offset)
            else:
                item, following = self._read_record(offset, length)
            yield item
            del item
        failure = None if self._inflater is None else self._inflater.failure
        if failure is not None:
            yield self._fault(FaultKind.DECOMPRESSION, following or offset, failure, known=False)

    def find_end(self) -> int:
        """Return how long the uncompressed stream is, in bytes, when all of it has been read."""
        while self._window.load(self._window.end, 1):
            pass
        return self._window.end

    def _read_record(self, offset: int, length: int) -> tuple[Record | Fault, int | None]:
        """Read the record at an offset, and return where to go on; None where nothing follows."""
        window, framing = self._window, self.framing
        body = offset + framing.header_size
        end, after = body + length, offset + framing.frame_size + length
        payload = window.take(body, length)
        window.load(end, framing.crc_size)
        stored = window.view(end, after)
        found = framing.pack(framing.payload_crc(payload))
        if len(payload) == length and stored == found:
            self._index += 1
            return Record(self._index - 1, offset, payload, masked_crc32c(payload)), after
        is_cut = len(payload) < length or len(stored) < framing.crc_size
        window.give_back(body, payload)
        del payload
        if is_cut:
            size = length + framing.frame_size
            message = f"record is truncated: expected {size} bytes, found {window.end - offset}"
            return self._search_on(self._fault(FaultKind.TRUNCATED, offset, message), body)
        message = (
            f"payload checksum mismatch: expected {stored.hex()} (stored), got {found.hex()} "
            f"for {length} bytes"
        )
        fault = self._fault(FaultKind.PAYLOAD_CRC, offset, message)
        window.pinned = body
        is_framed = framing.length_at(window, after) is not None or not window.load(after, 1)
        window.pinned = None
        if framing.checks_lengths and is_framed:
            self._index += 1
            return fault, after
        return self._search_on(fault, body)

    def _read_bad_header(self, offset: int) -> tuple[Fault, int | None]:
        """Return the fault of a header without a length, and where to go on."""
        window, framing = self._window, self.framing
        header = window.view(offset, offset + framing.header_size)
        if not any(header):
            return self._skip_zeros(offset)
        if len(header) < framing.header_size:
            message = f"the last {len(header)} bytes are too few for a record"
            fault = self._fault(FaultKind.TRAILING_BYTES, offset, message, known=False)
            return fault, None
        stored = header[LENGTH.size :]
        wanted = framing.pack(framing.length_crc(header[: LENGTH.size]))
        length = int.from_bytes(header[: LENGTH.size], framing.byte_order)
        if stored == wanted:
            message = f"implausible record length {length}"
            fault = self._fault(FaultKind.OVERSIZED_LENGTH, offset, message)
        else:
            message = (
                f"length checksum mismatch: expected {stored.hex()} (stored), got {wanted.hex()} "
                f"for length {length}"
            )
            fault = self._fault(FaultKind.LENGTH_CRC, offset, message)
        return self._search_on(fault, offset + 1)

    def _skip_zeros(self, offset: int) -> tuple[Fault, int | None]:
        """Return the fault of a run of zeros, and where it ends."""
        window, end = self._window, offset
        while window.load(end, BLOCK_SIZE):
            block = window.view(end, end + BLOCK_SIZE)
            zeros = len(block) - len(block.lstrip(b"\0"))
            end += zeros
            if zeros < len(block):
                break
        is_last = not window.load(end, 1)
        size = end - offset
        if not is_last:
            size -= size % self.framing.frame_size  # the rest belongs to the next length
        self._is_certain = False
        message = f"{size} zero bytes, which are a gap or empty records"
        fault = self._fault(FaultKind.TRAILING_BYTES, offset, message, known=False)
        if self.framing.checks_lengths:
            return fault, None if is_last else self._find_next(offset + 1)
        return fault, None if is_last or not size else offset + size

    def _search_on(self, fault: Fault, start: int) -> tuple[Fault, int | None]:
        """Return a fault, and where the next intact record starts."""
        self._is_certain = False
        return fault, self._find_next(start) if self.framing.checks_lengths else None

    def _find_next(self, start: int) -> int | None:
        """Return the first offset from ``start`` on at which a record is intact."""
        window, framing = self._window, self.framing
        positions = header_positions if framing.byte_order == "little" else big_endian_positions
        loaded = BLOCK_SIZE
        while loaded == BLOCK_SIZE:
            window.pinned = start
            loaded = min(window.load(start, BLOCK_SIZE), BLOCK_SIZE)
            block = window.view(start, start + loaded)
            for position in positions(block):
                header = block[position : position + framing.header_size]
                is_header = framing.read_length(header) is not None
                if is_header and self._is_record_at(start + position):
                    window.pinned = None
                    return start + position
            start += loaded - (HEADER_SIZE - 1)  # a header may lie across the edge of the block
        window.pinned = None
        return None

    def _is_record_at(self, offset: int) -> bool:
        """Return whether an intact record is at an offset, and a header or the end behind it."""
        window, framing = self._window, self.framing
        length = framing.length_at(window, offset)
        if length is None or self._misled > _MISLED_AT_ONCE + 4 * offset:
            return False
        size = framing.frame_size + length
        loaded = window.load(offset, size)
        end = offset + framing.header_size + length
        if loaded >= size and window.view(end, offset + size) == framing.pack(
            framing.payload_crc(window.view(offset + framing.header_size, end))
        ):
            after = offset + size
            if framing.checks_payloads or framing.length_at(window, after) is not None:
                return True
            return not window.load(after, 1)
        self._misled += min(loaded, size)
        return False

    def _fault(self, kind: FaultKind, offset: int, message: str, *, known: bool = True) -> Fault:
        """Return a fault; ``known`` says whether it is in a record."""
        record = self._index if known and self._is_certain else None
        return Fault(kind=kind, offset=offset, record=record, message=message)


def _checked_framing(window: Window, style: ChecksumStyle, path: AnyPath) -> RecordFraming:
    """Return the framing of a style that the first records of a stream have."""
    detected = detect_framing(window, style)
    if detected is None:
        framing = next(framings_of(style))
        if framing.checks_payloads:
            return framing  # its start may be damaged, and all that follows is checked
        reason, hint = "its first records are not framed this way", None
    elif detected.framing.style is style:
        return detected.framing
    elif detected.framing.style is None:
        reason, hint = "its checksums are valid", "repair it without --accept-checksums"
    else:
        found = detected.framing.style
        reason, hint = found.finding, f"use --accept-checksums {found.value}"
    what = f"--accept-checksums {style.value} does not fit this file: {reason}"
    raise ShardError(what, path=path, hint=hint)
