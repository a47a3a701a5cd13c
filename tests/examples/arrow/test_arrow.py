"""The Arrow bridge: payloads become record batches and come back."""

from __future__ import annotations

import contextlib
import pickle
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples.strategies import (
    UNSET,
    entry,
    float32,
    int64,
    payloads,
    raw_example,
    string,
    tf_example,
)
from tests.examples.wire import field, mutants, sequence_mutants
from tfrtool.errors import UsageError
from tfrtool.examples.arrow.columns import Column, Columns, Form
from tfrtool.examples.arrow.decode_batch import MisfitError, decode_batch
from tfrtool.examples.arrow.encode_batch import encode_batch
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.arrow.scan import canonical
from tfrtool.examples.example import (
    DType,
    Feature,
    PayloadKind,
    decode_example,
    encode_example,
    feature_name,
)
from tfrtool.examples.inference import MAX_NAMES, SchemaFold
from tfrtool.examples.proto import example_pb2 as pb
from tfrtool.records.framing import Record
from tfrtool.records.reader import read_records

REAL = Path(__file__).parents[4] / "shared" / "data" / "tfrecord"
any_payloads = payloads | mutants() | sequence_mutants()


def bits(feature: Feature) -> tuple[object, ...]:
    """Return a feature in a form in which NaN equals itself, and no other NaN."""
    values = tuple(feature.values)
    if feature.dtype is DType.FLOAT32:
        values = tuple(struct.pack(f"<{len(values)}f", *values))
    return feature.dtype, values


def content(payload: bytes) -> tuple[object, ...]:
    """Return what an Example or SequenceExample holds, by protobuf."""
    example = decode_example(payload, PayloadKind.SEQUENCE_EXAMPLE)
    lists = pb.SequenceExample.FromString(payload).HasField("feature_lists")
    context = {name: bits(feature) for name, feature in example.features.items()}
    steps = {name: list(map(bits, some)) for name, some in example.feature_lists.items()}
    return context, steps, lists


def taken(some: Sequence[bytes]) -> list[bytes]:
    """Return those that are Examples or SequenceExamples."""
    return [one for one in some if SchemaFold().add(one)]


def columns_of(some: Sequence[bytes]) -> Columns:
    """Return the columns of payloads."""
    fold = ColumnsFold()
    fold.add(some)
    return fold.columns()


def expected_column(payload: bytes, columns: Columns) -> list[Any]:
    """Return a record's cells as protobuf and Python make them."""
    example = decode_example(payload, PayloadKind.SEQUENCE_EXAMPLE)

    def cell(column: Column, feature: Feature | None) -> Any:
        if feature is None or (feature.dtype is None and column.dtype is not None):
            return None
        values = [
            struct.pack("<f", value) if feature.dtype is DType.FLOAT32 else value
            for value in feature.values
        ]
        if column.form is Form.FEATURE:
            names = {"bytes_list": "string", "float_list": "float32", "int64_list": "int64"}
            kind = feature.dtype and feature.dtype.value
            return {name: values if kind == one else None for name, one in names.items()}
        return values[0] if column.form is Form.SCALAR else values

    row = []
    for column in columns.columns:
        name = feature_name(column.key)
        if column.is_list:
            steps = example.feature_lists.get(name)
            row.append(None if steps is None else [cell(column, step) for step in steps])
        else:
            row.append(cell(column, example.features.get(name)))
    return row


def cells(batch: pa.RecordBatch, columns: Columns) -> list[list[Any]]:
    """Return a batch's cells in the order of its columns, floats as their bytes."""

    def exact(value: Any) -> Any:
        if isinstance(value, float):
            return struct.pack("<f", value)
        if isinstance(value, list):
            return list(map(exact, value))
        return (
            {name: exact(one) for name, one in value.items()} if isinstance(value, dict) else value
        )

    rows = []
    for row in batch.to_struct_array().to_pylist():
        held = dict(row)
        if columns.kind is PayloadKind.SEQUENCE_EXAMPLE:
            held = (row.get("context") or {}) | (
                row["feature_lists"] or {} if columns.lists else {}
            )
        rows.append([exact(held.get(name)) for name in columns.names])
    return rows


