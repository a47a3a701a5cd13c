"""SQL over the records of shards.

Arrow and DuckDB are imported here and in another process at the same time.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, BinaryIO, cast

from tfrtool.engines.engine import Workers
from tfrtool.errors import ShardError, os_reason
from tfrtool.features.type_spelling import check_types
from tfrtool.inspection.rows.sql_child import SqlChild
from tfrtool.records.framing import LocatedFault
from tfrtool.storage.arguments import Paths
from tfrtool.storage.progress import OnProgress, no_progress
from tfrtool.storage.remote_path import AnyPath

if TYPE_CHECKING:
    import pyarrow as pa

    from tfrtool.examples.arrow.messages import MessageColumns
    from tfrtool.inspection.rows.statement import Statement


@contextmanager
def query(
    shards: Sequence[AnyPath],
    sql: str,
    *,
    tables: Mapping[str, str | os.PathLike[str]] | None = None,
    sources: Paths | None = None,
    workers: Workers = None,
    as_text: bool = False,
    as_stored: bool = False,
    types: Mapping[str, str] | None = None,
    explode: Sequence[str] | None = None,
    proto: "MessageColumns | None" = None,
    condition: str | None = None,
    on_fault: Callable[[LocatedFault], None],
    on_progress: OnProgress = no_progress,
    on_note: Callable[[str], None] = lambda _: None,
) -> "Iterator[pa.RecordBatchReader]":
    """Run a query over ``records``, and give its rows as they come.

    The shards are read once for the types of the columns. Intact shards whose records are short
    without their long values, such as images, are not read again if the query needs no such value.
    Others are read once more for each time that the query goes through ``records``, only with the
    columns that it needs; those of a store from `local_copies`. The query itself is done by a
    process of its own with limited memory, which is killed when the block is left.

    Args:
        shards: the files.
        sql: one SELECT statement.
        tables: other tables to join, by name: files of CSV, JSON Lines, Parquet or
            Arrow, or shards.
        sources: what names the shards, such as their directory, which says their splits; None
            takes the files themselves.
        workers: how many processes at most look for the columns; None takes the cores.
        as_text: whether dates, times and timestamps come as text: Python can't hold all of them.
            Values that Arrow can't hold always do.
        as_stored: whether columns are the features as records store them, whatever features.json
            says.
        types: types of the features of the shards by name, which come before those of files.
        explode: the lists whose items are the rows of ``records``; None for a row for each record.
        proto: the fields of other messages, which the records of the shards are.
        condition: the part of the statement that must be an expression.
        on_fault: called with the damage that is left out, once; what it raises ends the query.
        on_progress: called with the bytes that are read, for the columns, and then for the
            query if it reads them again.
        on_note: called with a note on the parts of messages that are not columns.

    Raises:
        ShardError: a file can't be read, the query can't be started, needs too much memory, or
            fails at a value.
        UsageError: it is not a SELECT, or makes no sense.
    """
    check_types(types, as_stored=as_stored)
    with ExitStack() as stack:
        try:
            child = stack.enter_context(SqlChild())
            child.send(_parse, sql, condition, ["records", *(tables or {})])
            from tfrtool.inspection.rows.query_tables import answers

            answer = answers(
                child,
                shards,
                cast("Statement", child.receive()),
                tables=tables,
                sources=sources,
                workers=workers,
                as_text=as_text,
                as_stored=as_stored,
                types=types,
                explode=explode,
                proto=proto,
                on_fault=on_fault,
                on_progress=on_progress,
                on_note=on_note,
            )
            reader = stack.enter_context(answer)
        except OSError as error:  # not of writing rows, which is up to the caller
            what = f"the query can't be started: {os_reason(error)}"
            raise ShardError(what, path=error.filename) from error
        yield reader


def _parse(sql: str, condition: str | None, tables: Collection[str]) -> "Statement":
    import tfrtool.inspection.rows.query_tables  # noqa: F401 - while the parent does the same
    from tfrtool.inspection.rows.statement import Statement, check_condition

    if condition is not None:
        check_condition(condition)
    return Statement.parse(sql, tables)


def matching_records(
    shards: Sequence[AnyPath],
    where: str,
    *,
    sources: Paths | None = None,
    workers: Workers = None,
    limit: int | None = None,
    as_stored: bool = False,
    types: Mapping[str, str] | None = None,
    proto: "MessageColumns | None" = None,
    on_fault: Callable[[LocatedFault], None],
    on_progress: OnProgress = no_progress,
) -> dict[AnyPath, list[int]]:
    """Return the numbers of the records of each shard for which an SQL condition holds."""
    from tfrtool.examples.arrow.columns import PLACES

    sql = f"SELECT {PLACES[0]}, {PLACES[1]} FROM records WHERE (\n{where}\n)"
    sql += "" if limit is None else f" LIMIT {limit}"
    names_of = {path: str(path).encode("utf-8", "backslashreplace").decode() for path in shards}
    found: dict[str, list[int]] = {name: [] for name in names_of.values()}
    asked = query(
        shards,
        sql,
        sources=sources,
        workers=workers,
        as_stored=as_stored,
        types=types,
        proto=proto,
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


def write_arrow(reader: "pa.RecordBatchReader", file: BinaryIO) -> int:
    """Write rows to an Arrow stream as they come; return how many."""
    import pyarrow as pa

    rows = 0
    with pa.ipc.new_stream(file, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def write_parquet(reader: "pa.RecordBatchReader", file: BinaryIO) -> int:
    """Write rows to a Parquet file as they come; return how many."""
    import pyarrow.parquet as pq

    rows = 0
    with pq.ParquetWriter(file, reader.schema, compression="zstd") as writer:
        for batch in reader:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows
