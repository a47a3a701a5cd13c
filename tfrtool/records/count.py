"""Counting the records of a shard by hopping from header to header."""

from __future__ import annotations

from pathlib import Path

from tfrtool.errors import CorruptShardError, ShardError, os_reason
from tfrtool.records.compression import Compression, detect_compression
from tfrtool.records.crc import crc32c, mask
from tfrtool.records.framing import (
    FRAME_SIZE,
    HEADER,
    HEADER_SIZE,
    MAX_RECORD_BYTES,
    Fault,
    FaultKind,
)
from tfrtool.records.reader import ReadOptions, read_records

__all__ = ["count_records", "first_fault"]


def count_records(path: Path) -> int:
    """Count the records of a shard that is whole; payloads are neither read nor checked.

    Compressed shards must be uncompressed, and so are read from end to end.

    Raises:
        ShardError: the file can't be read.
        CorruptShardError: its framing is damaged; names the first such record.
    """
    try:
        with path.open("rb") as file:
            if detect_compression(file) is Compression.NONE:
                size = path.stat().st_size
                offset = records = 0
                while head := file.read(HEADER_SIZE):
                    if len(head) < HEADER_SIZE:
                        break
                    length, crc = HEADER.unpack(head)
                    if mask(crc32c(head[:8])) != crc or length > MAX_RECORD_BYTES:
                        break
                    offset += FRAME_SIZE + length
                    records += 1
                    if offset > size:
                        break
                    file.seek(offset)
                if offset == size > 0:
                    return records
        return _count_slowly(path)
    except OSError as error:
        raise ShardError(f"can't be read: {os_reason(error)}", path=path) from error


def _count_slowly(path: Path) -> int:
    records = 0
    with path.open("rb") as file:
        for item in read_records(file, ReadOptions(verify_payload=False)):
            if isinstance(item, Fault):
                if item.kind is FaultKind.EMPTY:
                    return 0
                raise as_error(path, item)
            records += 1
    return records


def first_fault(path: Path) -> CorruptShardError | None:
    """Return the first damage in a shard, CRCs of payloads included, as an error; None if whole.

    Raises:
        ShardError: the file can't be read.
    """
    try:
        with path.open("rb") as file:
            for item in read_records(file):
                if isinstance(item, Fault):
                    return as_error(path, item)
    except OSError as error:
        raise ShardError(f"can't be read: {os_reason(error)}", path=path) from error
    return None


def as_error(path: Path, fault: Fault) -> CorruptShardError:
    """Return a fault as an error, for callers that can't go on with it."""
    return CorruptShardError(
        fault.message,
        path=path,
        record=fault.record,
        offset=fault.offset,
        hint=f"tfrtool inspect shard {path} lists all damage",
    )
