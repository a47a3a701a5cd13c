"""A table on disk with a row for each record: its place, its short values, its image in numbers.

A row is a record, or one whose payload alone is damaged (its values are null): the same ones, in
the same order, as in a `RecordIndex`.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfrtool.engines.engine import Workers
from tfrtool.engines.split_shards import map_folds
from tfrtool.examples.arrow.arrays import list_array, numbers_array
from tfrtool.examples.arrow.columns import Columns, Form
from tfrtool.examples.arrow.decode_batch import MisfitError, decode_batch
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.example import PayloadKind
from tfrtool.images.looks import LOOK_BOX, look_at
from tfrtool.inspection.pictures.pictures import ImageRoles, image_roles, pictures_of
from tfrtool.inspection.table.record_index import is_row
from tfrtool.inspection.verify.payload_check import unparseable
from tfrtool.records.framing import Fault, Record
from tfrtool.records.parts import later
from tfrtool.records.stream import Stream, path_of
from tfrtool.storage.limits import FirstOf

MAX_COLUMNS = 200
"""Features that have a column; a record may have a million."""

LONGEST = 1024
"""Bytes of a value that is kept; longer ones, such as images, are null."""

_ROWS = 2000
"""Records of a batch: so often somebody is told."""

_BATCH_BYTES = 16 * 1024 * 1024
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


@dataclass(kw_only=True)
class TableFold:
    """A fold over the records of a shard, or of a part of it, that writes their rows."""

    path: Path
    folder: Path
    images: bool
    part: bool
    on_piece: Callable[[TablePiece], None] | None = None
    pieces: list[TablePiece] = field(default_factory=list)
    faults: FirstOf[Fault] = field(default_factory=lambda: FirstOf[Fault](_FAULTS_KEPT))
    kinds: set[PayloadKind] = field(default_factory=set)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "on_piece": None}  # who is told stays where the fold is begun

    def read(self, items: Iterator[Record | Fault]) -> None:
        """Take in what follows, and write its rows."""
        roles = image_roles(self.path) if self.images else ImageRoles()
        for batch in self._batches(items):
            table = _table(batch, roles, self.faults, self.kinds)
            with (
                tempfile.NamedTemporaryFile(dir=self.folder, delete=False) as file,
                pa.ipc.new_file(file, table.schema) as writer,
            ):
                writer.write_batch(table)
            self._add(TablePiece(Path(file.name), self.path, table.num_rows, 0))

    def merge(self, other: "TableFold", index: int) -> bool:
        """Take in the fold over the next part."""
        for piece in other.pieces:
            self._add(piece._replace(first=index))
        self.faults.merge(later(other.faults, index))
        self.kinds |= other.kinds
        return True

    def found(self) -> "TableFold":
        """Return itself."""
        return self

    def _add(self, piece: TablePiece) -> None:
        self.pieces.append(piece)
        if self.on_piece is not None:
            self.on_piece(piece)

    def _batches(self, items: Iterator[Record | Fault]) -> Iterator[list[Record]]:
        rows: list[Record] = []
        size = 0
        for item in items:
            if isinstance(item, Fault):
                self.faults.add(item)
                if not is_row(item):
                    continue
                item = Record(item.record or 0, item.offset, b"", 0)
            if rows and (len(rows) == _ROWS or size + len(item.payload) > _BATCH_BYTES):
                yield rows
                rows, size = [], 0
            rows.append(item)
            size += len(item.payload)
        if rows:
            yield rows


@dataclass(frozen=True, kw_only=True)
class BeginFold:
    """Makes a `TableFold` of a shard; what is told of pieces is told in this process alone."""

    folder: Path
    images: bool
    on_piece: Callable[[TablePiece], None] | None = None

    def __reduce__(self) -> Any:
        return BeginFold._without, (self.folder, self.images)

    @staticmethod
    def _without(folder: Path, images: bool) -> "BeginFold":
        return BeginFold(folder=folder, images=images)

    def __call__(self, source: Path | Stream, *, part: bool = False) -> TableFold:
        """Begin a fold."""
        return TableFold(
            path=path_of(source),
            folder=self.folder,
            images=self.images,
            part=part,
            on_piece=self.on_piece,
        )


class RecordTable:
    """The rows of all records of some shards; one thread fills it while others ask.

    Attributes:
        rows: how many there are so far.
        left_out: features without a column, for there are too many.
        conflicting: features whose type is not the same in all records; they have no column.
    """

    def __init__(self, folder: Path) -> None:
        """Begin with nothing; files go to a folder that is the caller's to delete."""
        self.rows = 0
        self.faults: dict[Path, FirstOf[Fault]] = {}
        self.kinds: set[PayloadKind] = set()
        self._folder = folder
        self._pieces: list[TablePiece] = []
        self._types: dict[str, pa.DataType] = {}
        self._several: set[str] = set()
        self.conflicting: set[str] = set()

    def fill(
        self,
        shards: Sequence[Path],
        *,
        images: bool = True,
        workers: Workers = None,
        on_piece: Callable[[TablePiece], None] = lambda _: None,
    ) -> None:
        """Read all records.

        Args:
            shards: the files.
            images: whether their images are looked at, too.
            workers: how many processes at most; None takes the cores.
            on_piece: called after some thousand rows each.

        Raises:
            ShardError: a file can't be read, or was changed while it was read.
        """

        def add(piece: TablePiece) -> None:
            self._take(piece)
            on_piece(piece)

        begin = BeginFold(folder=self._folder, images=images, on_piece=add)
        for fold in map_folds(begin, shards, workers, _WORTH_A_PROCESS):
            if fold.on_piece is None:  # it comes from another process, as a whole
                for piece in fold.pieces:
                    add(piece)
            self.faults[fold.path] = fold.faults
            self.kinds |= fold.kinds

    def _take(self, piece: TablePiece) -> None:
        with pa.memory_map(str(piece.file)) as file:
            schema = pa.ipc.open_file(file).schema
        for one in schema:
            kind = one.type
            if pa.types.is_list(kind):
                self._several.add(one.name)
                kind = kind.value_type
            if self._types.setdefault(one.name, kind) != kind:
                self.conflicting.add(one.name)
        self._pieces.append(piece)
        self.rows += piece.rows

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
        wanted, start = sorted(set(rows)), 0
        for piece, batch in self.batches(names):
            here = [row - start for row in wanted if start <= row < start + piece.rows]
            if here:
                part = batch.take(numbers_array(np.array(here, np.int64))).to_pylist()
                found.update(zip((row + start for row in here), part, strict=True))
            start += piece.rows
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
            with pa.memory_map(str(piece.file)) as file:
                table = pa.ipc.open_file(file).get_batch(0)
                columns = [self._column(table, piece, name) for name in names]
                yield piece, pa.RecordBatch.from_arrays(columns, names=list(names))

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


