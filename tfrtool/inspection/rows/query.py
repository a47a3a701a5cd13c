"""SQL over the records of shards.

A process of its own imports Arrow and DuckDB; this one only if shards are large, or to return
Arrow.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, cast

from tfrtool.engines.engine import Workers
from tfrtool.errors import ShardError, os_reason
from tfrtool.features.type_spelling import check_types
from tfrtool.inspection.rows.query_request import Hooks, QueryRequest
from tfrtool.inspection.rows.sql_child import SqlChild
from tfrtool.records.framing import LocatedFault
from tfrtool.records.stream import total_bytes
from tfrtool.storage.child import ChildDied
from tfrtool.storage.opening import read_ahead
from tfrtool.storage.progress import BYTES, Meter, OnProgress, Progress, no_progress
from tfrtool.storage.remote_path import AnyPath, RemotePath

if TYPE_CHECKING:
    import pyarrow as pa

    from tfrtool.inspection.rows.statement import Statement

_SHORT, _SHORT_ALONE = 16 * 1024**2, 256 * 1024**2
"""Bytes of several shards, and of one, that are read by one process."""


class Rows(NamedTuple):
    """The rows of an answer as Python's values, as they come."""

    names: Sequence[str]
    rows: Iterator[tuple[Any, ...]]


@contextmanager
def query(
    shards: Sequence[AnyPath],
    sql: str,
    *,
    workers: Workers = None,
    on_fault: Callable[[LocatedFault], None],
    on_progress: OnProgress = no_progress,
    on_note: Callable[[str], None] = lambda _: None,
    **choices: Any,
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
        workers: how many processes at most look for the columns; None takes the cores.
        on_fault: called with the damage that is left out, once; what it raises ends the query.
        on_progress: called with the bytes that are read, for the columns, and then for the
            query if it reads them again.
        on_note: called with a note on the parts of messages that are not columns.
        choices: the other fields of `QueryRequest`.

    Raises:
        ShardError: a file can't be read, the query can't be started, needs too much memory, or
            fails at a value.
        UsageError: it is not a SELECT, or makes no sense.
    """
    request = QueryRequest(shards=shards, sql=sql, **choices)
    with _answering(request, workers, Hooks(on_fault, on_progress, on_note)) as found:
        import pyarrow as pa

        from tfrtool.inspection.rows.sandbox import unpack_batch

        schema = next(found)
        yield pa.RecordBatchReader.from_batches(schema, map(unpack_batch, found))


@contextmanager
def query_rows(
    shards: Sequence[AnyPath],
    sql: str,
    *,
    workers: Workers = None,
    on_fault: Callable[[LocatedFault], None],
    on_progress: OnProgress = no_progress,
    on_note: Callable[[str], None] = lambda _: None,
    **choices: Any,
) -> Iterator[Rows]:
    """Do what `query` does, for rows as Python's values; this process then needs no Arrow."""
    request = QueryRequest(shards=shards, sql=sql, as_values=True, **choices)
    with _answering(request, workers, Hooks(on_fault, on_progress, on_note)) as found:
        names = next(found)
        yield Rows(names, (row for columns in found for row in zip(*columns, strict=True)))


@contextmanager
def _answering(request: QueryRequest, workers: Workers, hooks: Hooks) -> Iterator[Iterator[Any]]:
    """Give what the process of a query sends: a schema or the names of columns, then batches."""
    check_types(request.types, as_stored=request.as_stored)
    with ExitStack() as stack:
        try:
            child = stack.enter_context(SqlChild())
            is_short = _is_short(request.shards)
            if is_short and not _finds_columns(child, request, hooks):
                child.kill()
                child, is_short = stack.enter_context(SqlChild()), False
            if not is_short:
                stack.enter_context(_begun(child, request, workers, hooks))
            found = _received(child, request.shards, hooks)
            first = next(found)
        except OSError as error:  # not of writing rows, which is up to the caller
            what = f"the query can't be started: {os_reason(error)}"
            raise ShardError(what, path=error.filename) from error
        yield chain([first], found)


@contextmanager
def _begun(
    child: SqlChild, request: QueryRequest, workers: Workers, hooks: Hooks
) -> Iterator[None]:
    """Find the columns outside of the process with limited memory, and have it answer."""
    names = ["records", *(request.tables or {})]
    child.send(_parse, request.sql, request.condition, names)
    from tfrtool.inspection.rows.query_tables import begin_answer

    statement = cast("Statement", child.receive())
    with begin_answer(child, request, statement, workers, hooks):
        yield


def _finds_columns(child: SqlChild, request: QueryRequest, hooks: Hooks) -> bool:
    """Have one process do all of a query; return whether its memory is enough for the columns.

    A compressed shard may be short and have a record that is not. Finding the columns takes several
    times its size, and the query itself perhaps less.
    """
    notes = list[str]()  # others will be passed on, if it does not find them
    child.send(_answer, request)
    for shard in request.shards:  # while the process imports Arrow and DuckDB
        read_ahead(shard)
    try:
        next(_received(child, request.shards, hooks._replace(on_note=notes.append)))
    except ShardError as error:
        if isinstance(error.__cause__, ChildDied | MemoryError):
            return False
        raise
    for text in notes:
        hooks.on_note(text)
    return True


def _is_short(shards: Sequence[AnyPath]) -> bool:
    """Return whether one process finds the columns of shards as soon as several do."""
    if any(isinstance(shard, RemotePath) for shard in shards):
        return False
    with suppress(OSError):
        size = sum(shard.stat().st_size for shard in shards)
        return size <= (_SHORT if len(shards) > 1 else _SHORT_ALONE)
    return False


def _received(child: SqlChild, shards: Sequence[AnyPath], hooks: Hooks) -> Iterator[Any]:
    """Yield what a query sends, and pass on damage, notes and progress."""
    meter = None
    while (found := child.receive()) is not None:
        if isinstance(found, LocatedFault):
            hooks.on_fault(found)
        elif isinstance(found, str):
            hooks.on_note(found)
        elif isinstance(found, Progress):
            hooks.on_progress(found)
        elif isinstance(found, dict):
            meter = meter or Meter(hooks.on_progress, "reading", BYTES, total_bytes(shards))
            meter.add(found)
        else:
            yield found
    if meter is not None:
        meter.finish()


def _parse(sql: str, condition: str | None, tables: Collection[str]) -> "Statement":
    import tfrtool.inspection.rows.query_tables  # noqa: F401 - while the parent does the same
    from tfrtool.inspection.rows.database import connect

    with closing(connect()) as connection:
        return _parsed(connection, sql, condition, tables)


def _parsed(
    connection: Any, sql: str, condition: str | None, tables: Collection[str]
) -> "Statement":
    from tfrtool.inspection.rows.statement import Statement, check_condition

    if condition is not None:
        check_condition(connection, condition)
    return Statement.parse(connection, sql, tables)


def _answer(request: QueryRequest) -> None:
    """Answer a query in the process that is for it."""
    from tfrtool.inspection.rows.database import connect
    from tfrtool.inspection.rows.query_tables import answer

    names = ["records", *(request.tables or {})]
    with closing(connect()) as connection:
        statement = _parsed(connection, request.sql, request.condition, names)
        answer(request, statement, connection)


def matching_records(
    shards: Sequence[AnyPath],
    where: str,
    *,
    limit: int | None = None,
    **choices: Any,
) -> dict[AnyPath, list[int]]:
    """Return the numbers of the records of each shard for which an SQL condition holds.

    ``choices`` are the arguments of `query`.
    """
    sql = f"SELECT _shard, _record FROM records WHERE (\n{where}\n)"
    sql += "" if limit is None else f" LIMIT {limit}"
    names_of = {path: str(path).encode("utf-8", "backslashreplace").decode() for path in shards}
    found: dict[str, list[int]] = {name: [] for name in names_of.values()}
    with query_rows(shards, sql, condition=where, **choices) as answer:
        for name, number in answer.rows:
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
