"""Payloads as record batches."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tfrtool.examples.arrow.columns import CONTEXT, FEATURE, TYPES, Column, Columns, Form
from tfrtool.examples.arrow.map_keys import MapKeys
from tfrtool.examples.arrow.scan import (
    NONE,
    TAGS,
    Bools,
    Ints,
    Kinds,
    WireScan,
    canonical,
)
from tfrtool.examples.example import DType, PayloadKind, feature_name

_NAMES = {NONE: "no kind"} | {tag: dtype.value for dtype, tag in TAGS.items()}
_MOST_BYTES = 2**31 - 1024
"""Bytes of a batch's payloads: Arrow counts those of a column in 32 bits."""


_CHUNK = 4096
"""Payloads that are scanned together: their numbers stay near the processor."""


class MisfitError(ValueError):
    """Payloads that a table's columns can't hold.

    Attributes:
        index: the first one's place among the payloads that were given, from 0.
        why: its reason, a clause.
        others: the reasons of all that were found, that one too, by their places. Without these
            there may still be more.
    """

    def __init__(self, others: dict[int, str]) -> None:
        super().__init__(others)
        self.others = dict(sorted(others.items()))
        self.index, self.why = next(iter(self.others.items()))


def decode_batch(
    payloads: Sequence[bytes], columns: Columns, *, exact: bool = False
) -> pa.RecordBatch:
    """Decode payloads into a record batch of these columns and no others.

    Args:
        payloads: Examples, or SequenceExamples with Examples among them, as ``columns`` says; not
            more of them than `Columns.batch_records`, and less than 2 GiB.
        columns: what to decode; what else is in a payload is hardly looked at.
        exact: whether to add a column ``_payload`` with the payloads' own bytes.

    Raises:
        MisfitError: some are no such payloads, or the columns can't hold them.
    """
    schema = columns.to_arrow(exact=exact)
    total = np.cumsum(np.fromiter(map(len, payloads), np.int64, len(payloads)))
    if len(total) and total[-1] > _MOST_BYTES:
        index = int(np.searchsorted(total, _MOST_BYTES, "right"))
        raise MisfitError({index: "a batch that ends with it is larger than 2 GiB"})
    own, parts = [], []
    if exact or not columns.parsed:
        ends = pa.py_buffer(np.concatenate([[0], total]).astype(np.int32))
        buffers = [None, ends, pa.py_buffer(b"".join(payloads))]
        own.append(pa.Array.from_buffers(pa.binary(), len(payloads), buffers))
    if columns.parsed:
        maps = [MapKeys([one.key for one in some]) for some in (columns.context, columns.lists)]
        for start in range(0, len(payloads) or 1, _CHUNK):
            part = list(payloads[start : start + _CHUNK])
            try:
                parts.append(_decode(part, columns, maps))
            except MisfitError as error:
                others = {start + index: why for index, why in error.others.items()}
                raise MisfitError(others) from None
    arrays = [
        one[0] if len(one) == 1 else pa.concat_arrays(one) for one in zip(*parts, strict=True)
    ]
    arrays += own
    if not arrays:  # only so a batch without columns has a number of rows
        rows = pa.StructArray.from_buffers(pa.struct([]), len(payloads), [None])
        return pa.RecordBatch.from_struct_array(rows).replace_schema_metadata(schema.metadata)
    return pa.record_batch(arrays, schema=schema)


def _decode(payloads: list[bytes], columns: Columns, maps: Sequence[MapKeys]) -> list[pa.Array]:
    """Return the arrays of payloads; protobuf writes those again that are odd."""
    done = np.zeros(len(payloads), np.bool_)
    while True:
        table = _Table(payloads, columns, maps)
        arrays = None if table.scan.odd.any() else table.arrays()
        odd = table.scan.odd
        if arrays is not None and not odd.any():
            break
        misfits = {}
        for index in np.flatnonzero(odd).tolist():
            try:
                payloads[index] = canonical(payloads[index], again=bool(done[index]))
            except ValueError as error:
                misfits[index] = str(error)
        if misfits:
            raise MisfitError(misfits)
        done |= odd
    if table.misfits:
        raise MisfitError(table.misfits)
    return arrays


