"""Taking what is whole out of a damaged shard."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

from tfrtool.errors import CorruptShardError, ShardError, UsageError, WriteError, os_errors_as
from tfrtool.records.compression import Compression, detect_compression, named_compression
from tfrtool.records.framing import FRAME_SIZE, Fault, Record
from tfrtool.records.reader import RecordReader
from tfrtool.records.stream import Location, as_source, open_shard, path_of, size_of
from tfrtool.records.writer import ShardWriter
from tfrtool.storage.arguments import as_path
from tfrtool.storage.atomic_files import delete_leftovers, new_file
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.progress import OnProgress, Progress, no_progress
from tfrtool.storage.remote_path import AnyPath


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRange:
    """A stretch of the uncompressed stream that is in no record which was saved."""

    offset: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairReport:
    """Result of repairing a shard.

    Attributes:
        shard: the damaged file, which is not modified.
        out: the repaired file.
        compression: compression of the repaired file.
        records: number of intact records, all of which are in the repaired file.
        lost: first ranges of bytes that could not be recovered, in stream order.
        lost_count: total number of such ranges.
        lost_bytes: total size of these ranges, in bytes.
        faults: first faults, in stream order.
        fault_count: total number of faults.
    """

    shard: AnyPath
    out: AnyPath
    compression: Compression
    records: int
    lost: tuple[LostRange, ...]
    lost_count: int
    lost_bytes: int
    faults: tuple[Fault, ...]
    fault_count: int

    @property
    def is_whole(self) -> bool:
        """Whether nothing was lost."""
        return not self.lost_count and not self.fault_count


def repair_shard(
    shard: Location,
    out: str | os.PathLike[str],
    *,
    on_progress: OnProgress = no_progress,
) -> RepairReport:
    """Recover every intact record of a damaged shard into a new file.

    Records are copied byte for byte, in order. After damage, the next record is located by its
    length and payload CRCs, as in `read`. The new file is read back and compared before it is moved
    into place. The damaged file is never modified.

    Args:
        shard: path of the damaged shard, or a binary stream.
        out: path of the file to write, which must not exist. If it ends in ``.gz`` the file is
            compressed with gzip, otherwise like the damaged shard.
        on_progress: called with the number of bytes read, if the shard is not compressed.

    Raises:
        UsageError: ``out`` already exists.
        ShardError: the shard can't be read.
        CorruptShardError: the shard has no intact record. Nothing is written.
        WriteError: the new file can't be written, or differs from what was written to it.
    """
    source, out = as_source(shard), as_path(out)
    path = path_of(source)
    if out.exists() or os.path.lexists(out):
        raise UsageError(
            "already exists", path=out, hint="choose a new file; repair never overwrites one"
        )
    delete_leftovers(out)
    lost, faults = CappedList[LostRange](), CappedList[Fault]()
    end = saved = 0
    writing = os_errors_as(WriteError, out, "can't be written")
    with open_shard(source) as file, writing, new_file(out, replace=False) as new:
        compression = detect_compression(file)
        new_compression = named_compression(out) or compression
        reader = RecordReader(file, compression)
        plain = compression is Compression.NONE
        total = size_of(source, file) if plain and source is path else 0
        with ShardWriter(new, new_compression, digests=False, target=out) as writer:
            for item in _items(reader, path):
                if isinstance(item, Fault):
                    faults.add(item)
                    continue
                if item.offset > end:
                    lost.add(LostRange(offset=end, bytes=item.offset - end))
                end = item.offset + FRAME_SIZE + len(item.payload)
                saved += end - item.offset
                writer.write_record(item)
                if total:
                    on_progress(Progress(what="repairing", done=end, total=total, unit="B"))
        size = reader.find_end()
        if size > end:
            lost.add(LostRange(offset=end, bytes=size - end))
        if not writer.tally.records:
            first = faults.entries[0]
            what = f"no intact records to recover: {first.message}"
            raise CorruptShardError(what, path=path, record=first.record, offset=first.offset)
        writer.verify()
    return RepairReport(
        shard=path,
        out=out,
        compression=new_compression,
        records=writer.tally.records,
        lost=tuple(lost.entries),
        lost_count=lost.count,
        lost_bytes=max(size, end) - saved,
        faults=tuple(faults.entries),
        fault_count=faults.count,
    )


def _items(reader: RecordReader, shard: AnyPath) -> Iterator[Record | Fault]:
    with os_errors_as(ShardError, shard):
        yield from reader.read()
