"""Taking what is whole out of a damaged shard."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from tfrtool.errors import (
    CorruptShardError,
    ShardError,
    UsageError,
    WriteError,
    os_errors_as,
    os_reason,
)
from tfrtool.records.compression import Compression, detect_compression
from tfrtool.records.crc import extend_crc32c
from tfrtool.records.framing import CRC, FRAME_SIZE, Fault, Record, header
from tfrtool.records.reader import ReadOptions, RecordReader, read_records
from tfrtool.records.stream import Location, as_source, open_shard, path_of, size_of
from tfrtool.records.window import BLOCK_SIZE
from tfrtool.storage.appearing import new_file
from tfrtool.storage.locations import as_path
from tfrtool.storage.opening import open_regular

__all__ = ["LostRange", "RepairReport", "repair_shard"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRange:
    """A stretch of the uncompressed stream that is in no record which was saved.

    Attributes:
        offset: where it starts, in bytes.
        bytes: how long it is.
    """

    offset: int
    bytes: int

    def __post_init__(self) -> None:
        if self.offset < 0 or self.bytes < 0:
            raise ValueError(f"no range: {self.offset}, {self.bytes}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairReport:
    """What became of a shard.

    Attributes:
        shard: the damaged file, which is as it was.
        out: the new one.
        compression: of both.
        records: how many whole records there were, all of them in the new one.
        lost: what is not in the new one, in the order of the stream.
        faults: the damage, in the same order.
    """

    shard: Path
    out: Path
    compression: Compression
    records: int
    lost: tuple[LostRange, ...]
    faults: tuple[Fault, ...]


def repair_shard(
    shard: Location,
    out: str | os.PathLike[str],
    on_progress: Callable[[int, int], None] | None = None,
) -> RepairReport:
    """Copy all records whose CRCs hold to a new shard, byte for byte and in order.

    After damage the next record is found by the CRC of its length and that of its payload, as
    `read_records` has it. The new shard is compressed as the old one is. It is read back and held
    against what was saved before it appears under its name; the old one is never touched.

    Args:
        shard: the damaged file, or a binary stream.
        out: the file to write; it must not exist.
        on_progress: called with the bytes that have been read and their number in all, where the
            shard is not compressed.

    Raises:
        UsageError: ``out`` exists.
        ShardError: the shard can't be read.
        CorruptShardError: there is no whole record in it; nothing is written.
        WriteError: the new file can't be written, or does not hold what was written to it.
    """
    source, out = as_source(shard), as_path(out)
    path = path_of(source)
    if out.exists() or out.is_symlink():
        raise UsageError("exists already", path=out, hint="repair never writes over a file")
    with open_shard(source) as file:
        compression = detect_compression(file)
        reader = RecordReader(file, ReadOptions(compression=compression))
        plain = source is path and compression is Compression.NONE
        total = size_of(source, file) if plain else 0
        salvage = _Salvage(reader, path, on_progress or (lambda _done, _total: None), total)
        with _appearing(out) as new:
            with _sink(new, compression) as sink:
                _copy(salvage, sink)
            if not salvage.count:
                raise _nothing_saved(path, salvage.faults)
            _check(Path(new.name), out, salvage)
    return RepairReport(
        shard=path,
        out=out,
        compression=compression,
        records=salvage.count,
        lost=tuple(salvage.lost),
        faults=tuple(salvage.faults),
    )


class _Salvage:
    """A pass over a damaged stream that notes what is lost between whole records."""

    def __init__(
        self, reader: RecordReader, shard: Path, progress: Callable[[int, int], None], total: int
    ) -> None:
        self._reader = reader
        self._shard = shard
        self._progress = progress
        self._total = total
        self.count = 0
        self.digest = 0
        self.lost: list[LostRange] = []
        self.faults: list[Fault] = []

    def records(self) -> Iterator[Record]:
        end = 0
        for item in self._items():
            if isinstance(item, Fault):
                self.faults.append(item)
                continue
            self._lose(end, item.offset)
            end = item.offset + FRAME_SIZE + len(item.payload)
            self.count += 1
            self.digest = _digest(self.digest, item)
            if self._total:
                self._progress(end, self._total)
            yield item
        self._lose(end, self._reader.find_end())

    def _items(self) -> Iterator[Record | Fault]:
        with os_errors_as(ShardError, self._shard):
            yield from self._reader.read()

    def _lose(self, start: int, end: int) -> None:
        if end > start:
            self.lost.append(LostRange(offset=start, bytes=end - start))


def _digest(digest: int, record: Record) -> int:
    """Return a CRC over the sequence of payload CRCs, which tells whether two shards are alike."""
    return extend_crc32c(digest, CRC.pack(record.payload_crc))


def _nothing_saved(shard: Path, faults: list[Fault]) -> CorruptShardError:
    first = faults[0]
    return CorruptShardError(
        f"nothing can be saved: {first.message}",
        path=shard,
        record=first.record,
        offset=first.offset,
    )


@contextmanager
def _appearing(out: Path) -> Iterator[BinaryIO]:
    """Give a file to write, which becomes ``out`` if all goes well."""
    try:
        with new_file(out, replace=False) as file:
            yield file
    except FileExistsError as error:
        raise WriteError("appeared while it was written", path=out) from error
    except OSError as error:
        raise WriteError(f"can't be written: {os_reason(error)}", path=out) from error


@contextmanager
def _sink(file: BinaryIO, compression: Compression) -> Iterator[Any]:
    if compression is Compression.GZIP:
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
            yield packed
    elif compression is Compression.ZLIB:
        deflate = _Deflater(file)
        yield deflate
        deflate.finish()
    else:
        yield file
    file.flush()


class _Deflater:
    """A file to write to that comes out in the zlib format."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._deflate = zlib.compressobj()

    def write(self, data: bytes) -> None:
        self._file.write(self._deflate.compress(data))

    def finish(self) -> None:
        self._file.write(self._deflate.flush())


def _copy(salvage: _Salvage, sink: Any) -> None:
    for record in salvage.records():
        sink.write(header(len(record.payload)))
        payload = memoryview(record.payload)
        # What a compressor is given at a time, it holds once more.
        for start in range(0, len(payload), BLOCK_SIZE):
            sink.write(payload[start : start + BLOCK_SIZE])
        sink.write(CRC.pack(record.payload_crc))


def _check(written: Path, out: Path, salvage: _Salvage) -> None:
    """Read the new shard back."""
    records = digest = 0
    failing = os_errors_as(WriteError, out, "can't be read back")
    with failing, open_regular(written, follow=False) as file:
        for item in read_records(file):
            if isinstance(item, Fault):
                raise WriteError(f"was not written as it should: {item.message}", path=out)
            records += 1
            digest = _digest(digest, item)
    if (records, digest) != (salvage.count, salvage.digest):
        raise WriteError(
            "was not written as it should",
            path=out,
            expected=f"{salvage.count} records",
            found=records,
        )
