"""What C finds in payloads is what numpy finds: the same columns, values and misfits."""

from __future__ import annotations

import io
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import SHARED_DATA
from tests.examples.arrow.checking import any_payloads, columns_of, table_columns_of
from tests.examples.strategies import entry, float32, int64, raw_example, string
from tests.more import more, thinned
from tests.records.strategies import shard_of
from tfrtool.examples.arrow.columns import Column, Columns
from tfrtool.examples.arrow.decode_batch import MisfitError, decode_batch
from tfrtool.examples.arrow.encode_batch import encode_batch
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.example import DType, PayloadKind
from tfrtool.examples.fields import Kind, ListOf, Null, Values, stored_values
from tfrtool.records import frames
from tfrtool.records.compression import Compression
from tfrtool.records.frames import in_batches, joined_batches, keys_of
from tfrtool.records.framing import Record
from tfrtool.records.payloads import Payloads, payloads_of
from tfrtool.records.reader import RecordReader
from tfrtool.records.tally import payload_key
from tfrtool.records.writer import ShardWriter

native = pytest.importorskip("tfrtool.records._frames", reason="no C compiler")

pytestmark = pytest.mark.skipif(frames.native is None, reason="payloads are scanned in numpy")

Result = TypeVar("Result")

REAL = sorted(
    path for path in SHARED_DATA.rglob("*tfrec*") if path.is_file() and path.stat().st_size < 2**22
)
MANY = [
    raw_example(
        [entry(b"%d" % n, int64(*range(n, 40 * n, 39))), entry(b"f", float32(0.5 * n))],
        {b"steps": [string(b"s" * n, b""), int64(2**62 + n)]} if n % 3 else None,
    )
    for n in range(12)
]


def both(run: Callable[[], Result]) -> Result:
    """Return a result that must be the same without C."""
    found = run()
    with patch.object(frames, "native", None):
        same = run() == found  # a difference of long texts takes pytest minutes to show
    assert same
    return found


def seen_in(payloads: Sequence[bytes]) -> tuple[Any, ...]:
    """Return all that a fold knows of payloads."""
    fold = ColumnsFold()
    fold.add(payloads)
    names = [feature.key for feature in fold.features()]
    counts = fold.records, fold.sequences, fold.skipped, fold.kinds, fold.event_values
    return [*fold.features()], names, counts


def table_of(payloads: Sequence[bytes], exemplars: Sequence[bytes]) -> tuple[Any, ...]:
    """Return the table of payloads in the columns of others, or what doesn't fit."""
    found = list[Any]()
    for columns in (columns_of(exemplars), table_columns_of(exemplars)):
        others = Counter[bytes]()
        try:
            batch = decode_batch(payloads, columns, other_keys=others)
        except MisfitError as error:
            found.append(error.others)
        else:
            batch.validate(full=True)
            found += [repr(batch.to_struct_array().to_pylist()), batch.schema, others]
            found += [encode_batch(part, columns) for part in (batch, batch[3:], batch[2:2])]
    return tuple(found)


@given(
    st.lists(any_payloads, min_size=1, max_size=6),
    st.lists(st.binary(max_size=20), max_size=1),
    st.randoms(use_true_random=False),
)
def test_any_payloads(some: list[bytes], noise: list[bytes], draw: random.Random) -> None:
    """Whatever is written, moved about or cut, in whatever order."""
    damaged = bytearray(draw.choice(some) or b"\0")
    damaged[draw.randrange(len(damaged))] = draw.randrange(256)
    payloads = [*some, *noise, *MANY, bytes(damaged), bytes(damaged[1:])]
    draw.shuffle(payloads)
    both(lambda: seen_in(payloads))
    both(lambda: table_of(payloads, payloads))
    both(lambda: table_of([*some, *MANY, *noise], MANY))


