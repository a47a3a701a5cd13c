"""Tables of other software with structs, lists and narrow types: to records, and the same again."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

import tfrtool
from tests.records.strategies import shard_of
from tfrtool.examples.example import parse_message

STRUCT = pa.struct({"x": pa.int64(), "flag": pa.bool_(), "in": pa.struct({"t": pa.string()})})
ITEM = pa.struct({"n": pa.uint8(), "tags": pa.list_(pa.string()), "at": pa.timestamp("us")})
NOON = dt.datetime(2024, 1, 1, 12)
NESTED: dict[str, pa.Array] = {
    "struct": pa.array([{"x": 1, "flag": True, "in": {"t": "a"}}, {"flag": False}], STRUCT),
    "items": pa.array(
        [[{"n": 1, "tags": ["a", "b"], "at": NOON}, {"n": 2, "tags": [], "at": NOON}], []],
        pa.list_(ITEM),
    ),
    "ragged": pa.array([[[1], [2, 3], []], []], pa.list_(pa.list_(pa.int64()))),
    "deep": pa.array([[[[1.5], []], []], None], pa.list_(pa.list_(pa.list_(pa.float32())))),
    "lists": pa.array([["a"], None], pa.list_(pa.string())),
    "flag": pa.array([True, None]),
    "yes": pa.array([True, False]),
    "u8": pa.array([255, 0], pa.uint8()),
    "i16": pa.array([None, -(2**15)], pa.int16()),
    "u64": pa.array([2**64 - 1, 0], pa.uint64()),
    "n": pa.array([1, None]),
    "text": pa.array([None, ""]),
    "raw": pa.array([b"\xff", None]),
    "when": pa.array([NOON, None], pa.timestamp("us", "UTC")),
    "day": pa.array([NOON.date(), NOON.date()]),
    "price": pa.array([Decimal("1.50"), None], pa.decimal128(8, 2)),
    "half": pa.array([0.5, 1.25], pa.float32()),
}  # fmt: skip
ABSENT = {"x": None, "flag": False, "in": {"t": None}}


@pytest.fixture(scope="module")
def nested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Parquet file with all these columns."""
    path = tmp_path_factory.mktemp("nested") / "a.parquet"
    pq.write_table(pa.table(NESTED), path)
    return path


@pytest.fixture(scope="module")
def records(nested: Path) -> Path:
    """Return the dataset that was made of it."""
    tfrtool.convert(nested, nested.parent / "records")
    return nested.parent / "records"


@pytest.mark.parametrize(
    "way", ["records", "one.tfrecord", "t.jsonl", "u.csv", "v.tar", "w.arrow", "x.parquet"]
)
def test_all_types_come_back(way: str, nested: Path, tmp_path: Path) -> None:
    """Records, single files and other tables have the same types, values and nulls."""
    tfrtool.convert(nested, tmp_path / way)
    tfrtool.convert(tmp_path / way, tmp_path / "back.parquet")
    found = pq.read_table(tmp_path / "back.parquet").replace_schema_metadata()
    expected = pa.table(NESTED)
    assert {one.name: one.type for one in found.schema} == {
        one.name: one.type for one in expected.schema
    }
    rows = expected.to_pylist()
    if way not in ("w.arrow", "x.parquet"):  # others store the fields of structs alone
        rows[1]["struct"] = ABSENT
    assert found.select(expected.column_names).to_pylist() == rows


def test_records_have_the_features_of_tfds(records: Path) -> None:
    """Fields of structs are a/b, ragged lists have their lengths, and nulls are missing."""
    (shard,) = records.glob("*.tfrecord*")
    first, second = (record.payload for record in tfrtool.read_records(shard))
    example = {
        name: value.tolist() if hasattr(value, "tolist") else value
        for name, value in tfrtool.parse_example(first).items()
    }
    assert example["struct/flag"] == 1
    assert example["items/n"] == [1, 2]
    assert example["items/tags/ragged_row_lengths_0"] == [2, 0]
    assert example["ragged/ragged_flat_values"] == [1, 2, 3]
    assert example["ragged/ragged_row_lengths_0"] == [1, 2, 0]
    assert example["deep/ragged_row_lengths_1"] == 1 or example["deep/ragged_row_lengths_1"] == [
        1,
        0,
    ]
    assert example["u64"] == -1
    names = {entry.key for entry in parse_message(second).context.feature}
    assert names.isdisjoint({b"flag", b"when", b"struct/x", b"struct/in/t", b"lists"})
    described = json.loads((records / "features.json").read_text())["featuresDict"]["features"]
    assert described["u8"]["tensor"]["dtype"] == "uint8"
    assert described["yes"]["tensor"]["dtype"] == "bool"
    assert described["flag"]["sequence"]["feature"]["tensor"]["dtype"] == "bool"


