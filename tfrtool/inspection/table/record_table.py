"""A row for each record, in Parquet pieces: its position, short values, and image measurements."""

import hashlib
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
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
from tfrtool.examples.arrow.value_types import map_values, texts_of
from tfrtool.examples.example import PayloadKind, Value, classify_payload, decode_example
from tfrtool.examples.fields import Encoding, Field, ListOf, Struct
from tfrtool.features.feature_columns import FeatureColumns
from tfrtool.features.stored_lists import ends_of, list_of
from tfrtool.images.audit import ImageVerdict
from tfrtool.images.pixels import LOOK_BOX, look_at
from tfrtool.inspection.pictures.pictures import ImageRoles, image_roles, joined_bytes, pictures_in
from tfrtool.inspection.rows.batches import decode_records
from tfrtool.inspection.rows.sandbox import readable_type
from tfrtool.inspection.rows.sql_child import check_address_space
from tfrtool.inspection.table.long_values import LONGEST, LONGEST_TEXT, describe_long
from tfrtool.inspection.verify.image_check import IntactImages
from tfrtool.inspection.verify.payload_check import RecordFold
from tfrtool.records.framing import Fault, FaultKind, Record
from tfrtool.storage.remote_path import AnyPath

MAX_COLUMNS = 200
"""Features that have a column; a record may have a million."""

_ROWS, _FIRST_ROWS = 16384, 100
"""Rows of a piece that isn't merged, and of the first one of a shard, which a user waits for."""

_MOST_CLASSES = 100

OBJECT_CLASSES = ("image/object/class/text", "image/object/class/label", "objects/label")
"""Features with the classes of objects, the first one that a record has."""

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
    "long": pa.map_(pa.string(), pa.string()),  # what values that are null here are, by feature
}
"""Columns of a piece besides the features."""


class TableFeature(NamedTuple):
    """A feature's column in a piece, with the type that conditions see."""

    name: str
    type: pa.DataType


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
    "marks": {"shard": pa.int32(), "record": pa.int64(), "tags": pa.list_(pa.string())},
    "predictions": {
        "shard": pa.int32(),
        "record": pa.int64(),
        "label": pa.string(),
        "predicted": pa.string(),
        "confidence": pa.float64(),
        "loss": pa.float64(),
        "correct": pa.bool_(),
    },
}
"""Files next to the pieces: all shards, faults that `verify` found in records, marks, and
predictions of a model."""


@dataclass(frozen=True, slots=True)
class RecordTable:
    """The rows of the records that were read so far, as files in a folder."""

    folder: Path
    shards: str
    faults: str
    marks: str
    predictions: str
    has_predictions: bool = False
    class_names: tuple[str, ...] = ()  # of the label, by number
    has_images: bool = False
    pieces: tuple[TablePiece, ...] = ()

    @classmethod
    def begin(cls, folder: Path, shards: Iterable[tuple[AnyPath, str | None]]) -> "RecordTable":
        """Return a table without rows, for shards with their splits.

        `ShardError` if there is not enough memory for questions about the rows.
        """
        check_address_space()
        rows = [(n, path_text(path), split, False) for n, (path, split) in enumerate(shards)]
        empty = (write_side(folder, side, ()) for side in ("faults", "marks", "predictions"))
        faults, marks, predictions = empty
        return cls(folder, write_side(folder, "shards", rows), faults, marks, predictions)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(piece.rows for piece in self.pieces)


def path_text(path: AnyPath) -> str:
    """Return a path as `query` shows it: what isn't UTF-8 is escaped."""
    return str(path).encode("utf-8", "backslashreplace").decode()


def write_side(folder: Path, side: str, rows: Iterable[tuple[Any, ...]], version: int = 0) -> str:
    """Write one of the `SIDES` to a new file, and return its name."""
    schema = pa.schema(SIDES[side])
    columns = [*zip(*rows, strict=True)] or [()] * len(schema)
    arrays = [pa.array(one, kind) for one, kind in zip(columns, schema.types, strict=True)]
    name = f"{side}-{version}.parquet"
    with _storing(folder):
        pq.write_table(pa.Table.from_arrays(arrays, schema=schema), folder / name)
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
        _write_piece(folder, name, pa.concat_tables(_read_piece(folder, one) for one in small))
        merged.append(TablePiece(name, sum(piece.rows for piece in small), features))
    return tuple(merged)


