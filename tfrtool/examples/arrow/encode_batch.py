"""Record batches as payloads."""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tfrtool.examples.arrow.columns import CONTEXT, EXACT, LISTS, PAYLOAD, Column, Columns, Form
from tfrtool.examples.arrow.scan import TAGS, Ints
from tfrtool.examples.example import DType, PayloadKind
from tfrtool.examples.long_values import varint

_Messages = list[bytes | None]  # None where there is none


def encode_batch(batch: pa.RecordBatch, columns: Columns) -> list[bytes]:
    """Return the payloads of a record batch that has the types of these columns.

    They are the bytes of `encode_example`; or those of the column ``_payload``, where it is there.
    A null in a column of one value is a feature that is absent.
    """
    own = EXACT if EXACT in batch.schema.names else PAYLOAD
    if own == EXACT or not columns.parsed:
        return list(batch.column(own).to_pylist())
    named = dict(zip(columns.names, columns.columns, strict=True))
    if columns.kind is not PayloadKind.SEQUENCE_EXAMPLE:
        arrays = {name: batch.column(name) for name in named}
        return _maps(0x0A, named, arrays, [True] * batch.num_rows)
    context, lists = {}, {}
    if columns.context:
        held = batch.column(CONTEXT)
        context = dict(zip([one.name for one in held.type], held.flatten(), strict=True))
    held = batch.column(LISTS)
    there = held.is_valid().to_pylist()
    if columns.lists:
        lists = dict(zip([one.name for one in held.type], held.flatten(), strict=True))
    parts = _maps(0x0A, named, context, [True] * batch.num_rows), _maps(0x12, named, lists, there)
    return [one + two for one, two in zip(*parts, strict=True)]


def _maps(
    tag: int, columns: dict[str, Column], arrays: dict[str, pa.Array], there: Sequence[bool]
) -> list[bytes]:
    """Return one of the two maps of each record, nothing where it is not there."""
    # The order of `encode_example`.
    names = sorted(arrays, key=lambda name: (*columns[name].key, 256))
    entries = [_entries(columns[name], arrays[name]) for name in names]
    rows = map(b"".join, zip(*entries, strict=True)) if entries else [b""] * len(there)
    held = [row if one else None for row, one in zip(rows, there, strict=True)]
    return [row or b"" for row in _headed(_field(tag), held)]


def _entries(column: Column, array: pa.Array) -> list[bytes]:
    """Return the entries of a map that hold a column, nothing where it is not there."""
    if column.is_list:
        flat, counts = _flat(array)
        steps = _headed(_field(0x0A), _features(column, flat))
        values = _joined(steps, counts)
    else:
        values = _features(column, array)
    key = b"\x0a" + varint(len(column.key)) + column.key + b"\x12"

    def head(size: int) -> bytes:
        length = varint(size)
        return b"\x0a" + varint(len(key) + len(length) + size) + key + length

    return [entry or b"" for entry in _headed(head, values)]


def _features(column: Column, array: pa.Array) -> _Messages:
    """Return messages tf.train.Feature."""
    if column.dtype is None:
        parts = [
            _of_kind(dtype, part, lists=True)
            for dtype, part in zip(TAGS, array.flatten(), strict=True)
        ]
        there = array.is_valid().to_pylist()
        parts.append([b"" if one else None for one in there])
        return [
            next((one for one in some if one is not None), None)
            for some in zip(*parts, strict=True)
        ]
    found = _of_kind(column.dtype, array, lists=column.form is Form.LIST)
    return [one or b"" for one in found] if column.is_list else found


def _of_kind(dtype: DType, array: pa.Array, *, lists: bool) -> _Messages:
    values, counts = _flat(array) if lists else (array.drop_null(), np.where(_valid(array), 1, -1))
    if dtype is DType.STRING:
        held = _joined(_headed(_field(0x0A), values.to_pylist()), counts)
    else:
        held = _packed(dtype, values, counts)

    def head(size: int) -> bytes:
        packed = b"\x0a" + varint(size) if size and dtype is not DType.STRING else b""
        return bytes([TAGS[dtype]]) + varint(len(packed) + size) + packed

    return _headed(head, held)


class _Heads(dict[int, bytes]):
    """What stands before messages, by their size."""

    def __init__(self, make: Callable[[int], bytes]) -> None:
        self._make = make

    def __missing__(self, size: int) -> bytes:
        self[size] = head = self._make(size)
        return head


def _headed(make: Callable[[int], bytes], messages: Iterable[bytes | None]) -> _Messages:
    heads = _Heads(make)
    return [None if one is None else heads[len(one)] + one for one in messages]


def _field(tag: int) -> Callable[[int], bytes]:
    return lambda size: bytes([tag]) + varint(size)


def _valid(array: pa.Array) -> NDArray[np.bool_]:
    return np.asarray(array.is_valid())


def _flat(array: pa.Array) -> tuple[pa.Array, Ints]:
    """Return the values of lists, and how many are in each; -1 for null."""
    counts = pc.fill_null(pc.list_value_length(array), -1)
    return array.flatten(), counts.to_numpy().astype(np.int64)


def _joined(parts: Sequence[bytes | None], counts: Ints) -> _Messages:
    """Join so many parts each, none for -1."""
    rest = iter(parts)
    return [
        None if count < 0 else b"".join(one or b"" for one in islice(rest, count))
        for count in counts.tolist()
    ]


def _packed(dtype: DType, values: pa.Array, counts: Ints) -> _Messages:
    """Return the bytes of numbers, packed."""
    ends = np.append(0, np.cumsum(np.maximum(counts, 0)))
    if dtype is DType.FLOAT32:
        data, ends = values.to_numpy().astype("<f4", copy=False).tobytes(), 4 * ends
    else:
        bits = values.to_numpy().view(np.uint64)
        sizes = np.ones(len(bits), np.int64)
        for place in range(1, 10):
            sizes += bits >= np.uint64(1) << np.uint64(7 * place)
        stops = np.cumsum(sizes)
        out = np.zeros(int(sizes.sum()), np.uint8)
        for place in range(int(sizes.max(initial=0))):
            longer = np.flatnonzero(sizes > place)
            part = (bits[longer] >> np.uint64(7 * place)).astype(np.uint8) & np.uint8(0x7F)
            part[sizes[longer] > place + 1] |= np.uint8(0x80)
            out[(stops - sizes)[longer] + place] = part
        data, ends = out.tobytes(), np.append(0, stops)[ends]
    spans = zip(pairwise(ends.tolist()), counts.tolist(), strict=True)
    return [None if count < 0 else data[start:end] for (start, end), count in spans]
