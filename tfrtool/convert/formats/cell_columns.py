"""Cells of rows as Arrow columns: their types and their values."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import compress
from typing import Any

import pyarrow as pa

from tfrtool.convert.formats.json_cells import Read, json_reader
from tfrtool.convert.formats.nested_cells import (
    NestedCellError,
    NestedTypes,
    as_optional,
    cell_at,
)
from tfrtool.convert.formats.record_format import Content, ReadPosition, Scan, naming_file
from tfrtool.errors import SchemaError, conversion_error
from tfrtool.examples.arrow.columns import (
    EXACT,
    PAYLOAD,
    Columns,
    DecodedColumns,
)
from tfrtool.examples.arrow.value_types import (
    as_logical,
    innermost_type,
    logical_word,
    map_values,
    texts_of,
)
from tfrtool.examples.example import DType, PayloadKind
from tfrtool.examples.fields import Field, Kind, Struct, Values, with_info
from tfrtool.features.arrow_tree import check_stored
from tfrtool.features.feature_columns import FeatureColumns
from tfrtool.features.stored_layout import stored_features
from tfrtool.sources.formats.cell_types import CellTypes
from tfrtool.storage.remote_path import AnyPath

Row = Mapping[str, Any]
_Errors = dict[str, tuple[int, Exception]]
"""The first row of each column that can't be converted, and why."""


class CellReader:
    """What cells of JSON stand for; those of other formats derive from it. It has no state."""

    def named(self, row: Row) -> Row:
        """Return a row without a schema, each column under the name that its feature gets."""
        return row

    def add(self, column: CellTypes, cell: Any, row: int) -> bool:
        """Add a cell without a schema to its column; return whether `CellTypes` can hold it.

        Raises:
            ValueError: no feature holds it.
        """
        return cell is None or column.add_cell(cell, row)

    def notes(self, columns: Mapping[str, CellTypes]) -> list[str]:  # noqa: ARG002
        """Return what becomes of columns, a clause each."""
        return []

    def reader(self, kind: pa.DataType, *, declared: bool, required: bool, in_tree: bool) -> Read:
        """Return what makes a value that Arrow takes of a cell.

        It raises a `ValueError` for a cell that the type can't hold.
        """
        read_value = json_reader(kind, only_known_keys=declared, fills_missing=in_tree)

        def read(cell: Any) -> Any:
            if cell is None and required:
                raise ValueError("missing value; other rows have one")
            return read_value(cell)

        return read


class ColumnInference:
    """A fold over rows without a schema: the columns that hold their cells.

    Attributes:
        fields: the number of columns, and of keys of objects in them.
    """

    def __init__(
        self, cells: CellReader, widest: Callable[[Collection[DType]], DType | None]
    ) -> None:
        """Take what cells stand for, and which type holds values of several types."""
        self._cells, self._widest = cells, widest
        self._columns: dict[str, CellTypes | NestedTypes] = {}
        self._failed = set[str]()  # nested columns
        self._errors: _Errors = {}
        self.fields = 0

    def add(self, row: Row, number: int) -> None:
        """Add a row."""
        for name, cell in self._cells.named(row).items():
            column = self._columns.get(name)
            if column is None:
                column = self._columns[name] = CellTypes()
                self.fields += 1
            try:
                if isinstance(column, CellTypes):
                    known = len(column.dtypes)
                    if self._cells.add(column, cell, number):
                        if len(column.dtypes) > known:
                            self._widest(column.dtypes)
                        continue
                    column = self._columns[name] = NestedTypes.of_cells(name, column)
                if cell is not None and name not in self._failed:
                    self.fields += column.add(cell, number)
            except NestedCellError as error:
                self._failed.add(name)
                self._errors.setdefault(error.name, (number, error))
            except ValueError as error:
                self._errors.setdefault(name, (number, error))

    def scan(self, path: AnyPath, rows: int, size: int, positions: Sequence[ReadPosition]) -> Scan:
        """Return the result for a file; `SchemaError` for columns that can't be converted."""
        _raise_all(self._errors, path)
        flat = {name: one for name, one in self._columns.items() if isinstance(one, CellTypes)}
        columns = {
            name: NestedTypes.of_cells(name, one) if isinstance(one, CellTypes) else one
            for name, one in self._columns.items()
        }
        types = {leaf.path: leaf.values for one in columns.values() for leaf in one.leaves()}
        for one in types.values():
            one.numbers.flush()
        return Scan(
            path=path,
            rows=rows,
            bytes=size,
            positions=positions,
            content=Content(columns=_tree_of(columns, rows, path), declared=False),
            numbers={name: one.numbers for name, one in types.items() if one.numbers.seen},
            blank=tuple(name for name, one in types.items() if not one.dtypes),
            notes=tuple(self._cells.notes(flat)),
            sizes=dict(pair for one in columns.values() for pair in one.sizes()),
        )