@pytest.mark.parametrize("number", [1, more(2), 3])
def test_each_length_is_checked(number: int) -> None:
    """Whichever byte is another one, above all a length: nothing is read outside of its message."""
    payload, columns = MANY[number], columns_of(MANY)
    for more_by in (-1, 1, 3):
        changed = [
            payload[:at] + bytes([(payload[at] + more_by) % 256]) + payload[at + 1 :]
            for at in range(len(payload))
        ]
        both(lambda: seen_in(changed))  # noqa: B023

        def misfits() -> object:
            try:
                return repr(decode_batch(changed, columns).to_struct_array().to_pylist())  # noqa: B023
            except MisfitError as error:
                return error.others

        both(misfits)


def test_nulls_and_slices_are_encoded() -> None:
    """Whatever a null stands for, and whatever stands behind it, as in tables of others."""
    numbers = pa.array([1, None, -1, 2**40, 0])
    hidden = pa.Array.from_buffers(pa.int64(), 5, [numbers.buffers()[0], numbers.buffers()[1]])
    parts = pa.ListArray.from_arrays(
        pa.array([0, 2, 2, 3, 3, 5], pa.int32()),
        pa.array(["a", "", "b" * 200, "c", "d"]),
        mask=pa.array([False, False, False, True, False]),
    )
    for null in (Null.ABSENT, Null.EMPTY, Null.UNSET, Null.ANY):
        items: dict[bytes, Any] = {
            b"n": stored_values(DType.INT64, null.info),
            b"t": Values(kind=Kind.TEXT, info=null.info),
            b"p": ListOf(item=Values(kind=Kind.TEXT)),
        }
        columns = Columns(
            PayloadKind.EXAMPLE, tuple(Column(key=key, item=item) for key, item in items.items())
        )
        texts = pa.array(["x", None, "", "y" * 300, None])
        batch = pa.record_batch([hidden, texts, parts], schema=columns.to_arrow())
        for part in (batch, batch[1:], batch[2:4], batch[5:]):
            encoded = both(lambda: encode_batch(part, columns))  # noqa: B023
            assert encode_batch(decode_batch(encoded, columns), columns) == encoded


@given(st.lists(st.binary(max_size=2000), min_size=1, max_size=30), st.sampled_from([1000, 2**20]))
def test_payloads_are_written_in_blocks(
    tmp_path_factory: pytest.TempPathFactory, payloads: list[bytes], buffer: int
) -> None:
    """The bytes, the tally and the compressed stream are those of writing one by one."""
    folder = tmp_path_factory.mktemp("written")

    def written(name: str, compression: Compression) -> tuple[bytes, object]:
        path = folder / name
        path.unlink(missing_ok=True)
        with ShardWriter(path, compression) as writer:
            if name == "single":
                writer.write(payloads)
            else:
                writer.write_payloads(Payloads.joined(payloads))
        return path.read_bytes(), writer.verify()

    with (
        patch("tfrtool.records.writer._BUFFER", buffer),
        patch("tfrtool.records.writer._LARGE", 1900),
    ):
        for compression in Compression:
            single = written("single", compression)
            assert both(lambda: written("blocks", compression)) == single  # noqa: B023


@pytest.mark.parametrize("path", thinned(REAL, every=16), ids=lambda path: path.name[:40])
def test_files_of_others(path: Path) -> None:
    """The same in what other software wrote."""
    records = [record for part in batches_of(path.read_bytes()) for record in part][:3000]
    payloads = [record.payload for record in records]
    both(lambda: seen_in(payloads))
    both(lambda: table_of(payloads, payloads))


def batches_of(data: bytes, size: int = 2**24, count: int = 65_536) -> list[Sequence[Record]]:
    """Return the intact records of a shard in batches."""
    pieces = RecordReader(io.BytesIO(data)).pieces()
    return [*joined_batches(pieces, lambda _: None, size, count)]


@given(
    st.lists(st.binary(max_size=60), min_size=1, max_size=9),
    st.integers(0, 400),
    st.integers(1, 300),
    st.integers(1, 9),
)
def test_records_of_a_batch_stay_together(
    payloads: list[bytes], damage: int, size: int, count: int
) -> None:
    """Batches are those of `in_batches`, also where a record is held in two blocks, or damaged."""
    data = bytearray(shard_of(payloads * 9))
    if damage < len(data):
        data[damage] ^= 1
    window = "tfrtool.records.stream."
    with patch(f"{window}_FIRST_BLOCK", 64), patch(f"{window}BLOCK_SIZE", 256):
        pieces = RecordReader(io.BytesIO(bytes(data))).pieces()
        expected = [*in_batches(pieces, lambda _: None, size, count)]
        found = batches_of(bytes(data), size, count)
    assert [[*batch] for batch in found] == expected
    for batch in found:
        assert [*payloads_of(batch)] == [record.payload for record in batch]
        keys = [payload_key(record.payload_crc, len(record.payload)) for record in batch]
        assert [*map(int, keys_of(batch))] == keys


