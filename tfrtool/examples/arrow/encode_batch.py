"""Record batches as payloads."""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tfrtool.examples.arrow.arrays import Ints, binary_array, strings_array
from tfrtool.examples.arrow.columns import (
    EXACT,
    LISTS,
    PAYLOAD,
    Column,
    Columns,
    DecodedColumns,
)
from tfrtool.examples.arrow.scan import TAGS
from tfrtool.examples.example import DType, PayloadKind
from tfrtool.examples.fields import Null
from tfrtool.records import frames
from tfrtool.records.payloads import Payloads
from tfrtool.records.wire import varint

# Of arrays: to make scalars of Python's values imports pandas.
_NOTHING = strings_array([b""], np.int64)[0]
_NULL = pa.nulls(1, pa.large_binary())[0]

_Head = Callable[[int], bytes]
"""Returns what stands before a message of a size."""

_NEVER, _IF_ANY, _ALWAYS = 0, 1, 2
"""When values are a field of their list, to C."""

_NATIVE_NULLS = {Null.UNSET: 0, Null.EMPTY: 1}


def encode_batch(batch: pa.RecordBatch, columns: Columns) -> list[bytes]:
    """Return the payloads of a record batch that has the types of these columns.

    They are the bytes of `encode_example`; or those of the column ``_payload``, where it is there.
    A null in a column of one value is what it stands for there, and else a feature that is absent.
    """
    return [*encode_payloads(batch, columns)]


def encode_payloads(batch: pa.RecordBatch, columns: Columns) -> Payloads:
    """Do what `encode_batch` does, without an object for each payload."""
    import pyarrow.compute as pc

    if isinstance(columns, DecodedColumns) and EXACT not in batch.schema.names:
        encoded = columns.encode(batch)
        return encoded if isinstance(encoded, Payloads) else Payloads.joined(encoded)
    payload_column = EXACT if EXACT in batch.schema.names else PAYLOAD
    if payload_column == EXACT or not columns.parsed:
        return _payloads_in(batch.column(payload_column))
    fields = list(zip(columns.columns, columns.arrays(batch), strict=True))
    fields.sort(key=lambda field: (*field[0].key, 256))  # the order of `encode_example`
    if frames.native is not None and columns.kind is not PayloadKind.SEQUENCE_EXAMPLE:
        natives = [_native_column(*field) for field in fields]
        if all(one is not None for one in natives):
            data, ends_of = frames.native.encode_examples(natives, batch.num_rows)
            ends: Ints = np.frombuffer(ends_of, np.int64)
            return Payloads(data, ends[:-1], ends[1:])
    blank = pa.repeat(_NOTHING, batch.num_rows)
    context = _map(0x0A, [one for one in fields if not one[0].is_list], blank)
    if columns.kind is not PayloadKind.SEQUENCE_EXAMPLE:
        return _payloads_in(context)
    list_column = batch.column(LISTS)
    blank_lists = pc.if_else(list_column.is_valid() if columns.lists else list_column, blank, _NULL)
    lists = _map(0x12, [one for one in fields if one[0].is_list], blank_lists)
    return _payloads_in(_joined(context, lists.fill_null(_NOTHING)))


def _payloads_in(array: pa.Array) -> Payloads:
    """Return the values of an array of bytes."""
    data, ends = array.buffers()[2], _ends_in(array)
    return Payloads(b"" if data is None else data.to_pybytes(), ends[:-1], ends[1:])


def _ends_in(array: pa.Array) -> Ints:
    """Return where strings or lists end in their data or values, after the start of the first."""
    if not len(array):
        return np.zeros(1, np.int64)
    is_large = isinstance(array, pa.LargeBinaryArray | pa.LargeStringArray)
    ends: NDArray[Any] = np.frombuffer(array.buffers()[1], np.int64 if is_large else np.int32)
    return ends[array.offset : array.offset + len(array) + 1].astype(np.int64)


