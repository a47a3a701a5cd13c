"""A table on disk with a row for each record: its place, its short values, its image in numbers.

A row is a record, or one whose payload alone is damaged (its values are null).
"""

import tempfile
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfrtool.engines.engine import Workers
from tfrtool.engines.split_shards import later, map_folds
from tfrtool.errors import ShardError, os_errors_as
from tfrtool.examples.arrow.arrays import list_array, numbers_array
from tfrtool.examples.arrow.columns import Columns, Form
from tfrtool.examples.arrow.decode_batch import MisfitError, decode_batch
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.example import PayloadKind
from tfrtool.images.pixels import LOOK_BOX, look_at
from tfrtool.inspection.pictures.pictures import ImageRoles, image_roles, pictures_of
from tfrtool.records.framing import Fault, FaultKind, Record
from tfrtool.records.reader import read_shard
from tfrtool.records.stream import Stream, path_of, total_bytes
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.progress import BYTES, Meter, OnProgress, counting, no_progress

MAX_COLUMNS = 200
"""Features that have a column; a record may have a million."""

LONGEST = 1024
"""Bytes of a value that is kept; longer ones, such as images, are null."""

_ROWS, _FIRST_ROWS = 16384, 100
"""Records of a batch: so often somebody is told. The first ones of a shard are waited for."""

_BATCH_BYTES = 8 * 1024 * 1024
_FAULTS_KEPT = 1000
_WORTH_A_PROCESS = 8 * 1024 * 1024

PLACES = ("_record", "_offset", "_bytes")
IMAGE = {
    "width": pa.int32(),
    "height": pa.int32(),
    "brightness": pa.float32(),
    "entropy": pa.float32(),
    "hash": pa.uint64(),
    "label": pa.binary(),
    "problem": pa.binary(),
}
"""What is known of a record's image; with "image." before it, the column's name in the files."""


class TablePiece(NamedTuple):
    """Rows of one shard that follow each other, in an Arrow file."""

    file: Path
    path: Path  # the shard
    rows: int
    first: int  # what the first record's number is counted from


class TableFold:
    """A fold over the records of a shard, or of a part of it, that writes their rows.

    Attributes:
        path: the shard.
        pieces: what was written.
        faults: what is wrong with its framing and its payloads' CRCs.
        kinds: what its payloads are.
    """

    def __init__(self, source: Path | Stream, *, folder: Path, images: bool, **_part: bool) -> None:
        """Begin with nothing; files go to ``folder``."""
        self.path, self._folder = path_of(source), folder
        self._images = images
        self.pieces: list[TablePiece] = []
        self.faults = CappedList[Fault](_FAULTS_KEPT)
        self.kinds: set[PayloadKind] = set()

    def read(self, items: Iterator[Record | Fault]) -> None:
        """Take in what follows, and write its rows."""
        self.pieces += self.written(items)

    def written(self, items: Iterator[Record | Fault]) -> Iterator[TablePiece]:
        """Take in what follows, and yield its rows as they are written."""
        roles = image_roles(self.path) if self._images else ImageRoles()
        for batch in self._batches(items):
            table = _table(batch, roles, self.kinds)
            with (
                os_errors_as(ShardError, self._folder, "can't store temporary data"),
                tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as file,
                pa.ipc.new_file(file, table.schema) as writer,
            ):
                writer.write_batch(table)
            yield TablePiece(Path(file.name), self.path, table.num_rows, 0)

    def merge(self, other: "TableFold", index: int) -> bool:
        """Take in the fold over the next part."""
        self.pieces += [piece._replace(first=index) for piece in other.pieces]
        self.faults.merge(later(other.faults, index))
        self.kinds |= other.kinds
        return True

    def found(self) -> "TableFold":
        """Return itself."""
        return self

    def _batches(self, items: Iterator[Record | Fault]) -> Iterator[list[Record]]:
        rows: list[Record] = []
        size, most = 0, _FIRST_ROWS
        for item in items:
            if isinstance(item, Fault):
                self.faults.add(item)
                if item.kind is not FaultKind.PAYLOAD_CRC or item.record is None:
                    continue
                item = Record(item.record, item.offset, b"", 0)
            if rows and (len(rows) == most or size + len(item.payload) > _BATCH_BYTES):
                yield rows
                rows, size, most = [], 0, _ROWS
            rows.append(item)
            size += len(item.payload)
        if rows:
            yield rows


def write_rows(
    shards: Sequence[Path],
    folder: Path,
    *,
    images: bool = True,
    workers: Workers = None,
    on_progress: OnProgress = no_progress,
) -> Iterator[TablePiece | TableFold]:
    """Read all records, and yield what a `RecordTable` takes in.

    Args:
        shards: the files.
        folder: where the rows go.
        images: whether images are looked at, too.
        workers: how many processes at most; None takes the cores. With one, rows are yielded as
            they are written, and otherwise when a shard is done.
        on_progress: called with the bytes that are read.

    Raises:
        ShardError: a file can't be read, or was changed while it was read, or the disk is full.
    """
    begin = partial(TableFold, folder=folder, images=images)
    meter = Meter(on_progress, "reading records", BYTES, total_bytes(shards))
    if workers != 1:
        folds = map_folds(begin, shards, workers, _WORTH_A_PROCESS, on_counts=meter.add)
        for fold in folds:
            yield from fold.pieces
            yield fold
    else:
        for path in shards:
            fold = begin(path)
            pieces = fold.written(read_shard(path))
            while True:
                with counting(meter.add):
                    piece = next(pieces, None)
                if piece is None:
                    break
                yield piece
            yield fold
    meter.finish()


class RecordTable:
    """The rows of all records of some shards; one thread adds to it while others ask.

    Attributes:
        rows: how many there are so far.
        faults: of the shards that are done, what is wrong with framing and CRCs.
        kinds: what their payloads are.
        conflicting: features whose type is not the same in all records; they have no column.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self.rows = 0
        self.faults: dict[Path, CappedList[Fault]] = {}
        self.kinds: set[PayloadKind] = set()
        self.conflicting: set[str] = set()
        self._pieces: list[TablePiece] = []
        self._starts: list[int] = []
        self._types: dict[str, pa.DataType] = {}
        self._several: set[str] = set()

    def add(self, found: TablePiece | TableFold) -> None:
        """Take in what `write_rows` yields."""
        if isinstance(found, TableFold):
            self.kinds |= found.kinds
            self.faults[found.path] = found.faults
            return
        with pa.memory_map(str(found.file)) as file:
            schema = pa.ipc.open_file(file).schema
        for one in schema:
            kind = one.type
            if pa.types.is_list(kind):
                self._several.add(one.name)
                kind = kind.value_type
            if self._types.setdefault(one.name, kind) != kind:
                self.conflicting.add(one.name)
        self._starts.append(self.rows)
        self._pieces.append(found)
        self.rows += found.rows

    def as_it_is(self) -> "RecordTable":
        """Return a table with the rows of now, to which none are added."""
        held = RecordTable()
        held._pieces = self._pieces.copy()
        held.rows = sum(piece.rows for piece in held._pieces)
        held._starts = self._starts[: len(held._pieces)]
        held._types, held._several = self._types.copy(), self._several.copy()
        held.conflicting = self.conflicting.copy()
        return held

    @property
    def features(self) -> list[str]:
        """The columns that are features, by their names."""
        own = {*PLACES, *(f"image.{name}" for name in IMAGE)}
        return sorted(name for name in self._types if name not in own | self.conflicting)

    def has(self, name: str) -> bool:
        """Return whether there is a column so far."""
        return name in self._types

    def type_of(self, name: str) -> pa.DataType:
        """Return the type of a column of `batches`: a feature is a list where a record has more."""
        return pa.list_(self._types[name]) if name in self._several else self._types[name]

    def take(self, names: Sequence[str], rows: Sequence[int]) -> dict[int, dict[str, Any]]:
        """Return columns of some rows, as Python's values by the row."""
        found: dict[int, dict[str, Any]] = {}
        by_piece: defaultdict[int, list[int]] = defaultdict(list)
        for row in sorted(set(rows)):
            by_piece[bisect_right(self._starts, row) - 1].append(row)
        for number, here in by_piece.items():
            start = self._starts[number]
            batch = self._batch(self._pieces[number], names)
            part = batch.take(numbers_array(np.array(here, np.int64) - start)).to_pylist()
            found.update(zip(here, part, strict=True))
        return found

    def shard_rows(self) -> dict[Path, int]:
        """Return how many rows each shard has so far, in order."""
        found: dict[Path, int] = {}
        for piece in tuple(self._pieces):
            found[piece.path] = found.get(piece.path, 0) + piece.rows
        return found

    def numbers(self, name: str) -> Any:
        """Return a column of numbers as an array of float64, NaN where there is none."""
        parts: list[Any] = [np.zeros(0)]
        for _, batch in self.batches([name]):
            column = batch.column(0).cast(pa.float64())
            parts.append(np.from_dlpack(pc.fill_null(column, float("nan"))))
        return np.concatenate(parts)

    def batches(self, names: Sequence[str]) -> Iterator[tuple[TablePiece, pa.RecordBatch]]:
        """Yield these columns of all rows so far: features, `PLACES`, "image.width" and so on."""
        for piece in tuple(self._pieces):
            yield piece, self._batch(piece, names)

    def _batch(self, piece: TablePiece, names: Sequence[str]) -> pa.RecordBatch:
        with pa.memory_map(str(piece.file)) as file:
            table = pa.ipc.open_file(file).get_batch(0)
            columns = [self._column(table, piece, name) for name in names]
            return pa.RecordBatch.from_arrays(columns, names=list(names))

    def _column(self, table: pa.RecordBatch, piece: TablePiece, name: str) -> pa.Array:
        kind = self.type_of(name)
        if name not in table.schema.names:
            return pa.nulls(table.num_rows, kind)
        column = table.column(name)
        if name == PLACES[0] and piece.first:
            return pc.add(column, piece.first)
        if column.type == kind:
            return column
        there = np.flatnonzero(np.from_dlpack(pc.is_valid(column).cast(pa.uint8())))
        return list_array(
            kind, len(column), there, np.ones(len(there), np.int64), column.drop_null()
        )