def _write_piece(folder: Path, name: str, table: pa.Table) -> None:
    """Write a piece, without minimum and maximum of floats.

    These leave out NaN, and DuckDB then takes ``isnan`` as false and NaN as up to the maximum.
    """
    kinds = {field.name: field.type for field in table.schema}
    exact = [
        one
        for one, kind in kinds.items()
        if not (pa.types.is_floating(kind) or pa.types.is_nested(kind))
    ]
    with _storing(folder):
        pq.write_table(table, folder / name, write_statistics=exact)


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
    columns: FeatureColumns | None = None
    """What features.json says that records have; without it, each piece has what is inferred."""


class RowFold(RecordFold):
    """Writes a row for each record, also for those that other folds reject.

    A record with a damaged payload has a row without values.

    Attributes:
        pieces: what was written.
        intact_images: images of the records that were added last, as far as drawing them has
            shown that nothing is wrong with them: they need not be decoded to check them.
    """

    takes_all = True

    def __init__(self, path: AnyPath, request: RowRequest) -> None:
        super().__init__()
        self.pieces: list[TablePiece] = []
        self._path, self._shard = path, request.shards[path]
        self._folder, self._on_piece = request.folder, request.on_piece
        self._declared = request.columns
        self._roles: ImageRoles | None = None
        self._damaged: list[Record] = []
        self.intact_images: IntactImages = {}

    def add_fault(self, fault: Fault) -> None:
        """Keep a place for a record with a damaged payload."""
        if fault.kind is FaultKind.PAYLOAD_CRC and fault.record is not None:
            self._damaged.append(Record(fault.record, fault.offset, b"", -1))

    def add(self, records: Sequence[Record], rejected: set[int]) -> None:  # noqa: ARG002
        """Write records, the first ones of a shard in a piece of their own."""
        rows = sorted([*records, *self._damaged], key=lambda record: record.offset)
        self._damaged = []
        self.intact_images.clear()
        most = len(rows) if self._declared is None else self._declared.batch_records
        first = most if self.pieces else min(most, _FIRST_ROWS)
        for start, end in pairwise([0, *range(first, len(rows), max(most, 1)), len(rows)]):
            if end > start:
                self._write(rows[start:end])

    def _write(self, records: list[Record]) -> None:
        root = None if self._declared is None else self._declared.root
        self._roles = self._roles or image_roles(self._path, root=root)
        values = _values(self._path, records, self._roles, self._declared)
        rows = self._image_rows(records, self._roles)
        columns = _record_columns(self._shard, records, rows, self._roles, values)
        features = list[TableFeature]()
        for name, kind in values.types.items():
            columns[f"c{len(features)}"] = values.arrays[name]
            features.append(TableFeature(name, kind))
        name = f"{self._shard:06d}-{secrets.token_hex(8)}.parquet"
        _write_piece(self._folder, name, pa.table(columns))
        self.pieces.append(TablePiece(name, len(records), tuple(features)))
        if self._on_piece is not None:
            self._on_piece(self.pieces[-1])

    def _image_rows(self, records: list[Record], roles: ImageRoles) -> list[dict[str, Any]]:
        """Return measurements of the first image of each record."""
        if roles.image is None:
            return [{} for _ in records]
        return [self._image_row(record, roles.image, roles) for record in records]

    def _image_row(self, record: Record, image: str, roles: ImageRoles) -> dict[str, Any]:
        try:
            example = decode_example(record.payload, PayloadKind.SEQUENCE_EXAMPLE)
        except ValueError:
            return {}
        _, list_index, picture = next(pictures_in(example, record.payload, roles, LOOK_BOX))
        if picture.is_intact:
            verdict = ImageVerdict(format="JPEG", size=(picture.width, picture.height))
            self.intact_images[record.index, image, list_index] = verdict
        look = look_at(picture)
        row: dict[str, Any] = {} if look is None else look._asdict()
        row |= {"width": picture.width or None, "height": picture.height or None}
        feature = example.features.get(image)
        value: Value | None = joined_bytes(feature)
        if value is None and feature is not None and feature.values:
            value = feature.values[0]
        if isinstance(value, bytes):
            row["digest"] = int.from_bytes(hashlib.blake2b(value, digest_size=8).digest())
            if picture.problem is not None:
                row["fault"] = UNREADABLE_IMAGE
        return row

    def flush(self) -> None:
        """Forget the images of the last records, which the other folds have seen."""
        self.intact_images.clear()

    def merge(self, other: "RowFold", index: int) -> None:
        """Add the pieces of the next part, whose records are counted from ``index`` on."""
        super().merge(other, index)
        self.pieces += [replace(piece, start=piece.start + index) for piece in other.pieces]

    def finish(self) -> None:
        """Write what follows the last intact record."""
        self.add((), set())
        self._on_piece = self._declared = None  # the fold may be sent to another process


