"""SQL over the records of shards, as they are read."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from tfrtool.engines.processes import engine_of
from tfrtool.errors import UsageError
from tfrtool.inspection.rows.batches import infer_columns, narrowed, read_batches, table_schema
from tfrtool.inspection.rows.sandbox import Sandbox, check_select
from tfrtool.records.framing import LocatedFault
from tfrtool.storage.progress import OnProgress, Progress, silent


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
        engine: where they run: "local", or "ray" for the nodes of a cluster.
        engine_address: of the cluster, HOST:PORT; None takes it from RAY_ADDRESS.
        on_fault: called with the damage that is left out, once; what it raises ends the query.
        on_progress: called after each shard, and then after each batch.

    Raises:
        ShardError: a file can't be read, or the query needs too much memory.
        UsageError: it is no SELECT, or makes no sense, or DuckDB is missing.
    """
    check_select(sql)
    with engine_of(engine, engine_address, workers) as pool:
        columns = infer_columns(shards, workers=pool, on_progress=on_progress)
    scans = 0

    def scan(names: Collection[str]) -> Iterator[pa.RecordBatch]:
        nonlocal scans
        scans += 1
        tell = on_fault if scans == 1 else lambda _: None  # what was told already
        wanted = narrowed(columns, names)
        done = 0
        for batch in read_batches(shards, wanted, places=True, on_fault=tell):
            done += len(batch.records)
            on_progress(Progress(what="reading", done=done, total=None, unit="records"))
            yield batch.table

    with closing(Sandbox(table_schema(columns), scan)) as sandbox:
        try:
            sandbox.check(sql)
            reader = sandbox.read(sql)
            for name, count in Counter(reader.schema.names).items():
                if count > 1:
                    hint = "AS gives one of them another name"
                    raise UsageError(f"{count} columns are called {name!r}", hint=hint)
            yield reader
        except Exception as error:
            raise sandbox.as_error(error) from error


def write_parquet(reader: pa.RecordBatchReader, file: BinaryIO) -> None:
    """Write rows to a Parquet file as they come."""
    with pq.ParquetWriter(file, reader.schema, compression="zstd") as writer:
        for batch in reader:
            writer.write_batch(batch)
