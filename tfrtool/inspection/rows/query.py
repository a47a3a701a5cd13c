"""SQL over the records of shards, as they are read."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from tfrtool.engines.engine import Workers
from tfrtool.examples.arrow.columns import PLACES, Columns
from tfrtool.inspection.rows.batches import RowColumns, infer_columns, read_batches
from tfrtool.inspection.rows.sandbox import (
    Sandbox,
    SqlChild,
    check_condition,
    check_select,
    pack_batch,
    unpack_batch,
)
from tfrtool.records.framing import LocatedFault
from tfrtool.records.stream import total_bytes
from tfrtool.storage.arguments import Paths
from tfrtool.storage.child import send_to_parent
from tfrtool.storage.progress import BYTES, Meter, OnProgress, counting, no_progress
from tfrtool.storage.remote_path import AnyPath


@contextmanager
def query(
    shards: Sequence[AnyPath],
    sql: str,
    *,
    sources: Paths | None = None,
    workers: Workers = None,
    as_text: bool = False,
    condition: str | None = None,
    on_fault: Callable[[LocatedFault], None],
    on_progress: OnProgress = no_progress,
) -> Iterator[pa.RecordBatchReader]:
    """Run a query over ``records``, and give its rows as they come.

    The shards are read once for the types of the columns, and then once for each time that the
    query goes through ``records``, only with the columns that it needs. That and the query itself
    are done by a process of its own with limited memory, which is killed when the block is left.

    Args:
        shards: the files.
        sql: one SELECT statement.
        sources: what names the shards, such as their directory, which says their splits; None
            takes the files themselves.
        workers: how many processes at most look for the columns; None takes the cores.
        as_text: whether dates, times and timestamps come as text: Python can't hold all of them.
            Values that Arrow can't hold always do.
        condition: the part of the statement that must be an expression.
        on_fault: called with the damage that is left out, once; what it raises ends the query.
        on_progress: called with the bytes that are read, for the columns and then for the query.

    Raises:
        ShardError: a file can't be read, the query needs too much memory, or fails at a value.
        UsageError: it is not a SELECT, or makes no sense.
    """
    with SqlChild() as child:
        if condition is not None:
            child.call(check_condition, condition)
        child.call(check_select, sql)
        columns = infer_columns(shards, workers=workers, on_progress=on_progress)
        own = RowColumns.of(shards, columns, shards if sources is None else sources)
        meter = Meter(on_progress, "reading", BYTES, total_bytes(shards))
        child.send(_answer, shards, sql, columns, own, as_text)

        def results() -> Iterator[Any]:
            while (found := child.receive()) is not None:
                if isinstance(found, LocatedFault):
                    on_fault(found)
                elif isinstance(found, dict):
                    meter.add(found)
                else:
                    yield found
            meter.finish()

        found = results()
        schema = next(found)
        yield pa.RecordBatchReader.from_batches(schema, map(unpack_batch, found))


def matching_records(
    shards: Sequence[AnyPath],
    where: str,
    *,
    sources: Paths | None = None,
    workers: Workers = None,
    limit: int | None = None,
    on_fault: Callable[[LocatedFault], None],
    on_progress: OnProgress = no_progress,
) -> dict[AnyPath, list[int]]:
    """Return the numbers of the records of each shard for which an SQL condition holds."""
    sql = f"SELECT {PLACES[0]}, {PLACES[1]} FROM records WHERE (\n{where}\n)"
    sql += "" if limit is None else f" LIMIT {limit}"
    names_of = {path: str(path).encode("utf-8", "backslashreplace").decode() for path in shards}
    found: dict[str, list[int]] = {name: [] for name in names_of.values()}
    asked = query(
        shards,
        sql,
        sources=sources,
        workers=workers,
        condition=where,
        on_fault=on_fault,
        on_progress=on_progress,
    )
    with asked as reader:
        for batch in reader:
            names, numbers = (column.to_pylist() for column in batch.columns)
            for name, number in zip(names, numbers, strict=True):
                found[name].append(number)
    return {path: found[name] for path, name in names_of.items()}


def _answer(
    shards: Sequence[AnyPath], sql: str, columns: Columns, own: RowColumns, as_text: bool
) -> None:
    """Run a query in the process that is for it, and send rows, damage and progress."""
    scans = 0

    def scan(names: Collection[str]) -> Iterator[pa.RecordBatch]:
        nonlocal scans, own
        scans += 1
        on_fault = send_to_parent if scans == 1 else lambda _: None  # what was sent already
        if PLACES[4] in names:
            own = own.with_splits()
        batches = read_batches(shards, own.narrowed(columns, names), on_fault=on_fault)
        while True:
            with counting(send_to_parent):  # DuckDB may ask for each batch in another thread
                batch = next(batches, None)
            if batch is None:
                return
            yield own.add_to(batch, names)

    with closing(Sandbox(own.schema(columns), scan)) as sandbox:
        try:
            sandbox.check(sql)
            with sandbox.read_exactly(sql, as_text=as_text) as reader:
                send_to_parent(reader.schema)
                for batch in reader:
                    send_to_parent(pack_batch(batch))
        except Exception as error:
            raise sandbox.as_error(error, sql) from error


def write_parquet(reader: pa.RecordBatchReader, file: BinaryIO) -> int:
    """Write rows to a Parquet file as they come; return how many."""
    rows = 0
    with pq.ParquetWriter(file, reader.schema, compression="zstd") as writer:
        for batch in reader:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows
