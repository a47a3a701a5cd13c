"""The Arrow bridge: payloads become record batches and come back."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples.arrow.checking import (
    any_payloads,
    cells,
    check,
    columns_of,
    content,
    example,
    expected_column,
    taken,
)
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
from tests.examples.wire import field
from tfrtool.examples.arrow.decode_batch import MisfitError, decode_batch
from tfrtool.examples.arrow.encode_batch import encode_batch
from tfrtool.examples.example import (
    DType,
    Feature,
    encode_example,
)
from tfrtool.examples.fields import tree_json
from tfrtool.examples.schema_fold import SchemaFold
from tfrtool.records.framing import Record
from tfrtool.records.reader import read_records


@given(st.lists(any_payloads, max_size=4))
def test_any_payloads_come_back(some: list[bytes]) -> None:
    """What the columns hold is what the payloads say, to protobuf; and nothing is lost."""
    check(taken(some))


@given(st.binary(max_size=60), st.data())
@settings(deadline=None)
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


def test_what_is_absent_empty_or_without_a_kind() -> None:
    """The three stay apart, and one value in each record is a column of values."""
    some = [
        example(one=int64(1), some=int64(1), odd=int64(1), mixed=int64(1)),
        example(one=int64(-(2**63)), some=int64(), odd=UNSET, mixed=string(b"x")),
        example(one=int64(0), mixed=float32()),
    ]
    columns = columns_of(some)
    items = {column.key: tree_json(column.item) for column in columns.columns}
    mixed = {b"odd": "mixed", b"mixed": "mixed"}
    assert items == {b"one": "int64", b"some": {"list": "int64"}, **mixed}
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


@pytest.mark.more
def test_long_messages() -> None:
    """Many features, many values, long names, and values of megabytes are what they are."""
    many = {f"feature {number:05}": int64(number) for number in range(300)}
    names = {"n" * length: string(b"s" * length) for length in (*range(1, 70), 3000)}
    long = Feature(dtype=DType.STRING, values=[b"%d" % number for number in range(1500)])
    numbers = int64(*(1 << shift for shift in range(63)), *range(-1000, 70000, 70))
    some = [
        encode_example(many),
        encode_example(names | {"long": long, "numbers": numbers}),
        example(image=string(bytes(1_100_000)), floats=float32(*range(20_000))),
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
    wire_entry(KEY, field(2, field(1, b"\x0a\x02x"))),
    wire_entry(KEY, field(2, field(1, field(1, b"x"), b"\x0a\x02x"))),
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
    assert not SchemaFold().add_payload(payload)
    good = [example(a=int64(number)) for number in range(5000)]
    with pytest.raises(MisfitError) as error:
        decode_batch([*good, payload, *good[:3], payload], columns_of(good))
    assert error.value.index == 5000
    assert sorted(error.value.others) == [5000, 5004]
    with pytest.raises(MisfitError):
        decode_batch([payload], columns_of([example(a=string(b"x"), b=int64())]))


@pytest.mark.tf
@given(st.lists(st.lists(st.floats(width=32, allow_nan=False), max_size=3), min_size=1, max_size=4))
@settings(max_examples=6, deadline=None)
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


@pytest.mark.more  # tests/interop/test_round_trips.py has them in the gate
def test_real_files(shared_data: Path) -> None:
    """All records of shards that other software wrote come back, in whatever form."""
    seen = 0
    for path in sorted((shared_data / "tfrecord").rglob("*")):
        if not path.is_file() or path.stat().st_size > 4_000_000:
            continue
        with path.open("rb") as file:
            some = [one.payload for one in read_records(file) if isinstance(one, Record)]
        some = some[:150]
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
