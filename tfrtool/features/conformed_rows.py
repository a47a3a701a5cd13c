"""The rows of Arrow tables of any types as the arrays of a tree's fields."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfrtool.errors import SchemaError, conversion_error
from tfrtool.examples.arrow.arrays import Ints, list_array, scattered, struct_array
from tfrtool.examples.arrow.columns import EXACT, METADATA, Columns
from tfrtool.examples.arrow.value_types import as_logical, logical_word, microseconds_of, texts_of
from tfrtool.examples.dtypes import NumberRange, as_dtype
from tfrtool.examples.example import DType, PayloadKind
from tfrtool.examples.fields import Field, Kind, ListOf, Null, Struct, Values, join, leaves_of
from tfrtool.features.arrow_tree import IMAGE_PATH, is_image, is_list, list_key
from tfrtool.features.feature_columns import FeatureColumns
from tfrtool.features.nested import arrow_type
from tfrtool.features.stored_layout import stored_dtype
from tfrtool.features.stored_lists import ends_of, tensors, with_nulls

_FILE_NAME = IMAGE_PATH.format("").lstrip("/")
_NULL = "a null within a list, which a feature can't store"


class TableFold:
    """What the rows of a table show that its schema doesn't.

    Attributes:
        numbers: the numbers of fields of doubles, by path.
        sizes: the lengths of lists in others, by `list_key`.
    """

    def __init__(self, root: Struct) -> None:
        """Begin with nothing."""
        self.numbers = {
            leaf.path: NumberRange(doubles=True)
            for leaf in leaves_of(root)
            if leaf.values.dtype == "float64"
        }
        self.sizes: dict[str, set[int]] = {}
        self._fields = {
            name: item for name, item in root.fields.items() if _is_looked_at(item, level=0)
        }
        self.names = [*self._fields]
        self._rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in rows, in order."""
        rows = np.arange(self._rows, self._rows + batch.num_rows)
        for name, item in self._fields.items():
            self._add(item, batch.column(name), name, rows, 0)
        self._rows += batch.num_rows

    def _add(self, item: Field, array: pa.Array, path: str, rows: Ints, level: int) -> None:
        array = plain_array(array)
        if isinstance(item, Struct):
            for column, child in zip(array.type, array.flatten(), strict=True):
                if column.name in item.fields:
                    self._add(item.fields[column.name], child, join(path, column.name), rows, level)
        elif isinstance(item, ListOf):
            lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0))
            if level and item.length is None:
                valid = pc.list_value_length(array).drop_null().unique().to_pylist()
                self.sizes.setdefault(list_key(path, level), set()).update(valid)
            self._add(item.item, array.flatten(), path, np.repeat(rows, lengths), level + 1)
        elif path in self.numbers and pa.types.is_floating(array.type):
            found = self.numbers[path]
            found.add_doubles(np.asarray(array.drop_null()), rows[np.asarray(array.is_valid())])


def _is_looked_at(item: Field, level: int) -> bool:
    """Return whether the rows of a field show more than its type."""
    if isinstance(item, Struct):
        return any(_is_looked_at(part, level) for part in item.fields.values())
    if isinstance(item, ListOf):
        return (level > 0 and item.length is None) or _is_looked_at(item.item, level + 1)
    return item.dtype == "float64"


class _MisfitError(ValueError):
    """A value that no feature holds, or that has another type than its column."""

    def __init__(self, what: str, *, is_time: bool = False) -> None:
        super().__init__(what)
        self.is_time = is_time  # whether text would hold it


