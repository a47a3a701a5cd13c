"""Record batches as payloads."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfrtool.examples.arrow.arrays import binary_array, strings_array
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
from tfrtool.records.wire import varint

_NOTHING = strings_array([b""], np.int64)[0]


def encode_batch(batch: pa.RecordBatch, columns: Columns) -> list[bytes]:
    """Return the payloads of a record batch that has the types of these columns.

    They are the bytes of `encode_example`; or those of the column ``_payload``, where it is there.
    A null in a column of one value is what it stands for there, and else a feature that is absent.
    """
    if isinstance(columns, DecodedColumns) and EXACT not in batch.schema.names:
        return columns.encode(batch)
    payload_column = EXACT if EXACT in batch.schema.names else PAYLOAD
    if payload_column == EXACT or not columns.parsed:
        return list(batch.column(payload_column).to_pylist())
    blank = pa.repeat(_NOTHING, batch.num_rows)
    fields = list(zip(columns.columns, columns.arrays(batch), strict=True))
    context = _map(0x0A, [one for one in fields if not one[0].is_list], blank)
    if columns.kind is not PayloadKind.SEQUENCE_EXAMPLE:
        return list(context.to_pylist())
    list_column = batch.column(LISTS)
    blank_lists = pc.if_else(list_column.is_valid() if columns.lists else list_column, blank, None)
    lists = _map(0x12, [one for one in fields if one[0].is_list], blank_lists)
    return list(_joined(context, lists.fill_null(b"")).to_pylist())


def _map(tag: int, fields: list[tuple[Column, pa.Array]], blank: pa.Array) -> pa.Array:
    """Return one of the two maps of each record, null where ``blank`` is."""
    fields.sort(key=lambda field: (*field[0].key, 256))  # the order of `encode_example`
    entries = (_entries(column, array).fill_null(b"") for column, array in fields)
    return _headed(_field(tag), _joined(blank, *entries))


def _entries(column: Column, array: pa.Array) -> pa.Array:
    """Return the entries of a map that hold a column, null where it is not there."""
    if column.is_list:
        steps = _features(column, array.flatten()).fill_null(b"")
        values = _regrouped(array, _headed(_field(0x0A), steps))
    else:
        values = _features(column, array)
    key = b"\x0a" + varint(len(column.key)) + column.key + b"\x12"

    def head(size: int) -> bytes:
        length = varint(size)
        return b"\x0a" + varint(len(key) + len(length) + size) + key + length

    return _headed(head, values)


def _features(column: Column, array: pa.Array) -> pa.Array:
    """Return messages tf.train.Feature, null where there is none."""
    if column.dtype is not None:
        features = _of_kind(column.dtype, array, lists=not column.is_single)
        nulls = {Null.EMPTY: bytes([TAGS[column.dtype], 0]), Null.UNSET: b""}
        null = None if column.null is None else nulls.get(column.null)
        return features if null is None else features.fill_null(null)
    kinds = zip(TAGS, array.flatten(), strict=True)
    parts = [_of_kind(dtype, part, lists=True) for dtype, part in kinds]
    return pc.coalesce(*parts, pc.if_else(array.is_valid(), _NOTHING, None))


def _of_kind(dtype: DType, array: pa.Array, *, lists: bool) -> pa.Array:
    values = array.flatten() if lists else array
    strings = dtype is DType.STRING
    encoded = _headed(_field(0x0A), values.cast(pa.large_binary())) if strings else _packed(values)

    def head(size: int) -> bytes:
        packed = b"\x0a" + varint(size) if size and not strings else b""
        return bytes([TAGS[dtype]]) + varint(len(packed) + size) + packed

    return _headed(head, _regrouped(array, encoded) if lists else encoded)


def _packed(values: pa.Array) -> pa.Array:
    """Return each number as protobuf writes it in a packed list."""
    numbers = values.fill_null(0).to_numpy()
    if pa.types.is_float32(values.type):
        sizes, out = np.full(len(numbers), 4), numbers.astype("<f4", copy=False)
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
    return pc.if_else(values.is_valid(), packed, None) if values.null_count else packed


def _regrouped(lists: pa.Array, parts: pa.Array) -> pa.Array:
    """Return together what each list has of the parts, which have no nulls; null where it is."""
    is_valid = lists.is_valid()
    if not len(parts):
        return pc.if_else(is_valid, _NOTHING, None)
    counts = pc.list_value_length(lists).fill_null(0).to_numpy()
    _, places, data = parts.buffers()
    ends = np.frombuffer(places, np.int64)[parts.offset + np.append(0, np.cumsum(counts))]
    return pc.if_else(is_valid, binary_array(ends, data or b""), None)


def _headed(head: Callable[[int], bytes], messages: pa.Array) -> pa.Array:
    """Return messages with what stands before one of their size."""
    sizes = pc.binary_length(messages).dictionary_encode()
    heads = strings_array(list(map(head, sizes.dictionary.to_pylist())), np.int64)
    return _joined(heads.take(sizes.indices), messages)


def _joined(*parts: pa.Array) -> pa.Array:
    """Return what each row of some columns is together, null where one of them is."""
    return pc.binary_join_element_wise(*parts, _NOTHING)


def _field(tag: int) -> Callable[[int], bytes]:
    return lambda size: bytes([tag]) + varint(size)