def _numbers_in(array: pa.Array) -> NDArray[Any]:
    kind = np.float32 if pa.types.is_float32(array.type) else np.int64
    numbers: NDArray[Any] = np.frombuffer(array.buffers()[1] or b"", kind)
    return numbers[array.offset : array.offset + len(array)]


def _native_column(column: Column, array: pa.Array) -> tuple[Any, ...] | None:
    """Return a column as C takes it; None for one of several types, or with nulls in its lists."""
    if column.dtype is None or array.type != column.type:
        return None
    values, bounds = array, None
    if not column.is_single:
        bounds = _ends_in(array)
        values = array.values.slice(bounds[0], bounds[-1] - bounds[0])
        if values.null_count:
            return None
    data, ends = _native_values(column, values)
    as_field = _IF_ANY
    if column.dtype is DType.STRING:
        as_field = _ALWAYS if bounds is None else _NEVER
    valid: Any = b""
    if array.null_count:
        bits = array.is_valid().cast(pa.uint8()).buffers()[1]
        valid = np.frombuffer(bits, np.uint8, len(array))
    return (
        b"\x0a" + varint(len(column.key)) + column.key + b"\x12",
        TAGS[column.dtype],
        as_field,
        -1 if column.null is None else _NATIVE_NULLS.get(column.null, -1),
        data,
        ends if bounds is None else ends[bounds - bounds[0]],
        valid,
    )


def _native_values(column: Column, values: pa.Array) -> tuple[Any, Ints]:
    """Return values as protobuf writes them, and where each ends, after the start of the first."""
    if column.dtype is DType.FLOAT32:
        floats = _numbers_in(values).astype("<f4", copy=False)
        return floats, np.arange(0, 4 * len(values) + 1, 4, dtype=np.int64)
    if column.dtype is DType.INT64:
        data, ends = frames.native.varints_of(_numbers_in(values))
        return data, np.frombuffer(ends, np.int64)
    if not column.is_single:
        values = _headed([values.cast(pa.large_binary())], _field(0x0A))
    return values.buffers()[2] or b"", _ends_in(values)


def _map(tag: int, fields: list[tuple[Column, pa.Array]], blank: pa.Array) -> pa.Array:
    """Return one of the two maps of each record, null where ``blank`` is."""
    entries = (_entries(column, array).fill_null(_NOTHING) for column, array in fields)
    return _headed([blank, *entries], _field(tag))


def _entries(column: Column, array: pa.Array) -> pa.Array:
    """Return the entries of a map that hold a column, null where it is not there."""
    heads: Sequence[_Head] = ()
    if column.is_list:
        steps = _features(column, array.flatten()).fill_null(_NOTHING)
        values = _regrouped(array, _headed([steps], _field(0x0A)))
    elif column.dtype is None or array.null_count:
        values = _features(column, array)
    else:
        values, heads = _of_kind(column.dtype, array, lists=not column.is_single)
    key = b"\x0a" + varint(len(column.key)) + column.key + b"\x12"

    def head(size: int) -> bytes:
        length = varint(size)
        return b"\x0a" + varint(len(key) + len(length) + size) + key + length

    return _headed([values], *heads, head)


def _features(column: Column, array: pa.Array) -> pa.Array:
    """Return messages tf.train.Feature, null where there is none."""
    import pyarrow.compute as pc

    if column.dtype is not None:
        values, heads = _of_kind(column.dtype, array, lists=not column.is_single)
        features = _headed([values], *heads)
        nulls = {Null.EMPTY: bytes([TAGS[column.dtype], 0]), Null.UNSET: b""}
        null = None if column.null is None else nulls.get(column.null)
        return features if null is None else features.fill_null(strings_array([null], np.int64)[0])
    kinds = zip(TAGS, array.flatten(), strict=True)
    found = (_of_kind(dtype, part, lists=True) for dtype, part in kinds)
    parts = [_headed([values], *heads) for values, heads in found]
    return pc.coalesce(*parts, pc.if_else(array.is_valid(), _NOTHING, _NULL))


