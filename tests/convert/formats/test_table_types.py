"""Tables of other software: what their types become, and that tables get them back."""

from __future__ import annotations

import datetime as dt
import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import tfrtool
from tests.convert.formats.test_conversion import payloads_in
from tests.examples.strategies import string
from tests.records.strategies import shard_of
from tfrtool.cli import main

NOON, BEFORE = dt.datetime(2024, 1, 1, 12), dt.datetime(1969, 1, 1, 0, 0, 0, 5)
Array = pa.list_(pa.float32(), 2)

TYPED: dict[str, pa.Array] = {
    "when": pa.array([NOON, None, BEFORE], pa.timestamp("us")),
    "zone": pa.array([NOON, None, BEFORE], pa.timestamp("us", "Europe/Berlin")),
    "day": pa.array([dt.date(2024, 1, 1), dt.date(1960, 2, 3), None]),
    "price": pa.array([Decimal("1.50"), None, Decimal("-0.01")], pa.decimal128(8, 2)),
    "long": pa.array([Decimal(10) ** 50, Decimal(1), None], pa.decimal256(60, 2)),
    "times": pa.array([[NOON], [], None], pa.list_(pa.timestamp("us"))),
    "vector": pa.array([[1, 2], None, [3, 4]], Array),
    "boxes": pa.array([[[1, 2], [3, 4]], [], None], pa.list_(Array)),
    "tags": pa.array([["x"], [], None]),
    "ones": pa.array([[1], [2], [3]]),
    "tensor": pa.array([[[1, 2, 3], [4, 5, 6]]] * 3, pa.list_(pa.list_(pa.int64(), 3), 2)),
}


def test_intervals_are_noted(tmp_path: Path) -> None:
    """Arrow reads DuckDB's intervals as bytes, like those that are bytes."""
    values = "INTERVAL 3 DAY AS a, [INTERVAL 1 MONTH] AS b, '123456789abc'::BLOB AS c"
    values += ', INTERVAL 1 DAY AS "d.e", 1 AS d'
    duckdb.sql(f"COPY (SELECT {values}) TO '{tmp_path / 'a.parquet'}'")
    notes = " ".join(tfrtool.convert(tmp_path / "a.parquet", tmp_path / "a.tfrecord").notes)
    noted = re.findall(r"column '(\S+)': intervals become 12 bytes each", notes)
    assert noted == ["a", "b", "d.e"]


def test_maps_without_any_types(tmp_path: Path) -> None:
    """Types that pyarrow can read, but not pass on, are an error: reading them never ended."""
    duckdb.sql(f"COPY (SELECT [MAP {{}}] AS a) TO '{tmp_path / 'a.parquet'}'")
    with pytest.raises(tfrtool.SourceError, match="null type field"):
        tfrtool.convert(tmp_path / "a.parquet", tmp_path / "a.tfrecord")


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.csv", "a.jsonl", "none.parquet"])
def test_columns_without_values(name: str, tmp_path: Path) -> None:
    """A note names each column that records can't have, unless another file has values of it."""
    columns: dict[str, Any] = {"id": [1, 2], "n": pa.nulls(2), "i": pa.nulls(2, pa.int64())}
    columns["l"] = pa.nulls(2, pa.list_(pa.string()))
    table = pa.table(columns)
    source = tmp_path / name
    if name.endswith("parquet"):
        table = table.slice(0, 0) if name == "none.parquet" else table
        pq.write_table(table, source, write_statistics=["id", "n"])
    elif name == "a.arrow":
        pa.feather.write_feather(table, source)
    elif name == "a.csv":
        source.write_text("id,n,i,l\n1,,,\n2,,,\n")
    else:
        rows = table.to_pylist()
        source.write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    def noted(*sources: Path) -> list[str]:
        report = tfrtool.convert([*sources], tmp_path / "a.tfrecord", existing="overwrite")
        return re.findall(r"column '(.+?)' has no values; skipped", " ".join(report.notes))

    assert noted(source) == [*(["id"] if name == "none.parquet" else []), "n", "i", "l"]
    if name.endswith("parquet"):
        other = pa.table({**columns, "id": [1, 2], "i": [1, None]})
        pq.write_table(other, tmp_path / "b.parquet")
        assert noted(source, tmp_path / "b.parquet") == ["n", "l"]


