"""The records of shards as Arrow record batches of bounded size, each with where it came from."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tfrtool.engines.engine import Workers
from tfrtool.engines.pool import map_shards
from tfrtool.errors import SchemaError
from tfrtool.examples.arrow.arrays import numbers_array, strings_array
from tfrtool.examples.arrow.columns import PLACES, Columns
from tfrtool.examples.arrow.decode_batch import MisfitError, decode_batch
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.arrow.messages import MessageColumns
from tfrtool.examples.arrow.value_types import map_values, short_floats
from tfrtool.examples.dataset_files import find_files
from tfrtool.examples.example import DType, Feature, PayloadKind
from tfrtool.examples.roles import LabelNames, find_roles
from tfrtool.examples.short_payloads import LONG, shorten
from tfrtool.examples.tfds_metadata import info_beside
from tfrtool.features.feature_columns import FeatureColumns
from tfrtool.features.first_examples import FirstExamples
from tfrtool.features.sources import DeclaredFeatures, declared_features, tree_of_columns
from tfrtool.inspection.rows.extra_columns import (
    INDEX,
    ExtraColumn,
    ExtraColumns,
    index_column,
    run_column,
)
from tfrtool.inspection.rows.ranking_shards import ranking_columns
from tfrtool.inspection.verify.payload_check import unparseable
from tfrtool.records.frames import Frames, joined_batches
from tfrtool.records.framing import FRAME_SIZE, Fault, LocatedFault, Record
from tfrtool.records.payloads import payloads_of, sizes_of
from tfrtool.records.reader import RecordReader, read_records, read_shard
from tfrtool.records.stream import Stream, open_shard, path_of, total_bytes
from tfrtool.storage.arguments import Paths
from tfrtool.storage.progress import BYTES, Meter, OnProgress, no_progress
from tfrtool.storage.remote_path import AnyPath

BATCH_BYTES = 16 * 1024 * 1024
"""Of the payloads of a batch: many images, and little compared with what Arrow and DuckDB hold."""

BATCH_RECORDS = 65_536

_ROWS = 1024
"""Rows that are held as Python's objects, some times as large as their text."""

OnFault = Callable[[LocatedFault], None]
"""What takes the damage that is left out."""

_MIN_SECONDS_PER_PROCESS = 1.0
"""Seconds of inferring columns that are worth the start of a process."""

_RECORD, _BYTE = 6e-6, 1.3e-9
"""Seconds for each: 25,000 images of 22 KB took 0.8 s, 800,000 records of 120 bytes 5 s."""


_CACHED_RECORD = 64
"""Bytes besides the payload of a record that is cached."""

_MOST_CACHED = 32 * 1024 * 1024
"""Bytes of shortened records, about, that are cached for a second pass."""


class Batch(NamedTuple):
    """A part of a shard: a table with a row a record, and the records."""

    table: pa.RecordBatch
    path: AnyPath
    records: Sequence[Record]

    def places(self) -> NDArray[np.int64]:
        """Return the indexes, the offsets and the lengths of the records."""
        return _places_of(self.records)


class CachedRecords(NamedTuple):
    """All records of an intact shard of Examples, without most bytes of long values.

    They take the place of the shard where only other values are needed.
    """

    batches: Sequence[Sequence[bytes]]  # the payloads
    places: NDArray[np.int64]  # as those of a batch, of all
    shortened: set[bytes]  # names of features

    def has_all_values(self, columns: Columns) -> bool:
        """Return whether no value of these columns was shortened."""
        return self.shortened.isdisjoint(one.key for one in columns.columns)

    def tables(
        self, path: AnyPath, columns: Columns, on_fault: OnFault
    ) -> Iterator[tuple[pa.RecordBatch, NDArray[np.int64]]]:
        """Yield tables with these columns, and places; memory is bounded by a table, as of a file.

        Args:
            path: the shard.
            columns: what is decoded; it `has_all_values`.
            on_fault: called with each record that the columns can't hold.
        """
        first, step = 0, columns.batch_records
        for batch in self.batches:
            for start in range(0, len(batch), step):
                payloads = batch[start : start + step]
                places = self.places[:, first : first + len(payloads)]
                first += len(payloads)
                try:
                    yield decode_batch(payloads, columns), places
                except (MisfitError, SchemaError):
                    yield from _fitting(path, payloads, places, columns, on_fault)