def _storing(folder: Path) -> AbstractContextManager[None]:
    """Name the folder in errors about temporary data."""
    return os_errors_as(WriteError, folder, "can't store temporary data")


class _Values(NamedTuple):
    """The values of records in a piece.

    Attributes:
        arrays: columns by name, and what else classes are found in.
        types: those of the columns that are features, as conditions see them.
        faults: what is wrong with records that have no values, by their numbers.
        long: for each record, what the values are that are too long for a piece.
    """

    arrays: dict[str, pa.Array]
    types: dict[str, pa.DataType]
    faults: dict[int, FaultKind]
    long: list[list[tuple[str, str]] | None]


def _values(
    path: AnyPath, records: list[Record], roles: ImageRoles, declared: FeatureColumns | None
) -> _Values:
    """Decode the records of a piece."""
    if declared is None:
        columns = _inferred_columns(records, roles.image)
        arrays, unfit = _decoded(path, records, columns)
        long = describe_long(arrays, len(records))
        arrays = {name: map_values(array, _storable) for name, array in arrays.items()}
        types = {name: array.type for name, array in arrays.items()}
    else:
        names = [name for name in declared.names if name != roles.image][:MAX_COLUMNS]
        columns = declared.narrowed({*names, *OBJECT_CLASSES, roles.label or ""})
        arrays, unfit = _decoded(path, records, columns)
        long = describe_long(arrays, len(records))
        for name, item in zip(columns.names, columns.root.fields.values(), strict=True):
            if name in arrays:
                arrays[name] = _without_long(item, arrays[name])
        kinds = {field.name: field.type for field in columns.to_arrow()}
        types = {name: readable_type(kinds[name]) for name in names if name in arrays}
    faults = dict.fromkeys((record.index for record in unfit), FaultKind.PARSE)
    for record in unfit if declared is not None else ():
        if classify_payload(record.payload) not in (PayloadKind.EVENT, PayloadKind.UNKNOWN):
            faults[record.index] = FaultKind.SCHEMA
    return _Values(arrays, types, faults, long)


def _record_columns(
    shard: int,
    records: list[Record],
    rows: list[dict[str, Any]],
    roles: ImageRoles,
    values: _Values,
) -> dict[str, pa.Array]:
    """Return the columns of a piece besides the features, from measurements of images."""
    names = {*roles.label_names.names} - {""}
    classes = _classes(values.arrays, roles) or [[]] * len(records)
    has_label = roles.label in values.arrays and bool(names)
    columns: dict[str, list[Any]] = {
        "shard": [shard] * len(records),
        "record": [record.index for record in records],
        "offset": [record.offset for record in records],
        "bytes": [len(record.payload) for record in records],
        "fault": _faults(records, rows, values.faults),
        "label_name": [one[0] if one and one[0] in names else None for one in classes]
        if has_label
        else [None] * len(records),
        "classes": classes,
        "long": values.long,
    }
    for name in OWN.keys() - columns.keys():
        columns[name] = [row.get(name) for row in rows]
    return {name: pa.array(columns[name], kind) for name, kind in OWN.items()}


