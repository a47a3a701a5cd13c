"""SQL over the records of shards, as they are read."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from tfrtool.engines.engine import Engine
from tfrtool.engines.processes import Processes, engine_of, map_shards
from tfrtool.errors import UsageError
from tfrtool.examples.arrow.columns import Columns
from tfrtool.inspection.rows.batches import (
    OnFault,
    infer_columns,
    narrowed,
    read_batches,
    table_schema,
)
from tfrtool.inspection.rows.conditions import BatchQuery
from tfrtool.inspection.rows.sandbox import Sandbox, Scan, check_select
from tfrtool.inspection.rows.split_query import split_query
from tfrtool.records.framing import LocatedFault
from tfrtool.storage.progress import OnProgress, Progress, silent

_SENT = 64 * 1024 * 1024
"""Bytes of rows that a task sends back at most; with more, a shard is read where they go."""

_FAULT = 500
"""Bytes of a fault, about."""

_Tables = Generator[tuple[int, Any], None, None]


class _TooMuchError(Exception):
    """It is more than a task sends back."""


@contextmanager
def query(
    shards: Sequence[Path],
    sql: str,
    *,
    workers: int | None = None,
    engine: str = "local",
    engine_address: str | None = None,
    on_fault: Callable[[LocatedFault], None],
    on_progress: OnProgress = silent,
) -> Iterator[pa.RecordBatchReader]:
    """Run a query over ``records``, and give its rows as they come.

    The shards are read once for the types of the columns, and then once for each time that the
    query goes through ``records``, only with the columns that it needs. Memory is bounded by
    a batch, and by what DuckDB may hold.

    Args:
        shards: the files.
        sql: one SELECT statement.
        workers: how many processes at most look for the columns; None takes the cores.
        engine: where they run: "local", or "ray" for the nodes of a cluster, which also do what
            the query asks of each record alone.
        engine_address: of the cluster, HOST:PORT; None takes it from RAY_ADDRESS.
        on_fault: called with the damage that is left out, once; what it raises ends the query.
        on_progress: called with the bytes that are read, and then after each batch.

    Raises:
        ShardError: a file can't be read, or the query needs too much memory.
        UsageError: it is no SELECT, or makes no sense, or DuckDB is missing.
    """
    check_select(sql)
    with ExitStack() as stack:
        pool = stack.enter_context(engine_of(engine, engine_address, workers))
        columns = infer_columns(shards, workers=pool, on_progress=on_progress)
        begun = stack.enter_context(ExitStack())
        asked: BatchQuery | None = None
        spread, scans = not isinstance(pool, Processes), 0

        def scan(names: Collection[str]) -> Iterator[pa.RecordBatch]:
            nonlocal scans
            scans += 1
            tell = on_fault if scans == 1 else lambda _: None  # what was told already
            wanted = asked.columns if asked else narrowed(columns, names)
            read = partial(_read, columns=wanted, asked=asked)
            tables = _spread(read, shards, pool, tell) if spread else read(shards, on_fault=tell)
            begun.callback(_close, tables)
            done = 0
            for count, table in tables:
                done += count
                on_progress(Progress(what="reading", done=done, total=None, unit="records"))
                yield from table.to_batches() if asked else [table]

        sandbox = stack.enter_context(closing(Sandbox(table_schema(columns), scan)))
        try:
            sandbox.check(sql)
            if spread and (split := _split(sandbox, sql, columns, scan)):
                asked, sandbox, sql = split
                stack.enter_context(closing(sandbox))
            reader = stack.enter_context(closing(sandbox.read(sql)))
            for name, count in Counter(reader.schema.names).items():
                if count > 1:
                    hint = "AS gives one of them another name"
                    raise UsageError(f"{count} columns are called {name!r}", hint=hint)
            yield reader
        except Exception as error:
            raise sandbox.as_error(error) from error


def _split(
    sandbox: Sandbox, sql: str, columns: Columns, scan: Scan
) -> tuple[BatchQuery, Sandbox, str] | None:
    """Return what is asked of each batch, and of all the answers; None if all must be seen."""
    with suppress(UsageError), ExitStack() as stack:
        if split := split_query(sandbox, sql):
            asked = BatchQuery(split[0], columns, text=sandbox.text)
            rest = stack.enter_context(closing(Sandbox(asked.schema, scan)))
            rest.check(split[1])
            # Arrow doesn't have all types.
            same = rest.types("FROM records") == sandbox.types(split[0])
            if same and rest.types(split[1]) == sandbox.types(sql):
                stack.pop_all()
                return asked, rest, split[1]
    return None


def _read(
    shards: Sequence[Path], columns: Columns, asked: BatchQuery | None, on_fault: OnFault
) -> _Tables:
    """Yield how many records a batch has, and its table, or what is answered for it."""
    for batch in read_batches(shards, columns, places=True, on_fault=on_fault):
        yield len(batch.records), asked.ask(batch.table) if asked else batch.table


def _spread(
    read: Callable[..., _Tables], shards: Sequence[Path], pool: Engine, on_fault: OnFault
) -> _Tables:
    """Do what ``read`` does, by tasks; shards of which there is much to tell are read here."""
    found = map_shards(partial(_sent, read=read, left=_SENT), shards, pool, reads=True)
    for shard, items in zip(shards, found, strict=True):
        for item in read([shard], on_fault=on_fault) if items is None else items:
            if isinstance(item, LocatedFault):
                on_fault(item)
            else:
                yield item


def _close(tables: Any) -> None:
    while tables.gi_running:  # one of DuckDB's threads may be in it yet, after an error
        time.sleep(0.01)
    tables.close()


def _sent(shard: Path, read: Callable[..., _Tables], left: int) -> list[Any] | None:
    items: list[Any] = []

    def take(item: Any, size: int = _FAULT) -> None:
        nonlocal left
        left -= size
        items.append(item)
        if left < 0:
            raise _TooMuchError

    with suppress(_TooMuchError):
        for count, table in read([shard], on_fault=take):
            take((count, table), table.nbytes)
        return items
    return None


def write_parquet(reader: pa.RecordBatchReader, file: BinaryIO) -> None:
    """Write rows to a Parquet file as they come."""
    with pq.ParquetWriter(file, reader.schema, compression="zstd") as writer:
        for batch in reader:
            writer.write_batch(batch)
