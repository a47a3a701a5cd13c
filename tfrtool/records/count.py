"""Counting the records of a shard, and telling its first damage."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from tfrtool.errors import CorruptShardError
from tfrtool.records.compression import Compression, detect_compression
from tfrtool.records.framing import Fault, FaultKind
from tfrtool.records.hops import hop
from tfrtool.records.reader import ReadOptions, read_records
from tfrtool.records.stream import Location, as_source, open_shard, path_of, size_of

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


def count_shard(shard: Location) -> ShardCount:
    """Count the records of a shard by hopping over its headers.

    Payloads are neither read nor checked, where the framing is whole. Compressed shards must be
    uncompressed, and so are read from end to end; so are damaged ones, and streams.

    Raises:
        ShardError: the file can't be read.
    """
    source = as_source(shard)
    path = path_of(source)
    records, faults = 0, []
    with open_shard(source) as file:
        compression = detect_compression(file)
        if compression is Compression.NONE and source is path:
            size = size_of(source, file)
            records, end = hop(file, size)
            if end == size > 0:
                return ShardCount(shard=path, records=records)
            file.seek(0)
            records = 0
        for item in read_records(file, ReadOptions(compression=compression, verify_payload=False)):
            if isinstance(item, Fault):
                faults.append(item)
            else:
                records += 1
    return ShardCount(shard=path, records=records, faults=tuple(faults))


def count_records(shard: Location) -> int:
    """Count the records of a shard that is whole; an empty file has none.

    Raises:
        ShardError: the file can't be read.
        CorruptShardError: its framing is damaged; names the first such record.
    """
    count = count_shard(shard)
    for fault in count.faults:
        if fault.kind is not FaultKind.EMPTY:
            raise as_error(count.shard, fault)
    return count.records


def first_fault(path: Path, *, in_dataset: bool = False) -> CorruptShardError | None:
    """Return the first damage in a shard, CRCs of payloads included, as an error; None if whole.

    Raises:
        ShardError: the file can't be read.
    """
    with open_shard(path) as file:
        for item in read_records(file):
            if isinstance(item, Fault):
                return as_error(path, item, in_dataset=in_dataset)
    return None


def as_error(path: Path, fault: Fault, *, in_dataset: bool = False) -> CorruptShardError:
    """Return a fault as an error, for callers that can't go on with it.

    Args:
        path: the shard.
        fault: its first fault.
        in_dataset: whether other files say how many records it has: a repaired one has fewer.
    """
    hint = None  # the message says what it is instead of a TFRecord file
    if in_dataset:
        hint = "tfrtool train --on-corrupt skip leaves out what is damaged"
    elif fault.kind is not FaultKind.NOT_TFRECORD:
        shard = shlex.quote(str(path))
        hint = (
            f"tfrtool verify {shard} lists all damage, and tfrtool repair {shard} OUT saves what "
            "is whole"
        )
    return CorruptShardError(
        fault.message,
        path=path,
        record=fault.record,
        offset=fault.offset,
        hint=hint,
    )