@pytest.mark.parametrize("form", ["parquet", "ipc", "ipc_stream"])
def test_integers_beyond_64_bits(form: str, tmp_path: Path) -> None:
    """The error names the columns, which Arrow's library doesn't."""
    pl: Any = pytest.importorskip("polars")
    values = pl.Series([[[2**70]]], dtype=pl.List(pl.List(pl.Int128)))
    frame = pl.DataFrame({"ok": [1], "x.y": pl.Series([1], dtype=pl.Int128), "lists": values})
    getattr(frame, f"write_{form}")(tmp_path / "a.table")
    with pytest.raises(tfrtool.SourceError, match=r"a\.table: .*of columns 'x\.y', 'lists'"):
        tfrtool.convert(tmp_path / "a.table", tmp_path / "out")


def test_names_that_tables_use_themselves(tmp_path: Path) -> None:
    """A note says which column has another name; the feature gets its own back."""
    (tmp_path / "a.tfrecord").write_bytes(shard_of([tfrtool.encode_example({"_record": 1})]))
    report = tfrtool.convert(tmp_path / "a.tfrecord", tmp_path / "t.csv")
    assert report.notes == ["feature '_record' becomes column '_record_'"]
    tfrtool.convert(tmp_path / "t.csv", tmp_path / "b.tfrecord")
    assert (tmp_path / "b.tfrecord").read_bytes() == (tmp_path / "a.tfrecord").read_bytes()


def test_an_old_schema_is_replaced(tmp_path: Path) -> None:
    """Records that replace others in one file don't get their types."""
    target = tmp_path / "a.tfrecord"
    for value in ("[5]", "5"):
        (tmp_path / "rows.jsonl").write_text(f'{{"a": {value}}}\n')
        tfrtool.convert(tmp_path / "rows.jsonl", target, existing="overwrite")
    tfrtool.convert(target, tmp_path / "back.jsonl")
    assert (tmp_path / "back.jsonl").read_text() == '{"a": 5}\n'


def test_types_come_back(tmp_path: Path) -> None:
    """Times, decimals and tensors come back from records and from each format, equal in type."""
    table = pa.table(TYPED).select(sorted(TYPED))
    pq.write_table(table, tmp_path / "a.parquet")
    tfrtool.convert(tmp_path / "a.parquet", tmp_path / "records")
    for way in ("records", "one.tfrecord", "t.jsonl", "u.csv", "v.tar", "w.feather"):
        target = tmp_path / way
        if way != "records":
            target = tmp_path / "ways" / way
            target.parent.mkdir(exist_ok=True)
            tfrtool.convert(tmp_path / "a.parquet", target)
        back = tmp_path / f"from_{way.partition('.')[0]}.parquet"
        tfrtool.convert(target, back)
        found = pq.read_table(back).replace_schema_metadata()
        assert found.select(sorted(TYPED)).equals(table), way
    (first, *_) = payloads_in(tmp_path / "records")
    example = tfrtool.parse_example(first)
    assert example["when"] == int(NOON.replace(tzinfo=dt.UTC).timestamp()) * 10**6
    assert example["price"] == b"1.50"
    tensor: Any = example["tensor"]
    assert [*tensor] == [1, 2, 3, 4, 5, 6]