def check(some: list[bytes]) -> None:
    """Payloads become what protobuf makes of them, and payloads with the same content."""
    columns = columns_of(some)
    batch = decode_batch(some, columns)
    batch.validate(full=True)
    assert batch.num_rows == len(some)
    assert Columns.from_arrow(batch.schema) == columns
    encoded = encode_batch(batch, columns)
    if columns.parsed:
        assert cells(batch, columns) == [expected_column(one, columns) for one in some]
        assert [content(one) for one in encoded] == [content(one) for one in some]
        assert columns_of(encoded) == columns
        again = decode_batch([canonical(one) for one in some], columns)
        assert again.equals(batch) or "nan" in str(batch.to_struct_array().to_pylist())
    else:
        assert encoded == some
    if columns.kind is PayloadKind.EXAMPLE:
        assert encoded == [encode_example(decode_example(one).features) for one in some]
        half = columns.select(columns.names[::2])
        assert cells(decode_batch(some, half), half) == [expected_column(one, half) for one in some]
    assert encode_batch(decode_batch(some, columns, exact=True), columns) == some
    part = batch.slice(1)
    assert encode_batch(part, columns) == encoded[1:]


@given(st.lists(any_payloads, max_size=4))
@settings(max_examples=150, deadline=None)
def test_any_payloads_come_back(some: list[bytes]) -> None:
    """What the columns hold is what the payloads say, to protobuf; and nothing is lost."""
    check(taken(some))


@given(st.lists(any_payloads | st.binary(max_size=40), max_size=6), st.integers(0, 6))
@settings(max_examples=60, deadline=None)
def test_parts_make_the_whole(some: list[bytes], cut: int) -> None:
    """Folds over parts merge into the fold over all; what is no Example makes no column."""
    whole, merged, other = ColumnsFold(), ColumnsFold(), ColumnsFold()
    whole.add(some)
    merged.add(some[:cut])
    other.add(some[cut:])
    merged.merge(pickle.loads(pickle.dumps(other)))
    assert merged.columns() == whole.columns()
    assert +merged.kinds == +whole.kinds
    assert whole.kinds.total() == len(some)
    parsed = whole.kinds[PayloadKind.EXAMPLE] + whole.kinds[PayloadKind.SEQUENCE_EXAMPLE]
    assert parsed == len(taken([one for one in some if one]))


@given(st.binary(max_size=60), st.data())
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_held_or_named(noise: bytes, data: st.DataObject) -> None:
    """Bytes that are no Example are a misfit at their place, and others are not touched."""
    good = data.draw(payloads)
    bad = good[: data.draw(st.integers(0, len(good)))] + noise
    columns = columns_of([good])
    rows = [good, bad, good]
    batch = None
    with contextlib.suppress(MisfitError):
        batch = decode_batch(rows, columns)
    if batch is None:
        with pytest.raises(MisfitError) as error:
            decode_batch([bad], columns)
        assert "\n" not in error.value.why
    else:
        batch.validate(full=True)
    if batch is not None and columns.parsed:
        assert cells(batch, columns) == [expected_column(one, columns) for one in rows]


def example(**features: Feature) -> bytes:
    """Return an Example."""
    return encode_example(features)


def test_what_is_absent_empty_or_without_a_kind() -> None:
    """The three stay apart, and one value in each record is a column of values."""
    some = [
        example(one=int64(1), some=int64(1), odd=int64(1), mixed=int64(1)),
        example(one=int64(-(2**63)), some=int64(), odd=UNSET, mixed=string(b"x")),
        example(one=int64(0), mixed=float32()),
    ]
    columns = columns_of(some)
    forms = {column.key: (column.form, column.dtype) for column in columns.columns}
    assert forms == {
        b"one": (Form.SCALAR, DType.INT64),
        b"some": (Form.LIST, DType.INT64),
        b"odd": (Form.FEATURE, None),
        b"mixed": (Form.FEATURE, None),
    }
    batch = decode_batch(some, columns)
    none = {"bytes_list": None, "float_list": None, "int64_list": None}
    assert batch.column("one").to_pylist() == [1, -(2**63), 0]
    assert batch.column("some").to_pylist() == [[1], [], None]
    assert batch.column("odd").to_pylist() == [none | {"int64_list": [1]}, none, None]
    assert batch.column("mixed").to_pylist()[1:] == [
        none | {"bytes_list": [b"x"]},
        none | {"float_list": []},
    ]
    check(some)


def test_sequences() -> None:
    """Examples among SequenceExamples have no feature lists; lists that are empty stay apart."""
    context = [entry(b"a", int64(1))]
    some = [
        raw_example(context, {b"a": [string(b"x", b"y"), UNSET, string()], b"b": []}),
        raw_example(context, {}),
        raw_example(context),
    ]
    columns = columns_of(some)
    batch = decode_batch(some, columns)
    assert batch.column("context").to_pylist() == [{"a": 1}] * 3
    lists = {"a_": [[b"x", b"y"], None, []], "b": []}
    assert batch.column("feature_lists").to_pylist() == [lists, {"a_": None, "b": None}, None]
    check(some)
    check(some[1:])
    with pytest.raises(MisfitError, match="SequenceExample"):
        decode_batch(some, columns_of(some[2:]))


