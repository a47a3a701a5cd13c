"""A row for each record, in Parquet pieces: its position, short values, and image measurements."""

import hashlib
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tfrtool.errors import WriteError, os_errors_as
from tfrtool.examples.arrow.columns import Columns
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.arrow.value_types import map_values
from tfrtool.examples.example import DType, PayloadKind, decode_example
from tfrtool.examples.stored_types import StoredTypes
from tfrtool.images.pixels import LOOK_BOX, look_at
from tfrtool.inspection.pictures.pictures import ImageRoles, image_roles, pictures_in
from tfrtool.inspection.rows.batches import decode_records
from tfrtool.inspection.rows.sql_child import check_address_space
from tfrtool.inspection.verify.payload_check import RecordFold
from tfrtool.records.framing import Fault, FaultKind, Record
from tfrtool.storage.remote_path import AnyPath

MAX_COLUMNS = 200
"""Features that have a column; a record may have a million."""

LONGEST = 1024
"""Bytes of a value that is kept; longer ones, such as images, are null."""

_ROWS, _FIRST_ROWS = 16384, 100
"""Rows of a piece that isn't merged, and of the first one of a shard, which a user waits for."""

_MOST_CLASSES = 100

UNREADABLE_IMAGE = "image"
"""The kind of fault of a record whose image can't be decoded."""

OWN = {
    "shard": pa.int32(),
    "record": pa.int64(),
    "offset": pa.int64(),
    "bytes": pa.int64(),
    "width": pa.int32(),
    "height": pa.int32(),
    "brightness": pa.float32(),
    "entropy": pa.float32(),
    "hash": pa.uint64(),  # alike for images that look alike
    "digest": pa.uint64(),  # equal for images that are equal byte for byte
    "fault": pa.string(),
    "label_name": pa.string(),
    "classes": pa.list_(pa.string()),  # the label or labels; else the classes of objects
}
"""Columns of a piece besides the features."""


class TableFeature(NamedTuple):
    """A feature's column in a piece: "int", "float", "text" or "bytes", perhaps a list of it."""

    name: str
    base: str
    is_list: bool


@dataclass(frozen=True, slots=True)
class TablePiece:
    """Consecutive rows of one shard in a Parquet file. The columns of features are c0, c1 ..."""

    file: str
    rows: int
    features: tuple[TableFeature, ...]
    start: int = 0  # what is added to the numbers of the records


SIDES = {
    "shards": {
        "shard": pa.int32(),
        "path": pa.string(),
        "split": pa.string(),
        "verified": pa.bool_(),  # whether the file of faults has all of this shard
    },
    "faults": {"shard": pa.int32(), "record": pa.int64(), "kinds": pa.list_(pa.string())},
    "marks": {"shard": pa.int32(), "record": pa.int64(), "marked": pa.bool_()},
}
"""Files next to the pieces: all shards, faults that `verify` found in records, and marks."""


@dataclass(frozen=True, slots=True)
class RecordTable:
    """The rows of the records that were read so far, as files in a folder."""

    folder: Path
    shards: str
    faults: str
    marks: str
    class_names: tuple[str, ...] = ()  # of the label, by number
    has_images: bool = False
    pieces: tuple[TablePiece, ...] = ()

    @classmethod
    def begin(cls, folder: Path, shards: Iterable[tuple[AnyPath, str | None]]) -> "RecordTable":
        """Return a table without rows, for shards with their splits.

        `ShardError` if there is not enough memory for questions about the rows.
        """
        check_address_space()
        rows = [(number, str(path), split, False) for number, (path, split) in enumerate(shards)]
        empty = (write_side(folder, side, ()) for side in ("faults", "marks"))
        return cls(folder, write_side(folder, "shards", rows), next(empty), next(empty))

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(piece.rows for piece in self.pieces)


def write_side(folder: Path, side: str, rows: Iterable[tuple[Any, ...]], version: int = 0) -> str:
    """Write one of the `SIDES` to a new file, and return its name."""
    schema = pa.schema(SIDES[side])
    data = [dict(zip(schema.names, row, strict=True)) for row in rows]
    name = f"{side}-{version}.parquet"
    with _storing(folder):
        pq.write_table(pa.Table.from_pylist(data, schema), folder / name)
    return name


def merge_pieces(folder: Path, pieces: Sequence[TablePiece]) -> tuple[TablePiece, ...]:
    """Return the same rows in fewer files: small ones with the same features become one."""
    merged = [piece for piece in pieces if piece.rows >= _ROWS]
    groups: dict[tuple[TableFeature, ...], list[TablePiece]] = {}
    for piece in pieces:
        if piece.rows < _ROWS:
            groups.setdefault(piece.features, []).append(piece)
    for features, small in groups.items():
        name = f"merged-{secrets.token_hex(8)}.parquet"
        with _storing(folder):
            pq.write_table(
                pa.concat_tables(_read_piece(folder, one) for one in small), folder / name
            )
        merged.append(TablePiece(name, sum(piece.rows for piece in small), features))
    return tuple(merged)


