"""Tables for SQL: the records of shards, as they are read, and files."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tfrtool.engines.engine import Engine, Workers
from tfrtool.engines.local_copies import local_copies
from tfrtool.engines.pool import Processes
from tfrtool.errors import SourceError, UsageError, os_errors_as
from tfrtool.examples.arrow.columns import CONTEXT, PLACES, Columns
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.example import PayloadKind
from tfrtool.features.explode import ExplodedTable
from tfrtool.features.exploded_columns import needed_columns
from tfrtool.features.feature_columns import FeatureColumns
from tfrtool.features.sources import DeclaredFeatures, declared_features
from tfrtool.inspection.rows.batches import (
    LABEL_NAME,
    Batch,
    CachedRecords,
    OnFault,
    RowColumns,
    fold_columns,
    read_batches,
    unknown_note,
    values_of,
    with_inferred,
)
from tfrtool.inspection.rows.database import connect
from tfrtool.inspection.rows.event_columns import EventColumns
from tfrtool.inspection.rows.exploded_rows import Exploder
from tfrtool.inspection.rows.query_request import Hooks, QueryRequest, Step
from tfrtool.inspection.rows.ranking_shards import ranking_columns
from tfrtool.inspection.rows.sandbox import Sandbox, Scan, pack_batch
from tfrtool.inspection.rows.sql_child import SqlChild
from tfrtool.inspection.rows.statement import Statement
from tfrtool.records.count import as_error
from tfrtool.records.framing import Fault, FaultKind
from tfrtool.records.reader import read_shard
from tfrtool.records.shards import find_shards
from tfrtool.sources.formats import parquet_reader
from tfrtool.storage.arguments import Paths, as_path, check_no_url
from tfrtool.storage.child import send_to_parent
from tfrtool.storage.opening import open_regular
from tfrtool.storage.progress import counting
from tfrtool.storage.remote_path import AnyPath, with_copies

if TYPE_CHECKING:
    from tfrtool.sources.formats.text_tables import TextTable

_RECORDS = "records"
"""The table of the shards."""

_TABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_ARROW_FILE = re.compile(r".+\.(parquet|arrow|arrows|feather|ipc)", re.IGNORECASE)
_TEXT_FILE = re.compile(r".+\.(csv|tsv|jsonl|ndjson|json)(\.gz)?", re.IGNORECASE)


@dataclass(frozen=True)
class _ShardTable:
    """Shards, their columns, what names the shards, and the lists whose items are rows."""

    shards: Sequence[AnyPath]
    columns: Columns
    sources: Paths
    cached: Mapping[AnyPath, CachedRecords]
    explode: Sequence[str] | None = None

    @cached_property
    def _row_columns(self) -> RowColumns:
        return RowColumns.of(self.shards, self.columns, self.sources)

    def _exploded(self, names: Collection[str]) -> ExplodedTable | None:
        if self.explode is None:
            return None
        return ExplodedTable.of(self._row_columns.schema(self.columns, names), self.explode)

    @property
    def paths(self) -> Sequence[str]:
        if self.explode is not None or not isinstance(self.columns, FeatureColumns):
            return ()
        return self.columns.inner_paths

    def schema(self, mentioned: Collection[str]) -> pa.Schema:
        columns = self.columns
        if (exploded := self._exploded(mentioned)) is not None:
            for text in exploded.notes:
                send_to_parent(text)
            return exploded.schema
        if isinstance(columns, FeatureColumns):
            columns = columns.with_paths(mentioned)
        return self._row_columns.schema(columns, mentioned)

    def scan(self, names: Collection[str], on_fault: OnFault) -> Iterator[pa.RecordBatch]:
        row_columns = self._row_columns.with_splits() if PLACES[4] in names else self._row_columns
        if row_columns.adds_index(self.columns, names):
            row_columns = row_columns.with_index()
        if (exploded := self._exploded(names)) is not None:
            yield from self._items(exploded, row_columns, names, on_fault)
            return
        columns = row_columns.narrowed(self.columns, names)
        for shard in self.shards:
            cached = self.cached.get(shard)
            if cached is not None and cached.has_all_values(columns):
                for table, places in cached.tables(shard, columns, on_fault):
                    yield row_columns.add_to(table, shard, places, names)
                continue
            for batch in _read_counted(shard, columns, on_fault):
                yield row_columns.add_to(batch.table, shard, batch.places(), names)

    def _items(
        self,
        exploded: ExplodedTable,
        row_columns: RowColumns,
        names: Collection[str],
        on_fault: OnFault,
    ) -> Iterator[pa.RecordBatch]:
        """Yield a row for each item; only the fields that have these names are decoded."""
        paths = exploded.paths(names)
        if LABEL_NAME in names and row_columns.label is not None:
            paths |= {row_columns.label, f"{CONTEXT}/{row_columns.label}"}
        columns = needed_columns(self.columns, paths, exploded.lists)
        exploder = Exploder(exploded, on_fault)
        for shard in self.shards:
            for batch in _read_counted(shard, columns, on_fault):
                table = row_columns.add_to(batch.table, shard, batch.places(), names)
                others = {*PLACES} - {*names}
                chosen = [name for name in table.schema.names if name not in others]
                yield from exploder.rows(batch, table.select(chosen))
        if on_fault is send_to_parent and (text := exploder.note()) is not None:
            send_to_parent(text)


def _read_counted(shard: AnyPath, columns: Columns, on_fault: OnFault) -> Iterator[Batch]:
    """Yield the batches of a shard, and send the bytes that are read."""
    batches = read_batches([shard], columns, on_fault=on_fault)
    while True:
        with counting(send_to_parent):  # DuckDB may ask for each batch in another thread
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


@dataclass(frozen=True, slots=True)
class _ParquetTable:
    """A Parquet or Arrow file."""

    path: AnyPath
    paths: Sequence[str] = ()

    def schema(self, _: Collection[str]) -> pa.Schema:
        schema = parquet_reader.read_facts(self.path).schema
        for name, count in Counter(schema.names).items():
            if count > 1:
                raise SourceError(f"{count} columns are named {name!r}", path=self.path)
        return schema

    def scan(self, names: Collection[str], _: OnFault) -> Iterator[pa.RecordBatch]:
        return parquet_reader.read_batches(self.path, columns=[*names])


@dataclass(frozen=True)
class _TextFile:
    """A file of CSV or JSON."""

    path: AnyPath
    paths: Sequence[str] = ()

    @cached_property
    def _table(self) -> "TextTable":
        from tfrtool.sources.formats.text_tables import TextTable

        return TextTable.scan(self.path)

    def schema(self, _: Collection[str]) -> pa.Schema:
        return self._table.schema()

    def scan(self, names: Collection[str], _: OnFault) -> Iterator[pa.RecordBatch]:
        return self._table.batches(names)


_File = _ParquetTable | _TextFile
_AnyTable = _ShardTable | _File


@contextmanager
def begin_answer(
    child: SqlChild, request: QueryRequest, statement: Statement, workers: Workers, hooks: Hooks
) -> Iterator[None]:
    """Find the columns of shards in several processes; then have one answer it."""
    folding = workers if isinstance(workers, Engine) else Processes(workers, ready=[child])
    places = _located(request)
    own_shards = [path for one in places.values() if isinstance(one, tuple) for path in one]
    with local_copies(own_shards, workers, hooks.on_progress):
        known = _tables(request, places, child.call, folding, hooks)
        child.send(with_copies(_answer_in_child), known, statement, request)
        yield


def answer(request: QueryRequest, statement: Statement, connection: Any) -> None:
    """Do all of a query in this process, which sends its parent what it finds."""
    hooks = Hooks(send_to_parent, send_to_parent, send_to_parent)
    known = _tables(request, _located(request), _call, 1, hooks)
    send_to_parent(Step.COLUMNS_FOUND)
    _answer(connection, known, statement, request)


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def _tables(
    request: QueryRequest,
    places: Mapping[str, "_File | tuple[AnyPath, ...]"],
    call: Callable[..., Any],
    workers: Workers,
    hooks: Hooks,
) -> dict[str, "_AnyTable"]:
    """Return the tables of a query, with the columns of shards.

    What decodes records is called by ``call``, in a process with limited memory.
    """
    known: dict[str, _AnyTable] = {}
    for name, paths in places.items():
        if not isinstance(paths, tuple):
            known[name] = paths
            continue
        is_main, proto = name == _RECORDS, request.proto
        cached = dict[AnyPath, CachedRecords]()
        columns: Columns | None = None
        if proto is not None and is_main:
            columns = proto
            note = unknown_note(paths, proto, workers=workers, on_progress=hooks.on_progress)
            if note:
                hooks.on_note(note)
        elif not request.as_stored:
            types = request.types if is_main else None
            columns = _known(paths, types, call, workers, hooks)
        if columns is None:
            fold = fold_columns(
                paths, cached=cached, workers=workers, on_progress=hooks.on_progress
            )
            columns = _inferred(fold)
        named = request.sources if is_main else (request.tables or {})[name]
        named = paths if named is None else named
        lists = request.explode if is_main else None
        known[name] = _ShardTable(paths, columns, named, cached, lists)
    return known


def _known(
    shards: Sequence[AnyPath],
    types: Mapping[str, str] | None,
    call: Callable[..., Any],
    workers: Workers,
    hooks: Hooks,
) -> Columns | None:
    """Return the columns that features.json or types describe, or those of lists of Examples."""
    declared = call(with_copies(_declared), shards, types)
    if declared.is_partial:
        fold = fold_columns(shards, workers=workers, on_progress=hooks.on_progress)
        declared = call(with_inferred, declared, fold)
    for note in declared.all_notes:
        hooks.on_note(note)
    columns: Columns | None = declared.columns
    if columns is not None:
        return columns
    return ranking_columns(shards, hooks.on_note, workers=workers, on_progress=hooks.on_progress)


def _declared(shards: Sequence[AnyPath], types: Mapping[str, str] | None) -> DeclaredFeatures:
    """Return what features.json or types describe; they are tried on some records."""
    return declared_features(shards, types)


def _inferred(fold: ColumnsFold) -> Columns:
    """Return the columns for all records of shards, which a fold has seen."""
    columns = fold.table_columns(exact=False)
    if columns.kind is PayloadKind.EVENT:
        return EventColumns(PayloadKind.EVENT, is_list=fold.event_values > 1)
    return columns


def _located(request: QueryRequest) -> dict[str, "_File | tuple[AnyPath, ...]"]:
    """Return the file of each table, or its shards."""
    found: dict[str, _File | tuple[AnyPath, ...]] = {_RECORDS: tuple(request.shards)}
    for name, location in (request.tables or {}).items():
        if not _TABLE_NAME.fullmatch(name) or name.casefold() == _RECORDS:
            raise UsageError(
                f"invalid table name {name[:100]!r}",
                expected=f"letters, digits and _, and not {_RECORDS}",
            )
        if name.casefold() in map(str.casefold, found):
            raise UsageError(f"two tables are named {name!r}")
        path = as_path(location)
        is_text = _TEXT_FILE.fullmatch(path.name) is not None
        if is_text:
            check_no_url(location, "only local CSV and JSON files can be joined")
        if path.is_dir() or not (is_text or _ARROW_FILE.fullmatch(path.name)):
            found[name] = shards = find_shards(location)
            for shard in shards:
                first = next(read_shard(shard), None)
                if isinstance(first, Fault) and first.kind is FaultKind.NOT_TFRECORD:
                    raise as_error(shard, first)  # even if the query doesn't use it
            continue
        with os_errors_as(SourceError, path), open_regular(path):
            pass
        found[name] = _TextFile(path) if is_text else _ParquetTable(path)
    return found


def _answer_in_child(
    known: Mapping[str, _AnyTable], statement: Statement, request: QueryRequest
) -> None:
    with closing(connect()) as connection:
        _answer(connection, known, statement, request)


def _answer(
    connection: Any,
    known: Mapping[str, _AnyTable],
    statement: Statement,
    request: QueryRequest,
) -> None:
    """Run a query in the process that is for it, and send rows, damage and progress."""
    tables = {name: _reported(one, statement.names) for name, one in known.items()}
    paths = [path for table in known.values() for path in table.paths]
    sandbox = Sandbox(connection, tables, statement, paths)
    try:
        sandbox.check()
        with sandbox.read(as_text=request.as_text) as reader:
            send_to_parent(reader.schema.names if request.as_values else reader.schema)
            for batch in reader:
                send_to_parent(values_of(batch) if request.as_values else pack_batch(batch))
    except Exception as error:
        raise sandbox.as_error(error) from error


def _reported(table: _AnyTable, mentioned: Collection[str]) -> tuple[pa.Schema, Scan]:
    """Return a table's schema and rows; its first scan reports damage."""
    scans, read = 0, with_copies(next)  # DuckDB reads in threads of its own

    def scan(names: Collection[str]) -> Iterator[pa.RecordBatch]:
        nonlocal scans
        scans += 1
        batches = table.scan(names, send_to_parent if scans == 1 else lambda _: None)
        while (batch := read(batches, None)) is not None:
            yield batch

    return table.schema(mentioned), scan
