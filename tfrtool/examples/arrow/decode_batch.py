"""Payloads as record batches."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from tfrtool.examples.arrow.arrays import (
    Ints,
    list_array,
    numbers_array,
    scattered,
    strings_array,
    strings_at,
    struct_array,
)
from tfrtool.examples.arrow.columns import FEATURE, TYPES, Column, Columns, DecodedColumns
from tfrtool.examples.arrow.scan import NONE, SCANNED, TAGS, Keys, WireScan, scanned
from tfrtool.examples.example import DType, PayloadKind, feature_name, is_utf8
from tfrtool.examples.fields import Null
from tfrtool.records.payloads import Payloads, sizes_of

_NAMES = {NONE: "no value"} | {tag: dtype.value for dtype, tag in TAGS.items()}
_MOST_BYTES = 2**31 - 1024
"""Bytes of a batch's payloads: Arrow counts those of a column in 32 bits."""


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
    payloads: Sequence[bytes],
    columns: Columns,
    *,
    exact: bool = False,
    unset_is_absent: bool = False,
    other_keys: Counter[bytes] | None = None,
) -> pa.RecordBatch:
    """Decode payloads into a record batch of these columns and no others.

    Args:
        payloads: Examples, SequenceExamples with Examples among them, or other messages, as
            ``columns`` says; not
            more of them than `Columns.batch_records`, and less than 2 GiB.
        columns: what to decode; what else is in a payload is hardly looked at.
        exact: whether to add a column ``_payload`` with the payloads' own bytes.
        unset_is_absent: whether a feature without a kind counts as missing, as in TensorFlow.
        other_keys: where to count the features of records that no column has, by their keys.

    Raises:
        MisfitError: some aren't such payloads, or the columns can't hold them.
    """
    if isinstance(columns, DecodedColumns):
        table, rejected = columns.decode(payloads, exact=exact)
        if rejected:
            raise MisfitError(rejected)
        return table
    schema = columns.to_arrow(exact=exact)
    ends = np.cumsum(sizes_of(payloads))
    if len(ends) and ends[-1] > _MOST_BYTES:
        index = int(np.searchsorted(ends, _MOST_BYTES, "right"))
        raise MisfitError({index: "its batch is larger than 2 GiB"})
    payload_columns, parts = list[pa.Array](), list[list[pa.Array]]()
    if exact or not columns.parsed:
        payload_columns.append(_payload_array(payloads))
    if columns.parsed:
        keys = [Keys([one.key for one in some]) for some in (columns.context, columns.lists)]
        build = partial(
            _Table,
            columns=columns,
            keys=keys,
            unset_is_absent=unset_is_absent,
            counts_others=other_keys is not None,
        )
        parts, others = _scanned_parts(payloads, build)
        if other_keys is not None:
            other_keys += others
    arrays = [
        one[0] if len(one) == 1 else pa.concat_arrays(one) for one in zip(*parts, strict=True)
    ]
    arrays += payload_columns
    if not arrays:  # only so a batch without columns has a number of rows
        rows = struct_array(pa.struct([]), len(payloads), None, [])
        return pa.RecordBatch.from_struct_array(rows).replace_schema_metadata(schema.metadata)
    return pa.record_batch(arrays, schema=schema)


def _payload_array(payloads: Sequence[bytes]) -> pa.Array:
    """Return payloads as an array."""
    if isinstance(payloads, Payloads):
        return strings_at(payloads.data, payloads.starts, payloads.ends)
    return strings_array(payloads)


def _scanned_parts(
    payloads: Sequence[bytes], build: "Callable[[WireScan], _Table]"
) -> tuple[list[list[pa.Array]], Counter[bytes]]:
    """Return the columns of payloads in parts, and the features of them that no column has.

    Raises:
        MisfitError: some payloads of one part can't be decoded.
    """
    parts, others = list[list[pa.Array]](), Counter[bytes]()
    for start in range(0, len(payloads) or 1, SCANNED):
        part = payloads[start : start + SCANNED]
        table, misfits = scanned(part, build)
        misfits = table.misfits | misfits
        if misfits:
            raise MisfitError({start + index: why for index, why in misfits.items()})
        parts.append(table.arrays)
        others += table.other_keys
    return parts, others