def _fitting(
    path: AnyPath,
    payloads: Sequence[bytes],
    places: NDArray[np.int64],
    columns: Columns,
    on_fault: OnFault,
) -> Iterator[tuple[pa.RecordBatch, NDArray[np.int64]]]:
    """Yield tables of the payloads that columns can hold, and their places."""
    indexes, offsets, _ = places.tolist()
    numbers = zip(indexes, offsets, payloads, strict=True)
    records = [Record(index, offset, payload, 0) for index, offset, payload in numbers]
    for batch in decode_records(path, records, columns, reporting(path, on_fault)):
        chosen = [one.index - indexes[0] for one in batch.records]
        yield batch.table, places[:, chosen]


LABEL_NAME = "label_name"
"""The column with the class name of each record's label, where class names are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowColumns:
    """The columns that a row has besides its features: `PLACES`, and `LABEL_NAME` perhaps.

    Attributes:
        shards: the files.
        extra: the columns that no record stores.
        sources: what names the shards: files, patterns or directories.
        splits: the split of each shard, once `with_splits` has found them.
        label: the feature whose class names are known.
        class_names: these names, by class number.
    """

    shards: Sequence[AnyPath] = ()
    extra: tuple[ExtraColumn, ...] = ()
    sources: Paths = ()
    splits: Mapping[AnyPath, str] | None = None
    label: str | None = None
    class_names: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        shards: Sequence[AnyPath],
        columns: Columns,
        sources: Paths = (),
    ) -> "RowColumns":
        """Return the columns for records of shards, whose features have ``columns``."""
        folder = shards[0].parent if shards else None
        extra = ExtraColumns.of(shards, [*columns.to_arrow().names, LABEL_NAME]).columns
        if columns.kind is PayloadKind.EVENT and shards:
            extra = (run_column(shards, sources), *extra)
        found = cls(shards=shards, extra=extra, sources=sources)
        # A feature with one value in each record comes first.
        for candidates in _label_candidates(columns):
            features = dict.fromkeys(candidates, Feature(dtype=DType.INT64, values=(0,)))
            label = find_roles(features, info_beside(folder)).label
            if label is not None:
                class_names = LabelNames.read(folder, label).names
                return replace(found, label=label, class_names=class_names)
        return found

    def with_splits(self) -> "RowColumns":
        """Return the same, knowing the split of each shard."""
        if self.splits is not None:
            return self
        found = find_files(self.sources).splits.items() if self.sources else ()
        return replace(self, splits={p: name for name, one in found if name for p in one.shards})

    def with_index(self) -> "RowColumns":
        """Return the same with the column `INDEX`, which costs a pass over headers."""
        return replace(self, extra=(*self.extra, index_column(self.shards)))

    def schema(self, columns: Columns, mentioned: Collection[str] = ()) -> pa.Schema:
        """Return the schema of batches with these columns and those of features.

        `INDEX` is a column only if it is mentioned.
        """
        text = pa.dictionary(pa.int32(), pa.string())
        types = (text, pa.int64(), pa.int64(), pa.int64(), text)
        fields = [*map(pa.field, PLACES, types), *columns.to_arrow()]
        fields += [pa.field(one.name, one.kind) for one in self.extra]
        if self.adds_index(columns, mentioned):
            fields.append(pa.field(INDEX, pa.int64()))
        if self.class_names and LABEL_NAME not in columns.names:
            fields.append(pa.field(LABEL_NAME, text))
        return pa.schema(fields)

    def adds_index(self, columns: Columns, names: Collection[str]) -> bool:
        """Return whether `INDEX` is among names, and not the name of a feature."""
        return INDEX in names and INDEX not in columns.to_arrow().names

    def narrowed(self, columns: Columns, fields: Collection[str]) -> Columns:
        """Return those of the columns that these fields of the schema are made of."""
        if LABEL_NAME in fields and self.class_names:
            fields = {*fields, self.label or "", "context"}
        return narrowed(columns, fields)

    def add_to(
        self,
        table: pa.RecordBatch,
        path: AnyPath,
        places: NDArray[np.int64],
        names: Collection[str],
    ) -> pa.RecordBatch:
        """Return a table of a shard's records with those of these columns that are named, too."""
        size = places.shape[1]  # a table without columns has no rows
        columns = dict(zip(PLACES[1:4], map(numbers_array, places), strict=True))
        if PLACES[0] in names:
            columns[PLACES[0]] = text_array(np.zeros(size, np.int32), [str(path)])
        if PLACES[4] in names:
            split = (self.splits or {}).get(path)
            which = np.full(size, -1 if split is None else 0, np.int32)
            columns[PLACES[4]] = text_array(which, [split or ""])
        columns |= zip(table.schema.names, table.columns, strict=True)
        columns |= {one.name: one.array(path, places[0]) for one in self.extra if one.name in names}
        if LABEL_NAME in names and LABEL_NAME not in columns:
            if self.label in table.schema.names:
                labels = table.column(self.label)
            else:
                labels = table.column("context").field(self.label)
            columns[LABEL_NAME] = class_names_of(labels, self.class_names)
        return pa.RecordBatch.from_arrays([*columns.values()], names=[*columns])