def test_payloads_are_a_sequence() -> None:
    """Slices and single payloads are those of a list, and their checksums are computed once."""
    listed = [b"", b"a", b"bc" * 300, b"", b"d"]
    joined = Payloads.joined(listed)
    assert [*joined] == listed
    assert [*joined[1:4]] == listed[1:4]
    assert (joined[2], joined[-1]) == (listed[2], listed[-1])
    keys = [*both(lambda: Payloads.joined(listed).keys.tolist())]
    assert joined.keys[1:4].tolist() == keys[1:4] == joined[1:4].keys.tolist()


def places(*numbers: int) -> Any:
    """Return numbers as they are given to C."""
    return np.array(numbers, np.int64)


@pytest.mark.parametrize(
    ("starts", "ends"),
    [([-1], [2]), ([2], [1]), ([0], [9]), ([2**62], [2**63 - 1]), ([0, 1], [2]), ([0], [])],
)
def test_no_byte_behind_the_end(starts: list[int], ends: list[int]) -> None:
    """Places that are not in the data are refused."""
    where = b"\x0a\x02\x0a\x00abcd", places(*starts), places(*ends)
    none = b"", places(), places()
    for function, others in (
        (native.find_entries, (*none, 9)),
        (native.feature_kinds, (True,)),
        (native.fields_of, (9,)),
        (native.integers_at, ()),
        (native.bytes_at, ()),
        (native.masked_crcs, ()),
        (native.frame, (bytes(8),)),
    ):
        with pytest.raises(ValueError, match="place"):
            function(*where, *others)


def test_keys_are_within_their_data() -> None:
    """Keys that end behind their data, or have no place in the order, are refused."""
    where = b"\x0a\x02\x0a\x00", places(0), places(4)
    for ends, order in [((9,), (0,)), ((1, 0), (0, 1)), ((1,), (1,)), ((1,), (-1,)), ((1,), ())]:
        with pytest.raises(ValueError, match="key"):
            native.find_entries(*where, b"a", places(*ends), places(*order), 9)
    with pytest.raises(ValueError, match="key is missing"):
        native.frame(*where, b"123")


def test_values_are_within_their_data() -> None:
    """Columns with too few values, or values that end behind their data, are refused."""
    head = b"\x0a\x01a\x12", 0x0A, 2, -1
    assert native.encode_examples([], 2) == (b"\x0a\0" * 2, places(0, 2, 4).tobytes())
    for ends, valid in [
        ((0, 9), b""),
        ((-1, 1), b""),
        ((2, 1), b""),
        ((0,), b""),
        ((0, 1), b"\1\1"),
    ]:
        with pytest.raises(ValueError, match="value"):
            native.encode_examples([(*head, b"data", places(*ends), valid)], 1)
    for rows in (-1, 2**61 - 1, 2**63 - 1):
        with pytest.raises(ValueError, match="value"):
            native.encode_examples([], rows)


def test_more_than_may_be() -> None:
    """A map with too many entries, and a list with too many fields, are odd; nothing is read."""
    data = raw_example([entry(b"%d" % n, int64(n)) for n in range(5)])[2:]
    where, no_keys = (data, places(0), places(len(data))), (b"", places(), places())
    assert len(native.find_entries(*where, *no_keys, 5)[1]) == 5 * 8
    odd, owner, *_ = native.find_entries(*where, *no_keys, 4)
    assert (odd, owner) == (b"\1", b"")
    counts, odd, starts, _ = native.fields_of(*where, 4)
    assert (counts, odd, starts) == (bytes(8), b"\1", b"")
