"""Folders such as ``dt=2024-01-01``, whose names are the values of a column."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tfrtool
from tests.conftest import MakeShard
from tests.features.robot import write_robot
from tfrtool.inspection.table.record_query import Question, answer, query_of
from tfrtool.view.findings import Findings

Run = Callable[..., tuple[int, str, str]]


def write_folders(make_shard: MakeShard, *folders: str) -> None:
    """Write a shard with two records into each folder."""
    for number, folder in enumerate(folders):
        rows = [tfrtool.encode_example({"uid": 2 * number + n}) for n in range(2)]
        make_shard(rows, f"{folder}/part-00000.tfrecord")


@pytest.mark.parametrize(
    ("folders", "columns"),
    [
        (["dt=2024-01-01", "dt=2024-01-02"], {"dt": [dt.date(2024, 1, 1), dt.date(2024, 1, 2)]}),
        (["dt=2024-02-30", "dt=2024-01-02"], {"dt": ["2024-02-30", "2024-01-02"]}),
        (["n=7", "n=-12"], {"n": [-12, 7]}),
        (["n=07", "n=12"], {"n": ["07", "12"]}),
        (["n=1", "n=99999999999999999999"], {"n": ["1", "99999999999999999999"]}),
        (["n=__HIVE_DEFAULT_PARTITION__", "n=3"], {"n": [3, None]}),
        (["y=2024/m=b", "y=2025/m=a"], {"y": [2024, 2025], "m": ["b", "a"]}),
        (["a%3Db=x%2F..%2Fy", "a%3Db=%"], {"a=b": ["%", "x/../y"]}),
        (["uid=x", "uid=y"], {"uid_": ["x", "y"]}),
        (["_split=x", "_split=caf\u00e9 %22=%22"], {"_split_": ['caf\u00e9 "="', "x"]}),
    ],
)
def test_values_of_folders(
    folders: list[str], columns: dict[str, list[Any]], make_shard: MakeShard, tmp_path: Path
) -> None:
    """Names and values are unescaped; dates and integers only where no text is another one."""
    write_folders(make_shard, *folders)
    table = tfrtool.read_table(tmp_path).to_arrow()
    assert table.schema.names == ["uid", *columns]
    rows = [*zip(*(table[name].to_pylist() for name in columns), strict=True)]
    assert sorted({*rows}, key=repr) == sorted(zip(*columns.values(), strict=True), key=repr)
    assert len(rows) == 4


def test_columns_of_folders_in_commands(make_shard: MakeShard, tmp_path: Path, run: Run) -> None:
    """SQL, lines and selections have the column; splits are other folders."""
    write_folders(make_shard, "train/dt=2024-01-01", "train/dt=2024-01-02", "test/dt=2024-01-02")
    make_shard([b"x"], "train/_temporary/0/part-00000.tfrecord")
    sql = "SELECT dt, _split, sum(_index) AS n FROM records WHERE dt >= '2024-01-02' GROUP BY ALL"
    code, out, err = run("query", tmp_path, f"{sql} ORDER BY n", "--json")
    rows = [*map(json.loads, out.splitlines())]
    assert rows == [
        {"dt": "2024-01-02", "_split": "test", "n": 0 + 1},
        {"dt": "2024-01-02", "_split": "train", "n": 4 + 5},
    ]
    assert (code, "give the column dt (2 values); records don't contain it" in err) == (0, True)
    out = run("cat", tmp_path, "--select", "dt,_index,uid", "--records", "1")[1]
    features = [json.loads(line)["features"] for line in out.splitlines()]
    assert [[*one.values()] for one in features] == [
        ["2024-01-02", 1, 5],
        ["2024-01-01", 3, 1],
        ["2024-01-02", 5, 3],
    ]
    out = run("cat", tmp_path, "--where", "_index = 3", "--format", "csv")[1]
    assert out.splitlines()[1].endswith("train/dt=2024-01-01/part-00000.tfrecord,1,1,2024-01-01")
    out = run("inspect", "dataset", tmp_path, "--json")[1]
    assert {name: one["records"] for name, one in json.loads(out)["splits"].items()} == {
        "test": 2,
        "train": 4,
    }


def test_folders_of_splits_by_name(make_shard: MakeShard, tmp_path: Path) -> None:
    """A folder ``split=NAME`` is a column and a split."""
    write_folders(make_shard, "split=train", "split=test")
    assert [*tfrtool.inspect_dataset(tmp_path).splits] == ["test", "train"]
    assert tfrtool.read_table(tmp_path).schema.names == ["uid", "split"]


def test_numbers_count_damaged_records(make_shard: MakeShard, tmp_path: Path) -> None:
    """``_index`` of a record doesn't depend on damage before it."""
    shards = [
        make_shard([tfrtool.encode_example({"n": n}) for n in range(3)], f"{name}.tfrecord")
        for name in "ab"
    ]
    data = bytearray(shards[0].read_bytes())
    data[20] ^= 1
    shards[0].write_bytes(data)
    table = tfrtool.read_table(tmp_path, columns=["_index", "n"], on_fault="skip").to_arrow()
    assert table["_index"].to_pylist() == [1, 2, 3, 4, 5]
    assert table["n"].to_pylist() == [1, 2, 0, 1, 2]