def _read_piece(folder: Path, piece: TablePiece) -> pa.Table:
    table = pq.read_table(folder / piece.file, partitioning=None)
    numbers = pc.add(table["record"], piece.start)
    return table.set_column(table.schema.get_field_index("record"), "record", numbers)


class RowRequest(NamedTuple):
    """Where to store the rows of records."""

    folder: Path
    shards: Mapping[AnyPath, int]  # numbers of those that have rows
    on_piece: Callable[[TablePiece], None] | None = None
    """Called with each piece as soon as it is written, if shards are read in this process."""


class RowFold(RecordFold):
    """Writes a row for each record, also for those that other folds reject.

    A record with a damaged payload has a row without values.

    Attributes:
        pieces: what was written.
    """

    takes_all = True

    def __init__(self, path: AnyPath, request: RowRequest) -> None:
        super().__init__()
        self.pieces: list[TablePiece] = []
        self._path, self._shard = path, request.shards[path]
        self._folder, self._on_piece = request.folder, request.on_piece
        self._roles: ImageRoles | None = None
        self._damaged: list[Record] = []

    def add_fault(self, fault: Fault) -> None:
        """Keep a place for a record with a damaged payload."""
        if fault.kind is FaultKind.PAYLOAD_CRC and fault.record is not None:
            self._damaged.append(Record(fault.record, fault.offset, b"", -1))

    def add(self, records: Sequence[Record], rejected: set[int]) -> None:  # noqa: ARG002
        """Write records, the first ones of a shard in a piece of their own."""
        rows = sorted([*records, *self._damaged], key=lambda record: record.offset)
        self._damaged = []
        ends = [_FIRST_ROWS] if not self.pieces and len(rows) > _FIRST_ROWS else []
        for start, end in pairwise([0, *ends, len(rows)]):
            if end > start:
                self._write(rows[start:end])

    def _write(self, records: list[Record]) -> None:
        self._roles = self._roles or image_roles(self._path)
        columns, features = _columns(self._shard, self._path, records, self._roles)
        name = f"{self._shard:06d}-{secrets.token_hex(8)}.parquet"
        with _storing(self._folder):
            pq.write_table(pa.table(columns), self._folder / name)
        self.pieces.append(TablePiece(name, len(records), features))
        if self._on_piece is not None:
            self._on_piece(self.pieces[-1])

    def merge(self, other: "RowFold", index: int) -> None:
        """Add the pieces of the next part, whose records are counted from ``index`` on."""
        super().merge(other, index)
        self.pieces += [replace(piece, start=piece.start + index) for piece in other.pieces]

    def finish(self) -> None:
        """Write what follows the last intact record."""
        self.add((), set())
        self._on_piece = None  # the fold may be sent to another process


def _storing(folder: Path) -> AbstractContextManager[None]:
    """Name the folder in errors about temporary data."""
    return os_errors_as(WriteError, folder, "can't store temporary data")


def _columns(
    shard: int, path: AnyPath, records: list[Record], roles: ImageRoles
) -> tuple[dict[str, pa.Array], tuple[TableFeature, ...]]:
    """Return the columns of a piece, and the features among them."""
    arrays, unparsed = _decoded(path, records, roles.image)
    rows = [_image_row(record.payload, roles) if roles.image else {} for record in records]
    names = {*roles.label_names.names} - {""}
    classes = _classes(arrays, roles) or [[]] * len(records)
    for number, (record, row) in enumerate(zip(records, rows, strict=True)):
        row |= {"shard": shard, "record": record.index, "offset": record.offset}
        class_names = classes[number]
        row |= {"bytes": len(record.payload), "classes": class_names}
        if roles.label in arrays and class_names and class_names[0] in names:
            row["label_name"] = class_names[0]
        if record.payload_crc == -1:
            row["fault"] = FaultKind.PAYLOAD_CRC.value
        elif record.index in unparsed:
            row["fault"] = FaultKind.PARSE.value
    columns = {name: pa.array([row.get(name) for row in rows], kind) for name, kind in OWN.items()}
    features: list[TableFeature] = []
    for name, array in arrays.items():
        if name in roles.types.columns:
            array = map_values(array, partial(_shown, roles.types, name))
        base, short = _shortened(array)
        columns[f"c{len(features)}"] = short
        features.append(TableFeature(name, base, pa.types.is_list(short.type)))
    return columns, tuple(features)