CASTS: list[tuple[Any, str, Any]] = [
    (1_500_000, "timestamp", dt.datetime(1970, 1, 1, 0, 0, 1, 500_000)),
    ("2024-01-01T12:00:00", "timestamp", NOON),
    ("2024-01-01", "date", dt.date(2024, 1, 1)),
    ("1.5", "decimal(4,2)", Decimal("1.50")),
    ("12", "int64", 12),
    (12, "string", "12"),
    (12, "float32", 12.0),
    (12, "decimal(4,2)", Decimal(12)),
]


@pytest.mark.parametrize(("value", "cast", "expected"), CASTS)
def test_casts_of_records(value: Any, cast: str, expected: Any, tmp_path: Path) -> None:
    """`--cast` converts a feature of records, also over a schema, and the same cells of a table."""
    payloads = [tfrtool.encode_example({"x": value, "y": 1}), tfrtool.encode_example({"y": 2})]
    (tmp_path / "a.tfrecord").write_bytes(shard_of(payloads))
    (tmp_path / "s.json").write_text('{"x": {"dtype": "string"}}')
    tfrtool.convert(tmp_path / "a.tfrecord", tmp_path / "b.parquet", cast={"x": cast})
    assert pq.read_table(tmp_path / "b.parquet")["x"].to_pylist() == [expected, None]
    tfrtool.convert(
        tmp_path / "a.tfrecord",
        tmp_path / "c.parquet",
        cast={"x": cast},
        schema=tmp_path / "s.json",
    )
    found = pq.read_table(tmp_path / "c.parquet").to_pylist()
    assert found == [{"x": expected}, {"x": None}]
    if not (isinstance(value, int) and cast == "timestamp"):  # of which unit is not known
        (tmp_path / "t.csv").write_text(f"x,y\n{value},1\n,2\n")
        tfrtool.convert(tmp_path / "t.csv", tmp_path / "d.parquet", cast={"x": cast})
        assert pq.read_table(tmp_path / "d.parquet")["x"].to_pylist() == [expected, None]


def test_casts_replace_types(tmp_path: Path) -> None:
    """A cast to a plain type drops the time's own; text is ISO 8601, with all digits."""
    nanoseconds = pa.array([1_000_000_001, None, 5], pa.timestamp("ns"))
    pq.write_table(pa.table({**TYPED, "ns": nanoseconds}), tmp_path / "a.parquet")
    with pytest.raises(tfrtool.SchemaError, match=r"a\.parquet: column 'ns', row 0: .*ns:string"):
        tfrtool.convert(tmp_path / "a.parquet", tmp_path / "records")
    cast = {"ns": "string", "price": "float32", "day": "timestamp", "when": "int64"}
    tfrtool.convert(tmp_path / "a.parquet", tmp_path / "records", cast=cast)
    zone = {"zone": "string"}
    tfrtool.convert(tmp_path / "records", tmp_path / "b.parquet", cast=zone)
    row = pq.read_table(tmp_path / "b.parquet").to_pylist()[0]
    assert row["ns"] == "1970-01-01 00:00:01.000000001"
    assert row["price"] == 1.5
    assert row["day"] == dt.datetime(2024, 1, 1)
    assert row["when"] == int(NOON.replace(tzinfo=dt.UTC).timestamp()) * 10**6
    assert row["zone"] == "2024-01-01 13:00:00.000000+0100"