class _Table:
    """A batch in the making.

    Attributes:
        arrays: the table's; none if the scan has found irregular payloads.
        misfits: what the arrays can't hold, by the places of the payloads.
        other_keys: how many payloads have each feature that no column has, if that is counted.
    """

    def __init__(
        self,
        scan: WireScan,
        columns: Columns,
        keys: Sequence[Keys],
        unset_is_absent: bool,
        counts_others: bool,
    ) -> None:
        self.other_keys = Counter[bytes]()
        self._counts_others = counts_others
        self.arrays: list[pa.Array] = []
        self.misfits: dict[int, str] = {}
        self._scan, self._rows = scan, len(scan.irregular)
        self._unset_is_absent = unset_is_absent
        sequences = np.flatnonzero(scan.sequence)
        context = self._split(columns.context, keys[0], scan.context)
        lists = self._split(columns.lists, keys[1], scan.lists)
        if scan.irregular.any():
            return
        self.arrays = [
            self._features(column, rows, self._rows, rows, start, end)
            for column, rows, start, end in context
        ]
        if columns.kind is not PayloadKind.SEQUENCE_EXAMPLE:
            self.misfits |= dict.fromkeys(
                sequences.tolist(), "a tf.train.SequenceExample, not a tf.train.Example"
            )
            return
        *first, last = columns.to_arrow()
        structs = [struct_array(field.type, self._rows, None, self.arrays) for field in first]
        if lists:
            steps = [self._steps(*one) for one in lists]
            structs.append(struct_array(last.type, self._rows, sequences, steps))
        else:
            bits = pa.py_buffer(np.packbits(scan.sequence, bitorder="little"))
            structs.append(pa.Array.from_buffers(last.type, self._rows, [bits, bits]))
        self.arrays = structs

    def _split(
        self, columns: Sequence[Column], keys: Keys, maps: tuple[Ints, Ints]
    ) -> list[tuple[Column, Ints, Ints, Ints]]:
        """Return of each column the rows that have it, and where it is in each."""
        found = self._scan.find(maps, keys)
        places, order = found.key_index, found.order
        if self._counts_others and len(order) and places[order[0]] < 0:
            others = np.flatnonzero(places < 0)
            keys_elsewhere = self._scan.strings(found.key[others], found.key_end[others])
            for one in keys_elsewhere.value_counts().to_pylist():
                self.other_keys[one["values"]] += one["counts"]
        cuts = np.searchsorted(places[order], np.arange(len(keys) + 1))
        return [
            (column, found.owner[one], found.value[one], found.end[one])
            for column, one in zip(columns, np.split(order, cuts)[1:-1], strict=True)
        ]

    def _steps(self, column: Column, rows: Ints, start: Ints, end: Ints) -> pa.Array:
        """Return a column of feature lists."""
        first, stop, counts = self._scan.children(rows, start, end)
        places, owner = np.arange(len(first)), np.repeat(rows, counts)
        values = self._features(column, places, len(first), owner, first, stop)
        return list_array(column.type, self._rows, rows, counts, values)

    def _features(
        self, column: Column, places: Ints, size: int, rows: Ints, start: Ints, end: Ints
    ) -> pa.Array:
        """Return features as an array of ``size``, in which those that are there have places."""
        kind, start, end = self._scan.kinds(rows, start, end)
        if column.dtype is None:
            parts = []
            for dtype, tag in TAGS.items():
                of_kind = kind == tag
                values, counts = self._values(dtype, rows[of_kind], start[of_kind], end[of_kind])
                parts.append(
                    list_array(pa.list_(TYPES[dtype]), size, places[of_kind], counts, values)
                )
            return struct_array(FEATURE, size, places, parts)
        fits, null = kind == TAGS[column.dtype], column.null
        takes_unset = null in (Null.UNSET, Null.ANY) or self._unset_is_absent
        takes_unset |= column.is_list and not column.is_scalar
        wrong = np.flatnonzero(~fits & (kind != NONE) if takes_unset else ~fits)
        self._refuse(column, rows[wrong], lambda index: _NAMES[int(kind[wrong[index]])])
        if column.is_single and null not in (Null.ABSENT, Null.ANY):
            missing = np.delete(np.arange(size), places)
            self._refuse(column, missing, lambda _: "no feature")
        if not fits.all():
            places, rows, start, end = places[fits], rows[fits], start[fits], end[fits]
        values, counts = self._values(column.dtype, rows, start, end)
        if column.is_text:
            values = self._texts(column, np.repeat(rows, counts), values)
        if not column.is_single:
            return list_array(pa.list_(column.value_type), size, places, counts, values)
        wrong = np.flatnonzero(counts > 1 if null in (Null.EMPTY, Null.ANY) else counts != 1)
        self._refuse(column, rows[wrong], lambda index: f"{counts[wrong[index]]} values")
        if self.misfits:
            return pa.nulls(size, column.value_type)
        return values if len(values) == size else scattered(values, size, places[counts == 1])

    def _texts(self, column: Column, rows: Ints, values: pa.Array) -> pa.Array:
        """Return strings as text."""
        try:
            return values.cast(pa.string())
        except pa.ArrowInvalid:
            bad = [row for row, one in enumerate(values.to_pylist()) if not is_utf8(one)]
        self._refuse(column, rows[bad], lambda _: "bytes that are not UTF-8")
        return pa.nulls(len(values), pa.string())

    def _refuse(self, column: Column, rows: Ints, found: Callable[[int], str]) -> None:
        name = repr(feature_name(column.key))
        dtype = column.dtype.value if column.dtype else "a list"
        count = "one" if column.is_scalar else "at most one"
        expected = f"{count} {dtype} value" if column.is_single else f"{dtype} values"
        for index, row in enumerate(rows.tolist()):
            why = f"feature {name}: expected {expected}, found {found(index)}"
            self.misfits.setdefault(row, why)

    def _values(self, dtype: DType, rows: Ints, start: Ints, end: Ints) -> tuple[pa.Array, Ints]:
        """Return the values of lists, one after the other, and how many are in each."""
        scan = self._scan
        if dtype is DType.INT64:
            values, counts = scan.integers(rows, start, end)
            return numbers_array(values), counts
        if dtype is DType.FLOAT32:
            values = np.require(scan.packed(start, end).view("<f4"), np.float32, "A")
            return numbers_array(values), (end - start) >> 2
        first, stop, counts = scan.children(rows, start, end)
        return scan.strings(first, stop), counts