def _table(records: list[Record], roles: ImageRoles, kinds: set[PayloadKind]) -> pa.RecordBatch:
    """Return the rows of records."""
    payloads = [record.payload for record in records]
    places = np.array([[one.index, one.offset, len(one.payload)] for one in records], np.int64)
    held = dict(zip(PLACES, map(numbers_array, places.T.copy()), strict=True))
    held |= _features(payloads, roles.image, kinds)
    if roles.image is not None:
        held |= _images(payloads, roles)
    return pa.record_batch(list(held.values()), names=list(held))


def _features(
    payloads: list[bytes], image: str | None, kinds: set[PayloadKind]
) -> dict[str, pa.Array]:
    """Return the features as columns: with a value or null a row, or as lists."""
    seen = ColumnsFold()
    seen.add(payloads)
    kinds |= {kind for kind, count in seen.kinds.items() if count}
    for other in (PayloadKind.EVENT, PayloadKind.UNKNOWN):
        del seen.kinds[other]  # even where most are others, which would leave no columns
    columns = seen.columns()
    if not columns.parsed:
        return {}
    kept = [
        (name, replace(column, form=Form.LIST))
        for name, column in zip(columns.names, columns.columns, strict=True)
        if column.dtype is not None and not column.is_list and name != image
    ][:MAX_COLUMNS]
    chosen = Columns(columns.kind, tuple(column for _, column in kept))
    while True:
        try:
            table = decode_batch(payloads, chosen)
            break
        except MisfitError as misfit:
            if not any(payloads[index] for index in misfit.others):
                return {}
            payloads = [b"" if n in misfit.others else one for n, one in enumerate(payloads)]
    arrays = chosen.arrays(table)
    found = ((name, _shortened(one)) for (name, _), one in zip(kept, arrays, strict=True))
    return {name: one for name, one in found if one.null_count < len(one)}


def _shortened(lists: pa.Array) -> pa.Array:
    """Return lists as single values or nulls, if none has more; long values are null."""
    values = lists.flatten()
    if pa.types.is_binary(values.type):
        short = pc.less_equal(pc.binary_length(values), LONGEST)
        if not pc.all(short).as_py():
            values = pc.if_else(short, values, pa.scalar(None, values.type))
    lengths: Any = np.from_dlpack(pc.fill_null(pc.list_value_length(lists), 0))
    if len(lengths) and lengths.max() > 1:
        there = np.flatnonzero(lengths)
        return list_array(lists.type, len(lists), there, lengths[there], values)
    if not len(values):
        return pa.nulls(len(lists), values.type)
    places = np.cumsum(lengths) - lengths
    one = values.take(numbers_array(np.minimum(places, len(values) - 1)))
    return pc.if_else(_bools(lengths == 1), one, pa.scalar(None, values.type))


def _images(payloads: list[bytes], roles: ImageRoles) -> dict[str, pa.Array]:
    """Return what is to be seen in the first image of each record."""
    rows: list[tuple[Any, ...]] = []
    for payload in payloads:
        label, _, picture = next(pictures_of(payload, roles, LOOK_BOX))
        look = look_at(picture)
        seen = (None, None, None) if look is None else look
        size = (picture.width or None, picture.height or None)
        problem = None if picture.problem is None else picture.problem.encode()
        rows.append((*size, *seen, label.encode("utf-8", "replace") or None, problem))
    arrays = [
        pa.array(values, kind)
        for values, kind in zip(zip(*rows, strict=True), IMAGE.values(), strict=True)
    ]
    return dict(zip((f"image.{name}" for name in IMAGE), arrays, strict=True))


def _bools(values: Any) -> pa.Array:
    packed = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(packed)])
