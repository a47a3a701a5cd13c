"""Hopping from header to header: where records end, how many there are, and the first damage."""

import os
import shlex
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import add
from typing import BinaryIO, NamedTuple, cast

from tfrtool.errors import CorruptShardError
from tfrtool.records.compression import Compression, detect_compression
from tfrtool.records.frames import frame_starts
from tfrtool.records.framing import (
    FRAME_SIZE,
    HEADER_SIZE,
    LENGTH,
    MAX_RECORD_BYTES,
    Fault,
    FaultKind,
    holds_header,
)
from tfrtool.records.reader import read_records
from tfrtool.records.shards import Locations, locate_shards
from tfrtool.records.stream import Location, Stream, as_source, open_shard, path_of
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.opening import read_bounded, size_of_file
from tfrtool.storage.progress import BYTES, count_work
from tfrtool.storage.remote_path import AnyPath, RemotePath

INDEX = ".idx"
"""Ending of the index of a shard, behind its name."""

_BLOCK, _LONG = 64 * 1024, 4096
"""Bytes read at a time; for longer records, only headers are read."""

_FAR_BLOCK = 256 * 1024
"""Both in a store, where a request takes as long as some of these."""

_WORTH_ITS_INDEX = 8
"""Bytes of a shard for one of its index, at least."""

_FAR = 1 << 63  # beyond the end of any file
_HEADERS_KNOWN = 1024  # those whose CRC is not computed again: often there are a few lengths only


class ShardCount(NamedTuple):
    """How many records of a shard could be reached, and what is wrong with its framing."""

    records: int
    faults: tuple[Fault, ...] = ()  # the first of them
    fault_count: int = 0
    compression: Compression = Compression.NONE


def count_shard(shard: Location) -> ShardCount:
    """Count the records of a shard by hopping over its headers; `ShardError` if it can't be read.

    Payloads are neither read nor checked, where the framing is whole. Compressed shards must be
    uncompressed, and so are read from end to end; so are damaged ones, and streams.
    """
    source = as_source(shard)
    records, faults = 0, CappedList[Fault]()
    with open_shard(source) as file:
        compression = detect_compression(file)
        if compression is Compression.NONE and not isinstance(source, Stream):
            size = size_of_file(file)
            if isinstance(source, RemotePath) and (known := indexed(file, source, size)):
                return ShardCount(len(known) - 1)
            records, end = skip_records(file, size)
            if end == size > 0:
                return ShardCount(records)
            file.seek(0)
            records = 0
        for item in read_records(file, compression=compression, verify_payload=False):
            if isinstance(item, Fault):
                faults.add(item)
            else:
                records += 1
    return ShardCount(records, tuple(faults.entries), faults.count, compression)


def count_records(shards: Locations) -> int:
    """Count the records of undamaged shards; an empty file has none.

    Only the framing is checked. Damage inside a payload is not detected.

    Args:
        shards: files, glob patterns and directories, one or several; or a binary stream.

    Raises:
        ShardError: no shards were found, or a file can't be read.
        DatasetError: a directory has no shards, or they are being replaced.
        CorruptShardError: the framing is damaged; the error names the first damaged record.
    """
    return sum(map(_count_intact, locate_shards(shards).sources))


def _count_intact(source: AnyPath | Stream) -> int:
    found = count_shard(source)
    for fault in found.faults:
        if fault.kind is not FaultKind.EMPTY:
            raise as_error(path_of(source), fault)
    return found.records


def first_numbers(shards: Sequence[AnyPath]) -> dict[AnyPath, int]:
    """Return the number of each shard's first record, if records of all shards are counted.

    Records that are damaged are counted, too, so that the number of no other depends on them.
    """
    numbers = dict[AnyPath, int]()
    following = 0
    for position, path in enumerate(shards, 1):
        numbers[path] = following
        if position < len(shards):
            found = count_shard(path)
            following += _last_number(path) + 1 if found.faults else found.records
    return numbers


def _last_number(path: AnyPath) -> int:
    """Return the number of the last record of a damaged shard; -1 without any."""
    last = -1
    with open_shard(path) as file:
        for item in read_records(file, verify_payload=False):
            number = item.record if isinstance(item, Fault) else item.index
            last = last if number is None else number
    return last


def as_error(path: AnyPath, fault: Fault, *, in_dataset: bool = False) -> CorruptShardError:
    """Return a shard's first fault as an error, with what to do about it."""
    hint = None  # the message says what it is instead of a TFRecord file
    if in_dataset:
        hint = "train and evaluate skip damaged records with --on-error skip"
    elif fault.kind is not FaultKind.NOT_TFRECORD:
        shard = shlex.quote(str(path))
        repair = f"tfrtool repair {shard} TARGET to recover the intact records"
        hint = f"run tfrtool verify {shard} to list the damage, or {repair}"
    return CorruptShardError(
        fault.message, path=path, record=fault.record, offset=fault.offset, hint=hint
    )