@pytest.mark.slow
def test_tfds_reads_the_records(records: Path) -> None:
    """TFDS has the structs and lists, and an empty list where a value is missing."""
    tfds = pytest.importorskip("tensorflow_datasets")
    first, second = tfds.as_numpy(tfds.builder_from_directory(str(records)).as_dataset("train"))
    assert first["struct"]["in"]["t"].tolist() == [b"a"]
    assert first["items"]["n"].tolist() == [1, 2]
    assert first["u8"] == 255
    assert first["u64"] == 2**64 - 1
    assert [*map(list, first["ragged"].to_list())] == [[1], [2, 3], []]
    assert second["flag"].tolist() == []


def test_schema_json_only_for_what_features_json_lacks(tmp_path: Path) -> None:
    """Narrow types, structs and ragged lists need none; times and missing values do."""
    columns = ["items", "ragged", "yes", "u8", "half"]
    plain = pa.table({name: NESTED[name] for name in columns})
    items = plain["items"].combine_chunks()
    kept = [[{key: one[key] for key in ("n", "tags")} for one in row] for row in items.to_pylist()]
    kind = pa.list_(pa.struct([ITEM.field("n"), ITEM.field("tags")]))
    plain = plain.set_column(0, "items", pa.array(kept, kind))
    for name, table in {
        "plain": plain,
        "times": plain.append_column("t", NESTED["day"]),
        "nulls": plain.append_column("b", NESTED["flag"]),
    }.items():
        pq.write_table(table, tmp_path / f"{name}.parquet")
        tfrtool.convert(tmp_path / f"{name}.parquet", tmp_path / name)
        assert (tmp_path / name / "schema.json").exists() == (name != "plain")
        found = tfrtool.read_table(tmp_path / name).to_arrow().select(table.column_names)
        assert found.replace_schema_metadata().equals(table), name


def test_the_libraries_see_the_same(records: Path, nested: Path, tmp_path: Path) -> None:
    """polars, DuckDB and pandas have the same types and values in the table as in its source."""
    pl: Any = pytest.importorskip("polars")
    tfrtool.convert(records, tmp_path / "back.parquet")
    names = [name for name in NESTED if name != "struct"]
    here, there = (
        pl.read_parquet(path).select(names) for path in (tmp_path / "back.parquet", nested)
    )
    assert here.schema == there.schema
    assert here.equals(there)
    columns = ", ".join(f'"{name}"' for name in names if name != "when")  # which needs pytz
    query = f"SELECT {columns} FROM '{{}}'"
    found, expected = (
        duckdb.sql(query.format(path)) for path in (tmp_path / "back.parquet", nested)
    )
    assert found.types == expected.types
    assert found.fetchall() == expected.fetchall()
    frames = [pd.read_parquet(path)[names] for path in (tmp_path / "back.parquet", nested)]
    assert [*frames[0].dtypes] == [*frames[1].dtypes]


