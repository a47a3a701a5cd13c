"""Times, decimals and tensors of tables, in records that were converted from them."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tfrtool
from tests.convert.formats.test_table_types import TYPED
from tfrtool.cli import main

NAMES = sorted(TYPED)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Parquet file with all these types."""
    path = tmp_path_factory.mktemp("typed") / "a.parquet"
    pq.write_table(pa.table({**TYPED, "n": [1, 2, 3]}), path)
    return path


@pytest.fixture(scope="module")
def records(table: Path) -> Path:
    """Return the dataset that was made of it."""
    tfrtool.convert(table, table.parent / "records")
    return table.parent / "records"


def _older(key: str, form: str, dtype: str, **more: object) -> dict[str, object]:
    return {"key": key, "form": form, "dtype": dtype, "list": False, **more}


OLDER = [
    _older("when", "optional", "int64", logical="timestamp"),
    _older("zone", "optional", "int64", logical="timestamp(Europe/Berlin)"),
    _older("day", "optional", "int64", logical="date"),
    _older("price", "optional", "string", text=True, logical="decimal(8,2)"),
    _older("long", "optional", "string", text=True, logical="decimal(60,2)"),
    _older("times", "list", "int64", logical="timestamp", shape=[-1]),
    _older("vector", "list", "float32", shape=[2]),
    _older("boxes", "list", "float32", shape=[-1, 2]),
    _older("tags", "list", "string", text=True, shape=[-1]),
    _older("ones", "list", "int64", shape=[-1]),
    _older("tensor", "list", "int64", shape=[2, 3]),
    _older("n", "scalar", "int64"),
]
"""The columns of these records in a schema.json of an earlier version."""


@pytest.fixture
def older(records: Path, tmp_path: Path) -> Path:
    """Return a copy of the dataset with a schema.json of an earlier version."""
    shutil.copytree(records, tmp_path / "older")
    columns = {"kind": "example", "columns": OLDER}
    data = {"columns": columns, "exact": False, "class_names": {}, "tfds": None}
    (tmp_path / "older" / "schema.json").write_text(json.dumps(data))
    return tmp_path / "older"


def test_schemas_of_earlier_versions(records: Path, older: Path, tmp_path: Path) -> None:
    """They give the same types, also where there is no features.json, and to later jobs."""
    assert _types(older) == _types(records)
    tfrtool.reshard(older, tmp_path / "again")
    assert _types(tmp_path / "again") == _types(records)
    (older / "features.json").unlink()
    assert _types(older) == _types(records)


@pytest.fixture
def damaged(records: Path, tmp_path: Path) -> Path:
    """Return a copy of the dataset, whose schema may be changed."""
    shutil.copytree(records, tmp_path / "damaged")
    return tmp_path / "damaged"


def _types(records: Path) -> dict[str, pa.DataType]:
    return {one.name: one.type for one in tfrtool.read_table(records).schema}


