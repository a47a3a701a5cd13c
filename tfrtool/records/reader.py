"""One streaming reader of TFRecord files, for inspection, verification, loading and recovery."""

from __future__ import annotations

import io
import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import BinaryIO

from tfrtool.records.compression import (
    Compression,
    Inflater,
    describe_content,
    detect_compression,
)
from tfrtool.records.crc import MASK_DELTA, crc32c, masked_crc32c
from tfrtool.records.framing import (
    CRC,
    FOOTER_SIZE,
    FRAME_SIZE,
    HEADER,
    HEADER_SIZE,
    LENGTH,
    MAX_RECORD_BYTES,
    Fault,
    FaultKind,
    Record,
    holds_header,
)
from tfrtool.records.resync import Landing, Search
from tfrtool.records.stream import Location, as_source, open_shard
from tfrtool.records.window import BLOCK_SIZE, Window
from tfrtool.storage.words import as_member

_FOOTER_AND_HEADER = struct.Struct("<IQI")
"""A payload's CRC, and the length and its CRC of the record that follows."""

_LENGTHS_KNOWN = 4096
"""Lengths whose CRCs are kept; images of one dataset have some thousands of different ones."""

_PLAUSIBLE_CUT = 64 * 1024 * 1024
"""Below this, 4 to 8 stray bytes at the end of a shard are read as a length that was cut."""


def read_shard(
    shard: Location, *, compression: str | None = None, verify_payload: bool = True
) -> Iterator[Record | Fault]:
    """Read a shard from start to end.

    A length is believed only after its CRC. After damage, reading goes on at the next place where
    the CRCs hold, so that a damaged record is one fault and costs no other record. Memory is
    bounded by the longest record that is really there, plus a block (and 16 MiB after damage).

    Args:
        shard: a file, or a binary stream.
        compression: how it is compressed, "none", "gzip" or "zlib"; None finds out from its bytes.
        verify_payload: whether payload CRCs are checked. Length CRCs always are.

    Yields:
        Records and faults, in the order of the file. A shard without any record yields one fault.

    Raises:
        ShardError: the file can't be read.
        UsageError: there is no such compression.
    """
    kind = None if compression is None else as_member(Compression, compression, "compression")
    source = as_source(shard)

    def items() -> Iterator[Record | Fault]:
        with open_shard(source) as file:
            yield from read_records(file, compression=kind, verify_payload=verify_payload)

    return items()


def read_records(
    file: BinaryIO,
    *,
    compression: Compression | None = None,
    verify_payload: bool = True,
    max_record_bytes: int = MAX_RECORD_BYTES,
) -> Iterator[Record | Fault]:
    """Do what `read_shard` does, from the position of an open file on, which stays open.

    Payloads longer than ``max_record_bytes`` are faults.
    """
    return RecordReader(file, compression, verify_payload, max_record_bytes).read()


