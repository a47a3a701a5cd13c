"""SQL over the records of shards, as they are read."""

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from tfrtool.engines.engine import Workers
from tfrtool.engines.local_copies import local_copies
from tfrtool.errors import SourceError, UsageError, os_errors_as
from tfrtool.examples.arrow.columns import PLACES, Columns
from tfrtool.examples.arrow.messages import MessageColumns
from tfrtool.examples.example import PayloadKind
from tfrtool.examples.stored_types import StoredTypes
from tfrtool.inspection.rows.batches import (
    OnFault,
    RowColumns,
    fold_columns,
    read_batches,
    unknown_note,
)
from tfrtool.inspection.rows.event_columns import EventColumns
from tfrtool.inspection.rows.sandbox import (
    Sandbox,
    Scan,
    SqlChild,
    check_condition,
    check_select,
    pack_batch,
    unpack_batch,
)
from tfrtool.records.count import as_error
from tfrtool.records.framing import Fault, FaultKind, LocatedFault
from tfrtool.records.reader import read_shard
from tfrtool.records.shards import find_shards
from tfrtool.records.stream import total_bytes
from tfrtool.sources.formats import parquet_reader
from tfrtool.sources.formats.text_rows import detect_delimiter
from tfrtool.sources.formats.unpacked import open_unpacked, plain_suffix
from tfrtool.storage.arguments import Paths, as_path, check_no_url
from tfrtool.storage.child import send_to_parent
from tfrtool.storage.progress import BYTES, Meter, OnProgress, counting, no_progress
from tfrtool.storage.remote_path import AnyPath

RECORDS = "records"
"""The table of the shards."""

_TABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_CHUNK = 1 << 20
_LARGEST_ARRAY = 10_000
"""Values of a tensor; DuckDB reserves memory for 2048 of them, and a larger one stays a list."""