def _label_candidates(columns: Columns) -> tuple[Collection[str], ...]:
    """Return the columns that may be the label: those of whole numbers, the likelier ones first."""
    if isinstance(columns, FeatureColumns):
        return (columns.numbers,)
    names = zip(columns.names, columns.columns, strict=False)
    numbers = {n: c for n, c in names if c.dtype is DType.INT64 and not c.is_list}
    return [name for name, one in numbers.items() if one.is_single], [*numbers]


def class_names_of(labels: pa.Array, names: Sequence[str]) -> pa.Array:
    """Return the class names of a column of class numbers; null for other than one known one."""
    which = np.full(len(labels), -1, np.int32)
    for row, label in enumerate(labels.to_pylist()):
        label = label[0] if isinstance(label, list) and len(label) == 1 else label
        if isinstance(label, int) and 0 <= label < len(names) and names[label]:
            which[row] = label
    return text_array(which, names)


def text_array(which: NDArray[np.int32], texts: Sequence[str]) -> pa.DictionaryArray:
    """Return a column of texts, by their numbers; -1 is null."""
    known = strings_array([text.encode("utf-8", "backslashreplace") for text in texts])
    valid = pa.py_buffer(np.packbits(which >= 0, bitorder="little"))
    buffers = [valid, pa.py_buffer(np.maximum(which, 0))]
    numbers = pa.Array.from_buffers(pa.int32(), len(which), buffers)
    return pa.DictionaryArray.from_arrays(numbers, known.cast(pa.string()))


def infer_columns(
    shards: Sequence[AnyPath],
    *,
    lists: bool = False,
    as_stored: bool = True,
    types: Mapping[str, str] | None = None,
    workers: Workers = None,
    on_progress: OnProgress = no_progress,
    on_note: Callable[[str], None] = lambda _: None,
) -> Columns:
    """Return the columns of a table that all intact records of all shards fit.

    Args:
        shards: the files.
        as_stored: whether features stay as records store them, whatever features.json says.
        types: types of features by name, which come before those of files.
        lists: whether features with at most one value in each record stay lists, if some records
            have none.
        workers: how many processes at most; None takes the cores.
        on_progress: called with the bytes that are read.
        on_note: called with what is not shown.

    Raises:
        ShardError: a file can't be read.
        SchemaError: most records are not what features.json says.
    """
    declared = None
    if not as_stored:
        declared = declared_columns(
            shards, on_note, types=types, lists=lists, workers=workers, on_progress=on_progress
        )
    if declared is not None:
        return declared
    fold = fold_columns(shards, workers=workers, on_progress=on_progress)
    return fold.table_columns(lists=lists, exact=False)


def declared_columns(
    shards: Sequence[AnyPath],
    on_note: Callable[[str], None],
    *,
    types: Mapping[str, str] | None = None,
    lists: bool = False,
    workers: Workers = None,
    on_progress: OnProgress = no_progress,
) -> FeatureColumns | None:
    """Return the columns that features.json or types describe, or those of lists of Examples.

    None for all other records. The errors are those of `infer_columns`.
    """
    declared = all_features(
        shards, types=types, lists=lists, workers=workers, on_progress=on_progress
    )
    for text in declared.all_notes:
        on_note(text)
    if declared.columns is not None:
        return declared.columns
    return ranking_columns(shards, on_note, workers=workers, on_progress=on_progress)


def nested_columns(
    shards: Sequence[AnyPath],
    on_note: Callable[[str], None],
    *,
    as_stored: bool = False,
    workers: Workers = None,
    on_progress: OnProgress = no_progress,
) -> FeatureColumns | None:
    """Return the columns of lists of Examples or of SequenceExamples, as `infer_columns` has them.

    None for all other records, whose columns can differ from batch to batch.
    """
    if not as_stored:
        ranking = ranking_columns(shards, on_note, workers=workers, on_progress=on_progress)
        if ranking is not None:
            return ranking
    first = FirstExamples.of(shards)
    if not first.is_sequence:
        return None
    fold = fold_columns(shards, workers=workers, on_progress=on_progress)
    sequences = DeclaredFeatures(first=first, is_partial=True, is_certain=True)
    found = with_inferred(sequences, fold)
    for text in found.all_notes:
        on_note(text)
    return found.columns


