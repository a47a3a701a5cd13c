"""Taking what is whole out of a damaged shard."""

import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from tfrtool.declare import takes
from tfrtool.errors import CorruptShardError, ShardError, UsageError, WriteError, os_errors_as
from tfrtool.records.checksum_styles import ChecksumStyle, detect_style
from tfrtool.records.compression import Compression, detect_compression, named_compression
from tfrtool.records.frames import bytes_of
from tfrtool.records.framing import FRAME_SIZE, Fault, Record
from tfrtool.records.reader import RecordReader
from tfrtool.records.repair_options import RepairOptions
from tfrtool.records.stream import Location, Stream, as_source, open_shard, path_of, size_of
from tfrtool.records.styled_reader import StyledReader
from tfrtool.records.writer import ShardWriter
from tfrtool.storage.arguments import as_path
from tfrtool.storage.atomic_files import delete_leftovers, new_file
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.json_values import Shown
from tfrtool.storage.progress import Progress
from tfrtool.storage.remote_path import AnyPath


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRange:
    """A stretch of the uncompressed stream that is in no record which was saved."""

    offset: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RepairReport(Shown):
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
        accepted_checksums: the style of checksums that the damaged file was read with; None for
            TensorFlow's.
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
    accepted_checksums: ChecksumStyle | None = None

    @property
    def is_whole(self) -> bool:
        """Whether nothing was lost."""
        return not self.lost_count and not self.fault_count


@takes(RepairOptions)
def repair_shard(
    shard: Location, out: str | os.PathLike[str], options: RepairOptions
) -> RepairReport:
    """Recover every intact record of a damaged shard into a new file.

    Records are copied byte for byte, in order. After damage, the next record is located by its
    length and payload CRCs, as in `read`. The new file is read back and compared before it is moved
    into place. The damaged file is never modified.

    Args:
        shard: path of the damaged shard, or a binary stream.
        out: path of the file to write, which must not exist. If it ends in ``.gz`` the file is
            compressed with gzip, otherwise like the damaged shard.

    Raises:
        UsageError: ``out`` already exists, or ``shard`` is a directory.
        ShardError: the shard can't be read, or has other checksums than ``accept_checksums``.
        CorruptShardError: the shard has no intact record. Nothing is written.
        WriteError: the new file can't be written, or differs from what was written to it.
    """
    source, out = as_source(shard), as_path(out)
    path, accepted = path_of(source), options.accept_checksums
    style = None if accepted is None else ChecksumStyle(accepted)
    if out.exists() or os.path.lexists(out):
        raise UsageError(
            "already exists", path=out, hint="choose a new file; repair never overwrites one"
        )
    if source is path and path.is_dir():
        hint = f"run tfrtool verify {shlex.quote(str(path))} to find the damaged shards"
        raise UsageError("is a directory: repair reads one shard", path=path, hint=hint)
    delete_leftovers(out)
    losses = _Losses()
    writing = os_errors_as(WriteError, out, "can't be written")
    with open_shard(source) as file, writing, new_file(out, replace=False) as new:
        compression = detect_compression(file)
        new_compression = named_compression(out) or compression
        reader = _open_reader(file, compression, style, path)
        frame_size = reader.framing.frame_size if isinstance(reader, StyledReader) else FRAME_SIZE
        plain = compression is Compression.NONE
        total = size_of(source, file) if plain and source is path else 0
        with ShardWriter(new, new_compression, digests=False, target=out) as writer:
            for piece in _pieces(reader, path):
                if isinstance(piece, Fault):
                    losses.faults.add(piece)
                    continue
                size = bytes_of(piece) + frame_size * len(piece)
                end = losses.add_saved(piece[0].offset, size)
                writer.write_piece(piece)
                if total:
                    options.on_progress(Progress(what="repairing", done=end, total=total, unit="B"))
        losses.add_lost(reader.find_end())
        if not writer.tally.records:
            raise _no_records(source, losses.faults.entries[0], style)
        writer.verify()
    return RepairReport(
        shard=path,
        out=out,
        compression=new_compression,
        records=writer.tally.records,
        lost=tuple(losses.ranges.entries),
        lost_count=losses.ranges.count,
        lost_bytes=losses.bytes,
        faults=tuple(losses.faults.entries),
        fault_count=losses.faults.count,
        accepted_checksums=style,
    )


class _Losses:
    """What a repair could not recover.

    Attributes:
        ranges: stretches of the stream between the saved records.
        bytes: how many bytes they have together.
        faults: the reasons.
    """

    def __init__(self) -> None:
        self.ranges, self.faults = CappedList[LostRange](), CappedList[Fault]()
        self.bytes = self._end = 0

    def add_saved(self, offset: int, size: int) -> int:
        """Take note of a saved record, and return where it ends."""
        self.add_lost(offset)
        self._end = offset + size
        return self._end

    def add_lost(self, upto: int) -> None:
        """Take note of the bytes between the last saved record and an offset."""
        if upto > self._end:
            self.ranges.add(LostRange(offset=self._end, bytes=upto - self._end))
            self.bytes += upto - self._end


def _open_reader(
    file: BinaryIO, compression: Compression, style: ChecksumStyle | None, path: AnyPath
) -> RecordReader | StyledReader:
    """Return what reads a file, with TensorFlow's checksums or with those of a style."""
    if style is None:
        return RecordReader(file, compression)
    with os_errors_as(ShardError, path):
        return StyledReader(file, compression, style, path)


def _no_records(
    source: AnyPath | Stream, first: Fault, style: ChecksumStyle | None
) -> CorruptShardError:
    """Return the error of a file without intact records; its checksums may be in another style."""
    reason, hint = first.message, None
    if style is None and (detected := detect_style(source)) and (found := detected.framing.style):
        reason, hint = found.finding, f"use --accept-checksums {found.value}"
    return CorruptShardError(
        f"no intact records to recover: {reason}",
        path=path_of(source),
        record=first.record,
        offset=first.offset,
        hint=hint,
    )


def _pieces(
    reader: RecordReader | StyledReader, shard: AnyPath
) -> Iterator[Sequence[Record] | Fault]:
    """Yield consecutive records together, and faults."""
    with os_errors_as(ShardError, shard):
        if isinstance(reader, RecordReader):
            yield from reader.pieces()
        else:
            for item in reader.read():
                yield item if isinstance(item, Fault) else [item]
