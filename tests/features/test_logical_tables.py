"""Datasets whose features.json says more than features: tables of them, and the way back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tfrtool
from tests.features.robot import LENGTHS, write_robot
from tests.more import more
from tests.records.strategies import shard_of
from tfrtool.cli import main
from tfrtool.examples.example import parse_message

STEPS = sum(LENGTHS)
TFDS_SETS = [
    *("t_bbox", "t_dataset", "t_nested", "t_ragged", "t_scalars", "t_tensor_dyn", "toy_robot"),
    *map(more, ("h_deep", "h_ds_rich", "h_ragged_zlib", "h_u64", "t_translation_var", "t_video")),
]


@pytest.fixture(scope="module")
def robot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset of episodes."""
    return write_robot(tmp_path_factory.mktemp("robot") / "1.0.0")


def _output(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> str:
    assert main([*map(str, words)]) == code
    captured = capsys.readouterr()
    return captured.out if code in (0, 3) else captured.err


def _features(folder: Path) -> list[dict[bytes, bytes]]:
    """Return the features of each record of a folder."""
    found = []
    for shard in sorted(folder.glob("*.tfrecord*")):
        for record in tfrtool.read_records(shard):
            entries = parse_message(record.payload).context.feature
            found.append({entry.key: entry.value.SerializeToString() for entry in entries})
    return found


def test_a_table_has_the_types_of_features_json(robot: Path) -> None:
    """Steps are structs, tensors have their sizes, and booleans and small numbers their types."""
    table = tfrtool.read_table(robot).to_arrow()
    step = table.schema.field("steps").type.value_type
    assert step.field("action").type == pa.list_(pa.float32(), 2)
    assert step.field("is_last").type == pa.bool_()
    assert step.field("observation").type.field("state").type == pa.list_(pa.float64(), 3)
    assert table.schema.field("split_number").type == pa.uint8()
    rows = table.to_pylist()
    assert [len(row["steps"]) for row in rows] == [*LENGTHS]
    assert rows[2]["steps"][1]["action"] == [2.0, 3.0]
    assert [one["is_last"] for one in rows[2]["steps"]] == [False, False, True]
    flat = tfrtool.read_table(robot, as_stored=True).to_arrow()
    assert flat.schema.field("steps/is_last").type == pa.list_(pa.int64())


def test_paths_are_columns(robot: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A path selects what it leads to, in tables and in SQL; an unknown one has a suggestion."""
    table = tfrtool.read_table(robot, columns=["steps/action", "file"]).to_arrow()
    assert table.schema.field("steps/action").type == pa.list_(pa.list_(pa.float32(), 2))
    sql = 'SELECT sum(list_sum("steps/reward")) AS r, max(steps[1].action[2]) AS a FROM records'
    assert json.loads(_output(capsys, "query", robot, sql, "--json")) == {"r": 4.0, "a": 1.0}
    with pytest.raises(tfrtool.UsageError, match="steps/reward"):
        tfrtool.read_table(robot, columns="steps/rewards")
    words = ("query", robot, 'SELECT "steps/rewards" FROM records')
    assert "did you mean '\"steps/reward\"'?" in _output(capsys, *words, code=2)


def test_a_features_json_of_others_is_one_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """If most records differ from features.json, it is wrong, and one error says how."""
    wrong = write_robot(tmp_path / "wrong", **{"steps/action": [1.0, 2.0, 3.0]})
    for words in (("query", wrong, "SELECT count(*) FROM records"), ("cat", wrong)):
        error = _output(capsys, *words, code=1)
        assert "features.json: its 'steps/action' is a multiple of 2 values" in error
        assert "records 0, 1, 2 have 3, 3, 3" in error
        assert "use --as-stored to show features as the records store them" in error
    sql = 'SELECT sum(len("steps/action")) AS n FROM records'
    assert json.loads(_output(capsys, "query", wrong, sql, "--as-stored", "--json")) == {"n": 9}


def test_cat_prints_structs(robot: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`cat` prints objects, and the features themselves with --as-stored; so do conditions."""
    line = json.loads(_output(capsys, "cat", robot, "--where", "len(steps) = 3"))
    assert line["features"]["steps"][2]["observation"]["state"] == [2.0, 2.0, 2.0]
    assert line["features"]["steps"][2]["is_last"] is True
    words = ("--as-stored", "--where", 'len("steps/action") = 6', "--select", "steps/is_last")
    line = json.loads(_output(capsys, "cat", robot, *words))
    assert line["features"] == {"steps/is_last": [0, 0, 1]}


def test_a_record_that_does_not_fit_is_a_fault(
    robot: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One record that differs is reported with its number, and the others are shown."""
    shard = next(robot.glob("*.tfrecord*"))
    payloads = [record.payload for record in tfrtool.read_records(shard)] * 2
    bad = parse_message(payloads[0])
    for entry in bad.context.feature:
        if entry.key == b"steps/reward":
            entry.value.float_list.value.append(1.0)
    folder = tmp_path / "one"
    folder.mkdir()
    (folder / "features.json").write_bytes((robot / "features.json").read_bytes())
    payloads.insert(4, bad.SerializeToString())
    (folder / "a.tfrecord").write_bytes(shard_of(payloads))
    out = _output(capsys, "query", folder, "SELECT _record FROM records", "--json", code=0)
    assert len(out.splitlines()) == 7  # no column of a step was needed
    assert main(["query", str(folder), "SELECT steps FROM records", "--json"]) == 3
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 6
    assert "a.tfrecord:4: " in captured.err
    assert "'steps/reward'" in captured.err
    assert main(["cat", str(folder)]) == 3
    assert len(capsys.readouterr().out.splitlines()) == 6


@pytest.mark.parametrize("form", ["parquet", "arrow", "hf", "jsonl", "csv"])
def test_the_way_back(robot: Path, tmp_path: Path, form: Any) -> None:
    """Every table is converted back to the same features, with the same features.json."""
    tfrtool.convert(robot, tmp_path / "table", to=form)
    tfrtool.convert(tmp_path / "table", tmp_path / "records")
    assert _features(tmp_path / "records") == _features(robot)
    described = json.loads((tmp_path / "records" / "features.json").read_text())
    assert described == json.loads((robot / "features.json").read_text())
    tfrtool.convert(robot, tmp_path / "flat", to=form, as_stored=True)
    tfrtool.convert(tmp_path / "flat", tmp_path / "again")
    assert _features(tmp_path / "again") == _features(robot)


@pytest.mark.parametrize("name", TFDS_SETS)
def test_sets_of_tfds_come_back(shared_data: Path, tmp_path: Path, name: str) -> None:
    """Sets that TFDS wrote come back through Parquet and JSON with equal features."""
    source = shared_data / "tfds_types" / name / "1.0.0"
    if not source.is_dir():
        pytest.skip("needs ../shared/data/tfds_types, which is not distributed")
    for form in ("parquet", "jsonl"):
        tfrtool.convert(source, tmp_path / form, to=form)
        tfrtool.convert(tmp_path / form, tmp_path / f"{form}-records")
        assert _features(tmp_path / f"{form}-records") == _features(source)


def test_other_libraries_read_the_same(robot: Path, tmp_path: Path) -> None:
    """DuckDB, Polars and PyArrow find the values of `read_table` in the Parquet file."""
    tfrtool.convert(robot, tmp_path / "table", to="parquet")
    (path,) = (tmp_path / "table").glob("*.parquet")
    rows: list[dict[str, Any]] = tfrtool.read_table(robot).to_arrow().to_pylist()
    expected = [[step["observation"]["state"] for step in row["steps"]] for row in rows]
    sql = f"SELECT [s.observation.state FOR s IN steps] FROM '{path}'"
    assert [[[*state] for state in steps] for (steps,) in duckdb.sql(sql).fetchall()] == expected
    frame = pl.read_parquet(path)
    states = [[[*s["observation"]["state"]] for s in steps] for steps in frame["steps"].to_list()]
    assert states == expected
    (wrist,) = {step["observation"]["wrist"] for row in rows for step in row["steps"]}
    table = pq.read_table(path)
    images = {s["observation"]["wrist"]["bytes"] for one in table["steps"].to_pylist() for s in one}
    assert images == {wrist}
    columns = pq.ParquetFile(path).metadata.row_group(0)
    codecs = {columns.column(at).path_in_schema: columns.column(at).compression for at in range(8)}
    assert codecs["steps.list.element.camera.bytes"] == "UNCOMPRESSED"  # JPEGs don't shrink
    assert codecs["steps.list.element.action.list.element"] == "ZSTD"


def test_hugging_face_types_all_images(robot: Path, tmp_path: Path) -> None:
    """`datasets` opens the folder, with images at any depth and tensors of their sizes."""
    datasets = pytest.importorskip("datasets")
    tfrtool.convert(robot, tmp_path / "hf", to="hf")
    found = datasets.load_dataset(str(tmp_path / "hf"), cache_dir=str(tmp_path / "cache"))["train"]
    step = found.features["steps"].feature
    assert isinstance(step["camera"], datasets.Image)
    assert isinstance(step["observation"]["wrist"], datasets.Image)
    assert step["action"].length == 2
    assert found[2]["steps"][1]["observation"]["wrist"].size == (4, 3)
    assert found[2]["steps"][1]["action"] == [2.0, 3.0]


def test_features_that_are_not_described_are_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A feature that features.json doesn't have is not in the table, and a note says so."""
    more_features = write_robot(tmp_path / "more", extra=7)
    assert main(["query", str(more_features), "SELECT count(*) FROM records"]) == 0
    note = "not shown: 1 feature not in features.json: extra"
    assert note in capsys.readouterr().err
    report = tfrtool.convert(more_features, tmp_path / "table", to="parquet")
    assert any("1 feature not in features.json: extra" in text for text in report.notes)
    sql = "SELECT sum(extra) AS n FROM records"
    assert json.loads(_output(capsys, "query", more_features, sql, "--as-stored", "--json")) == {
        "n": 21
    }


def test_what_features_json_can_not_say(
    robot: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without its file, or with a damaged one, types are inferred; another's is not believed."""
    shard = next(robot.glob("*.tfrecord*"))
    plain = tfrtool.read_table(shard.parent, as_stored=True).schema
    folder = tmp_path / "copy"
    folder.mkdir()
    (folder / shard.name).write_bytes(shard.read_bytes())
    assert tfrtool.read_table(folder).schema.equals(plain)
    (folder / "features.json").write_text('{"featuresDict": 7}')
    assert main(["query", str(folder), "SELECT count(*) FROM records"]) == 0
    assert "types are inferred" in capsys.readouterr().err
    other = json.loads((robot / "features.json").read_text())
    other["featuresDict"]["features"] = {"x": {"text": {}}}
    (folder / "features.json").write_text(json.dumps(other))
    assert main(["query", str(folder), "SELECT count(*) FROM records"]) == 0
    assert "features.json describes other records" in capsys.readouterr().err
    two = [robot, folder]
    (folder / "features.json").write_text(
        (robot / "features.json").read_text().replace('"uint8"', '"int8"')
    )
    with pytest.raises(tfrtool.SchemaError, match="describes other features than"):
        tfrtool.read_table(two)


def test_options_of_nested_features(robot: Path, tmp_path: Path) -> None:
    """A cast of a column, or of values in one, changes only these, from records and from tables."""
    cast = {"split_number": "string", "steps/reward": "string"}
    report = tfrtool.convert(robot, tmp_path / "cast", to="parquet", cast=cast)
    assert report.columns["split_number"] == "string"
    (first, *_) = pq.read_table(next((tmp_path / "cast").glob("*.parquet"))).to_pylist()
    assert first["split_number"] == str(tfrtool.read_table(robot).to_arrow()[1][0])
    assert [type(step["reward"]) for step in first["steps"]] == [str] * len(first["steps"])
    assert first["steps"][0]["is_last"] in (True, False)
    with pytest.raises(tfrtool.UsageError, match="no column of values 'steps' to cast"):
        tfrtool.convert(robot, tmp_path / "none", to="parquet", cast={"steps": "string"})
    with pytest.raises(tfrtool.UsageError, match="--as-stored applies to records that become"):
        tfrtool.convert(robot, tmp_path / "more", to="tfrecord", as_stored=True)
    tfrtool.convert(robot, tmp_path / "table", to="parquet")
    tfrtool.convert(tmp_path / "table", tmp_path / "back", cast={"split_number": "int64"})
    assert tfrtool.read_table(tmp_path / "back").schema.field("split_number").type == pa.int64()
    report = tfrtool.convert(
        robot, tmp_path / "chosen", to="parquet", select=["file", "steps/action"]
    )
    assert [*report.columns] == ["file", "steps/action"]
    report = tfrtool.convert(robot, tmp_path / "named", to="parquet", rename={"file": "path"})
    assert [*report.columns] == ["path", "split_number", "steps"]