class RecordReader:
    """What `read_records` goes by, for callers that ask where the stream ended, too."""

    def __init__(
        self,
        file: BinaryIO,
        compression: Compression | None = None,
        verify_payload: bool = True,
        max_record_bytes: int = MAX_RECORD_BYTES,
    ) -> None:
        """Look at the first bytes of ``file``."""
        compression = compression or detect_compression(file)
        plain = compression is Compression.NONE
        self._inflater = None if plain else Inflater(file, compression)
        self._size = _bytes_left(file) if plain else None
        self._window = Window(self._inflater or file)
        self._limit = max_record_bytes
        self._search = Search(self._window, self._limit)
        self._verify = verify_payload
        self._index = 0
        self._certain = True  # whether `_index` is known to be the index in the file

    def read(self) -> Iterator[Record | Fault]:
        """Yield all that is in the stream, once; the hot path of the whole tool.

        As long as whole records are held, one costs two CRCs, one copy of its payload, and as
        little else as Python allows: the CRC of a length that was met before is looked up, and a
        payload's CRC is unpacked together with the next header.
        """
        window, verify, limit = self._window, self._verify, self._limit
        known: dict[int, int] = {}  # lengths and their masked CRCs
        new_record = tuple.__new__  # Record's own would check what needs no check
        following: int | None = 0
        while following is not None:
            offset = following
            held = window.load(offset, HEADER_SIZE)
            if held < HEADER_SIZE:
                yield from self._end(offset, held)
                return
            data, filled, start, index = window.data, len(window.data), window.start, self._index
            position = offset - start
            length, length_crc = HEADER.unpack_from(data, position)
            while True:
                if known.get(length) != length_crc:
                    if length > limit or masked_crc32c(LENGTH.pack(length)) != length_crc:
                        break
                    if len(known) == _LENGTHS_KNOWN:
                        known.clear()
                    known[length] = length_crc
                end = position + HEADER_SIZE + length
                after = end + FOOTER_SIZE
                if after + HEADER_SIZE > filled:
                    break
                payload = data[position + HEADER_SIZE : end]
                payload_crc, next_length, next_crc = _FOOTER_AND_HEADER.unpack_from(data, end)
                if verify:
                    crc = crc32c(payload)
                    if (((crc >> 15) | (crc << 17)) + MASK_DELTA) & 0xFFFFFFFF != payload_crc:
                        break
                yield new_record(Record, (index, start + position, payload, payload_crc))
                index += 1
                position, length, length_crc = after, next_length, next_crc
            # A record that is not held to its end, or damage.
            self._index = index
            data = payload = b""
            item, following = self._one(start + position)
            yield item
            del item

    def find_end(self) -> int:
        """Return how long the uncompressed stream is, in bytes, when all of it has been read."""
        while self._window.load(self._window.end, 1):
            pass
        return self._window.end

    def _one(self, offset: int) -> tuple[Record | Fault, int | None]:
        """Read what stands at ``offset``, a whole header at least, with every check there is.

        Returns:
            The record or fault, and where to go on; None where nothing more can be read.
        """
        window, body = self._window, offset + HEADER_SIZE
        (length,) = LENGTH.unpack_from(window.data, offset - window.start)
        end = body + length
        if not holds_header(window.data, offset - window.start):
            fault, landing = self._bad_length(offset, length)
        elif length > self._limit:
            message = (
                f"the length {length} is not believable, though its CRC holds: "
                f"expected at most {self._limit} bytes"
            )
            fault = self._fault(FaultKind.OVERSIZED_LENGTH, offset, message)
            landing = self._search.find_next(offset, body)
        elif self._size is not None and end + FOOTER_SIZE > self._size:
            fault, landing = self._truncated(offset, length)
        else:
            payload = window.take(body, length)
            if window.load(end, FOOTER_SIZE) < FOOTER_SIZE:
                window.give_back(body, payload)
                fault, landing = self._truncated(offset, length)
            else:
                (crc,) = CRC.unpack(window.view(end, end + FOOTER_SIZE))
                found = masked_crc32c(payload) if self._verify else crc
                if found == crc:
                    self._index += 1
                    return Record(self._index - 1, offset, payload, crc), end + FOOTER_SIZE
                window.give_back(body, payload)
                payload = b""  # it is not held twice while the next record is looked for
                fault, landing = self._bad_payload(offset, length, crc, found)
        if landing is None:
            return fault, None
        self._index += 1
        self._certain &= landing.proven
        return fault, landing.offset

    def _fault(self, kind: FaultKind, offset: int, message: str, *, known: bool = True) -> Fault:
        """Return a fault; ``known`` says whether it is in a record."""
        record = self._index if known and self._certain else None
        return Fault(kind=kind, offset=offset, record=record, message=message)

    def _lost_to(self, fault: Fault) -> Fault:
        """Name the compression as the cause where nothing more comes out of it."""
        if self._inflater is None or self._inflater.failure is None:
            return fault
        return replace(fault, kind=FaultKind.DECOMPRESSION, message=self._inflater.failure)

    def _end(self, offset: int, held: int) -> Iterator[Fault]:
        """Tell what is wrong with an end that is too short for a header, if anything is."""
        rest = self._window.view(offset, offset + held)
        if self._inflater is not None and self._inflater.failure is not None:
            kind, message = FaultKind.DECOMPRESSION, self._inflater.failure
            yield self._fault(kind, offset, message, known=held > 0)
        elif not rest and offset == 0:
            message = "the file is empty: it has no bytes and no records"
            if self._inflater is not None:
                message = "the file uncompresses to nothing: no records"
            yield self._fault(FaultKind.EMPTY, 0, message, known=False)
        elif _is_cut_header(rest):
            message = f"the file ends in a header: expected {HEADER_SIZE} bytes, found {held}"
            yield self._fault(FaultKind.TRUNCATED, offset, message)
        elif offset == 0:
            yield self._not_tfrecord(rest)
        elif rest:
            noun = "bytes" if held > 1 else "byte"
            message = f"expected a header or the end after the last record, found {held} {noun}"
            yield self._fault(FaultKind.TRAILING_BYTES, offset, message, known=False)

    def _bad_length(self, offset: int, length: int) -> tuple[Fault, Landing | None]:
        window = self._window
        window.load(offset, BLOCK_SIZE)
        head = window.view(offset, offset + BLOCK_SIZE)
        landing = self._search.find_next(offset, offset + 1)
        if landing is None and offset == 0:
            return self._lost_to(self._not_tfrecord(head)), None
        if landing is None and not head.strip(b"\0"):
            message = "zero bytes after the last record: expected a header or the end"
            return self._fault(FaultKind.TRAILING_BYTES, offset, message, known=False), None
        message = (
            f"the CRC of the length does not hold: expected {HEADER.unpack_from(head)[1]:08x} as "
            f"stored, found {masked_crc32c(LENGTH.pack(length)):08x} for the length {length}"
        )
        fault = self._fault(FaultKind.LENGTH_CRC, offset, message)
        return (self._lost_to(fault) if landing is None else fault), landing

    def _truncated(self, offset: int, length: int) -> tuple[Fault, Landing | None]:
        chain = self._search.find_chain(offset + HEADER_SIZE)
        end = self._window.end if self._size is None else self._size
        message = (
            f"the record is cut short: expected {length + FRAME_SIZE} bytes from here on, "
            f"found {end - offset}"
        )
        fault = self._fault(FaultKind.TRUNCATED, offset, message)
        if chain is None:
            return self._lost_to(fault), None
        return fault, Landing(chain, proven=True)

    def _bad_payload(
        self, offset: int, length: int, stored: int, found: int
    ) -> tuple[Fault, Landing | None]:
        window = self._window
        message = (
            f"the CRC of the payload does not hold: expected {stored:08x} as stored, "
            f"found {found:08x} for its {length} bytes"
        )
        fault = self._fault(FaultKind.PAYLOAD_CRC, offset, message)
        end = offset + FRAME_SIZE + length
        window.pinned = offset
        held = window.load(end, HEADER_SIZE)
        whole = held == 0 or holds_header(window.view(end, end + HEADER_SIZE))
        if held >= HEADER_SIZE and not whole:
            # Two damaged records in a row, or bytes that were put in or taken out of this one?
            landing = self._search.find_next(end, end + 1, near=True)
            whole = landing is not None and landing.proven
        inside = self._search.find_chain_to(offset + HEADER_SIZE, end) if whole else None
        window.pinned = None
        if whole:
            return fault, Landing(end if inside is None else inside, proven=True)
        landing = self._search.find_next(offset, offset + HEADER_SIZE)
        return (self._lost_to(fault) if landing is None else fault), landing

    def _not_tfrecord(self, head: bytes) -> Fault:
        content = describe_content(head)
        message = "not a TFRecord file: expected a length and its CRC"
        if self._inflater is not None:
            content = f"{self._inflater.name} data that holds {content}"
        return self._fault(FaultKind.NOT_TFRECORD, 0, f"{message}, found {content}", known=False)


def _bytes_left(file: BinaryIO) -> int | None:
    """Return how many bytes lie between the position of ``file`` and its end, if that is known."""
    if isinstance(file, io.BytesIO):
        return len(file.getbuffer()) - file.tell()
    try:
        status = os.fstat(file.fileno())
        return status.st_size - file.tell() if stat.S_ISREG(status.st_mode) else None
    except (OSError, ValueError):
        return None


def _is_cut_header(rest: bytes) -> bool:
    """Return whether 1 to 11 bytes look like the start of a header, and not like stray bytes."""
    if len(rest) > 8:
        return CRC.pack(masked_crc32c(rest[:8])).startswith(rest[8:])
    return len(rest) >= 4 and 0 < int.from_bytes(rest, "little") < _PLAUSIBLE_CUT