def all_features(
    shards: Sequence[AnyPath],
    *,
    types: Mapping[str, str] | None = None,
    lists: bool = False,
    workers: Workers = None,
    on_progress: OnProgress = no_progress,
) -> DeclaredFeatures:
    """Return what `declared_features` does, with inferred types where only some are known."""
    declared = declared_features(shards, types)
    if not declared.is_partial:
        return declared
    fold = fold_columns(shards, workers=workers, on_progress=on_progress)
    return with_inferred(declared, fold, lists=lists)


def with_inferred(
    declared: DeclaredFeatures, fold: ColumnsFold, *, lists: bool = False
) -> DeclaredFeatures:
    """Return features of which some have types, with the types of others that a fold has seen."""
    columns = fold.table_columns(lists=lists, exact=False)
    root, notes = tree_of_columns(columns)
    return replace(declared.inferred(root), notes=(*declared.notes, *notes))


def fold_columns(
    shards: Sequence[AnyPath],
    *,
    cached: dict[AnyPath, CachedRecords] | None = None,
    workers: Workers = None,
    on_progress: OnProgress = no_progress,
) -> ColumnsFold:
    """Do what `infer_columns` does; return what more records can be added to.

    ``cached`` gets the records of shards, as many as fit into little memory.
    """
    total, room = ColumnsFold(), _MOST_CACHED
    meter = Meter(on_progress, "finding columns", BYTES, total_bytes(shards))
    worth, run = _worth(shards), partial(_fold, keep=cached is not None)
    folds = map_shards(run, shards, workers, worth, on_counts=meter.add, short=True)
    for path, (fold, records, size) in zip(shards, folds, strict=True):
        total.merge(fold)
        if cached is not None and records is not None and size <= room:
            cached[path] = records
            room -= size
    meter.finish()
    return total


def _worth(shards: Sequence[AnyPath]) -> int:
    """Return for how many bytes a process is worth its start, if records are like the first one."""
    first = next(read_shard(shards[0]), None) if shards else None
    length = max(len(first.payload), 1) if isinstance(first, Record) else _ROWS
    return int(_MIN_SECONDS_PER_PROCESS / (_BYTE + _RECORD / length))


def _fold(path: AnyPath, *, keep: bool) -> tuple[ColumnsFold, CachedRecords | None, int]:
    """Return a fold of a shard, its shortened records if they may be kept, and their bytes."""
    fold, names, faults = ColumnsFold(), set[bytes](), list[Fault]()
    batches, places, size = list[Sequence[bytes]](), list[NDArray[np.int64]](), 0

    def shortened(piece: Sequence[Record] | Fault) -> Sequence[Record] | Fault:
        if isinstance(piece, Fault):
            return piece
        here = _places_of(piece)
        if keep:
            places.append(here)
        if here[2].max() <= LONG:  # as `shorten` leaves it
            return piece
        return [one._replace(payload=shorten(one.payload, names)) for one in piece]

    with open_shard(path) as file:
        pieces = map(shortened, RecordReader(file).pieces())
        for records in joined_batches(pieces, faults.append, BATCH_BYTES, BATCH_RECORDS):
            batch = payloads_of(records)
            fold.add(batch)
            size += int(sizes_of(batch).sum()) + _CACHED_RECORD * len(batch)
            keep = keep and size <= _MOST_CACHED
            if keep:
                batches.append(batch)
            else:
                batches.clear()
    others = (+fold.kinds).keys() - {PayloadKind.EXAMPLE, PayloadKind.EMPTY}
    if faults or not keep or others:
        return fold, None, 0
    nowhere = np.zeros((3, 0), np.int64)
    return fold, CachedRecords(batches, np.concatenate([nowhere, *places], axis=1), names), size


def _places_of(records: Sequence[Record]) -> NDArray[np.int64]:
    """Return the indexes, the offsets and the lengths of records."""
    if isinstance(records, Frames):
        starts = np.frombuffer(records.starts, np.uint64).astype(np.int64)
        indexes = np.arange(records.first, records.first + len(records))
        return np.stack([indexes, starts[:-1] + records.offset, np.diff(starts) - FRAME_SIZE])
    numbers = [[record.index, record.offset, len(record.payload)] for record in records]
    return np.array(numbers, np.int64).reshape(-1, 3).T.copy()