def test_long_messages() -> None:
    """Many features, many values, long names, and values of megabytes are what they are."""
    many = {f"feature {number:05}": int64(number) for number in range(300)}
    names = {"n" * length: string(b"s" * length) for length in (*range(1, 70), 3000)}
    long = Feature(dtype=DType.STRING, values=[b"%d" % number for number in range(5000)])
    numbers = int64(*(1 << shift for shift in range(63)), *range(-1000, 70000, 7))
    some = [
        encode_example(many),
        encode_example(names | {"long": long, "numbers": numbers}),
        example(image=string(bytes(3_000_000)), floats=float32(*range(100_000))),
    ]
    check(some)
    check([example(a=int64(number), b=string(b"x" * (number % 99))) for number in range(4100)])


def wire_entry(*parts: bytes) -> bytes:
    """Return an Example with one map entry, put together by hand."""
    return field(1, field(1, *parts))


KEY, ONE = field(1, b"a"), field(2, field(3, field(1, b"\x01")))
FORMS = [
    wire_entry(KEY, field(2, field(3, b"\x08\x01"))),
    wire_entry(KEY, field(2, field(3, field(1, b"\x81\x80\x80\x80\x80\x80\x80\x80\x80\x00")))),
    wire_entry(KEY, field(2, field(3, field(1, b"\x81\x00")))),
    wire_entry(KEY, field(2, field(1, field(1, b"x")), field(3, field(1, b"\x01")))),
    wire_entry(KEY, field(2, field(3, b"\x0a\x81\x00\x01"))),
    wire_entry(ONE, KEY),
    wire_entry(KEY, KEY, ONE, b"\x38\x01"),
    field(1, field(1, KEY, field(2))) + field(1, field(1, KEY, ONE)),
    wire_entry(KEY, ONE) + b"\x3b\x08\x01\x3c",
    b"\x8a\x00" + wire_entry(KEY, ONE)[1:],
    wire_entry(KEY, field(2, field(3, field(1, b"\x81" + b"\x80" * 8 + b"\x02")))),
    wire_entry(KEY, field(2, field(3, field(1, b"\x01"), b"\xfa\xff\xff\xff\x0f\x01x"))),
]


@pytest.mark.parametrize("payload", FORMS)
def test_forms_that_protobuf_reads(payload: bytes) -> None:
    """Whatever way a message is written, it is what protobuf reads."""
    assert content(payload)[0] == {"a": (DType.INT64, (1,))}
    assert columns_of([payload]) == columns_of([example(a=int64(1))])
    check([payload, example(a=int64(2))])


BROKEN = [
    wire_entry(KEY, field(2, field(3, field(1, b"\x81")))),
    wire_entry(KEY, field(2, field(3, field(1, b"\x80" * 10 + b"\x01")))),
    wire_entry(KEY, field(2, field(2, field(1, b"123")))),
    wire_entry(KEY, field(2, field(1, b"\x0a\x05x"))),
    wire_entry(KEY, field(2, b"\x1a\xff\xff\xff\xff\x7f")),
    wire_entry(KEY, ONE)[:-1],
    b"\x0a",
    b"\x0a\xff",
    b"\x0a\x80\x80\x80\x80\x80",
    b"a text",
]


@pytest.mark.parametrize("payload", BROKEN)
def test_messages_that_protobuf_refuses(payload: bytes) -> None:
    """What protobuf refuses is a misfit, wherever it stands."""
    assert not SchemaFold().add(payload)
    good = [example(a=int64(number)) for number in range(5000)]
    with pytest.raises(MisfitError) as error:
        decode_batch([*good, payload, *good[:3], payload], columns_of(good))
    assert error.value.index == 5000
    assert sorted(error.value.others) == [5000, 5004]
    with pytest.raises(MisfitError):
        decode_batch([payload], columns_of([example(a=string(b"x"), b=int64())]))


def test_misfits() -> None:
    """A record that the columns can't hold is named with the reason."""
    columns = columns_of([example(a=int64(1), b=string(b"x", b"y"))])
    reasons = {
        example(b=string()): "'a': expected one int64 value, found no such feature",
        example(a=int64(1, 2)): "'a': expected one int64 value, found 2 values",
        example(a=string(b"x")): "'a': expected one int64 value, found string",
        example(a=int64(1), b=UNSET): "'b': expected string values, found no kind",
    }
    for payload, why in reasons.items():
        with pytest.raises(MisfitError) as error:
            decode_batch([example(a=int64(1)), payload], columns)
        assert (error.value.index, error.value.why) == (1, f"feature {why}")