@pytest.mark.parametrize(
    ("value", "cast", "words"),
    [
        ("x", "timestamp", "column 'x', row 1"),
        ("1.234", "decimal(4,2)", "column 'x', row 1"),
        ("2024-01-01 12:00:00", "date", "within a day"),
        ("1", "decimal(99,2)", "invalid --cast"),
        ("1", "double", "int64, float32, string, timestamp"),
    ],
)
def test_casts_that_fail(
    value: str, cast: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error names the file, the column and the row; nothing is written."""
    payloads = [tfrtool.encode_example({"x": one}) for one in ("2024-01-01", value)]
    payloads = payloads if "decimal" not in cast else [tfrtool.encode_example({}), payloads[1]]
    (tmp_path / "a.tfrecord").write_bytes(shard_of(payloads))
    words_of = ["convert", str(tmp_path / "a.tfrecord"), str(tmp_path / "b.csv")]
    assert main([*words_of, "--cast", f"x:{cast}"]) in (1, 2)
    error = capsys.readouterr().err
    assert words in error
    assert "column" not in words or "a.tfrecord: " in error
    assert [path.name for path in tmp_path.iterdir()] == ["a.tfrecord"]


def test_types_in_conflict(tmp_path: Path) -> None:
    """Other types or shapes in another file are an error that names columns, types and files."""
    for name, unit, size in (("a", pa.timestamp("s"), 2), ("b", pa.int64(), 3)):
        vectors = pa.array([[1] * size], pa.list_(pa.int64(), size))
        boxes = pa.array([[[1] * size]], pa.list_(pa.list_(pa.int64(), size)))
        table = pa.table({"t": pa.array([1], unit), "v": vectors, "boxes": boxes})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    with pytest.raises(tfrtool.SchemaError) as caught:
        tfrtool.convert(str(tmp_path / "?.parquet"), tmp_path / "new")
    error = str(caught.value)
    types = ("'t': timestamp in", "'boxes': lists of 2 int64 in", "int64 in")
    for words in (*types, "a.parquet", "b.parquet"):
        assert words in error
    cast = {"t": "int64", "boxes": "int64"}
    tfrtool.convert(str(tmp_path / "?.parquet"), tmp_path / "v.csv", cast=cast)


def test_shapes_that_records_lost(tmp_path: Path) -> None:
    """Records that no longer have the shape of their schema are an error, and a cast reads them."""
    pq.write_table(pa.table({"v": TYPED["boxes"]}), tmp_path / "a.parquet")
    tfrtool.convert(tmp_path / "a.parquet", tmp_path / "records")
    shard = next((tmp_path / "records").glob("*.tfrecord*"))
    shard.write_bytes(shard_of([tfrtool.encode_example({"v": [1.0, 2.0, 3.0]})] * 2))
    (tmp_path / "records" / "dataset_info.json").unlink()
    with pytest.raises(tfrtool.SchemaError, match="its 'v' is a multiple of 2 values"):
        tfrtool.convert(tmp_path / "records", tmp_path / "b.parquet")
    tfrtool.convert(tmp_path / "records", tmp_path / "b.parquet", as_stored=True)
    assert pq.read_table(tmp_path / "b.parquet")["v"].to_pylist() == [[1, 2, 3]] * 2


OBJECTS: dict[str, Any] = {
    "id": [1, 2, 3],
    "objects": [
        {"bbox": [[1, 2, 3, 4.5], [0, 0, 1, 1]], "category": [1, 0]},
        {"bbox": [], "category": []},
        {"bbox": [[5, 6, 7, 8]], "category": [1]},
    ],
    "parts": [[{"at": {"x": 1, "y": 2}, "name": "a"}, {"at": {"x": 3, "y": 4}, "name": "b"}]] * 3,
    "info": [{"size": {"w": 4, "h": 5}}, {"size": {"w": 6, "h": 7}}, {"size": {"w": 8, "h": 9}}],
}


@pytest.mark.parametrize("flatten", [False, True])
@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_nested_columns(form: str, flatten: bool, tmp_path: Path) -> None:
    """Structs and lists of structs are features a/b, and come back; --flatten changes nothing."""
    source, table = tmp_path / f"a.{form}", pa.table(OBJECTS)
    names = {"names": ["no", "yes"], "_type": "ClassLabel"}
    features = {"objects": {"category": {"feature": names, "_type": "List"}}}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    table = table.replace_schema_metadata(metadata)
    write = pq.write_table if form == "parquet" else pa.feather.write_feather
    write(table, source)
    tfrtool.convert(source, tmp_path / "new", flatten=flatten)
    first, second, _ = map(tfrtool.parse_example, payloads_in(tmp_path / "new"))
    lists: Any = {name: value for name, value in first.items() if "/" in name}
    assert {name: [*np.ravel(value)] for name, value in lists.items()} == {
        "objects/bbox": [1, 2, 3, 4.5, 0, 0, 1, 1],
        "objects/category": [1, 0],
        "parts/at/x": [1, 3],
        "parts/at/y": [2, 4],
        "parts/name": [b"a", b"b"],
        "info/size/w": [4],
        "info/size/h": [5],
    }
    assert "objects/bbox" in second
    tfrtool.convert(tmp_path / "new", tmp_path / "b.parquet")
    assert pq.read_table(tmp_path / "b.parquet").to_pydict() == OBJECTS
    assert (tmp_path / "new" / "objects-category.labels.txt").read_text() == "no\nyes\n"
    rename = {"objects/category": "kind"}
    with pytest.raises(tfrtool.UsageError, match="'objects/category' is a field of one"):
        tfrtool.convert(source, tmp_path / "renamed", rename=rename)
    tfrtool.convert(source, tmp_path / "renamed", rename=rename, select=["id", "objects/category"])
    assert (tmp_path / "renamed" / "kind.labels.txt").read_text() == "no\nyes\n"


def test_nulls_of_structs(tmp_path: Path) -> None:
    """A missing struct is missing in each of its columns, as in a list without objects."""
    kind = pa.struct({"x": pa.int64(), "y": pa.list_(pa.int64())})
    structs = pa.array([{"x": 1, "y": [2]}, None], kind)
    image = pa.array([{"in": {"bytes": b"jpeg", "path": "a.jpg"}}, None])
    table = pa.table({"n": [1, 2], "s": structs, "i": image})
    pq.write_table(table, tmp_path / "a.parquet")
    tfrtool.convert(tmp_path / "a.parquet", tmp_path / "new", flatten=True)
    first, second = map(tfrtool.parse_example, payloads_in(tmp_path / "new"))
    assert first["i/in"] == b"jpeg"
    assert sorted(first) == ["i/in", "i/in/filename", "n", "s/x", "s/y"]
    assert [*second] == ["n"]
    with pytest.raises(tfrtool.UsageError, match=r"--flatten applies to .*, not to tfrecord"):
        tfrtool.convert(tmp_path / "new", tmp_path / "b.csv", flatten=True)


ROWS = [
    {"n": 1, "x": 0.5, "t": "a", "many": [1, 2], "vector": [1.0, 2.0]},
    {"n": 2, "t": "ü", "many": [3], "vector": [3.0, 4.0]},
]


@pytest.mark.parametrize("emit", ["json", "schema", "pbtxt"])
def test_schemas_of_inspect(emit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`convert` and `verify` read each form of schema that `inspect schema` prints."""
    shard, schema = tmp_path / "a.tfrecord", tmp_path / "s"
    shard.write_bytes(shard_of([tfrtool.encode_example(row) for row in ROWS]))
    assert main(["inspect", "schema", str(shard), "--emit", emit]) == 0
    schema.write_text(capsys.readouterr().out)
    assert main(["verify", str(shard), "--schema", str(schema)]) == 0
    tfrtool.convert(shard, tmp_path / "b.parquet", schema=schema)
    found = pq.read_table(tmp_path / "b.parquet").to_pylist()
    first = [0.5] if emit == "json" else 0.5  # which has any number of values for optional ones
    assert found == [{**ROWS[0], "x": first}, {**ROWS[1], "x": None}]
    other = tfrtool.encode_example({"n": "text", "t": 1})
    shard.write_bytes(shard_of([other]))
    assert main(["verify", str(shard), "--schema", str(schema)]) == 3


def test_schemas_of_tensorflow_metadata(tmp_path: Path) -> None:
    """A shape of one value is single, more dimensions are a tensor; types may be missing."""
    (tmp_path / "s.pbtxt").write_text(
        'feature { name: "n" type: FLOAT shape { dim { size: 1 } } }\n'
        'feature { name: "t" value_count { min: 1 max: 1 } }\n'
        'feature { name: "v" type: INT shape { dim { size: 2 } dim { size: 3 } } }\n'
    )
    row = {"n": 1, "t": "a", "v": [1, 2, 3, 4, 5, 6], "more": 1}
    (tmp_path / "a.tfrecord").write_bytes(shard_of([tfrtool.encode_example(row)]))
    tfrtool.convert(tmp_path / "a.tfrecord", tmp_path / "b.parquet", schema=tmp_path / "s.pbtxt")
    table = pq.read_table(tmp_path / "b.parquet")
    assert table.to_pylist() == [{"n": 1.0, "t": "a", "v": [[1, 2, 3], [4, 5, 6]]}]
    assert table.schema.field("n").type == pa.float32()
    (tmp_path / "s.pbtxt").write_text("feature { nome: 1 }")
    with pytest.raises(tfrtool.UsageError, match=r"s\.pbtxt: invalid schema"):
        tfrtool.convert(tmp_path / "a.tfrecord", tmp_path / "c.csv", schema=tmp_path / "s.pbtxt")


def test_domains_of_schemas(tmp_path: Path) -> None:
    """`convert` takes a schema with allowed values, as `inspect schema` prints it."""
    shard, schema = tmp_path / "a.tfrecord", tmp_path / "s.pbtxt"
    shard.write_bytes(shard_of([tfrtool.encode_example({"s": "x"})]))
    schema.write_text('feature { name: "s" type: BYTES string_domain { value: "x" value: "y" } }')
    tfrtool.convert(shard, tmp_path / "b.parquet", schema=schema)
    assert pq.read_table(tmp_path / "b.parquet")["s"].to_pylist() == [["x"]]


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ([10**12, 10**11], "[1000000000000, 100000000000] has more than 67,108,864 values"),
        ([-1, 0], "sizes must be at least 1, got [-1, 0]"),
        ([1] * 5000, "5,000 dimensions (limit 32)"),
    ],
)
def test_shapes_that_no_tensor_has(sizes: list[int], words: str, tmp_path: Path) -> None:
    """A schema with such a shape is refused with the limit, before anything is read."""
    shard, schema = tmp_path / "a.tfrecord", tmp_path / "s.pbtxt"
    shard.write_bytes(shard_of([tfrtool.encode_example({"a": 1})]))
    dimensions = " ".join(f"dim {{ size: {size} }}" for size in sizes)
    schema.write_text(f'feature {{ name: "a" type: INT shape {{ {dimensions} }} }}')
    with pytest.raises(tfrtool.UsageError, match=f"s.pbtxt: feature 'a': .*{re.escape(words)}"):
        tfrtool.convert(shard, tmp_path / "b.parquet", schema=schema)
    assert not (tmp_path / "b.parquet").exists()