def unknown_note(
    shards: Sequence[AnyPath],
    columns: MessageColumns,
    *,
    workers: Workers = None,
    on_progress: OnProgress = no_progress,
) -> str | None:
    """Return a note on the fields of messages that their type doesn't have, if there are any."""
    count = partial(_unknown_bytes, columns=columns)
    meter = Meter(on_progress, "finding columns", BYTES, total_bytes(shards))
    total = sum(map_shards(count, shards, workers, _worth(shards), on_counts=meter.add))
    meter.finish()
    return columns.unknown_note(total)


def _unknown_bytes(path: AnyPath, columns: MessageColumns) -> int:
    with open_shard(path) as file:
        records = (one for one in read_records(file) if isinstance(one, Record))
        return sum(columns.unknown_bytes(one.payload) for one in records)


def read_batches(
    shards: Iterable[AnyPath | Stream],
    columns: Columns,
    *,
    exact: bool = False,
    batch_records: int = BATCH_RECORDS,
    on_fault: OnFault,
) -> Iterator[Batch]:
    """Read shards from start to end; memory is bounded by a batch, and by the longest record.

    Args:
        shards: the files, or a stream.
        columns: what is decoded.
        exact: whether there is a column `_payload`, too, with the payload's own bytes.
        batch_records: how many records it has at most.
        on_fault: called with all damage, and with each record that the columns can't hold.

    Raises:
        ShardError: a file can't be read.
    """
    for source in shards:
        path = path_of(source)
        report = reporting(path, on_fault)
        with open_shard(source) as file:
            count = min(batch_records, columns.batch_records)
            pieces = RecordReader(file).pieces()
            for records in joined_batches(pieces, report, BATCH_BYTES, count):
                yield from decode_records(path, records, columns, report, exact=exact)


def reporting(path: AnyPath, on_fault: OnFault) -> Callable[[Fault], None]:
    """Return what takes the faults of a file."""
    return lambda fault: on_fault(LocatedFault(path=path, fault=fault))


def decode_records(
    path: AnyPath,
    records: Sequence[Record],
    columns: Columns,
    report: Callable[[Fault], None],
    *,
    exact: bool = False,
) -> Iterator[Batch]:
    """Yield records of one shard as one batch, or as several between those that don't fit."""
    try:
        table = decode_batch(payloads_of(records), columns, exact=exact)
    except MisfitError as error:
        for index, why in error.others.items():
            report(unparseable(records[index], why))
        fitting = [one for index, one in enumerate(records) if index not in error.others]
        if fitting:
            yield from decode_records(path, fitting, columns, report, exact=exact)
    except SchemaError as error:
        if len(records) == 1:
            report(unparseable(records[0], error.what))
            return
        # In halves, for each of many may be a misfit.
        half = len(records) // 2
        yield from decode_records(path, records[:half], columns, report, exact=exact)
        yield from decode_records(path, records[half:], columns, report, exact=exact)
    else:
        yield Batch(table, path, records)


def rows_of(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Yield the rows of a batch; float32 values are the shortest decimals of these."""
    batch = _with_short_floats(batch)
    for start in range(0, batch.num_rows, _ROWS):
        yield from batch.slice(start, _ROWS).to_pylist()


def values_of(batch: pa.RecordBatch) -> list[list[Any]]:
    """Return the values of each column, as those of `rows_of`."""
    return [column.to_pylist() for column in _with_short_floats(batch).columns]


def _with_short_floats(batch: pa.RecordBatch) -> pa.RecordBatch:
    for at, field in enumerate(batch.schema):
        if "float" in str(field.type):
            floats = map_values(batch.column(at), short_floats)
            batch = batch.set_column(at, field.name, floats)
    return batch


def narrowed(columns: Columns, fields: Collection[str]) -> Columns:
    """Return the columns that fields of the Arrow schema are made of, in their own order."""
    if columns.kind is PayloadKind.SEQUENCE_EXAMPLE:
        named = zip(columns.names, columns.columns, strict=True)
        struct = {True: "feature_lists", False: "context"}
        return columns.select([name for name, one in named if struct[one.is_list] in fields])
    if isinstance(columns, FeatureColumns):
        return columns.narrowed(fields)
    if columns.kind is PayloadKind.EXAMPLE or isinstance(columns, MessageColumns):
        return columns.select([name for name in columns.names if name in fields])
    return columns