@pytest.mark.slow
def test_features_of_hugging_face(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`datasets` has the same features and rows again, with images, labels, structs and bools."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    d: Any = pytest.importorskip("datasets")
    features = d.Features(
        {
            "label": d.ClassLabel(names=["no", "yes"]),
            "ok": d.Value("bool"),
            "objects": d.List(
                {"kind": d.ClassLabel(names=["a", "b"]), "box": d.List(d.Value("int32"))}
            ),
            "info": {"n": d.Value("uint8"), "words": d.List(d.Value("string"))},
        }
    )
    rows = [
        {
            "label": 1,
            "ok": True,
            "objects": [{"kind": 0, "box": [1]}, {"kind": 1, "box": [2, 3]}],
            "info": {"n": 255, "words": ["x"]},
        },
        {"label": 0, "ok": False, "objects": [], "info": {"n": 0, "words": []}},
    ]
    d.Dataset.from_list(rows, features=features).to_parquet(tmp_path / "a.parquet")
    tfrtool.convert(tmp_path / "a.parquet", tmp_path / "records")
    tfrtool.convert(tmp_path / "records", tmp_path / "hf", to="hf")
    found = d.load_dataset(str(tmp_path / "hf"), cache_dir=str(tmp_path / "cache"))["train"]
    assert found.features == features
    assert [*found] == rows


def test_files_with_other_types(tmp_path: Path) -> None:
    """Fields that one file lacks are missing there; the wider type of integers holds both."""
    first = pa.table({"s": pa.array([{"a": 1, "b": True}]), "l": [[[1], [2]]]})
    second = pa.table({"s": pa.array([{"a": 2**40, "c": "x"}]), "l": [[[1, 2]]], "n": [1]})
    narrow = first.set_column(
        0, "s", first["s"].cast(pa.struct({"a": pa.int32(), "b": pa.bool_()}))
    )
    pq.write_table(narrow, tmp_path / "a.parquet")
    pq.write_table(second, tmp_path / "b.parquet")
    sources = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    tfrtool.convert(sources, tmp_path / "records")
    table = tfrtool.read_table(tmp_path / "records").to_arrow()
    assert table.schema.field("s").type == pa.struct(
        {"a": pa.int64(), "b": pa.bool_(), "c": pa.string()}
    )
    assert table.to_pylist() == [
        {"s": {"a": 1, "b": True, "c": None}, "l": [[1], [2]], "n": None},
        {"s": {"a": 2**40, "b": None, "c": "x"}, "l": [[1, 2]], "n": 1},
    ]
    pq.write_table(pa.table({"s": [1]}), tmp_path / "b.parquet")
    with pytest.raises(tfrtool.SchemaError, match=r"types of 's': structs in .*int64 in"):
        tfrtool.convert(sources, tmp_path / "new")


def test_doubles_and_casts_within_structs(tmp_path: Path) -> None:
    """Doubles at any depth become int64 or float32 as elsewhere, and casts name a path."""
    rows = [{"s": {"whole": 1.0, "part": 0.1}, "l": [{"w": 2.0**24 + 1}, {"w": 0.5}]}]
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    with pytest.raises(tfrtool.SourceError, match="'l/w' would become float32") as caught:
        tfrtool.convert(path, tmp_path / "new")
    assert caught.value.record == 0
    report = tfrtool.convert(path, tmp_path / "new", cast={"l/w": "string", "s/part": "string"})
    assert "column 's/whole': whole numbers become int64" in report.notes
    (found,) = tfrtool.read_table(tmp_path / "new").to_arrow().to_pylist()
    assert found == {"s": {"whole": 1, "part": "0.1"}, "l": [{"w": "16777217.0"}, {"w": "0.5"}]}


def test_features_of_several_types_in_tables_of_others(tmp_path: Path) -> None:
    """Features of several types come back from a table that has lost what tfrtool notes in it."""
    payloads = [tfrtool.encode_example({"a": value, "n": 1}) for value in (1, "x", 0.5)]
    (tmp_path / "a.tfrecord").write_bytes(shard_of(payloads))
    tfrtool.convert(tmp_path / "a.tfrecord", tmp_path / "a.parquet")
    table = pq.read_table(tmp_path / "a.parquet").replace_schema_metadata()
    pq.write_table(table, tmp_path / "b.parquet")
    tfrtool.convert(tmp_path / "b.parquet", tmp_path / "b.tfrecord")
    assert (tmp_path / "b.tfrecord").read_bytes() == (tmp_path / "a.tfrecord").read_bytes()


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.jsonl"])
def test_null_structs(name: str, tmp_path: Path) -> None:
    """A struct that is null is not the same as one of nulls: tables keep it, records can't."""
    inner = [{"b": {"c": 1}}, {"b": None}, None, {"b": {"c": None}}]
    table = pa.table({"n": [0, 1, 2, 3], "a": inner})
    source, copy = tmp_path / name, tmp_path / "b.parquet"
    if name == "a.parquet":
        pq.write_table(table, source)
    elif name == "a.arrow":
        feather.write_feather(table, source)
    else:
        source.write_text("".join(f"{json.dumps(row)}\n" for row in table.to_pylist()))
    assert tfrtool.convert(source, copy).job.warnings == ()
    assert pq.read_table(copy)["a"].to_pylist() == inner

    report = tfrtool.convert(source, tmp_path / "records", shards=2)
    text = "column 'a{}': null structs come back as structs of nulls: 1 row".format
    assert sorted(report.job.warnings) == [text(""), text("/b")]
    found = pa.Table.from_batches(tfrtool.read_table(tmp_path / "records"))["a"].to_pylist()
    assert found == [{"b": {"c": value}} for value in [1, None, None, None]]


def test_fields_that_are_stored_alike(tmp_path: Path) -> None:
    """An error names the first file whose columns clash with its own or those before it."""
    names = ["1.parquet", "2.parquet", "3.parquet", "4.parquet"]
    rows: list[dict[str, Any]] = [{"n": 1}, {"a/b": 1}, {"a": {"b": 2}}, {"a/b": 3}]
    for name, row in zip(names, rows, strict=True):
        pq.write_table(pa.Table.from_pylist([row]), tmp_path / name)
    with pytest.raises(tfrtool.SchemaError, match=r"3\.parquet: two fields are stored as 'a/b'"):
        tfrtool.convert([tmp_path / name for name in names], tmp_path / "out")


def test_keys_that_objects_in_lists_lack(tmp_path: Path) -> None:
    """A key that an object in a list lacks, whatever the schema says: the error names the row."""
    pq.write_table(pa.table({"a": [[{"b": 1, "c": 2}]] * 3}), tmp_path / "a.parquet")
    tfrtool.convert(tmp_path / "a.parquet", tmp_path / "rows", to="jsonl", shards=2)
    *_, last = sorted((tmp_path / "rows").glob("*.jsonl"))
    row = '{"a": [{"b": 1, "c": 2}]}\n'
    last.write_text(row + '{"a": [{"b": 1}, {"b": 1, "c": 2}]}\n')
    with pytest.raises(tfrtool.SchemaError, match=rf"{last.name}, record 1: column 'a/c': a null"):
        tfrtool.convert(tmp_path / "rows", tmp_path / "out")