def test_tables_of_other_payloads() -> None:
    """What is no Example for the most part is a table of payloads, whatever some parse as."""
    event = pb.Event(wall_time=1.5e9, file_version=b"brain.Event:2").SerializeToString()
    nested = pb.Example()
    nested.features.feature.add(key=b"a").value.int64_list.value.append(1)
    listed = field(1, nested.SerializeToString())
    for some, kind in (
        ([event] * 2, PayloadKind.EVENT),
        ([b"text", b"", example(a=int64(1)), b"more"], PayloadKind.UNKNOWN),
        ([listed], PayloadKind.UNKNOWN),
        ([b""], PayloadKind.EMPTY),
    ):
        columns = columns_of(some)
        assert columns == Columns(kind)
        assert columns.names == ("payload",)
        assert decode_batch(some, columns.select(["payload"])).column(0).to_pylist() == some
        check(some)


def test_names() -> None:
    """Names are UTF-8, one a column, and none that the table needs; the keys are kept."""
    keys = [b"caf\xe9", rb"caf\xe9", b"", b"_payload", b"_record", b"a\0b", "é日".encode()]
    some = [raw_example([entry(key, int64(1)) for key in keys])]
    columns = columns_of(some)
    assert len(set(columns.names)) == len(keys)
    assert {"caf\\xe9", "caf\\xe9_", "", "_payload_", "_record_", "é日"} < set(columns.names)
    check(some)
    assert columns.select(["é日"]).columns[0].key == "é日".encode()
    with pytest.raises(UsageError, match=r"'payload'.*_payload_"):
        columns.select(["payload"])


def test_schemas() -> None:
    """A schema of ours is known again, or a part of it; any other is none."""
    columns = columns_of([example(a=int64(1), b=float32(1, 2))])
    schema = columns.to_arrow(exact=True, metadata={b"huggingface": b"{}"})
    assert Columns.from_arrow(schema) == columns
    assert schema.metadata[b"huggingface"] == b"{}"
    assert Columns.from_arrow(schema.remove(0)) == columns.select(["b"])
    places = schema.append(pa.field("_shard", pa.dictionary(pa.int32(), pa.string())))
    assert Columns.from_arrow(places) == columns
    for other in (
        schema.remove_metadata(),
        schema.append(pa.field("c", pa.int64())),
        schema.set(0, pa.field("a", pa.int32())),
        schema.with_metadata({b"tfrtool": b"[]"}),
        schema.with_metadata({b"tfrtool": b'{"kind": "example", "columns": [1]}'}),
    ):
        assert Columns.from_arrow(other) is None
    assert pickle.loads(pickle.dumps(columns)) == columns


def test_too_many_names() -> None:
    """Names without end cost no memory without end."""
    fold = ColumnsFold()
    for start in range(0, MAX_NAMES + 500, 500):
        some = [example(**{f"n{start + number}": int64(1)}) for number in range(500)]
        fold.add(some)
    assert len(fold.columns().columns) == MAX_NAMES
    assert fold.left_out == 500
    fold.add([raw_example([entry(b"x" * 5_000_000, int64(1))])])
    assert fold.left_out == 501


@pytest.mark.tf
@given(st.lists(st.lists(st.floats(width=32, allow_nan=False), max_size=3), min_size=1, max_size=4))
@settings(max_examples=20, deadline=None)
def test_tensorflow_reads_and_writes_the_same(lists: list[list[float]]) -> None:
    """TensorFlow's parser has the same values, and its messages are read as they are."""
    import tensorflow as tf

    rows = [{"f": float32(*held), "i": int64(*range(len(held)))} for held in lists]
    some = [tf_example(tf, row).SerializeToString() for row in rows]
    columns = columns_of(some)
    batch = decode_batch(some, columns)
    description = {"f": tf.io.RaggedFeature(tf.float32), "i": tf.io.RaggedFeature(tf.int64)}
    for encoded in (some, encode_batch(batch, columns)):
        parsed = tf.io.parse_example(encoded, description)
        assert parsed["f"].to_list() == lists
        assert parsed["i"].to_list() == [list(range(len(held))) for held in lists]
    check(some)


@pytest.mark.skipif(not REAL.is_dir(), reason="the real files are not there")
def test_real_files() -> None:
    """All records of shards that other software wrote come back, in whatever form."""
    seen = 0
    for path in sorted(REAL.rglob("*")):
        if not path.is_file() or path.stat().st_size > 4_000_000:
            continue
        with path.open("rb") as file:
            some = [one.payload for one in read_records(file) if isinstance(one, Record)]
        some = some[:1000]
        columns = columns_of(some)
        try:
            batch = decode_batch(some, columns)
        except MisfitError as error:
            some = [one for index, one in enumerate(some) if index not in error.others]
            batch = decode_batch(some, columns)
        for one, other in zip(some, encode_batch(batch, columns), strict=True):
            assert content(one) == content(other) if columns.parsed else one == other
        seen += len(some)
    assert seen > 1000