def table_rows(
    batch: pa.RecordBatch, columns: FeatureColumns, first_row: int, *, exact: bool = False
) -> pa.RecordBatch:
    """Return a batch of any types as one of these columns; columns that it lacks are null.

    Rows are counted from ``first_row``. With ``exact``, the payloads of our own tables stay.

    Raises:
        SchemaError: a value that no feature holds; the error names the column and the row.
    """
    arrays, errors = list[pa.Array](), list[SchemaError]()
    is_ours = METADATA in (batch.schema.metadata or {})
    flat = Columns.declared(batch.schema) or Columns(PayloadKind.EXAMPLE)
    named = zip(flat.names, flat.columns, strict=False)
    has_empty = {name for name, one in named if one.null is Null.EMPTY}
    for column, (name, item) in zip(columns.names, columns.root.fields.items(), strict=True):
        array = _field_of(batch.schema.names, batch.columns, column if is_ours else name)
        array = pa.nulls(batch.num_rows) if array is None else array
        if column in has_empty and isinstance(item, ListOf):
            array = _singles_as_lists(array)
        try:
            arrays.append(_conformed(item, array, name, 0))
        except (ValueError, pa.ArrowException):
            errors.append(_row_error(item, array, name, first_row))
    if len(errors) > 1:
        raise conversion_error([error.what for error in errors])
    if errors:
        raise errors[0]
    arrays += [batch.column(EXACT)] if exact else []
    if not arrays:
        return batch.select([])
    return pa.RecordBatch.from_arrays(arrays, schema=columns.to_arrow(exact=exact))


def _singles_as_lists(array: pa.Array) -> pa.Array:
    """Return values as lists of one, and null as a list of none."""
    counts = np.asarray(array.is_valid()).astype(np.int64)
    kind, everywhere = pa.list_(array.type), np.arange(len(array))
    return list_array(kind, len(array), everywhere, counts, array.drop_null())


def _row_error(item: Field, array: pa.Array, name: str, first_row: int) -> SchemaError:
    """Return the error for the first row that can't be converted."""
    good, bad = 0, len(array)
    error: Exception = ValueError()
    while good < bad:
        middle = (good + bad + 1) // 2
        try:
            _conformed(item, array.slice(0, middle), name, 0)
            good = middle
        except (ValueError, pa.ArrowException) as reason:
            bad, error = middle - 1, reason
    is_time = isinstance(error, _MisfitError) and error.is_time
    hint = f"use --cast {name}:string to store text" if is_time else None
    return SchemaError(f"column {name!r}, row {first_row + good}: {error}", hint=hint)


def _field_of(names: Sequence[str], arrays: Sequence[pa.Array], path: str) -> pa.Array | None:
    """Return a column, or what a path leads to in one; None without it."""
    fields = dict(zip(names, arrays, strict=True))
    if path in fields:
        return fields[path]
    for name, array in fields.items():
        if path.startswith(f"{name}/"):
            found = _inner_field(array, path[len(name) + 1 :])
            if found is not None:
                return found
    return None


def _inner_field(array: pa.Array, path: str) -> pa.Array | None:
    array = plain_array(array)
    if is_image(array.type):
        return pc.struct_field(array, "path") if path == _FILE_NAME else None
    if pa.types.is_struct(array.type):
        return _field_of([one.name for one in array.type], array.flatten(), path)
    if not is_list(array.type):
        return None
    items = _inner_field(array.flatten(), path)
    return None if items is None else _lists(array, items)


def _lists(array: pa.Array, items: pa.Array) -> pa.Array:
    """Return lists with other items."""
    places = np.flatnonzero(np.asarray(array.is_valid()))
    return list_array(pa.list_(items.type), len(array), places, _counts(array)[places], items)


def _counts(array: pa.Array) -> Ints:
    """Return the lengths of lists; 0 for null."""
    counts: Ints = np.asarray(pc.fill_null(pc.list_value_length(array), 0)).astype(np.int64)
    return counts


def _conformed(item: Field, array: pa.Array, path: str, level: int) -> pa.Array:
    """Return an array as that of a field, which is in ``level`` lists."""
    array = plain_array(array)
    if isinstance(item, Struct):
        return _structs(item, array, path, level)
    if isinstance(item, ListOf):
        return _list_items(item, array, path, level)
    if level > 1 and array.null_count:
        raise _MisfitError(_NULL)
    if item.kind is Kind.MIXED:
        return array.cast(arrow_type(item))
    return _tensors(array, item) if item.shape else _singles(array, item)


