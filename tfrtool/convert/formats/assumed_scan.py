"""What shards hold if all records are like the first ones, so that they are read in one pass.

Frames are counted without their payloads, so that rows are assigned to files as after a scan. As
the files are written, `AssumingTfrecord` compares each record with what was assumed. If any
differs, nothing of that is published, and the shards are scanned before they are written again.
"""

import bisect
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from tfrtool.convert.formats.convert_request import ConvertRequest
from tfrtool.convert.formats.payload_formats import TfrecordFormat
from tfrtool.convert.formats.record_format import Content, Format, ReadPosition, Scan
from tfrtool.engines.pool import map_shards
from tfrtool.examples.arrow.columns import Column, Columns
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.example import DType, PayloadKind
from tfrtool.features.feature_columns import FeatureColumns
from tfrtool.inspection.rows.batches import BATCH_BYTES, BATCH_RECORDS
from tfrtool.records.compression import Compression, detect_compression
from tfrtool.records.count import skip_records
from tfrtool.records.frames import bytes_of
from tfrtool.records.framing import FRAME_SIZE, Fault
from tfrtool.records.payloads import payloads_of
from tfrtool.records.reader import read_pieces
from tfrtool.records.stream import open_shard, total_bytes
from tfrtool.storage.opening import size_of_file
from tfrtool.storage.progress import BYTES, Meter
from tfrtool.storage.remote_path import AnyPath, RemotePath
from tfrtool.writing.run_options import Existing

_MIN_BYTES = 8 * 1024 * 1024
"""Bytes of shards that are worth it: of smaller ones, the first records are a large part."""

_MIN_BYTES_PER_PROCESS = 1024**3
"""Bytes whose frames are counted in the time that a process takes to start, roughly."""

_FIRST_RECORDS, _FIRST_BYTES = 4096, 4 * 1024 * 1024
"""Records of a shard that show what it holds; or fewer, with about these bytes."""

_FRAMES = 8 * BATCH_RECORDS
"""Frames that are counted at once: each takes eight bytes of memory."""

_OTHER_COLUMNS = ("select", "cast", "schema", "lists", "explode", "proto")
"""Options with which the columns are not just the features of all records."""


class AssumedContent(NamedTuple):
    """What each shard holds, and what the first records do."""

    by_path: Mapping[AnyPath, Scan]
    fold: ColumnsFold


def assume_content(request: ConvertRequest, source_format: Format) -> AssumedContent | None:
    """Return what shards hold if all records are like the first ones; None where that is unsure."""
    if not isinstance(source_format, TfrecordFormat) or not _may_assume(request):
        return None
    paths, settings = [*dict.fromkeys(request.files.paths)], request.settings
    fold = ColumnsFold()
    if not all(_add_first(fold, path) for path in dict.fromkeys((paths[0], paths[-1]))):
        return None
    columns = source_format.decoded or fold.table_columns()
    if fold.skipped or {*+fold.kinds} != {PayloadKind.EXAMPLE} or not _is_sure(fold, columns):
        return None
    meter = Meter(settings.on_progress, "scanning", BYTES, total_bytes(paths))
    by_path, content = dict[AnyPath, Scan](), Content(columns=columns)
    for scan in map_shards(
        _count_frames, paths, settings.workers, _MIN_BYTES_PER_PROCESS, on_counts=meter.add
    ):
        if scan is None:
            return None
        by_path[scan.path] = replace(scan, content=content)
    meter.finish()
    return AssumedContent(by_path, fold)


def _may_assume(request: ConvertRequest) -> bool:
    """Return whether anything may be assumed of the shards of a request.

    A dry run finds all damage, and a resumed run has the plan of the one before.
    """
    settings, paths = request.settings, request.files.paths
    if not request.makes_table or settings.dry_run or settings.existing is Existing.RESUME:
        return False
    if any(getattr(request.options, name) for name in _OTHER_COLUMNS):
        return False
    if any(isinstance(path, RemotePath) for path in paths):
        return False
    return sum(path.stat().st_size for path in paths) >= _MIN_BYTES


def _add_first(fold: ColumnsFold, path: AnyPath) -> bool:
    """Add the first records of a shard to a fold; return whether all of them are intact."""
    records = size = 0
    for piece in read_pieces(path):
        if isinstance(piece, Fault):
            return False
        fold.add(payloads_of(piece))
        records, size = records + len(piece), size + bytes_of(piece)
        if records >= _FIRST_RECORDS or size >= _FIRST_BYTES:
            break
    return True


def _is_sure(fold: ColumnsFold, columns: Columns) -> bool:
    """Return whether more records, if they have these columns, can't show others.

    A list has several values somewhere, or is missing for several reasons, whatever follows. So do
    bytes have something that is not UTF-8.
    """
    features = fold.features()
    if type(columns) is FeatureColumns:
        known = {column.key for column in columns.stored.columns}
        return all(feature.key in known for feature in features)
    if type(columns) is not Columns or columns.kind is not PayloadKind.EXAMPLE:
        return False
    return all(len(one.kinds) == 1 for one in features) and all(map(_is_settled, columns.columns))


def _is_settled(column: Column) -> bool:
    if column.dtype is not DType.STRING or column.is_text:
        return column.dtype is not None
    return not column.values.info.get("is_utf8", False)


def _count_frames(path: AnyPath) -> Scan | None:
    """Return how many records a shard has, and where batches start; None with any damage."""
    positions, offset, rows = list[ReadPosition](), 0, 0
    with open_shard(path) as file:
        size = size_of_file(file)
        if not size or detect_compression(file) is not Compression.NONE:
            return None
        while offset < size:
            ends = array("Q")
            count, stop = skip_records(file, size, ends, offset, most=_FRAMES)
            if not count or (stop < size and count < _FRAMES):
                return None
            starts = _batch_starts(ends, offset)
            # The last batch may go on behind these frames.
            batches = len(starts) if stop == size else max(len(starts) - 1, 1)
            for at in starts[:batches]:
                start = ends[at - 1] if at else offset
                positions.append(ReadPosition(rows + at, start, rows + at))
            counted = starts[batches] if batches < len(starts) else count
            rows, offset = rows + counted, ends[counted - 1]
    size -= FRAME_SIZE * rows
    return Scan(
        path=path,
        rows=rows,
        bytes=size,
        positions=positions,
        content=Content(columns=Columns(PayloadKind.EXAMPLE)),
    )


def _batch_starts(ends: Sequence[int], offset: int) -> list[int]:
    """Return the first record of each batch of those that end at these offsets, as in a scan."""
    starts, at, before = [0], 0, offset
    while True:
        most = BATCH_BYTES + before - FRAME_SIZE * at
        fitting = bisect.bisect_right(
            range(len(ends)), most, lo=at, key=lambda row: ends[row] - FRAME_SIZE * (row + 1)
        )
        at = min(max(fitting, at + 1), at + BATCH_RECORDS)
        if at >= len(ends):
            return starts
        starts.append(at)
        before = ends[at - 1]
