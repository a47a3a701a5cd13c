"""Tables of any Arrow types become Examples, or an error that names the column and the row."""

from __future__ import annotations

import datetime as dt
import decimal
import struct
from typing import Any

import pyarrow as pa
import pytest

from tests.examples.strategies import float32, int64, string
from tfrtool.errors import SchemaError
from tfrtool.examples.arrow.columns import FEATURE, Columns
from tfrtool.examples.arrow.decode_batch import decode_batch
from tfrtool.examples.arrow.encode_batch import encode_batch
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.example import Feature, decode_example, encode_example
from tfrtool.examples.fields import Struct, Values, with_info
from tfrtool.features.arrow_tree import TableTree, with_tensors
from tfrtool.features.conformed_rows import table_rows
from tfrtool.features.feature_columns import FeatureColumns

EPOCH = dt.datetime(1970, 1, 1, 0, 0, 1, 5)
HALF = struct.unpack("<f", struct.pack("<f", 0.1))[0]
IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])

HELD = [
    (pa.bool_(), True, int64(1)),
    *((kind, 7, int64(7)) for kind in (pa.int8(), pa.int16(), pa.uint8(), pa.uint16())),
    (pa.uint64(), 2**64 - 1, int64(-1)),
    (pa.int32(), -7, int64(-7)),
    (pa.uint32(), 2**32 - 1, int64(2**32 - 1)),
    (pa.uint64(), 2**63 - 1, int64(2**63 - 1)),
    (pa.int64(), -(2**63), int64(-(2**63))),
    (pa.float16(), 0.5, float32(0.5)),
    (pa.float32(), HALF, float32(HALF)),
    (pa.float64(), 0.1, float32(HALF)),
    (pa.float64(), float("inf"), float32(float("inf"))),
    *((kind, "né", string("né".encode())) for kind in (pa.string(), pa.large_string())),
    (pa.string_view(), "né", string("né".encode())),
    *((kind, b"\xff", string(b"\xff")) for kind in (pa.binary(), pa.large_binary(), pa.binary(1))),
    (pa.binary_view(), b"\xff", string(b"\xff")),
    (pa.dictionary(pa.int8(), pa.string()), "cat", string(b"cat")),
    (pa.run_end_encoded(pa.int32(), pa.int16()), 5, int64(5)),
    (pa.decimal128(30, 10), decimal.Decimal("0.0000000001"), string(b"0.0000000001")),
    (pa.decimal256(60, 2), decimal.Decimal("-12.50"), string(b"-12.50")),
    (pa.timestamp("s"), EPOCH.replace(microsecond=0), int64(1_000_000)),
    (pa.timestamp("us", "UTC"), EPOCH.replace(tzinfo=dt.UTC), int64(1_000_005)),
    (pa.timestamp("ns"), -1000, int64(-1)),
    (pa.date32(), dt.date(1970, 1, 2), int64(86_400_000_000)),
    (pa.date64(), dt.date(1969, 12, 31), int64(-86_400_000_000)),
    (pa.time32("ms"), dt.time(0, 0, 1), int64(1_000_000)),
    (pa.time64("ns"), dt.time(0, 0, 0, 7), int64(7)),
    (pa.duration("ms"), dt.timedelta(milliseconds=3), int64(3_000)),
    (IMAGE, {"bytes": b"jpeg", "path": "a.jpg"}, string(b"jpeg")),
    (pa.uuid(), b"0123456789abcdef", string(b"0123456789abcdef")),
]


def columns_of(schema: pa.Schema) -> FeatureColumns:
    """Return the columns that a table of any types becomes; doubles are float32."""

    def single(_: str, values: Values) -> Values:
        return Values.parse("float32") if values.dtype == "float64" else values

    root: Struct = with_info(TableTree.of(schema).root, single)
    return FeatureColumns.of(with_tensors(root, {}))


def written(batch: pa.RecordBatch) -> list[dict[str, Feature]]:
    """Return the features of what a batch of any types becomes."""
    columns = columns_of(batch.schema)
    payloads = encode_batch(table_rows(batch, columns, 0), columns)
    fold = ColumnsFold()
    fold.add(payloads)
    assert encode_batch(decode_batch(payloads, fold.columns()), fold.columns()) == payloads
    rows = [dict(decode_example(payload).features) for payload in payloads]
    for row in rows:
        row.pop("a/filename", None)  # of an image
    return rows


def array_of(kind: pa.DataType, values: list[Any]) -> pa.Array:
    """Return an array of a type, also of those that Python's values are not made into."""
    if pa.types.is_run_end_encoded(kind):
        return pa.compute.run_end_encode(pa.array(values, kind.value_type))
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode()
    return pa.array(values, kind)


@pytest.mark.parametrize(("kind", "value", "feature"), HELD, ids=[str(one[0]) for one in HELD])
def test_values_of_a_type(kind: pa.DataType, value: Any, feature: Feature) -> None:
    """A value is a feature, null is none; a list of values is a feature with as many."""
    batch = pa.record_batch({"a": array_of(kind, [value, None, value])})
    assert written(batch.slice(1)) == [{}, {"a": feature}]
    if pa.types.is_run_end_encoded(kind) or kind == pa.uuid():
        return
    twice = Feature(dtype=feature.dtype, values=(*feature.values, *feature.values))
    some = array_of(kind, [value] * 4)
    for held, offset in ((pa.ListArray, pa.int32()), (pa.LargeListArray, pa.int64())):
        lists = held.from_arrays(pa.array([0, 2, 2, 4], offset), some)
        found = written(pa.record_batch({"a": lists}))
        assert found == [{"a": twice}, {"a": Feature(dtype=feature.dtype, values=())}, {"a": twice}]
    fixed = pa.FixedSizeListArray.from_arrays(some, 2)
    assert written(pa.record_batch({"a": fixed})) == [{"a": twice}] * 2