def _structs(item: Struct, array: pa.Array, path: str, level: int) -> pa.Array:
    """Return structs, null where the array is."""
    is_null = pa.types.is_null(array.type)
    if not (is_null or pa.types.is_struct(array.type)):
        raise _MisfitError(f"a {array.type}, and other rows have structs")
    if level and array.null_count:
        raise _MisfitError(_NULL)
    names = [] if is_null else [one.name for one in array.type]
    arrays = [] if is_null else array.flatten()
    fields = list[pa.Array]()
    for name, part in item.fields.items():
        found = _field_of(names, arrays, name)
        found = pa.nulls(len(array)) if found is None else found
        fields.append(_conformed(part, found, join(path, name), level))
    kind = pa.struct([(name, one.type) for name, one in zip(item.fields, fields, strict=True)])
    return struct_array(kind, len(array), np.flatnonzero(np.asarray(array.is_valid())), fields)


def without_null_structs(
    batch: pa.RecordBatch, columns: FeatureColumns, counts: Counter[str]
) -> pa.RecordBatch:
    """Return a batch with structs of nulls in place of nulls, as records store them.

    ``counts`` counts these by path. Structs in lists are never null.
    """
    for at, (name, item) in enumerate(columns.root.fields.items()):
        if isinstance(item, Struct):
            array = _filled(item, batch.column(at), name, 0, counts)
            batch = batch.set_column(at, batch.schema.field(at), array)
    return batch


def _filled(
    item: Field, array: pa.Array, path: str, outer_nulls: int, counts: Counter[str]
) -> pa.Array:
    """Return structs without nulls; ``outer_nulls`` counts those within a struct that is null."""
    if not isinstance(item, Struct):
        return array
    if array.null_count > outer_nulls:
        counts[path] += array.null_count - outer_nulls
    pairs = zip(item.fields.items(), array.flatten(), strict=True)
    fields = [
        _filled(part, inner, join(path, name), array.null_count, counts)
        for (name, part), inner in pairs
    ]
    return struct_array(array.type, len(array), None, fields)


def _list_items(item: ListOf, array: pa.Array, path: str, level: int) -> pa.Array:
    if level and array.null_count:
        raise _MisfitError(_NULL)
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), arrow_type(item))
    if not is_list(array.type):  # a value is a list of one
        places = np.flatnonzero(np.asarray(array.is_valid()))
        ones = np.ones(len(places), np.int64)
        array = list_array(pa.list_(array.type), len(array), places, ones, array.drop_null())
    counts = _counts(array)
    wrong = np.flatnonzero((counts != item.length) & np.asarray(array.is_valid()))
    if item.length is not None and wrong.size:
        raise _MisfitError(f"{counts[wrong[0]]} items instead of {item.length}")
    items = _conformed(item.item, array.flatten(), path, level + 1)
    if items.null_count:
        raise _MisfitError(_NULL)
    if not level and isinstance(item.item, Struct):
        _check_missing(item.item, items, counts)
    return _lists(array, items)


def _check_missing(item: Struct, structs: pa.Array, counts: Ints) -> None:
    """Check the nulls in lists of structs: a field that a record lacks is null in all of them."""
    ends = ends_of(counts)
    lost = counts > 0
    for array in _leaf_arrays(item, structs):
        nulls = np.diff(np.append(0, np.cumsum(np.asarray(array.is_null())))[ends])
        if array.null_count and ((nulls > 0) & (nulls < counts)).any():
            raise _MisfitError(_NULL)
        lost &= nulls > 0
    if lost.any():
        raise _MisfitError(_NULL)


def _leaf_arrays(item: Struct, structs: pa.Array) -> Iterator[pa.Array]:
    for part, array in zip(item.fields.values(), structs.flatten(), strict=True):
        if isinstance(part, Struct):
            yield from _leaf_arrays(part, array)
        else:
            yield array


