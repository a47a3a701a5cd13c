"""Counting the records of a shard, and telling its first damage."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tfrtool.errors import CorruptShardError, ShardError, os_reason
from tfrtool.records.compression import Compression, detect_compression
from tfrtool.records.framing import Fault, FaultKind
from tfrtool.records.hops import hop
from tfrtool.records.reader import ReadOptions, read_records

__all__ = ["ShardCount", "as_error", "count_records", "count_shard", "first_fault"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardCount:
    """How many records a shard has.

    Attributes:
        shard: the file.
        records: how many records could be reached.
        faults: what is wrong with its framing; payloads are not looked at.
    """

    shard: Path
    records: int
    faults: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        if self.records < 0:
            raise ValueError(f"a number of records is at least 0, not {self.records}")


def count_shard(path: Path) -> ShardCount:
    """Count the records of a shard by hopping over its headers.

    Payloads are neither read nor checked, where the framing is whole. Compressed shards must be
    uncompressed, and so are read from end to end; so are damaged ones.

    Raises:
        ShardError: the file can't be read.
    """
    try:
        with path.open("rb") as file:
            compression = detect_compression(file)
            if compression is Compression.NONE:
                size = os.fstat(file.fileno()).st_size
                records, end = hop(file, size)
                if end == size > 0:
                    return ShardCount(shard=path, records=records)
            file.seek(0)
            return _count_by_reading(path, file, compression)
    except OSError as error:
        raise ShardError(f"can't be read: {os_reason(error)}", path=path) from error


def _count_by_reading(path: Path, file: BinaryIO, compression: Compression) -> ShardCount:
    records, faults = 0, []
    options = ReadOptions(compression=compression, verify_payload=False)
    for item in read_records(file, options):
        if isinstance(item, Fault):
            faults.append(item)
        else:
            records += 1
    return ShardCount(shard=path, records=records, faults=tuple(faults))


def count_records(path: Path) -> int:
    """Count the records of a shard that is whole; an empty file has none.

    Raises:
        ShardError: the file can't be read.
        CorruptShardError: its framing is damaged; names the first such record.
    """
    count = count_shard(path)
    for fault in count.faults:
        if fault.kind is not FaultKind.EMPTY:
            raise as_error(path, fault)
    return count.records


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
        hint=f"tfrtool verify {path} lists all damage, tfrtool repair saves the rest",
    )
