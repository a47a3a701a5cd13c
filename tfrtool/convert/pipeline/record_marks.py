"""What jobs need to know of each record before they copy it: a row of numbers."""

import contextlib
import os
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tfrtool.convert.pipeline.record_pool import RecordPool, SourceShard
from tfrtool.engines.pool import map_shards
from tfrtool.errors import WriteError, os_errors_as
from tfrtool.examples.arrow.columns import Columns
from tfrtool.examples.example import PayloadKind, decode_example
from tfrtool.examples.roles import find_roles, info_beside
from tfrtool.inspection.rows.batches import (
    BATCH_RECORDS,
    Batch,
    decode_records,
    in_batches,
    infer_columns,
    telling,
)
from tfrtool.records.framing import Fault, Record
from tfrtool.records.reader import read_records, read_shard
from tfrtool.records.stream import open_shard
from tfrtool.records.tally import Tally, payload_key
from tfrtool.storage.progress import BYTES, Meter
from tfrtool.writing.job import JobPlan
from tfrtool.writing.job_report import Faults
from tfrtool.writing.job_settings import JobSettings

if TYPE_CHECKING:
    import pyarrow as pa

KEPT = 1
"""The mark of a record that is kept. 0 is that of a damaged one, others are of rules."""

UNPARSED = Columns(PayloadKind.UNKNOWN)
"""The columns for jobs that need no features."""

_BATCH_BYTES = 4 * 1024 * 1024
"""Bytes of payloads that are marked together."""

_WORTH_A_PROCESS = 64 * 1024 * 1024

RecordFlags = NDArray[Any]
"""One row of numbers per record, with a column ``mark``."""

BatchMarker = Callable[[Batch], RecordFlags]


def values_of(table: "pa.RecordBatch", columns: Columns, name: str) -> list[list[Any] | None]:
    """Return the values of a feature in each record, however the table holds them."""
    if columns.kind is PayloadKind.SEQUENCE_EXAMPLE:
        column = columns.columns[columns.names.index(name)]
        array = table.column("feature_lists" if column.is_list else "context").field(name)
    else:
        array = table.column(name)
    found = []
    for value in array.to_pylist():
        if isinstance(value, dict):  # a struct of a list for each type
            value = next((some for some in value.values() if some is not None), None)
        found.append(value if isinstance(value, list) or value is None else [value])
    return found


def image_feature(shards: Sequence[Path], folder: Path) -> str | None:
    """Return the feature of the first record that is its image, by metadata in a folder perhaps."""
    for item in chain.from_iterable(map(read_shard, shards)):
        if isinstance(item, Record):
            with contextlib.suppress(ValueError):
                example = decode_example(item.payload, PayloadKind.SEQUENCE_EXAMPLE)
                return find_roles(example.features, info_beside(folder)).image
            return None
    return None


def columns_of(pool: RecordPool, settings: JobSettings) -> Columns:
    """Return the columns that all records fit."""
    paths = [shard.readable for shard in pool.shards]
    return infer_columns(paths, workers=settings.workers, on_progress=settings.on_progress)


def mark_records(
    pool: RecordPool,
    mark_batch: BatchMarker,
    dtype: Any,
    columns: Columns,
    settings: JobSettings,
) -> tuple[RecordFlags, JobPlan]:
    """Read all records, in several processes, and let a function make a row of numbers of each.

    Args:
        pool: the records.
        mark_batch: makes the rows; it can be pickled.
        dtype: the columns of rows.
        columns: the features that the function needs.
        settings: those of the job.

    Returns:
        The rows, in a file beside the index, with zeros for damaged records; and what was read,
        with the damage.
    """
    tally, faults, path = Tally(), Faults(), pool.index.with_name("marks")
    firsts = pool.firsts.tolist()
    dtype = np.dtype(dtype)
    with os_errors_as(WriteError, path, "can't be written"):
        path.touch()
        os.truncate(path, firsts[-1] * dtype.itemsize)
    mark = partial(_mark_shard, mark_batch, dtype, columns, pool.index, settings.stop)
    worth = _WORTH_A_PROCESS if settings.workers is None else 1
    size = sum(shard.size for shard in pool.shards)
    jobs = list(zip(firsts, range(len(pool.shards)), pool.shards, strict=False))
    meter = Meter(settings.on_progress, "evaluating", BYTES, size)
    for read, found in map_shards(mark, jobs, settings.workers, worth, size, on_counts=meter.add):
        tally.merge(read)
        faults.merge(found)
    meter.finish()
    return np.memmap(path, dtype, "r"), JobPlan(read=tally, faults=faults)


def _mark_shard(
    mark_batch: BatchMarker,
    dtype: "np.dtype[Any]",
    columns: Columns,
    index: Path,
    stop: bool,
    job: tuple[int, int, SourceShard],
) -> tuple[Tally, Faults]:
    first, number, shard = job
    tally, faults, path = Tally(), Faults(stop=stop), index.with_name("marks")
    starts = np.memmap(index, np.uint64, "r")[first + number :][: shard.records]
    report = telling(shard.path, faults.add)

    def report_damage(fault: Fault) -> None:
        if shard.copy is None and shard.records:  # otherwise the scan has reported it
            report(fault)

    count = min(BATCH_RECORDS, columns.batch_records)
    with (
        open_shard(shard.path) as file,
        os_errors_as(WriteError, path, "can't be written"),
        path.open("r+b") as out,
    ):
        for records in in_batches(read_records(file), report_damage, _BATCH_BYTES, count):
            rows = np.arange(tally.records, tally.records + len(records))
            if shard.copy is None:
                # Within a damaged payload, a reader may find records that are none of the pool's.
                offsets = np.array([record.offset for record in records], np.uint64)
                rows = np.minimum(np.searchsorted(starts, offsets), shard.records - 1)
                known = starts[rows] == offsets
                records, rows = [*compress(records, known)], rows[known]
            if not records:
                continue
            tally.add_keys([payload_key(one.payload_crc, len(one.payload)) for one in records])
            marks = np.zeros(rows[-1] + 1 - rows[0], dtype)
            row_of = dict(zip((one.index for one in records), rows - rows[0], strict=True))
            for batch in decode_records(shard.path, records, columns, report):
                marks[[row_of[one.index] for one in batch.records]] = mark_batch(batch)
            out.seek(int(first + rows[0]) * dtype.itemsize)
            marks.tofile(out)
        shard.check_stamp(file)
    return tally, faults