def _singles(array: pa.Array, values: Values) -> pa.Array:
    """Return values that are no tensors; a list of one stands for its value."""
    if is_list(array.type):
        counts = _counts(array)
        if (counts > 1).any():
            raise _MisfitError(f"{counts.max()} values, and other rows have one")
        singles = _converted(plain_array(array.flatten()), values)
        return scattered(singles, len(array), np.flatnonzero(counts))
    return _converted(array, values)


def _tensors(array: pa.Array, values: Values) -> pa.Array:
    """Return tensors of one size."""
    present, array = np.asarray(array.is_valid()), array.drop_null()
    items = len(array)
    if pa.types.is_null(array.type):
        return pa.nulls(len(present), arrow_type(values))
    totals: Ints | None = None
    for size in values.shape:
        counts = _counts(array) if is_list(array.type) else np.zeros(0, np.int64)
        if size is None and totals is None and len(counts) == items:
            totals = counts * values.size
            array = plain_array(array.flatten())
            continue
        wrong = np.flatnonzero(counts != size)
        if wrong.size or not is_list(array.type):
            sizes = ", ".join("any" if one is None else str(one) for one in values.shape)
            found = f"{int(counts[wrong[0]])} values" if wrong.size else f"a {array.type}"
            raise _MisfitError(f"{found} instead of the shape [{sizes}]")
        array = plain_array(array.flatten())
        if array.null_count:
            raise _MisfitError(_NULL)
    found = tensors(_converted(array, replace(values, shape=())), items, values.shape, totals)
    return found if present.all() else with_nulls(found, present)


def _converted(array: pa.Array, values: Values) -> pa.Array:
    """Return values with the type of a field."""
    target = arrow_type(values)
    if array.type == target:
        return array
    try:
        return _cast(array, values, target)
    except (ValueError, pa.ArrowException) as error:
        is_time = logical_word(array.type) is not None and stored_dtype(values) is DType.INT64
        what = f"{error}" if type(error) is ValueError else f"a {array.type}"
        word = "int64 microseconds" if is_time else str(values)
        raise _MisfitError(f"{what} can't be stored as {word}", is_time=is_time) from error


def _cast(array: pa.Array, values: Values, target: pa.DataType) -> pa.Array:
    """Return values of another type; `ValueError` or an Arrow error if one can't be stored."""
    types, kind, dtype = pa.types, array.type, stored_dtype(values) or DType.STRING
    if is_image(kind):
        data, path = (pc.struct_field(array, name) for name in ("bytes", "path"))
        if pc.any(pc.and_(data.is_null(), path.is_valid())).as_py():
            raise ValueError("an image with a path but no bytes")
        return _converted(plain_array(data), values)
    if values.kind is Kind.TIME:
        return as_logical(array, target)
    if types.is_decimal(kind) or (types.is_temporal(kind) and dtype is DType.STRING):
        return texts_of(array).cast(target)
    if types.is_temporal(kind):
        return microseconds_of(array).cast(target)
    if types.is_float64(kind) and types.is_float32(target):
        cast = array.cast(target)
        if pc.any(pc.and_(pc.is_inf(cast), pc.invert(pc.is_inf(array)))).as_py():
            raise ValueError("a double")
        return cast
    is_text = not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))
    is_whole = types.is_integer(kind) or types.is_boolean(kind)
    fits = {
        DType.STRING: is_text,
        DType.INT64: is_whole or types.is_float64(kind),
        DType.FLOAT32: types.is_floating(kind),
    }
    if fits[dtype] or types.is_null(kind):
        return array.cast(target)
    python = [None if value is None else as_dtype(value, dtype) for value in array.to_pylist()]
    return pa.array(python, target)


def plain_array(array: pa.Array) -> pa.Array:
    """Return an array without what is wrapped around its values."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return plain_array(array.storage)
    if pa.types.is_dictionary(kind):
        return plain_array(array.dictionary_decode())
    return plain_array(pc.run_end_decode(array)) if pa.types.is_run_end_encoded(kind) else array