def _table(
    records: list[Record], roles: ImageRoles, faults: FirstOf[Fault], kinds: set[PayloadKind]
) -> pa.RecordBatch:
    """Return the rows of records."""
    payloads = [record.payload for record in records]
    places = np.array([[one.index, one.offset, len(one.payload)] for one in records], np.int64)
    held = dict(zip(PLACES, map(numbers_array, places.T.copy()), strict=True))
    held |= _features(records, payloads, roles.image, faults, kinds)
    if roles.image is not None:
        held |= _images(payloads, roles)
    return pa.record_batch(list(held.values()), names=list(held))


def _features(
    records: list[Record],
    payloads: list[bytes],
    image: str | None,
    faults: FirstOf[Fault],
    kinds: set[PayloadKind],
) -> dict[str, pa.Array]:
    """Return the features as columns: with a value or null a row, or as lists."""
    seen = ColumnsFold()
    seen.add(payloads)
    kinds |= {kind for kind, count in seen.kinds.items() if count}
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
            payloads = list(payloads)
            for index, why in misfit.others.items():
                if not payloads[index]:
                    return {}
                faults.add(unparseable(records[index], why))
                payloads[index] = b""
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
    places = np.cumsum(lengths) - lengths
    one = values.take(numbers_array(np.minimum(places, max(len(values) - 1, 0))))
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