def read_ranges(file: BinaryIO, ranges: Sequence[tuple[int, int]]) -> Iterator[bytes]:
    """Yield what stands at offsets, each with a size; of a store, neighbours by one request."""
    if hasattr(file, "read_ranges"):
        return cast(Iterator[bytes], file.read_ranges(ranges))
    read_at = reader_at(file)
    return (read_at(size, offset) for offset, size in ranges)


def skip_records(
    file: BinaryIO,
    size: int,
    ends: "array[int] | None" = None,
    start: int = 0,
    *,
    most: int | None = None,
) -> tuple[int, int]:
    """Go through the records of an uncompressed shard without reading their payloads.

    Begins with the record at the offset ``start``. Stops behind the ``most`` records, or where the
    stream ends, or before it, at a record that is cut or whose length's CRC does not hold: all is
    well if the offset is ``size``. Returns the number of records and the offset behind the last
    one; the offset behind each is appended to ``ends``, an array of uint64.
    """
    is_remote = hasattr(file, "read_at")  # an object of a store, where each call is a request
    read_at, long = reader_at(file), _FAR_BLOCK if is_remote else _LONG
    append = None if ends is None else ends.append
    sizes = _RecordSizes()
    records, offset, step = 0, start, 0
    while offset + HEADER_SIZE <= size:
        # Short records are read by the block, of long ones only the headers.
        if step >= long:
            block = read_at(HEADER_SIZE, offset)
        elif is_remote:
            file.seek(offset)
            block = file.read(_FAR_BLOCK)  # which reads ahead
        else:
            block = read_at(_BLOCK, offset)
        starts = frame_starts(block[: size - offset], offset) if step < long else None
        if starts is not None and len(starts) > 1:
            starts = starts[: None if most is None else most - records + 1]
            if ends is not None:
                ends.frombytes(starts[1:].cast("B"))
            records += len(starts) - 1
            step = starts[-1] - starts[-2]
            count_work(starts[-1] - offset, BYTES)
            offset = starts[-1]
            if records == most:
                break
            continue
        position, last, limit = 0, len(block) - HEADER_SIZE, size - offset
        if last < 0:  # the file became shorter
            break
        while position <= last:
            step = sizes[block[position : position + HEADER_SIZE]]
            end = position + step
            if end > limit or records == most:
                return records, offset + position
            position = end
            records += 1
            if append is not None:
                append(offset + end)
        offset += position
        count_work(position, BYTES)
    return records, offset


def indexed(file: BinaryIO, shard: AnyPath, size: int) -> list[int]:
    """Return where records start, and the end, by the index next to a shard, if it fits."""
    index = shard.with_name(f"{shard.name}{INDEX}")
    try:
        status = index.stat()
        shard_status = shard.stat() if isinstance(shard, RemotePath) else os.fstat(file.fileno())
        if (
            status.st_mtime_ns >= shard_status.st_mtime_ns
            and status.st_size * _WORTH_ITS_INDEX < size
        ):
            numbers = [*map(int, read_bounded(index).split())]
            starts, sizes = [*numbers[::2], size], numbers[1::2]
            if [0, *map(add, starts, sizes)] == starts and min(sizes) >= FRAME_SIZE:
                return starts
    except (OSError, ValueError):
        pass
    return []


class _RecordSizes(dict[bytes, int]):
    """By headers, the sizes of their records with frames; `_FAR` where the CRC does not hold."""

    def __missing__(self, head: bytes) -> int:
        (length,) = LENGTH.unpack_from(head)
        if length > MAX_RECORD_BYTES or not holds_header(head):
            return _FAR
        if len(self) < _HEADERS_KNOWN:
            self[head] = FRAME_SIZE + length
        return FRAME_SIZE + int(length)


def reader_at(file: BinaryIO) -> Callable[[int, int], bytes]:
    """Return a function of a size and an offset that reads there, both in bytes.

    Where the system can, it leaves the position of ``file`` alone, and may be called by several
    threads and forked processes at once.
    """
    if hasattr(file, "read_at"):
        return cast(Callable[[int, int], bytes], file.read_at)
    if hasattr(os, "pread"):
        return partial(os.pread, file.fileno())

    def seek_and_read(size: int, offset: int) -> bytes:
        file.seek(offset)
        return file.read(size)

    return seek_and_read