def _output(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main([*map(str, words)]) == 0
    return capsys.readouterr().out


def test_tables_of_records(table: Path, records: Path, tmp_path: Path) -> None:
    """`read_table` has the types and values of the table, also of a single file."""
    expected = pq.read_table(table).replace_schema_metadata().select([*NAMES, "n"])
    tfrtool.convert(table, tmp_path / "one.tfrecord")
    for place in (records, tmp_path / "one.tfrecord"):
        found = tfrtool.read_table(place).to_arrow().select(expected.column_names)
        assert found.replace_schema_metadata().equals(expected)


QUERIES = [
    "SELECT date_trunc('month', \"when\") AS m, day + 1 AS d, epoch_us(zone) AS z FROM {}",
    "SELECT sum(price) AS p, max(vector[2]) AS v, sum(tensor[2][3]) AS t FROM {}",
    "SELECT n FROM {} WHERE \"when\" < '1970-01-01' OR day = DATE '2024-01-01'",
    "SELECT boxes[1][2] AS b, len(times) AS l FROM {} ORDER BY n",
]


@pytest.mark.parametrize("sql", QUERIES)
def test_queries(
    sql: str, table: Path, records: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A query has the rows that DuckDB finds in the table."""
    _output(capsys, "query", records, sql.format("records"), "--out", tmp_path / "q.parquet")
    found = duckdb.sql(f"FROM '{tmp_path / 'q.parquet'}'").fetchall()
    assert found == duckdb.sql(sql.format(f"'{table}'")).fetchall()


def test_records_as_text(records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`cat` prints times as `query` does, and tensors as lists of lists; so do conditions."""
    names = ["boxes", "day", "tensor", "when", "zone"]
    select = ", ".join(f'"{name}"' for name in names)
    sql = f"SELECT {select} FROM records WHERE _record <> 1"
    expected = _output(capsys, "query", records, sql, "--format", "csv")
    where = ("--where", "n <> 2 AND (\"when\" IS NOT NULL OR day < '2024-01-01')")
    words = ("cat", records, "--select", ",".join(names), *where)
    found = _output(capsys, *words, "--format", "csv")
    rows = [line.split(",", 2)[2] for line in found.splitlines()]
    assert rows == expected.splitlines()
    assert ",2024-01-01 12:00:00,2024-01-01 12:00:00+00" in rows[1]
    line = json.loads(_output(capsys, *words).splitlines()[1])
    assert line["features"]["when"] == "1969-01-01 00:00:00.000005"


@pytest.mark.parametrize("job", ["reshard", "filter", "append", "edit"])
def test_jobs_keep_types(
    job: str, table: Path, records: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Records that a job writes have the types of its source."""
    out, expected = tmp_path / "out", _types(records)
    if job == "append":
        tfrtool.convert(table, tmp_path / "more.tfrecord")
        tfrtool.append(records, tmp_path / "more.tfrecord", out=out)
    else:
        options = {"filter": ["--where", "n > 1"], "edit": ["--rename", "n=m"]}.get(job, [])
        _output(capsys, job, records, out, *options)
    found = _types(out)
    if job == "edit":
        found["n"] = found.pop("m")
    assert found == expected


def test_edits_of_types(records: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A type goes with its feature; a cast, which is reported, ends it, and so does an addition."""
    words = ["--rename", "when=at", "--cast", "day=string", "--cast", "zone=int64"]
    words += ["--drop", "price", "--drop", "vector", "--add", "price:int64=7"]
    assert main(["edit", str(records), str(tmp_path / "new"), *words]) == 0
    assert "'day' becomes string, so schema.json has no date" in capsys.readouterr().err
    found = _types(tmp_path / "new")
    expected = {"at": pa.timestamp("us"), "day": pa.list_(pa.string()), "price": pa.int64()}
    assert expected.items() <= found.items()
    assert found["zone"] == _types(records)["zone"]  # it was int64 before
    assert "vector" not in found
    _output(capsys, "edit", records, tmp_path / "none", "--select", "n")
    assert not (tmp_path / "none" / "schema.json").exists()


def test_types_that_differ(
    records: Path, damaged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Merging drops types that differ, with a warning; nothing is appended to another meaning."""
    schema = damaged / "schema.json"
    schema.write_text(re.sub(r'"timestamp(\??)"', r'"date\1"', schema.read_text()))
    with pytest.raises(tfrtool.DatasetError, match="its type of 'times' differs"):
        tfrtool.append(records, damaged, out=tmp_path / "out")
    assert main(["reshard", str(records), str(damaged), str(tmp_path / "out")]) == 0
    warning = "the sources have different types for 'when' in schema.json"
    assert warning in capsys.readouterr().err
    found = _types(tmp_path / "out")
    assert found["when"] == pa.list_(pa.int64())  # features.json has a Sequence: one is missing
    assert found["day"] == pa.date32()
    schema.unlink()
    tfrtool.append(records, damaged, out=tmp_path / "more")
    assert _types(tmp_path / "more") == _types(records)
    report = tfrtool.reshard([records, damaged], tmp_path / "merged")
    assert "some sources have no type for 'day' in schema.json, so the result has none" in (
        report.warnings
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"logical": "date"}, "expected date, found another value"),
        ({"logical": "timestamp(Nowhere/Land)"}, None),
        ({"logical": "century"}, "schema.json: invalid metadata"),
        ({"logical": None, "shape": [-1, 2**32, 2**32]}, "invalid shape of a tensor"),
        ({"logical": None, "shape": [-1, 0]}, "invalid shape of a tensor"),
        ({"logical": None, "shape": [1] * 5000}, "a tensor: 5,000 dimensions (limit 32)"),
        ({"logical": None, "shape": [3]}, "its 'times' is 3 values ("),
        ({"dtype": "string", "logical": None, "shape": [-1]}, "expected string values"),
        ({"key": 7}, "schema.json: invalid metadata"),
    ],
)
def test_damaged_schemas(
    change: dict[str, Any],
    words: str | None,
    older: Path,
) -> None:
    """A schema that isn't one is an error; a record that doesn't fit is reported and skipped."""
    schema, found = older / "schema.json", list[str]()
    data = json.loads(schema.read_text())
    (column,) = (one for one in data["columns"]["columns"] if one["key"] == "times")
    column |= change
    schema.write_text(json.dumps(data))
    try:
        tfrtool.read_table(older, on_fault=lambda one: found.append(one.fault.message)).to_arrow()
    except (tfrtool.DatasetError, tfrtool.SchemaError) as error:
        found.append(str(error))
    assert (words is None) == (not found)
    assert all((words or "") in text for text in found)


@pytest.mark.parametrize("text", ["[]", '{"columns": ["a"]}', '{"title": "x"}'])
def test_schemas_of_others(text: str, damaged: Path) -> None:
    """Another tool's schema.json says nothing about the types."""
    (damaged / "schema.json").write_text(text)
    assert _types(damaged)["when"] == pa.list_(pa.int64())  # which features.json says


def test_large_tensors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A tensor that DuckDB would reserve much memory for is a list; nulls take little."""
    kind = pa.list_(pa.int64(), 12_000)
    tensor = pa.FixedSizeListArray.from_arrays(pa.array(range(12_000)), type=kind)
    tensors = pa.concat_arrays([tensor, pa.nulls(400, kind)])
    pq.write_table(pa.table({"t": tensors}), tmp_path / "a.parquet")
    tfrtool.convert(tmp_path / "a.parquet", tmp_path / "records")
    sql = "SELECT count(*) AS n, sum(t[12000]) AS last FROM records"
    found = json.loads(_output(capsys, "query", tmp_path / "records", sql, "--json"))
    assert found == {"n": 401, "last": 11_999}
    batches = [*tfrtool.read_table(tmp_path / "records")]
    assert batches[0].schema.field("t").type == kind
    assert max(one.num_rows for one in batches) < 401