def _faults(
    records: list[Record], rows: list[dict[str, Any]], faults: Mapping[int, FaultKind]
) -> list[str | None]:
    """Return what is wrong with each record, or with its image."""
    found: list[str | None] = [row.get("fault") for row in rows]
    for number, record in enumerate(records):
        if record.payload_crc == -1:
            found[number] = FaultKind.PAYLOAD_CRC.value
        elif record.index in faults:
            found[number] = faults[record.index].value
    return found


def _decoded(
    path: AnyPath, records: list[Record], columns: Columns
) -> tuple[dict[str, pa.Array], list[Record]]:
    """Return the columns by name, and the records that they can't hold, which are null there."""
    if not columns.parsed and not isinstance(columns, FeatureColumns):
        return {}, []
    faults = list[Fault]()
    batches = list(decode_records(path, records, columns, faults.append))
    parts = zip(*(columns.arrays(batch.table) for batch in batches), strict=True)
    arrays = dict(zip(columns.names, map(pa.concat_arrays, parts), strict=False))
    if not faults:
        return arrays, []
    fitting = (record.index for batch in batches for record in batch.records)
    rows = {index: row for row, index in enumerate(fitting)}
    places = pa.array([rows.get(record.index) for record in records], pa.int64())
    arrays = {name: array.take(places) for name, array in arrays.items()}
    return arrays, [record for record in records if record.index not in rows]


def _inferred_columns(records: list[Record], image: str | None) -> Columns:
    """Return the features of records that have a column in a piece."""
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
    return found.select(names)


def _without_long(item: Field, array: pa.Array) -> pa.Array:
    """Return values of a field as a piece has them: null in place of long ones at any depth."""
    if isinstance(item, Struct):
        parts = map(_without_long, item.fields.values(), array.flatten())
        return pa.StructArray.from_arrays([*parts], [*item.fields], mask=array.is_null())
    if isinstance(item, ListOf):
        lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0))
        items = _without_long(item.item, array.flatten())
        return list_of(ends_of(lengths), items, np.asarray(array.is_valid()))
    array = map_values(array, _storable)
    if item.encoding is Encoding.NONE:
        return array
    # Images as tensors may be many times as large as their encoding.
    ends, values = np.arange(len(array) + 1, dtype=np.int32), array
    while pa.types.is_list(values.type):
        ends, values = np.asarray(values.offsets)[ends], values.values
    is_short = np.diff(ends) * values.type.bit_width <= 8 * LONGEST
    return pc.if_else(pa.array(is_short), array, pa.scalar(None, array.type))


def _storable(values: pa.Array) -> pa.Array:
    """Return values as a piece has them: null in place of long ones, and wide decimals as text."""
    if pa.types.is_decimal256(values.type):
        return texts_of(values)
    if not (pa.types.is_string(values.type) or pa.types.is_binary(values.type)):
        return values
    most = LONGEST_TEXT if pa.types.is_string(values.type) else LONGEST
    is_short = pc.less_equal(pc.binary_length(values), most)
    return pc.if_else(is_short, values, pa.scalar(None, values.type))


def _classes(arrays: Mapping[str, pa.Array], roles: ImageRoles) -> list[list[str]]:
    """Return the label of each record as people call it, or the classes of its objects."""
    names: Mapping[int, str] = dict(enumerate(roles.label_names.names))
    source = roles.label if roles.label in arrays else None
    if source is None:
        names = roles.object_names
        known = (*OBJECT_CLASSES, "label") if roles.has_boxes else ()
        source = next((name for name in known if name in arrays), None)
    if source is None:
        return []
    array, classes = arrays[source], list[list[str]]()
    is_list = pa.types.is_list(array.type)
    kind = array.type.value_type if is_list else array.type
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return []
    for value in array.to_pylist():
        values = (value or [])[:_MOST_CLASSES] if is_list else [] if value is None else [value]
        classes.append(list(dict.fromkeys(_class_name(one, names) for one in values)))
    return classes


def _class_name(value: str | bytes | int, names: Mapping[int, str]) -> str:
    if isinstance(value, int):
        return names.get(value) or str(value)
    return value[:200] if isinstance(value, str) else value[:200].decode("utf-8", "replace")