_TEXT_FILE = re.compile(r".+\.(csv|tsv|jsonl|ndjson|json)(\.gz)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _ShardTable:
    """Shards, and their columns."""

    shards: Sequence[AnyPath]
    columns: Columns
    own: RowColumns

    def schema(self) -> pa.Schema:
        return self.own.schema(self.columns)

    def scan(self, names: Collection[str], on_fault: OnFault) -> Iterator[pa.RecordBatch]:
        own = self.own.with_splits() if PLACES[4] in names else self.own
        batches = read_batches(self.shards, own.narrowed(self.columns, names), on_fault=on_fault)
        while True:
            with counting(send_to_parent):  # DuckDB may ask for each batch in another thread
                batch = next(batches, None)
            if batch is None:
                return
            yield own.add_to(batch, names)


@dataclass(frozen=True, slots=True)
class _ParquetTable:
    """A Parquet file."""

    path: AnyPath

    def schema(self) -> pa.Schema:
        return parquet_reader.read_facts(self.path).schema

    def scan(self, names: Collection[str], _: OnFault) -> Iterator[pa.RecordBatch]:
        return parquet_reader.read_batches(self.path, columns=[*names])


@dataclass(frozen=True, slots=True)
class _TextTable:
    """A file of CSV or JSON.

    Attributes:
        path: where it is.
        delimiter: what is between the values of CSV; "" for JSON.
    """

    path: Path
    delimiter: str


_AnyTable = _ShardTable | _ParquetTable | _TextTable


@contextmanager
def query(
    shards: Sequence[AnyPath],
    sql: str,
    *,
    tables: Mapping[str, str | os.PathLike[str]] | None = None,
    sources: Paths | None = None,
    workers: Workers = None,
    as_text: bool = False,
    proto: MessageColumns | None = None,
    condition: str | None = None,
    on_fault: Callable[[LocatedFault], None],
    on_progress: OnProgress = no_progress,
    on_note: Callable[[str], None] = lambda _: None,
) -> Iterator[pa.RecordBatchReader]:
    """Run a query over ``records``, and give its rows as they come.

    The shards are read once for the types of the columns, and then once for each time that the
    query goes through ``records``, only with the columns that it needs; those of a store from
    `local_copies`. That and the query itself
    are done by a process of its own with limited memory, which is killed when the block is left.

    Args:
        shards: the files.
        sql: one SELECT statement.
        tables: other tables to join, by name: files of CSV, JSON Lines or Parquet, or shards.
        sources: what names the shards, such as their directory, which says their splits; None
            takes the files themselves.
        workers: how many processes at most look for the columns; None takes the cores.
        as_text: whether dates, times and timestamps come as text: Python can't hold all of them.
            Values that Arrow can't hold always do.
        proto: the fields of other messages, which the records of the shards are.
        condition: the part of the statement that must be an expression.
        on_fault: called with the damage that is left out, once; what it raises ends the query.
        on_progress: called with the bytes that are read, for the columns and then for the query.
        on_note: called with a note on the parts of messages that are not columns.

    Raises:
        ShardError: a file can't be read, the query needs too much memory, or fails at a value.
        UsageError: it is not a SELECT, or makes no sense.
    """
    with ExitStack() as copies, SqlChild() as child:
        if condition is not None:
            child.call(check_condition, condition)
        child.call(check_select, sql)
        known: dict[str, _AnyTable] = {}
        places = {RECORDS: tuple(shards), **_located(tables or {})}
        own_shards = [path for one in places.values() if isinstance(one, tuple) for path in one]
        copies.enter_context(local_copies(own_shards, workers, on_progress))
        for name, paths in places.items():
            if not isinstance(paths, tuple):
                known[name] = paths
                continue
            columns: Columns
            if proto is not None and name == RECORDS:
                columns = proto
                note = unknown_note(paths, proto, workers=workers, on_progress=on_progress)
                if note:
                    on_note(note)
            else:
                fold = fold_columns(paths, workers=workers, on_progress=on_progress)
                columns = StoredTypes.read(paths).apply(fold.table_columns(exact=False))
                held = (
                    replace(one, shape=()) if abs(prod(one.shape)) > _LARGEST_ARRAY else one
                    for one in columns.columns
                )
                columns = replace(columns, columns=tuple(held))
                if columns.kind is PayloadKind.EVENT:
                    columns = EventColumns(PayloadKind.EVENT, is_list=fold.event_values > 1)
            named = (tables or {}).get(name, sources)
            own = RowColumns.of(paths, columns, paths if named is None else named)
            known[name] = _ShardTable(paths, columns, own)
        meter = Meter(on_progress, "reading", BYTES, total_bytes(shards))
        child.send(_answer, known, sql, as_text)

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
    proto: MessageColumns | None = None,
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


def _located(
    tables: Mapping[str, str | os.PathLike[str]],
) -> dict[str, _ParquetTable | _TextTable | tuple[AnyPath, ...]]:
    """Return the file of each table to join, or its shards."""
    found: dict[str, _ParquetTable | _TextTable | tuple[AnyPath, ...]] = {}
    for name, place in tables.items():
        if not _TABLE_NAME.fullmatch(name) or name.casefold() == RECORDS:
            raise UsageError(
                f"invalid table name {name[:100]!r}",
                expected=f"letters, digits and _, and not {RECORDS}",
            )
        if name.casefold() in map(str.casefold, found):
            raise UsageError(f"two tables are named {name!r}")
        path = as_path(place)
        is_text = _TEXT_FILE.fullmatch(path.name) is not None
        if is_text:
            check_no_url(place, "only local CSV and JSON files can be joined")
        if path.is_dir() or not (is_text or path.suffix.lower() == ".parquet"):
            found[name] = shards = find_shards(place)
            for shard in shards:
                first = next(read_shard(shard), None)
                if isinstance(first, Fault) and first.kind is FaultKind.NOT_TFRECORD:
                    raise as_error(shard, first)  # even if the query doesn't use it
            continue
        with os_errors_as(SourceError, path), open_unpacked(path) as file:
            # DuckDB has no limit for what a compressed file unpacks to.
            while path.suffix.lower() == ".gz" and file.read(_CHUNK):
                pass
            is_csv = is_text and plain_suffix(path) in (".csv", ".tsv")
            delimiter = detect_delimiter(file, path) if is_csv else ""
            file.seek(0)
            if is_text and not file.read(_CHUNK).strip():
                raise SourceError("it is empty", path=path)
        own = _TextTable(Path(place).absolute(), delimiter)
        found[name] = own if is_text else _ParquetTable(path)
    return found


def _answer(known: Mapping[str, _AnyTable], sql: str, as_text: bool) -> None:
    """Run a query in the process that is for it, and send rows, damage and progress."""
    files = {
        name: (one.path, one.delimiter)
        for name, one in known.items()
        if isinstance(one, _TextTable)
    }
    tables = {
        name: _reported(one) for name, one in known.items() if not isinstance(one, _TextTable)
    }
    with closing(Sandbox(tables, files)) as sandbox:
        try:
            sandbox.check(sql)
            with sandbox.read_exactly(sql, as_text=as_text) as reader:
                send_to_parent(reader.schema)
                for batch in reader:
                    send_to_parent(pack_batch(batch))
        except Exception as error:
            raise sandbox.as_error(error, sql) from error


def _reported(table: _ShardTable | _ParquetTable) -> tuple[pa.Schema, Scan]:
    """Return a table's schema and rows; its first scan reports damage."""
    scans = 0

    def scan(names: Collection[str]) -> Iterator[pa.RecordBatch]:
        nonlocal scans
        scans += 1
        return table.scan(names, send_to_parent if scans == 1 else lambda _: None)

    return table.schema(), scan


def write_arrow(reader: pa.RecordBatchReader, file: BinaryIO) -> int:
    """Write rows to an Arrow stream as they come; return how many."""
    rows = 0
    with pa.ipc.new_stream(file, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def write_parquet(reader: pa.RecordBatchReader, file: BinaryIO) -> int:
    """Write rows to a Parquet file as they come; return how many."""
    rows = 0
    with pq.ParquetWriter(file, reader.schema, compression="zstd") as writer:
        for batch in reader:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows
