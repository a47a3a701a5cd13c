"""Tables have the types that people expect, as other readers see them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.photos import image_bytes
from tests.records.strategies import read_strictly, shard_of
from tfrtool.convert.formats.format_specs import FORMATS
from tfrtool.examples.example import DType, Feature, decode_example

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pq = pytest.importorskip("pyarrow.parquet")
duckdb = pytest.importorskip("duckdb")

PEOPLE: list[dict[str, Any]] = [
    {"education": "Bachelors", "workclass": "Private", "age": 39, "tags": ["a", "b"]},
    {"education": "Masters", "hours": 40.5, "age": 50, "tags": []},
    {"education": "Bachelors", "workclass": "été\n", "age": 38},
]
"""Some lack the workclass and the hours; only the tags have several values."""


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a shard of people: text, an image, raw bytes, and features without a kind."""
    path = tmp_path_factory.mktemp("people") / "people.tfrecord"
    odd = {
        "photo": image_bytes(),
        "raw": b"\0\1",
        "unset": Feature(dtype=None, values=()),
        "empty": Feature(dtype=DType.INT64, values=()),
    }
    last = {"empty": 7, "unset": 1.5}
    rows = [odd | PEOPLE[0], odd | PEOPLE[1], odd | PEOPLE[2] | last]
    rows[1]["tags"] = Feature(dtype=DType.STRING, values=())
    path.write_bytes(shard_of([tfrtool.encode_example(row) for row in rows]))
    return path


@pytest.fixture(scope="module")
def parquet(people: Path) -> Path:
    """Return the Parquet file of people."""
    path = people.with_suffix(".parquet")
    tfrtool.convert(people, path)
    return path


def test_parquet_in_pandas_polars_and_duckdb(parquet: Path) -> None:
    """The query that a person writes first gives the right answer."""
    frame = pd.read_parquet(parquet)
    assert (frame.education == "Bachelors").sum() == 2
    assert frame.workclass.isna().tolist() == [False, True, False]
    assert frame.hours.isna().sum() == 2
    polars = pl.read_parquet(parquet)
    assert polars.filter(pl.col("workclass") == "Private").height == 1
    assert polars["unset"].to_list() == [None, None, 1.5]
    assert polars["empty"].to_list() == [None, None, 7]
    assert polars.schema["raw"] == pl.Binary
    sql = f"SELECT avg(age) FROM '{parquet}' WHERE education LIKE 'Bach%'"
    assert duckdb.sql(sql).fetchall() == [(38.5,)]
    types = {one.name: str(one.type) for one in pq.read_schema(parquet)}
    assert types["tags"].startswith("list<")
    assert types["photo"].startswith("struct<")


def test_hugging_face(people: Path, tmp_path: Path) -> None:
    """Text is a string, an image an image."""
    datasets = pytest.importorskip("datasets")
    tfrtool.convert(people, tmp_path / "hf", to="hf")
    found = datasets.load_dataset(
        str(tmp_path / "hf"), split="train", cache_dir=str(tmp_path / "cache")
    )
    assert found.features["education"] == datasets.Value("string")
    assert isinstance(found.features["photo"], datasets.Image)
    assert found[1]["workclass"] is None


@pytest.mark.parametrize("name", [one.name for one in FORMATS.values() if one.holds != "payloads"])
@pytest.mark.parametrize("lists", [False, True])
def test_records_come_back(people: Path, tmp_path: Path, name: str, lists: bool) -> None:
    """A missing feature, one without values and one without a kind stay what they are."""
    tfrtool.convert(people, tmp_path / "there", to=name, lists=lists)  # type: ignore[arg-type]
    tfrtool.convert(tmp_path / "there", tmp_path / "back", to="tfrecord")
    (shard,) = (tmp_path / "back").glob("*.tfrecord*")
    before, after = map(read_strictly, (people.read_bytes(), shard.read_bytes()))
    assert before is not None
    assert after is not None
    assert [*map(decode_example, after)] == [*map(decode_example, before)]


def test_empty_text_is_not_null(tmp_path: Path) -> None:
    """An optional text that is empty stays a value in each format."""
    path = tmp_path / "a.tfrecord"
    rows: list[dict[str, Any]] = [{"n": 1, "a": ""}, {"n": 2}, {"n": 3, "a": "x"}]
    payloads = [tfrtool.encode_example(row) for row in rows]
    path.write_bytes(shard_of(payloads))
    for suffix in ("csv", "jsonl", "parquet", "tar"):
        tfrtool.convert(path, tmp_path / f"{suffix}.{suffix}")
        tfrtool.convert(tmp_path / f"{suffix}.{suffix}", tmp_path / f"{suffix}.tfrecord")
        assert read_strictly((tmp_path / f"{suffix}.tfrecord").read_bytes()) == payloads


def test_text_is_decided_by_all_records(tmp_path: Path) -> None:
    """One value that is not text, in any file, makes the column binary; a C1 control is text."""
    values = {"nul": b"\0", "latin": b"caf\xe9", "c1": b"\xc2\x85"}
    for name, value_of_one in values.items():
        folder = tmp_path / name
        folder.mkdir()
        for number, value in enumerate((b"plain", value_of_one)):
            payloads = [tfrtool.encode_example({"a": b"x", "b": "text"}) for _ in range(3)]
            payloads.append(tfrtool.encode_example({"a": value, "b": "\t\r\n"}))
            (folder / f"p{number}.tfrecord").write_bytes(shard_of(payloads))
        report = tfrtool.convert(folder, tmp_path / f"{name}.parquet")
        expected = "string" if name == "c1" else "binary"
        assert report.columns == {"a": expected, "b": "string"}
        assert [str(one) for one in tfrtool.read_table(folder).schema.types] == [expected, "string"]


def test_lists_on_request(people: Path, tmp_path: Path) -> None:
    """With lists, a feature that some records lack is a list, and text is text all the same."""
    report = tfrtool.convert(people, tmp_path / "a.parquet", lists=True)
    assert report.columns["workclass"].startswith("list<")
    assert report.columns["education"] == "string"
    table = tfrtool.read_table(people, columns=["workclass"], lists=True).to_arrow()
    assert table.column(0).to_pylist() == [["Private"], None, ["été\n"]]


def test_several_ways_to_lack_a_value(tmp_path: Path) -> None:
    """Where a null would stand for two things, tables keep lists, and what only reads does not."""
    path = tmp_path / "a.tfrecord"
    rows: list[dict[str, Any]] = [
        {"a": 1},
        {"a": Feature(dtype=DType.INT64, values=())},
        {"b": "x"},
    ]
    payloads = [tfrtool.encode_example(row) for row in rows]
    path.write_bytes(shard_of(payloads))
    report = tfrtool.convert(path, tmp_path / "a.parquet")
    assert report.columns["a"].startswith("list<")
    tfrtool.convert(tmp_path / "a.parquet", tmp_path / "back.tfrecord")
    assert read_strictly((tmp_path / "back.tfrecord").read_bytes()) == payloads
    assert tfrtool.read_table(path).to_arrow().column("a").to_pylist() == [1, None, None]