@pytest.mark.parametrize("form", ["parquet", "arrow", "jsonl"])
def test_features_with_names_of_our_columns(form: str, tmp_path: Path) -> None:
    """Features called _payload or _shard don't collide with the columns of --exact."""
    row = {"_payload": "a", "_payload_": 2, "_shard": [1, 2]}
    payload = tfrtool.encode_example(row)
    (tmp_path / "a.tfrecord").write_bytes(shard_of([payload]))
    tfrtool.convert(tmp_path / "a.tfrecord", tmp_path / f"b.{form}", exact=True)
    tfrtool.convert(tmp_path / f"b.{form}", tmp_path / "c.tfrecord", verify="bytes")
    assert (tmp_path / "c.tfrecord").read_bytes() == shard_of([payload])


def test_a_payload_column_of_other_software(tmp_path: Path) -> None:
    """A column _payload in a table that tfrtool didn't write is a feature like any other."""
    rows = [{"_payload": "a", "n": 1}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    tfrtool.convert(tmp_path / "a.parquet", tmp_path / "b.tfrecord")
    tfrtool.convert(tmp_path / "b.tfrecord", tmp_path / "c.parquet")
    for name in ("a.parquet", "c.parquet"):
        tfrtool.convert(tmp_path / name, tmp_path / f"{name}.tfrecord")
        content = (tmp_path / f"{name}.tfrecord").read_bytes()
        assert content == shard_of([tfrtool.encode_example(row) for row in rows])


@pytest.mark.parametrize("form", ["parquet", "arrow", "csv", "jsonl"])
def test_class_names_of_labels(form: str, tmp_path: Path) -> None:
    """Tables have the class name of each label, which is not a feature on the way back."""
    rows: list[dict[str, Any]] = [{"label": 1, "n": 1}, {"label": 0, "n": 2}, {"n": 3}]
    shard, target = tmp_path / "a.tfrecord", tmp_path / f"t.{form}"
    shard.write_bytes(shard_of([tfrtool.encode_example(row) for row in rows]))
    (tmp_path / "label.labels.txt").write_text("cat\ndog\n")
    report = tfrtool.convert(shard, target)
    assert report.columns["label_name"] == "string"
    readers: dict[str, Any] = {
        "parquet": pd.read_parquet, "arrow": pd.read_feather, "csv": pd.read_csv
    }  # fmt: skip
    frame = readers.get(form, lambda path: pd.read_json(path, lines=True))(target)
    assert (frame.label_name == "dog").sum() == 1
    assert [*frame.label_name.astype(object).fillna("none")] == ["dog", "cat", "none"]
    assert form not in ("parquet", "arrow") or frame.label_name.dtype == "category"
    tfrtool.convert(target, tmp_path / "b.tfrecord")
    assert (tmp_path / "b.tfrecord").read_bytes() == shard.read_bytes()
    report = tfrtool.convert(target, tmp_path / "label.csv", select=["label"])
    assert [*report.columns] == ["label"]
    select = ["label", "label_name"]
    report = tfrtool.convert(shard, tmp_path / "names.csv", select=select)
    assert [*report.columns] == select


def test_a_feature_called_label_name(tmp_path: Path) -> None:
    """It is kept, and comes back."""
    payload = tfrtool.encode_example({"label": 1, "label_name": "own"})
    (tmp_path / "a.tfrecord").write_bytes(shard_of([payload]))
    (tmp_path / "label.labels.txt").write_text("cat\ndog\n")
    tfrtool.convert(tmp_path / "a.tfrecord", tmp_path / "t.parquet")
    assert pq.read_table(tmp_path / "t.parquet")["label_name"].to_pylist() == ["own"]
    tfrtool.convert(tmp_path / "t.parquet", tmp_path / "b.tfrecord")
    back = (tmp_path / "b.tfrecord").read_bytes()
    assert back == (tmp_path / "a.tfrecord").read_bytes()


CENSUS: list[dict[str, Any]] = [
    {"education": "Bachelors", "age": 39, "gain": 0.5, "workclass": "Private", "label": 1},
    {"education": "HS-grad", "age": 50, "tags": string(b"a", b"b"), "raw": b"\xff\x00", "label": 0},
    {"education": "Bachelors", "age": 28, "tags": string(), "raw": b"\xfe", "label": 1},
]
TYPES = {
    "age": "int64",
    "education": "string",
    "gain": "float",
    "label": "int64",
    "raw": "binary",
    "tags": "list<string>",
    "workclass": "string",
}


@pytest.fixture(scope="module")
def census(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with records, their class names, and all tables made of them."""
    folder = tmp_path_factory.mktemp("census")
    (folder / "a.tfrecord").write_bytes(shard_of([tfrtool.encode_example(row) for row in CENSUS]))
    (folder / "label.labels.txt").write_text("poor\nrich\n")
    for name in ("t.parquet", "t.arrow", "t.csv", "u.jsonl"):
        report = tfrtool.convert(folder / "a.tfrecord", folder / name)
        found = {name: re.sub("<.*: ", "<", kind) for name, kind in report.columns.items()}
        assert found == {**TYPES, "label_name": "string"}, name
    tfrtool.convert(folder / "a.tfrecord", folder / "hf", to="hf")
    return folder


@pytest.mark.parametrize("name", ["t.parquet", "t.arrow", "t.csv", "u.jsonl"])
def test_first_queries(name: str, census: Path) -> None:
    """What a person writes first in pandas, polars and DuckDB finds the rows."""
    path = str(census / name)
    form = name.partition(".")[2].replace("arrow", "feather").replace("jsonl", "json")
    frame = getattr(pd, f"read_{form}")(path, **({"lines": True} if form == "json" else {}))
    assert (frame.education == "Bachelors").sum() == 2
    assert (frame.label_name == "rich").sum() == 2
    assert frame.gain.mean() == 0.5
    assert (frame.workclass == "Private").sum() == 1
    assert frame.age.dtype == "int64"
    pl: Any = pytest.importorskip("polars")
    read = {"feather": pl.read_ipc, "json": pl.read_ndjson}.get(form) or getattr(pl, f"read_{form}")
    assert read(path).filter(pl.col("education") == "Bachelors").height == 2
    if form != "feather":
        query = f"SELECT count(*) FROM '{path}' WHERE workclass = 'Private' AND label_name = 'rich'"
        assert duckdb.sql(query).fetchall() == [(1,)]


def test_the_same_types_everywhere(census: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`read_table`, `query`, `--where` and Hugging Face have the types of the tables."""
    shard, query = str(census / "a.tfrecord"), "SELECT * FROM records"
    batch = next(iter(tfrtool.read_table(shard)))
    own = {one.name: re.sub("<.*: ", "<", str(one.type)) for one in batch.schema}
    assert own.items() >= TYPES.items()
    assert main(["query", shard, f"DESCRIBE {query}", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    names = {
        "BIGINT": "int64",
        "VARCHAR": "string",
        "FLOAT": "float",
        "BLOB": "binary",
        "VARCHAR[]": "list<string>",
    }
    found = {row["column_name"]: names[row["column_type"]] for row in rows[: len(TYPES)]}
    assert found == TYPES
    condition = "workclass = 'Private' AND label_name = 'rich'"
    query = f"SELECT count(*) AS n FROM records WHERE {condition}"
    assert main(["query", shard, query, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"n": 1}
    assert main(["cat", shard, "--where", condition]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


@pytest.mark.slow
def test_first_queries_of_hugging_face(census: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`datasets` filters text, and has the class names."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    found = datasets.load_dataset(str(census / "hf"), cache_dir=str(census / "cache"))["train"]
    assert len(found.filter(lambda row: row["education"] == "Bachelors")) == 2
    kinds = {name: str(getattr(one, "dtype", one)) for name, one in found.features.items()}
    kinds["tags"] = kinds["tags"].replace("List(Value('string'))", "list<string>")
    assert kinds == {**TYPES, "gain": "float32"}
    assert found.features["label"].names == ["poor", "rich"]


def test_numbers_of_two_tables_are_not_rounded(tmp_path: Path) -> None:
    """Of int64 in a table of tfrtool and float32 in another, the user has to choose one."""
    for name, value in (("a", 2**24 + 1), ("b", 1.5)):
        payload = tfrtool.encode_example({"x": value})
        (tmp_path / f"{name}.tfrecord").write_bytes(shard_of([payload]))
        tfrtool.convert(tmp_path / f"{name}.tfrecord", tmp_path / f"{name}.jsonl", workers=1)
    tables = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    with pytest.raises(tfrtool.SchemaError, match=r"'x': int64 in .*a\.jsonl and float32 in "):
        tfrtool.convert(tables, tmp_path / "c.parquet", workers=1)
