"""One streaming reader of TFRecord files, for inspection, verification, loading and recovery."""

import io
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from tfrtool.records.compression import (
    Compression,
    Inflater,
    describe_content,
    detect_compression,
)
from tfrtool.records.frames import FrameScan
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
    masked_crc32c,
)
from tfrtool.records.partitions import is_finished
from tfrtool.records.resync import Search
from tfrtool.records.stream import BLOCK_SIZE, Location, Window, as_source, open_shard
from tfrtool.storage.arguments import as_member
from tfrtool.storage.progress import BYTES, count_work

_PLAUSIBLE_CUT = 64 * 1024 * 1024
"""Below this, 4 to 8 stray bytes at the end of a shard are read as a length that was cut."""


def read_shard(
    shard: Location,
    *,
    compression: str | Compression | None = None,
    verify_payload: bool = True,
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
        Records and faults, in the order of the file. A shard without any record yields one fault,
        unless the job that wrote it has finished: see `is_finished`.

    Raises:
        ShardError: the file can't be read.
        UsageError: there is no such compression.
    """
    kind = None if compression is None else as_member(Compression, compression, "compression")
    source = as_source(shard)

    def items() -> Iterator[Record | Fault]:
        with open_shard(source) as file:
            yield from RecordReader(file, kind, verify_payload).read()

    return items()


def read_pieces(source: Location) -> Iterator[Sequence[Record] | Fault]:
    """Do what `read_shard` does, and yield consecutive intact records together."""
    with open_shard(as_source(source)) as file:
        yield from RecordReader(file).pieces()


def read_records(
    file: BinaryIO,
    *,
    compression: Compression | None = None,
    verify_payload: bool = True,
    max_record_bytes: int = MAX_RECORD_BYTES,
    index: int = 0,
    offset: int = 0,
) -> Iterator[Record | Fault]:
    """Do what `read_shard` does, from the position of an open file on, which stays open.

    Payloads longer than ``max_record_bytes`` are faults. ``index`` and ``offset`` say which record
    stands at that position, and where it is in the shard.
    """
    position = index, offset
    return RecordReader(file, compression, verify_payload, max_record_bytes, position).read()


class RecordReader:
    """What `read_records` goes by, for callers that ask where the stream ended, too.

    Attributes:
        end: where the next record starts, once all before ``stop`` are read; None where nothing
            more can be read, or what is known of the damage before decides how.
    """

    def __init__(
        self,
        file: BinaryIO,
        compression: Compression | None = None,
        verify_payload: bool = True,
        max_record_bytes: int = MAX_RECORD_BYTES,
        position: tuple[int, int] = (0, 0),
        stop: int = sys.maxsize,
    ) -> None:
        """Detect the compression; ``position`` is the index and offset of the next record.

        Records that start at the offset ``stop`` or behind it are not read.
        """
        compression = compression or detect_compression(file)
        plain = compression is Compression.NONE
        self._inflater = None if plain else Inflater(file, compression)
        self._index, offset = position
        self._file, self._counted = file, offset
        self._size = _size(file, offset) if plain else None
        self._window = Window(self._inflater or file, offset)
        self._limit, self._stop = max_record_bytes, stop
        self.end: int | None = None
        self._verify = verify_payload
        self._scan = FrameScan(max_record_bytes, verify=verify_payload)
        self._certain = True  # whether `_index` is known to be the index in the file

    @cached_property
    def _search(self) -> Search:
        """What finds the next record after damage."""
        return Search(self._window, self._limit)

    def read(self) -> Iterator[Record | Fault]:
        """Yield all that is in the stream, once."""
        for piece in self.pieces():
            if isinstance(piece, Fault):
                yield piece
            else:
                yield from piece
            del piece  # it is not held while the next is read

    def pieces(self) -> Iterator[Sequence[Record] | Fault]:
        """Yield all that is in the stream, once: consecutive intact records together."""
        window = self._window
        following: int | None = window.start
        while following is not None and following < self._stop:
            offset = following
            self._count(offset)
            loaded = window.load(offset, HEADER_SIZE)
            if loaded < HEADER_SIZE:
                yield from self._end(offset, loaded)
                return
            start = window.start
            stop = min(self._stop - start, sys.maxsize)
            records, end = self._scan.find(window.data, offset - start, stop, self._index, start)
            if records:
                self._index += len(records)
                following = start + end
                yield records
                del records  # they are not held while the next are looked for
                continue
            # A record that is not held to its end, or damage.
            item, following = self._read_checked(offset)
            yield item if isinstance(item, Fault) else [item]
            del item
        if self._certain and self._search.is_unused:
            self.end = following
        self._count(following or window.end)

    def _count(self, offset: int) -> None:
        """Count the bytes that are read of the file at this offset in its content."""
        if self._inflater is not None:
            with suppress(OSError, ValueError):  # a pipe has no position
                offset = self._file.tell()
        if offset > self._counted:
            count_work(offset - self._counted, BYTES)
            self._counted = offset

    @property
    def records(self) -> int:
        """How many records were read, damaged ones among them, and those before the first."""
        return self._index

    def find_end(self) -> int:
        """Return how long the uncompressed stream is, in bytes, when all of it has been read."""
        while self._window.load(self._window.end, 1):
            pass
        return self._window.end

    def _read_checked(self, offset: int) -> tuple[Record | Fault, int | None]:
        """Read what stands at ``offset``, a whole header at least, with every check there is.

        Returns:
            The record or fault, and where to go on; None where nothing more can be read.
        """
        window, body = self._window, offset + HEADER_SIZE
        length, length_crc = HEADER.unpack_from(window.data, offset - window.start)
        end = body + length
        if (computed := masked_crc32c(LENGTH.pack(length))) != length_crc:
            return self._bad_length(offset, length, length_crc, computed)
        if length > self._limit:
            message = (
                f"implausible record length {length} (its checksum is valid): "
                f"expected at most {self._limit} bytes"
            )
            return self._search_on(self._fault(FaultKind.OVERSIZED_LENGTH, offset, message))
        is_complete = self._size is None or end + FOOTER_SIZE <= self._size
        if is_complete:
            payload = window.take(body, length)
            is_complete = window.load(end, FOOTER_SIZE) >= FOOTER_SIZE
            if not is_complete:
                window.give_back(body, payload)
        if not is_complete:
            message = (
                f"record is truncated: expected {length + FRAME_SIZE} bytes, "
                f"found {(window.end if self._size is None else self._size) - offset}"
            )
            fault = self._fault(FaultKind.TRUNCATED, offset, message)
            return self._go_on(fault, self._search.find_chain(body))
        (crc,) = CRC.unpack(window.view(end, end + FOOTER_SIZE))
        found = masked_crc32c(payload) if self._verify else crc
        after = end + FOOTER_SIZE
        if found == crc:
            self._index += 1
            return Record(self._index - 1, offset, payload, crc), after
        message = (
            f"payload checksum (CRC) mismatch: expected {crc:08x} (stored), "
            f"got {found:08x} for {length} bytes"
        )
        fault = self._fault(FaultKind.PAYLOAD_CRC, offset, message)
        window.give_back(body, payload)
        payload = b""  # it is not held twice while the next record is looked for
        window.pinned = body
        loaded = window.load(after, HEADER_SIZE)
        header_follows = loaded == 0 or holds_header(window.view(after, after + HEADER_SIZE))
        if loaded >= HEADER_SIZE and not header_follows:
            # Two damaged records in a row, or bytes that were put in or taken out of this one?
            point = self._search.find_next(after, after + 1, near=True)
            header_follows = point is not None and point.proven
        window.pinned = None
        if header_follows:
            chain = self._search.find_chain(body, after)
            return self._go_on(fault, after if chain is None else chain)
        return self._search_on(fault)

    def _search_on(self, fault: Fault, start: int | None = None) -> tuple[Fault, int | None]:
        """Return a fault, and where the next record starts that is whole."""
        if start is None:
            start = fault.offset + HEADER_SIZE
        point = self._search.find_next(fault.offset, start)
        if point is None:
            return self._go_on(fault, None)
        self._certain &= point.proven
        return self._go_on(fault, point.offset)

    def _go_on(self, fault: Fault, following: int | None) -> tuple[Fault, int | None]:
        """Return a fault, with damaged compression as its kind if nothing follows."""
        if following is not None:
            self._index += 1
        elif self._inflater is not None and self._inflater.failure is not None:
            kind, message = FaultKind.DECOMPRESSION, self._inflater.failure
            fault = replace(fault, kind=kind, message=message)
        return fault, following

    def _fault(self, kind: FaultKind, offset: int, message: str, *, known: bool = True) -> Fault:
        """Return a fault; ``known`` says whether it is in a record."""
        record = self._index if known and self._certain else None
        return Fault(kind=kind, offset=offset, record=record, message=message)

    def _end(self, offset: int, size: int) -> Iterator[Fault]:
        """Yield the fault of an end that is too short for a header, if it is one."""
        rest = self._window.view(offset, offset + size)
        if self._inflater is not None and self._inflater.failure is not None:
            kind, message = FaultKind.DECOMPRESSION, self._inflater.failure
            yield self._fault(kind, offset, message, known=size > 0)
        elif not rest:
            if offset == 0 and not self._is_finished():
                plain = self._inflater is None
                message = "file is empty" if plain else "file decompresses to nothing"
                yield self._fault(FaultKind.EMPTY, 0, message, known=False)
        elif _is_cut_header(rest):
            message = (
                f"file ends within a record header: expected {HEADER_SIZE} bytes, found {size}"
            )
            yield self._fault(FaultKind.TRUNCATED, offset, message)
        elif offset == 0:
            yield self._not_tfrecord(rest)
        else:
            noun = "bytes" if size > 1 else "byte"
            message = f"{size} trailing {noun} after the last record"
            yield self._fault(FaultKind.TRAILING_BYTES, offset, message, known=False)

    def _is_finished(self) -> bool:
        """Return whether the file is a part of a finished job, which may be empty."""
        name = getattr(self._file, "name", None)
        return isinstance(name, str) and is_finished(Path(name))

    def _bad_length(
        self, offset: int, length: int, stored: int, found: int
    ) -> tuple[Fault, int | None]:
        window = self._window
        window.load(offset, BLOCK_SIZE)
        head = window.view(offset, offset + BLOCK_SIZE)
        message = (
            f"length checksum (CRC) mismatch: expected {stored:08x} (stored), "
            f"got {found:08x} for length {length}"
        )
        fault, following = self._search_on(
            self._fault(FaultKind.LENGTH_CRC, offset, message), offset + 1
        )
        if following is None and fault.kind is FaultKind.LENGTH_CRC:
            if offset == 0:
                return self._not_tfrecord(head), None
            if not head.strip(b"\0"):
                message = "trailing zero bytes after the last record"
                fault = self._fault(FaultKind.TRAILING_BYTES, offset, message, known=False)
        return fault, following

    def _not_tfrecord(self, head: bytes) -> Fault:
        content = describe_content(head)
        if self._inflater is not None:
            content = f"{self._inflater.name} data containing {content}"
        message = f"not a TFRecord file: found {content}"
        return self._fault(FaultKind.NOT_TFRECORD, 0, message, known=False)


def _size(file: BinaryIO, offset: int) -> int | None:
    """Return where ``file`` ends if its position is at an offset, if that is known."""
    if isinstance(file, io.BytesIO):
        return offset + len(file.getbuffer()) - file.tell()
    try:
        status = os.fstat(file.fileno())
        left = status.st_size - file.tell()
        return offset + left if stat.S_ISREG(status.st_mode) else None
    except (OSError, ValueError):
        return None


def _is_cut_header(rest: bytes) -> bool:
    """Return whether 1 to 11 bytes look like the start of a header, and not like stray bytes."""
    if len(rest) > 8:
        return CRC.pack(masked_crc32c(rest[:8])).startswith(rest[8:])
    return len(rest) >= 4 and 0 < int.from_bytes(rest, "little") < _PLAUSIBLE_CUT
