"""The records of shards as Arrow record batches of bounded size, each with where it came from."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tfrtool.engines.engine import Workers
from tfrtool.engines.processes import map_shards
from tfrtool.examples.arrow.arrays import numbers_array
from tfrtool.examples.arrow.columns import PLACES, Columns
from tfrtool.examples.arrow.decode_batch import MisfitError, decode_batch
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.example import PayloadKind
from tfrtool.inspection.verify.payload_check import unparseable
from tfrtool.records.framing import Fault, LocatedFault, Record
from tfrtool.records.reader import read_records
from tfrtool.records.stream import Stream, open_shard, path_of, total_bytes
from tfrtool.storage.progress import BYTES, Meter, OnProgress, silent

BATCH_BYTES = 16 * 1024 * 1024
"""Of the payloads of a batch: many images, and little beside what Arrow and DuckDB hold."""

BATCH_RECORDS = 65_536

_ROWS = 1024
"""Rows that are held as Python's objects, some times as large as their text."""

OnFault = Callable[[LocatedFault], None]
"""What takes the damage that is left out."""

_WORTH_A_PROCESS = 192 * 1024 * 1024
"""Bytes of images whose columns are inferred in the time that a process takes to start; records of
some hundred bytes take ten times as long."""


class Batch(NamedTuple):
    """A part of a shard: a table with a row a record, and the records."""

    table: pa.RecordBatch
    path: Path
    records: list[Record]


def infer_columns(
    shards: Sequence[Path], *, workers: Workers = None, on_progress: OnProgress = silent
) -> Columns:
    """Return the columns that all records of all shards fit; what is damaged is left out.

    Args:
        shards: the files.
        workers: how many processes at most; None takes the cores.
        on_progress: called with the bytes that are read.

    Raises:
        ShardError: a file can't be read.
    """
    return fold_columns(shards, workers=workers, on_progress=on_progress).columns()


def fold_columns(
    shards: Sequence[Path], *, workers: Workers = None, on_progress: OnProgress = silent
) -> ColumnsFold:
    """Do what `infer_columns` does; return what more records can be added to."""
    total = ColumnsFold()
    meter = Meter(on_progress, "finding columns", BYTES, total_bytes(shards))
    for fold in map_shards(_fold, shards, workers, _WORTH_A_PROCESS, on_counts=meter.add):
        total.merge(fold)
    meter.finish()
    return total


def _fold(path: Path) -> ColumnsFold:
    fold = ColumnsFold()
    with open_shard(path) as file:
        for records in in_batches(read_records(file), lambda _: None):
            fold.add([record.payload for record in records])
    return fold


def read_batches(
    shards: Iterable[Path | Stream],
    columns: Columns,
    *,
    exact: bool = False,
    places: bool = False,
    batch_bytes: int = BATCH_BYTES,
    batch_records: int = BATCH_RECORDS,
    on_fault: OnFault,
) -> Iterator[Batch]:
    """Read shards from start to end; memory is bounded by a batch, and by the longest record.

    Args:
        shards: the files, or a stream.
        columns: what is decoded.
        exact: whether there is a column `_payload`, too, with the payload's own bytes.
        places: whether there are the columns of `PLACES`, too.
        batch_bytes: how many bytes of payloads a batch has at most; one record it has in any case.
        batch_records: how many records it has at most.
        on_fault: called with all damage, and with each record that the columns can't hold.

    Raises:
        ShardError: a file can't be read.
    """
    for source in shards:
        path = path_of(source)
        tell = telling(path, on_fault)
        with open_shard(source) as file:
            count = min(batch_records, columns.batch_records)
            for records in in_batches(read_records(file), tell, batch_bytes, count):
                for batch in decode_records(path, records, columns, tell, exact=exact):
                    yield with_places(batch) if places else batch


def telling(path: Path, on_fault: OnFault) -> Callable[[Fault], None]:
    """Return what takes the faults of a file."""
    return lambda fault: on_fault(LocatedFault(path=path, fault=fault))


def in_batches(
    items: Iterable[Record | Fault],
    tell: Callable[[Fault], None],
    batch_bytes: int = BATCH_BYTES,
    batch_records: int = BATCH_RECORDS,
) -> Iterator[list[Record]]:
    """Yield records in lists that bound memory, and tell of the faults between them."""
    records: list[Record] = []
    size = 0
    for item in items:
        if isinstance(item, Fault):
            tell(item)
            continue
        length = len(item.payload)
        if records and (size + length > batch_bytes or len(records) >= batch_records):
            yield records
            records, size = [], 0
        records.append(item)
        size += length
    if records:
        yield records


def decode_records(
    path: Path,
    records: list[Record],
    columns: Columns,
    tell: Callable[[Fault], None],
    *,
    exact: bool = False,
) -> Iterator[Batch]:
    """Yield records of one shard as one batch, or as several between those that don't fit."""
    try:
        table = decode_batch([record.payload for record in records], columns, exact=exact)
    except MisfitError as misfit:
        if len(records) == 1:
            tell(unparseable(records[0], misfit.why))
            return
        # In halves, for each of many may be a misfit.
        half = len(records) // 2
        yield from decode_records(path, records[:half], columns, tell, exact=exact)
        yield from decode_records(path, records[half:], columns, tell, exact=exact)
    else:
        yield Batch(table, path, records)


def with_places(batch: Batch) -> Batch:
    """Return a batch with the columns of `PLACES`, too."""
    table, path, records = batch
    name = str(path).encode("utf-8", "backslashreplace")
    ends = [None, pa.py_buffer(np.array([0, len(name)], np.int32)), pa.py_buffer(name)]
    which = numbers_array(np.zeros(len(records), np.int32))
    parts = [[record.index, record.offset, len(record.payload)] for record in records]
    numbers = np.array(parts, np.int64).reshape(-1, 3).T.copy()
    places = [
        pa.DictionaryArray.from_arrays(which, pa.Array.from_buffers(pa.string(), 1, ends)),
        *map(numbers_array, numbers),
    ]
    names = [*PLACES, *table.schema.names]
    return batch._replace(table=pa.RecordBatch.from_arrays([*places, *table.columns], names=names))


def table_schema(columns: Columns) -> pa.Schema:
    """Return the schema of batches with their places, which stand first."""
    types = (pa.dictionary(pa.int32(), pa.string()), pa.int64(), pa.int64(), pa.int64())
    places = [pa.field(name, kind) for name, kind in zip(PLACES, types, strict=True)]
    return pa.schema([*places, *columns.to_arrow()])


def rows_of(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Yield the rows of a batch."""
    for start in range(0, batch.num_rows, _ROWS):
        yield from batch.slice(start, _ROWS).to_pylist()


def narrowed(columns: Columns, fields: Collection[str]) -> Columns:
    """Return the columns that fields of the Arrow schema are made of, in their own order."""
    if columns.kind is PayloadKind.SEQUENCE_EXAMPLE:
        named = zip(columns.names, columns.columns, strict=True)
        struct = {True: "feature_lists", False: "context"}
        return columns.select([name for name, one in named if struct[one.is_list] in fields])
    if columns.kind is PayloadKind.EXAMPLE:
        return columns.select([name for name in columns.names if name in fields])
    return columns