def _of_kind(dtype: DType, array: pa.Array, *, lists: bool) -> tuple[pa.Array, Sequence[_Head]]:
    """Return what features of a type hold, and the heads that make features of it."""
    values = array.flatten() if lists else array
    strings = dtype is DType.STRING

    def head(size: int) -> bytes:
        packed = b"\x0a" + varint(size) if size and not strings else b""
        return bytes([TAGS[dtype]]) + varint(len(packed) + size) + packed

    encoded = values.cast(pa.large_binary()) if strings else _packed(values)
    if strings and not lists:
        return encoded, [_field(0x0A), head]
    encoded = _headed([encoded], _field(0x0A)) if strings else encoded
    return _regrouped(array, encoded) if lists else encoded, [head]


def _packed(values: pa.Array) -> pa.Array:
    """Return each number as protobuf writes it in a packed list."""
    import pyarrow.compute as pc

    numbers = _numbers_in(values)
    if pa.types.is_float32(values.type):
        sizes, out = np.full(len(numbers), 4, np.int64), numbers.astype("<f4", copy=False)
    else:
        bits = numbers.view(np.uint64)
        sizes = np.ones(len(bits), np.int64)
        for byte_index in range(1, 10):
            sizes += bits >= np.uint64(1) << np.uint64(7 * byte_index)
        starts = np.cumsum(sizes) - sizes
        out = np.zeros(int(sizes.sum()), np.uint8)
        for byte_index in range(int(sizes.max(initial=0))):
            longer = np.flatnonzero(sizes > byte_index)
            part = (bits[longer] >> np.uint64(7 * byte_index)).astype(np.uint8) & np.uint8(0x7F)
            part[sizes[longer] > byte_index + 1] |= np.uint8(0x80)
            out[starts[longer] + byte_index] = part
    packed = binary_array(np.append(0, np.cumsum(sizes)), out)
    return pc.if_else(values.is_valid(), packed, _NULL) if values.null_count else packed


def _regrouped(lists: pa.Array, parts: pa.Array) -> pa.Array:
    """Return together what each list has of the parts, which have no nulls; null where it is."""
    import pyarrow.compute as pc

    is_valid = lists.is_valid()
    if not len(parts):
        return pc.if_else(is_valid, _NOTHING, _NULL)
    counts = np.diff(_ends_in(lists))
    if lists.null_count:
        bits = is_valid.cast(pa.uint8()).buffers()[1]
        counts *= np.frombuffer(bits, np.uint8, len(lists))
    _, places, data = parts.buffers()
    ends = np.frombuffer(places, np.int64)[parts.offset + np.append(0, np.cumsum(counts))]
    return pc.if_else(is_valid, binary_array(ends, data or b""), _NULL)


def _headed(parts: Sequence[pa.Array], *heads: _Head) -> pa.Array:
    """Put a head, which depends on the size, before each of some messages that are there in parts.

    Several heads are copied together; each stands before the heads that precede it in ``heads``.
    """
    import pyarrow.compute as pc

    def head(size: int) -> bytes:
        found = b""
        for one in heads:
            found = one(len(found) + size) + found
        return found

    sizes = reduce(pc.add, map(pc.binary_length, parts)).dictionary_encode()
    found = strings_array(list(map(head, sizes.dictionary.to_pylist())), np.int64)
    are_same = len(found) == 1 and not sizes.null_count
    return _joined(found[0] if are_same else found.take(sizes.indices), *parts)


def _joined(*parts: pa.Array) -> pa.Array:
    """Return what each row of some columns is together, null where one of them is."""
    import pyarrow.compute as pc

    return pc.binary_join_element_wise(*parts, _NOTHING)


def _field(tag: int) -> _Head:
    return lambda size: bytes([tag]) + varint(size)
