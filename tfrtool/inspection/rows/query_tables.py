"""Tables for SQL: the records of shards, as they are read, and files."""

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
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
from tfrtool.examples.arrow.messages import MessageColumns
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
    with_inferred,
)
from tfrtool.inspection.rows.event_columns import EventColumns
from tfrtool.inspection.rows.exploded_rows import Exploder
from tfrtool.inspection.rows.ranking_shards import ranking_columns
from tfrtool.inspection.rows.sandbox import Sandbox, Scan, pack_batch, unpack_batch
from tfrtool.inspection.rows.sql_child import SqlChild
from tfrtool.inspection.rows.statement import Statement
from tfrtool.records.count import as_error
from tfrtool.records.framing import Fault, FaultKind, LocatedFault
from tfrtool.records.reader import read_shard
from tfrtool.records.shards import find_shards
from tfrtool.records.stream import total_bytes
from tfrtool.sources.formats import parquet_reader
from tfrtool.storage.arguments import Paths, as_path, check_no_url
from tfrtool.storage.child import send_to_parent
from tfrtool.storage.opening import open_regular
from tfrtool.storage.progress import BYTES, Meter, OnProgress, counting
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


_AnyTable = _ShardTable | _ParquetTable | _TextFile


@contextmanager
def answers(
    child: SqlChild,
    shards: Sequence[AnyPath],
    statement: Statement,
    *,
    tables: Mapping[str, str | os.PathLike[str]] | None,
    sources: Paths | None,
    workers: Workers,
    as_text: bool,
    as_stored: bool,
    types: Mapping[str, str] | None,
    explode: Sequence[str] | None,
    proto: MessageColumns | None,
    on_fault: Callable[[LocatedFault], None],
    on_progress: OnProgress,
    on_note: Callable[[str], None],
) -> Iterator[pa.RecordBatchReader]:
    """Do what `query` does, in a process that has parsed the statement."""
    folding = workers if isinstance(workers, Engine) else Processes(workers, ready=[child])
    with ExitStack() as copies:
        known: dict[str, _AnyTable] = {}
        places = {_RECORDS: tuple(shards), **_located(tables or {})}
        own_shards = [path for one in places.values() if isinstance(one, tuple) for path in one]
        copies.enter_context(local_copies(own_shards, workers, on_progress))
        for name, paths in places.items():
            if not isinstance(paths, tuple):
                known[name] = paths
                continue
            cached = dict[AnyPath, CachedRecords]()
            columns: Columns | None = None
            if proto is not None and name == _RECORDS:
                columns = proto
                note = unknown_note(paths, proto, workers=workers, on_progress=on_progress)
                if note:
                    on_note(note)
            elif not as_stored:
                chosen = types if name == _RECORDS else None
                columns = _known(child, paths, chosen, folding, on_progress, on_note)
            if columns is None:
                fold = fold_columns(paths, cached=cached, workers=folding, on_progress=on_progress)
                columns = _inferred(fold)
            named = (tables or {}).get(name, sources)
            named = paths if named is None else named
            lists = explode if name == _RECORDS else None
            known[name] = _ShardTable(paths, columns, named, cached, lists)
        child.send(with_copies(_answer), known, statement, as_text)

        found = _results(child, shards, on_fault, on_note, on_progress)
        schema = next(found)
        yield pa.RecordBatchReader.from_batches(schema, map(unpack_batch, found))


def _results(
    child: SqlChild,
    shards: Sequence[AnyPath],
    on_fault: OnFault,
    on_note: Callable[[str], None],
    on_progress: OnProgress,
) -> Iterator[Any]:
    """Yield the schema and the batches that a query sends, and pass on what else it does."""
    meter = None
    while (found := child.receive()) is not None:
        if isinstance(found, LocatedFault):
            on_fault(found)
        elif isinstance(found, str):
            on_note(found)
        elif isinstance(found, dict):
            meter = meter or Meter(on_progress, "reading", BYTES, total_bytes(shards))
            meter.add(found)
        else:
            yield found
    if meter is not None:
        meter.finish()


def _known(
    child: SqlChild,
    shards: Sequence[AnyPath],
    types: Mapping[str, str] | None,
    workers: Workers,
    on_progress: OnProgress,
    on_note: Callable[[str], None],
) -> Columns | None:
    """Return the columns that features.json or types describe, or those of lists of Examples."""
    declared = child.call(with_copies(_declared), shards, types)
    if declared.is_partial:
        fold = fold_columns(shards, workers=workers, on_progress=on_progress)
        declared = child.call(with_inferred, declared, fold)
    for note in declared.all_notes:
        on_note(note)
    columns: Columns | None = declared.columns
    if columns is not None:
        return columns
    return ranking_columns(shards, on_note, workers=workers, on_progress=on_progress)


def _declared(shards: Sequence[AnyPath], types: Mapping[str, str] | None) -> DeclaredFeatures:
    """Return what features.json or types describe; they are tried on some records."""
    return declared_features(shards, types)


def _inferred(fold: ColumnsFold) -> Columns:
    """Return the columns for all records of shards, which a fold has seen."""
    columns = fold.table_columns(exact=False)
    if columns.kind is PayloadKind.EVENT:
        return EventColumns(PayloadKind.EVENT, is_list=fold.event_values > 1)
    return columns


def _located(
    tables: Mapping[str, str | os.PathLike[str]],
) -> dict[str, _ParquetTable | _TextFile | tuple[AnyPath, ...]]:
    """Return the file of each table to join, or its shards."""
    found: dict[str, _ParquetTable | _TextFile | tuple[AnyPath, ...]] = {}
    for name, location in tables.items():
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


def _answer(known: Mapping[str, _AnyTable], statement: Statement, as_text: bool) -> None:
    """Run a query in the process that is for it, and send rows, damage and progress."""
    tables = {name: _reported(one, statement.names) for name, one in known.items()}
    paths = [path for table in known.values() for path in table.paths]
    with closing(Sandbox(tables, statement, paths)) as sandbox:
        try:
            sandbox.check()
            with sandbox.read(as_text=as_text) as reader:
                send_to_parent(reader.schema)
                for batch in reader:
                    send_to_parent(pack_batch(batch))
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