class _Table:
    """A batch in the making."""

    def __init__(
        self, payloads: Sequence[bytes], columns: Columns, maps: Sequence[MapKeys]
    ) -> None:
        self.misfits: dict[int, str] = {}
        self.rows = len(payloads)
        self.columns = columns
        self.scan = scan = WireScan(payloads)
        self._sequence = columns.kind is PayloadKind.SEQUENCE_EXAMPLE
        if not self._sequence:
            for index in np.flatnonzero(scan.sequence & ~scan.odd).tolist():
                self.misfits[index] = "it is a tf.train.SequenceExample"
        self._context = self._split(maps[0], scan.context)
        self._lists = self._split(maps[1], scan.lists)

    def _split(self, keys: MapKeys, spans: tuple[Ints, Ints]) -> list[tuple[Ints, Ints, Ints]]:
        """Return of each column the entries that hold it, in the order of the rows."""
        found = self.scan.features(spans)
        places, order = keys.find(self.scan, found)
        cuts = np.searchsorted(places[order], np.arange(len(keys) + 1))
        return [
            (found.owner[one], found.value[one], found.end[one])
            for one in np.split(order, cuts)[1:-1]
        ]

    def arrays(self) -> list[pa.Array]:
        """Return the arrays of the table; what can't be held is in ``misfits`` then."""
        context = [
            self._features(column, rows, rows, self.rows, self.scan.kinds(start, end))
            for column, (rows, start, end) in zip(self.columns.context, self._context, strict=True)
        ]
        if not self._sequence:
            return context
        lists = [
            self._steps(column, *part)
            for column, part in zip(self.columns.lists, self._lists, strict=True)
        ]
        arrays = []
        for field in self.columns.to_arrow():
            if field.name == CONTEXT:
                arrays.append(_struct(field.type, self.rows, None, context))
            elif lists:
                arrays.append(_struct(field.type, self.rows, self.scan.sequence, lists))
            else:
                bits = pa.py_buffer(np.packbits(self.scan.sequence, bitorder="little"))
                arrays.append(pa.Array.from_buffers(pa.bool_(), self.rows, [bits, bits]))
        return arrays

    def _steps(self, column: Column, rows: Ints, start: Ints, end: Ints) -> pa.Array:
        """Return a column of feature lists."""
        first, stop, counts, odd = self.scan.children(start, end)
        self.scan.odd[rows[odd]] = True
        kinds, steps = self.scan.kinds(first, stop), len(first)
        values = self._features(column, np.arange(steps), np.repeat(rows, counts), steps, kinds)
        return list_array(column.type, self.rows, rows, counts, values)

    def _features(
        self, column: Column, places: Ints, rows: Ints, size: int, kinds: Kinds
    ) -> pa.Array:
        """Return features as an array of ``size``, in which those that are there have places."""
        self.scan.odd[rows[~kinds.ok]] = True
        kinds = kinds._replace(kind=np.where(kinds.ok, kinds.kind, NONE))
        if column.dtype is None:
            parts = []
            for dtype in TAGS:
                chosen = np.flatnonzero(kinds.kind == TAGS[dtype])
                values, counts = self._values(
                    dtype, rows[chosen], kinds.start[chosen], kinds.end[chosen]
                )
                parts.append(
                    list_array(pa.list_(TYPES[dtype]), size, places[chosen], counts, values)
                )
            return _struct(FEATURE, size, _mask(size, places), parts)
        fits = kinds.kind == TAGS[column.dtype]
        if column.is_list:
            fits |= kinds.kind == NONE
        self._refuse(column, rows[~fits], lambda one: _NAMES[int(kinds.kind[~fits][one])])
        if column.is_list:
            fits = kinds.kind != NONE
        if not fits.all():
            places, rows = places[fits], rows[fits]
            kinds = Kinds(*(part[fits] for part in kinds))
        values, counts = self._values(column.dtype, rows, kinds.start, kinds.end)
        if column.form is Form.LIST:
            return list_array(pa.list_(TYPES[column.dtype]), size, places, counts, values)
        missing = np.flatnonzero(~_mask(size, places))
        self._refuse(column, missing, lambda _: "no such feature")
        wrong = counts != 1
        self._refuse(column, rows[wrong], lambda one: f"{counts[wrong][one]} values")
        if len(values) != size or missing.size or wrong.any():
            return pa.nulls(size, TYPES[column.dtype])
        return values

    def _refuse(self, column: Column, rows: Ints, found: Callable[[int], str]) -> None:
        name = repr(feature_name(column.key))
        dtype = column.dtype.value if column.dtype else "a list"
        expected = f"one {dtype} value" if column.form is Form.SCALAR else f"{dtype} values"
        for one, row in enumerate(rows.tolist()):
            why = f"feature {name}: expected {expected}, found {found(one)}"
            self.misfits.setdefault(row, why)

    def _values(self, dtype: DType, rows: Ints, start: Ints, end: Ints) -> tuple[pa.Array, Ints]:
        """Return the values of lists, one after the other, and how many are in each."""
        scan = self.scan
        if dtype is DType.INT64:
            values, counts, odd = scan.integers(start, end)
            scan.odd[rows[odd]] = True
            return numbers_array(values), counts
        if dtype is DType.FLOAT32:
            size = end - start
            return numbers_array(scan.gather(start, size).view("<f4")), size >> 2
        first, stop, counts, odd = scan.children(start, end)
        scan.odd[rows[odd]] = True
        size = stop - first
        offsets = np.zeros(len(size) + 1, np.int32)
        np.cumsum(size, out=offsets[1:])
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(scan.gather(first, size))]
        return pa.Array.from_buffers(pa.binary(), len(size), buffers), counts


def numbers_array(values: NDArray[Any]) -> pa.Array:
    """Return numbers as an array; `pa.array` would import pandas, which takes half a second."""
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _mask(size: int, places: Ints) -> Bools:
    mask = np.zeros(size, np.bool_)
    mask[places] = True
    return mask


def _validity(mask: Bools | None) -> pa.Buffer | None:
    if mask is None or mask.all():
        return None
    return pa.py_buffer(np.packbits(mask, bitorder="little"))


def list_array(
    kind: pa.DataType, size: int, places: Ints, counts: Ints, values: pa.Array
) -> pa.Array:
    """Return an array of lists, null but for these places."""
    lengths = np.zeros(size, np.int64)
    lengths[places] = counts
    offsets = np.zeros(size + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    validity = None if len(places) == size else _validity(_mask(size, places))
    return pa.Array.from_buffers(kind, size, [validity, pa.py_buffer(offsets)], children=[values])


def _struct(
    kind: pa.DataType, size: int, mask: Bools | None, fields: Sequence[pa.Array]
) -> pa.Array:
    return pa.Array.from_buffers(kind, size, [_validity(mask)], children=list(fields))