def _decoded(
    path: AnyPath, records: list[Record], image: str | None
) -> tuple[dict[str, pa.Array], set[int]]:
    """Return the features as columns, and the numbers of the records that can't be parsed."""
    names, columns = _feature_columns(records, image)
    if not columns.parsed:
        return {}, set()
    faults = list[Fault]()
    batches = list(decode_records(path, records, columns, faults.append))
    unparsed = {fault.record for fault in faults if fault.record is not None}
    parts = zip(*(columns.arrays(batch.table) for batch in batches), strict=True)
    arrays = dict(zip(names, map(pa.concat_arrays, parts), strict=False))
    if unparsed:
        fitting = (record.index for batch in batches for record in batch.records)
        rows = {index: row for row, index in enumerate(fitting)}
        places = pa.array([rows.get(record.index) for record in records], pa.int64())
        arrays = {name: array.take(places) for name, array in arrays.items()}
    return arrays, unparsed


def _feature_columns(records: list[Record], image: str | None) -> tuple[list[str], Columns]:
    """Return the features of records that have a column in a piece, by their names."""
    seen = ColumnsFold()
    seen.add([record.payload for record in records])
    for other in (PayloadKind.EVENT, PayloadKind.UNKNOWN):
        del seen.kinds[other]  # even where most are others, which would leave no columns
    found = seen.table_columns(exact=False)
    names = [
        name
        for name, column in zip(found.names, found.columns, strict=False)
        if column.dtype is not None and not column.is_list and name != image
    ][:MAX_COLUMNS]
    return names, found.select(names)


def _shown(types: StoredTypes, name: str, values: pa.Array) -> pa.Array:
    """Return values that are times as text, and others as they are."""
    column = types.columns[name]
    if not (column.logical and pa.types.is_integer(values.type)):
        return values
    places = np.flatnonzero(np.asarray(values.is_valid()))
    times = types.shown(name, DType.INT64, values.drop_null().to_pylist(), is_whole=False)
    texts = dict(zip(places.tolist(), map(str, times), strict=True))
    return pa.array([texts.get(place) for place in range(len(values))], pa.string())


def _shortened(array: pa.Array) -> tuple[str, pa.Array]:
    """Return the type of values, or of those of lists, and a column without long ones."""
    values_type = array.type.value_type if pa.types.is_list(array.type) else array.type
    if pa.types.is_floating(values_type):
        return "float", array
    if pa.types.is_integer(values_type):
        return "int", array
    return "text" if pa.types.is_string(values_type) else "bytes", map_values(array, _without_long)


def _without_long(values: pa.Array) -> pa.Array:
    """Return strings, null in place of long ones."""
    is_short = pc.less_equal(pc.binary_length(values), LONGEST)
    return pc.if_else(is_short, values, pa.scalar(None, values.type))


def _image_row(payload: bytes, roles: ImageRoles) -> dict[str, Any]:
    """Return measurements of the first image of a record."""
    try:
        example = decode_example(payload, PayloadKind.SEQUENCE_EXAMPLE)
    except ValueError:
        return {}
    _, _, picture = next(pictures_in(example, roles, LOOK_BOX))
    look = look_at(picture)
    row: dict[str, Any] = {} if look is None else look._asdict()
    row |= {"width": picture.width or None, "height": picture.height or None}
    feature = example.features.get(roles.image or "")
    if feature is not None and feature.values and isinstance(value := feature.values[0], bytes):
        row["digest"] = int.from_bytes(hashlib.blake2b(value, digest_size=8).digest())
        if picture.problem is not None:
            row["fault"] = UNREADABLE_IMAGE
    return row


def _classes(arrays: Mapping[str, pa.Array], roles: ImageRoles) -> list[list[str]]:
    """Return the label of each record as people call it, or the classes of its objects."""
    names: Mapping[int, str] = dict(enumerate(roles.label_names.names))
    source = roles.label if roles.label in arrays else None
    if source is None:
        names = roles.object_names
        known = ("image/object/class/text", "image/object/class/label", "objects/label", "label")
        source = next((name for name in known if roles.has_boxes and name in arrays), None)
    if source is None:
        return []
    array, classes = arrays[source], list[list[str]]()
    is_list = pa.types.is_list(array.type)
    if pa.types.is_floating(array.type.value_type if is_list else array.type):
        return []
    for value in array.to_pylist():
        values = (value or [])[:_MOST_CLASSES] if is_list else [] if value is None else [value]
        classes.append(list(dict.fromkeys(_class_name(one, names) for one in values)))
    return classes


def _class_name(value: str | bytes | int, names: Mapping[int, str]) -> str:
    if isinstance(value, int):
        return names.get(value) or str(value)
    return value[:200] if isinstance(value, str) else value[:200].decode("utf-8", "replace")