def _tree_of(columns: Mapping[str, NestedTypes], rows: int, path: AnyPath) -> FeatureColumns:
    """Return the tree of columns; `SchemaError` if records can't store it."""
    fields, owners = dict[str, Field](), dict[str, str]()
    for name, column in columns.items():
        item = column.field()
        if item is None:
            continue
        fields[name] = item if column.count == rows else as_optional(item)
        for feature in stored_features(Struct({name: item})):
            other = owners.setdefault(feature.key, name)
            if other != name:
                what = f"columns {other!r} and {name!r} are both stored as {feature.key!r}"
                raise SchemaError(what, path=path)
    tree = FeatureColumns.of(Struct(fields))
    for name in {*fields} - {*tree.names}:
        raise SchemaError(f"invalid column name {name!r}", path=path)
    with naming_file(path):
        check_stored(tree.root)
    return tree


def decode_rows(
    cells: CellReader, rows: Sequence[Row], content: Content, path: AnyPath, first: int
) -> pa.RecordBatch:
    """Return rows as a batch; `SchemaError` with the first row of each column that doesn't fit."""
    arrays, required = list[pa.Array](), required_columns(content)
    columns, errors = _as_texts(content.columns), _Errors()
    rows = rows if content.declared else [*map(cells.named, rows)]
    in_tree = isinstance(columns, FeatureColumns)
    schema, texts = content.schema, columns.to_arrow(exact=content.exact)
    for name, kind in zip(texts.names, texts.types, strict=True):
        values = list[Any]()
        read = cells.reader(
            kind, declared=content.declared, required=name in required, in_tree=in_tree
        )
        is_path = in_tree and "/" in name
        missing: Any = {} if in_tree and pa.types.is_struct(kind) else None
        try:
            for row in rows:
                values.append(read(cell_at(row, name) if is_path else row.get(name, missing)))
            array = pa.array(values, kind)
            arrays.append(_from_texts(array, schema.field(name).type) if in_tree else array)
        except _TextError as error:
            errors[name] = first + error.row, error
        except (ValueError, RecursionError) as error:
            errors[name] = first + len(values), error
    _raise_all(errors, path)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class _TextError(ValueError):
    """A text that isn't a time or a decimal, and its row."""

    def __init__(self, row: int, kind: pa.DataType) -> None:
        word = "time or decimal" if pa.types.is_struct(kind) else kind
        super().__init__(f"a text that is not a valid {word}")
        self.row = row


def _from_texts(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array with times and decimals in place of their texts."""
    if array.type == kind:
        return array
    inner = innermost_type(kind)
    is_struct = pa.types.is_struct(inner)
    try:
        return array.cast(kind) if is_struct else map_values(array, partial(as_logical, kind=inner))
    except ValueError as error:
        if len(array) > 1:
            for row in range(len(array)):
                try:
                    _from_texts(array.slice(row, 1), kind)
                except _TextError as found:
                    raise _TextError(row, inner) from found
        raise _TextError(0, inner) from error


def with_texts(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with its times and decimals as text."""
    for at, field in enumerate(batch.schema):
        if _has_times(field.type):
            batch = batch.set_column(at, field.name, map_values(batch.column(at), _as_shown))
    return batch


def _has_times(kind: pa.DataType) -> bool:
    kind = innermost_type(kind)
    inner = [field.type for field in kind] if pa.types.is_struct(kind) else []
    return any(map(_has_times, inner)) or logical_word(kind) is not None


def _as_shown(array: pa.Array) -> pa.Array:
    return array if logical_word(array.type) is None else texts_of(array)


def _as_texts(columns: Columns) -> Columns:
    """Return columns with text for times and decimals."""
    if not isinstance(columns, FeatureColumns):
        return columns
    return replace(columns, root=with_info(columns.root, _as_text))


def _as_text(_: str, values: Values) -> Values:
    """Return text in place of times and decimals."""
    if values.kind is not Kind.TIME:
        return values
    return replace(values, kind=Kind.TEXT, dtype="")


def required_columns(content: Content) -> set[str]:
    """Return the names of the columns that have a single value in each row."""
    columns = content.columns
    if isinstance(columns, DecodedColumns):
        return columns.required
    if columns.kind is PayloadKind.EXAMPLE:
        scalars = [one.is_scalar for one in columns.columns]
        return {EXACT, *compress(columns.names, scalars)}
    return {EXACT, PAYLOAD}


def _raise_all(errors: _Errors, path: AnyPath) -> None:
    """Raise a `SchemaError` for the columns that can't be converted, each with its first row."""
    if len(errors) > 1:
        whys = [f"column {name!r}, record {row}: {why}" for name, (row, why) in errors.items()]
        raise conversion_error(whys, path)
    for name, (row, error) in errors.items():
        raise SchemaError(f"column {name!r}: {error}", path=path, record=row) from error