def test_empty_part_below_folders(make_shard: MakeShard, tmp_path: Path, run: Run) -> None:
    """A job marks the outermost folder as finished; its empty parts have no records."""
    (tmp_path / "_SUCCESS").touch()
    write_folders(make_shard, "dt=1")
    empty = tmp_path / "dt=2" / "part-00000.tfrecord"
    empty.parent.mkdir()
    empty.touch()
    code, out, err = run("cat", empty)
    assert (code, out, "1 shard without records" in err) == (0, "", True)
    assert tfrtool.read_table(tmp_path).to_arrow().num_rows == 2


@pytest.mark.parametrize(
    ("words", "columns"),
    [
        ([], ["uid", "dt"]),
        (["--select", "dt"], ["dt"]),
        (["--rename", "dt=day"], ["uid", "day"]),
        (["--exact"], ["uid", "_payload"]),
    ],
)
def test_tables_have_the_columns(
    words: list[str], columns: list[str], make_shard: MakeShard, tmp_path: Path, run: Run
) -> None:
    """Each row has the value of its folder; back in records, it is a feature."""
    write_folders(make_shard, *(f"in/dt=2024-01-0{n}" for n in (1, 2, 3)))
    assert run("convert", tmp_path / "in", tmp_path / "out.parquet", *words)[0] == 0
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.schema.names == columns
    if columns[-1] in ("dt", "day"):
        assert table[columns[-1]].to_pylist() == [dt.date(2024, 1, n) for n in (1, 1, 2, 2, 3, 3)]
    if not words:
        target = tmp_path / "back.tfrecord"
        assert run("convert", tmp_path / "out.parquet", target)[0] == 0
        assert tfrtool.read_table(target).schema.field("dt").type == pa.date32()


def test_tables_of_typed_features(tmp_path: Path, run: Run) -> None:
    """So do rows of features that features.json describes, and of their items."""
    for kind in ("a", "__HIVE_DEFAULT_PARTITION__"):
        write_robot(tmp_path / "in" / f"kind={kind}")
    assert run("convert", tmp_path / "in", tmp_path / "a", "--to", "arrow")[0] == 0
    (path,) = (tmp_path / "a").glob("*.arrow")
    table = pa.ipc.open_file(path).read_all()
    assert table["kind"].to_pylist() == [None] * 3 + ["a"] * 3
    assert table.schema.field("steps").type.value_type.field("action").type == pa.list_(
        pa.float32(), 2
    )
    words = ["--explode", "steps", "--select", "kind,steps/reward"]
    assert run("convert", tmp_path / "in", tmp_path / "b.jsonl", *words)[0] == 0
    rows = [json.loads(line) for line in (tmp_path / "b.jsonl").read_text().splitlines()]
    assert [row.get("kind") for row in rows] == [None] * 5 + ["a"] * 5
    assert [row["reward"] for row in rows] == [0.0, 1.0, 0.0, 1.0, 2.0] * 2


def test_the_viewer_has_the_columns(make_shard: MakeShard, tmp_path: Path) -> None:
    """Conditions of the viewer and the report use the values of folders."""
    write_folders(make_shard, "dt=2024-01-01", "dt=2024-01-02")
    with Findings(tmp_path) as found:
        found.fill(workers=1)
        rows = answer(found.table, Question(where="dt > '2024-01-01'"), 0, 10).rows
        query_of.cache_clear()
    assert [(row.shard, row.record) for row in rows] == [(1, 0), (1, 1)]
    assert found.splits == (None, None)


def test_folders_of_different_names(make_shard: MakeShard, tmp_path: Path, run: Run) -> None:
    """They are no columns, and a note says so."""
    write_folders(make_shard, "dt=1", "hr=1")
    code, out, err = run("query", tmp_path, "SELECT * FROM records", "--json")
    assert (code, [*json.loads(out.splitlines()[0])][:1]) == (0, ["uid"])
    assert '"dt"' not in out
    assert "its folders give no columns, because their names differ (dt=1, hr=1)" in err


def test_only_empty_parts(tmp_path: Path, run: Run) -> None:
    """One note counts them, and nothing is wrong."""
    for name in ("_SUCCESS", "part-00000.tfrecord", "part-00001.tfrecord"):
        (tmp_path / name).touch()
    code, out, err = run("count", tmp_path)
    assert (code, out.split()[-2:]) == (0, ["0", "total"])
    assert err.count("2 shards without records: the job that wrote them has finished") == 1