def test_nulls_of_pandas(tmp_path: Path) -> None:
    """Nulls of a table become features that are absent, and nulls of another table again."""
    frame = pd.DataFrame({"a": ["x", None, ""], "n": pd.array([1, None, 3], "Int64")})
    frame.to_parquet(tmp_path / "a.parquet")
    tfrtool.convert(tmp_path / "a.parquet", tmp_path / "b.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "b.jsonl").read_text().splitlines()]
    assert rows == [{"a": "x", "n": 1}, {}, {"a": "", "n": 3}]
    tfrtool.convert(tmp_path / "b.jsonl", tmp_path / "c.tfrecord")
    tfrtool.convert(tmp_path / "c.tfrecord", tmp_path / "d.parquet")
    back = pd.read_parquet(tmp_path / "d.parquet")
    assert back.a.tolist()[::2] == ["x", ""]
    assert back.a.isna().tolist() == [False, True, False]


def test_all_columns_that_fail_are_named(tmp_path: Path) -> None:
    """One error names all columns: of unsupported types, and of files that disagree."""
    duckdb.sql(f"COPY (SELECT MAP {{1: 2}} a, [MAP {{1: 2}}] b, 1 c) TO '{tmp_path}/a.parquet'")
    with pytest.raises(tfrtool.SchemaError, match=r"unsupported types of columns 'a', 'b'"):
        tfrtool.convert(tmp_path / "a.parquet", tmp_path / "out")
    tfrtool.convert(tmp_path / "a.parquet", tmp_path / "c.tfrecord", select="c")
    folder = tmp_path / "two"
    folder.mkdir()
    pd.DataFrame({"a": [1], "b": [b"\0"], "c": [1]}).to_parquet(folder / "1.parquet")
    pd.DataFrame({"a": ["x"], "b": [1], "c": [2]}).to_parquet(folder / "2.parquet")
    with pytest.raises(tfrtool.SchemaError, match=r"2 columns .*'a'.*'b'") as error:
        tfrtool.convert(folder, tmp_path / "out")
    assert "--cast a:TYPE --cast b:TYPE" in str(error.value.hint)
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1, "b": [1], "c": 1}\n{"a": {"x": 1}, "b": [null], "c": 2}\n')
    with pytest.raises(tfrtool.SchemaError, match=r"2 .*'a', record 1: .*'b', record 1: "):
        tfrtool.convert(path, tmp_path / "out")


def test_a_schema_fixes_the_types(people: Path, tmp_path: Path) -> None:
    """Its columns, its types and its lists; records that don't fit are damage."""
    path = tmp_path / "schema.json"
    schema = {
        "age": {"dtype": "float32", "shape": []},
        "education": {"dtype": "string", "shape": ["*"]},
    }
    path.write_text(json.dumps(schema))
    rows = tmp_path / "rows.csv"
    rows.write_text("age,education,more\n39,Bachelors,1\n50,,2\n")
    report = tfrtool.convert(rows, tmp_path / "rows.parquet", schema=path)
    assert report.columns == {"age": "float", "education": "list<item: string>"}
    table = pq.read_table(tmp_path / "rows.parquet").to_pydict()
    assert table == {"age": [39.0, 50.0], "education": [["Bachelors"], None]}
    schema["age"]["dtype"] = "int64"
    path.write_text(json.dumps(schema | {"tags": {"dtype": "string", "shape": []}}))
    report = tfrtool.convert(people, tmp_path / "a.parquet", schema=path)
    assert report.columns["tags"] == "string"
    assert [one.fault.record for one in report.job.faults] == [0, 1]
    for wrong in ("{", '{"age": {"dtype": "int8"}}', '{"nothing": {"dtype": "int64"}}'):
        path.write_text(wrong)
        with pytest.raises(tfrtool.UsageError):
            tfrtool.convert(rows, tmp_path / "none.parquet", schema=path)


@pytest.mark.more
def test_conditions(people: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Text is compared with text, and a null is null."""
    from tfrtool.cli import main

    for condition, count in {
        "workclass = 'Private'": 1,
        "workclass IS NULL": 1,
        "education LIKE 'Bach%' AND age < 39": 1,
        "hours > 40": 1,
        "list_contains(tags, 'b')": 1,
    }.items():
        assert main(["cat", str(people), "--where", condition]) == 0
        assert len(capsys.readouterr().out.splitlines()) == count, condition
    assert main(["cat", str(people), "--where", "age = 'old'"]) == 2
    assert "age is INT64, and can't be compared with 'old'" in capsys.readouterr().err
