"""What is to be known of each record before it is known where it goes: a row of numbers each."""

import contextlib
import os
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tfrtool.convert.pipeline.record_sources import RecordPool, SourceShard
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
"""The columns for those who ask no features."""

_BATCH_BYTES = 4 * 1024 * 1024
"""Of payloads that are looked at together."""

_WORTH_A_PROCESS = 64 * 1024 * 1024

Marks = NDArray[Any]
"""Rows of numbers, of which ``mark`` is one."""

Look = Callable[[Batch], Marks]


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
    places = [shard.place for shard in pool.shards]
    return infer_columns(places, workers=settings.workers, on_progress=settings.on_progress)


def mark_records(
    pool: RecordPool, look: Look, dtype: Any, columns: Columns, settings: JobSettings
) -> tuple[Marks, JobPlan]:
    """Read all records; return a row for each; and what was read, and the damage.

    The rows are in a file beside the index, and in memory only as far as they are used. Damaged
    records have zeros. What looks at batches of some columns can be pickled.
    """
    tally, faults, marks = Tally(), Faults(), pool.index.with_name("marks")
    dtype = np.dtype(dtype)
    firsts = pool.firsts.tolist()
    with os_errors_as(WriteError, marks, "can't be written"):
        marks.touch()
        os.truncate(marks, firsts[-1] * dtype.itemsize)
    mark = partial(
        _mark_shard,
        look=look,
        dtype=dtype,
        columns=columns,
        index=pool.index,
        stop=settings.stop,
    )
    worth = _WORTH_A_PROCESS if settings.workers is None else 1
    size = sum(shard.size for shard in pool.shards)
    jobs = list(zip(firsts, range(len(pool.shards)), pool.shards, strict=False))
    meter = Meter(settings.on_progress, "evaluating", BYTES, size)
    results = map_shards(mark, jobs, settings.workers, worth, size, on_counts=meter.add)
    for read, met in results:
        tally.merge(read)
        faults.merge(met)
    meter.finish()
    return np.memmap(marks, dtype, "r"), JobPlan(read=tally, faults=faults)


def _mark_shard(
    job: tuple[int, int, SourceShard],
    look: Look,
    dtype: "np.dtype[Any]",
    columns: Columns,
    index: Path,
    stop: bool,
) -> tuple[Tally, Faults]:
    first, number, shard = job
    tally, faults, marks = Tally(), Faults(stop=stop), index.with_name("marks")
    starts = np.memmap(index, np.uint64, "r")[first + number :][: shard.records]

    tell = telling(shard.path, faults.add)

    def met(fault: Fault) -> None:
        if shard.copy is None and shard.records:  # else it was told by the scan
            tell(fault)

    count = min(BATCH_RECORDS, columns.batch_records)
    with (
        open_shard(shard.path) as file,
        os_errors_as(WriteError, marks, "can't be written"),
        marks.open("r+b") as out,
    ):
        for records in in_batches(read_records(file), met, _BATCH_BYTES, count):
            places = np.arange(tally.records, tally.records + len(records))
            if shard.copy is None:  # else it has just these; a reader may find whole records
                offsets = np.array([record.offset for record in records], np.uint64)
                places = np.minimum(np.searchsorted(starts, offsets), shard.records - 1)
                known = starts[places] == offsets  # within a damaged one, which are none of ours
                records, places = [*compress(records, known)], places[known]
            if not records:
                continue
            tally.add_keys([payload_key(one.payload_crc, len(one.payload)) for one in records])
            made = np.zeros(places[-1] + 1 - places[0], dtype)
            own = (places - places[0]).tolist()
            rows = dict(zip((one.index for one in records), own, strict=True))
            for batch in decode_records(shard.path, records, columns, tell):
                made[[rows[one.index] for one in batch.records]] = look(batch)
            out.seek(int(first + places[0]) * dtype.itemsize)
            made.tofile(out)
        shard.check_stamp(file)
    return tally, faults