def test_uuids_are_noted() -> None:
    """They become bytes, which a query for their text does not find."""
    notes = TableTree.of(pa.schema([("a", pa.uuid()), ("b", pa.list_(pa.uuid()))])).notes
    assert notes[0] == "column 'a': UUIDs become 16 bytes each"
    assert len(notes) == 2


FAR = 2**62
REFUSED = [
    (pa.float64(), [1.0, 1e300], "double"),
    (pa.timestamp("s"), [1, FAR], "time"),
    (pa.timestamp("ns"), [1000, 1001], "time"),
    (pa.duration("s"), [1, -FAR], "duration"),
    (pa.list_(pa.int64()), [[1], [2, None]], "null within a list"),
    (IMAGE, [{"bytes": b"", "path": None}, {"bytes": None, "path": "a"}], "path"),
    (pa.list_(IMAGE), [[], [{"bytes": None, "path": "a"}]], "path"),
    (pa.list_(pa.list_(pa.int8())), [[[1]], [[2], None]], "null within a list"),
]


@pytest.mark.parametrize(("kind", "values", "what"), REFUSED)
def test_values_that_no_feature_holds(kind: pa.DataType, values: list[Any], what: str) -> None:
    """The error names the column and the row."""
    batch = pa.record_batch({"fine": pa.array([1, 2]), "bad one": pa.array(values, kind)})
    columns = columns_of(batch.schema)
    with pytest.raises(SchemaError, match="column 'bad one', row 41: ") as error:
        table_rows(batch, columns, 40)
    assert what in str(error.value)
    table_rows(batch.slice(0, 1), columns, 40)


NO_FEATURE = [
    pa.map_(pa.string(), pa.int64()),
    pa.struct([("x", pa.map_(pa.string(), pa.int64()))]),
    pa.list_(pa.null()),
    pa.sparse_union([pa.field("a", pa.int64())]),
    pa.month_day_nano_interval(),
]


@pytest.mark.parametrize("kind", NO_FEATURE, ids=str)
def test_types_that_no_feature_holds(kind: pa.DataType) -> None:
    """The error names the column, unless it isn't used."""
    tree = TableTree.of(pa.schema([("fine", pa.int64()), ("odd", kind)]))
    with pytest.raises(SchemaError, match="unsupported type of column 'odd'"):
        tree.check(["fine", "odd"])
    tree.check(["fine"])


def test_notes_say_what_changes() -> None:
    """What is not kept as it is, is said; a column without a type is left out."""
    schema = pa.schema(
        {"a": pa.float64(), "b": pa.time64("ns"), "c": pa.decimal128(5), "d": pa.null()}
    )
    tree = TableTree.of(schema)
    assert [*tree.root.fields] == ["a", "b", "c"]
    notes = tree.notes
    assert [note.split("'")[1] for note in notes] == ["b"]
    assert "times become int64, in microseconds" in notes[0]


def test_a_name_that_is_there_twice() -> None:
    """Two columns of one name can't be one feature."""
    schema = pa.schema([pa.field("a", pa.int64()), pa.field("a", pa.int64())])
    with pytest.raises(SchemaError, match="'a'"):
        TableTree.of(schema)


def test_names_that_the_table_needs() -> None:
    """A foreign column may be called as one of ours."""
    batch = pa.record_batch({"_payload": pa.array([b"x"]), "_record": pa.array([1])})
    assert written(batch) == [{"_payload": string(b"x"), "_record": int64(1)}]


def test_another_file_with_other_types() -> None:
    """A batch of another schema is refused, and the column named."""
    columns = columns_of(pa.schema({"a": pa.int64()}))
    for other in (["x"], [[1, 2]], [1.5], [{"b": 1}]):
        with pytest.raises(SchemaError, match="'a'"):
            table_rows(pa.record_batch({"a": pa.array(other)}), columns, 0)
    found = table_rows(pa.record_batch({"b": pa.array([1])}), columns, 0)
    assert found.to_pydict() == {"a": [None]}


def test_keys_survive_a_change_of_types() -> None:
    """The keys of our own tables are known where another tool has changed the types."""
    fold = ColumnsFold()
    fold.add([encode_example({"_shard": 1, "x": 2})])
    schema = fold.columns().to_arrow()
    assert schema.names == ["_shard_", "x"]
    changed = schema.set(1, pa.field("x", pa.int32()))
    assert Columns.from_arrow(changed) is None
    assert [*columns_of(changed).root.fields] == ["_shard", "x"]
    batch = pa.record_batch([pa.array([1]), pa.array([2], pa.int32())], schema=changed)
    assert [*written(batch)[0]] == ["_shard", "x"]


def test_features_of_several_types() -> None:
    """A struct of the three lists of a feature is that feature."""
    lists = {"bytes_list": [b"x"], "float_list": None, "int64_list": None}
    batch = pa.record_batch({"a": pa.array([lists, None], FEATURE)})
    assert written(batch) == [{"a": string(b"x")}, {}]
