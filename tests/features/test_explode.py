"""A row for each item of a list: read_table(explode=), and --explode of cat, query and convert."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tfrtool
from tests.features.ranking_records import QUERIES, ROWS, elwc, ranking_shard
from tests.features.test_sequence_steps import integers, sequence
from tests.records.strategies import shard_of
from tfrtool.examples.fields import ListOf, Struct, Values
from tfrtool.features.explode import ExplodedTable
from tfrtool.features.feature_columns import FeatureColumns
from tfrtool.features.tfds_tree import tfds_of_tree
from tfrtool.records.framing import LocatedFault

Run = Callable[..., tuple[int, str, str]]

STEP = Struct(
    {
        "id": Values.parse("int64"),
        "action": Values.parse("float32[2]"),
        "view": Struct({"on": Values.parse("bool"), "tags": ListOf(item=Values.parse("text"))}),
    }
)
EPISODE = Struct(
    {
        "id": Values.parse("text"),
        "info": Struct({"parts": ListOf(item=Values.parse("int64")), "fps": Values.parse("int64")}),
        "steps": ListOf(item=STEP, is_dataset=True),
    }
)


def step(number: int) -> dict[str, Any]:
    """Return a step."""
    tags = ["t"] * number
    return {"id": number, "action": [number, 0.5], "view": {"on": number > 0, "tags": tags}}


def episode(name: str, steps: int) -> dict[str, Any]:
    """Return a record."""
    info = {"parts": [7, 8], "fps": 30}
    return {"id": name, "info": info, "steps": [step(number) for number in range(steps)]}


def write_set(folder: Path, *shards: Sequence[dict[str, Any]]) -> Path:
    """Write episodes and their features.json."""
    folder.mkdir()
    columns = FeatureColumns.of(EPISODE)
    (folder / "features.json").write_text(json.dumps(tfds_of_tree(EPISODE)))
    for number, episodes in enumerate(shards):
        batch = pa.RecordBatch.from_pylist([*episodes], schema=columns.to_arrow())
        payloads = [*columns.encode(batch)]
        (folder / f"a-train.tfrecord-0000{number}-of-0000{len(shards)}").write_bytes(
            shard_of(payloads)
        )
    return folder


@pytest.fixture
def robot(tmp_path: Path) -> Path:
    """Return a set of two shards, with an episode without steps."""
    return write_set(tmp_path / "set", [episode("a", 2), episode("b", 0)], [episode("c", 1)])


def expected_rows() -> list[dict[str, Any]]:
    """Return the rows of this set; the id of a step has another name than that of the episode."""
    places = [("a", 0, 0), ("a", 0, 1), ("c", 2, 0)]
    rows = []
    for name, record, item in places:
        fields = step(item)
        fields["steps_id"] = fields.pop("id")
        info = episode(name, 0)["info"]
        rows.append({"id": name, "info": info, **fields, "_record": record, "_item": item})
    return rows


def test_each_item_is_a_row(robot: Path) -> None:
    """What the record has once is repeated, other lists stay lists, and types are declared ones."""
    rows = tfrtool.read_table(robot, explode="steps")
    names = ["id", "info", "steps_id", "action", "view", "_record", "_item"]
    assert rows.schema.names == names
    assert rows.schema.field("action").type == pa.list_(pa.float32(), 2)
    table = rows.to_arrow()
    assert table.to_pylist() == [{name: row[name] for name in names} for row in expected_rows()]


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        (["steps/action", "id"], ["action", "id"]),
        (["steps/view/on"], ["view"]),
        (["steps/id"], ["id"]),
        ("info", ["info"]),
        (["info/fps", "steps"], ["info", "id", "action", "view"]),
    ],
)
def test_paths_select_within_items(robot: Path, columns: Any, names: list[str]) -> None:
    """The columns come in the order of the selection; only rows depend on the list."""
    rows = tfrtool.read_table(robot, explode="steps", columns=columns).to_arrow()
    assert rows.column_names == [*names, "_record", "_item"]
    expected = [
        {**row, "id": row["steps_id"]} if "id" not in columns else row for row in expected_rows()
    ]
    for name in {*names} - {"view", "info"}:
        assert rows.column(name).to_pylist() == [row[name] for row in expected]
    if columns == ["steps/view/on"]:
        assert rows.column("view").to_pylist() == [{"on": False}, {"on": True}, {"on": False}]


def test_a_list_in_a_struct(robot: Path) -> None:
    """The rest of the struct stays."""
    rows = tfrtool.read_table(robot, explode="info/parts", columns=["info"]).to_arrow()
    assert rows.select(["info", "parts", "_item"]).to_pylist()[:2] == [
        {"info": {"fps": 30}, "parts": part, "_item": item} for item, part in enumerate([7, 8])
    ]


def write_flat(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """Write Examples."""
    path.write_bytes(shard_of([tfrtool.encode_example(row) for row in rows]))
    return path


def test_lists_side_by_side(tmp_path: Path) -> None:
    """A record with other lengths is a fault with both; a list that is missing has nulls."""
    features: list[dict[str, Any]] = [
        {"n": 0, "x": [1, 2], "y": ["a", "b"]},
        {"n": 1, "x": [1, 2, 3], "y": ["a"]},
        {"n": 2, "y": ["c", "d"]},
        {"n": 3},
    ]
    path = write_flat(tmp_path / "a.tfrecord", features)
    faults: list[LocatedFault] = []
    rows = tfrtool.read_table(path, explode=["x", "y"], on_fault=faults.append).to_arrow()
    assert rows.to_pydict() == {
        "n": [0, 0, 2, 2],
        "x": [1, 2, None, None],
        "y": ["a", "b", "c", "d"],
        "_record": [0, 0, 2, 2],
        "_item": [0, 1, 0, 1],
    }
    (found,) = faults
    assert (found.fault.record, "'x' has 3 items and 'y' has 1" in str(found)) == (1, True)
    numbers = tfrtool.read_table(path, explode="x", columns="n").to_arrow()
    assert numbers.column("n").to_pylist() == [0, 0, 1, 1, 1]
    one_list = tfrtool.read_table(path, explode="x").to_arrow()
    assert one_list.column("y").to_pylist() == [["a", "b"]] * 2 + [["a"]] * 3


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("n", "'n' is not a list; lists are 'x'"),
        ("xs", "no list 'xs'; did you mean 'x'"),
        ("steps/id", "'steps/id' is in the list 'steps'; use 'steps' itself"),
    ],
)
def test_what_is_not_a_list(field: str, message: str, run: Run, tmp_path: Path) -> None:
    """The error says which lists there are."""
    path = write_flat(tmp_path / "a.tfrecord", [{"n": 1, "x": [1, 2]}])
    source = write_set(tmp_path / "set", [episode("a", 1)]) if "/" in field else path
    with pytest.raises(tfrtool.UsageError) as caught:
        tfrtool.read_table(source, explode=field)
    assert message in str(caught.value)
    code, _, err = run("cat", source, "--explode", field)
    assert (code, message in err) == (2, True)


def test_batches_are_bounded(tmp_path: Path) -> None:
    """A record of 16 MiB with 9 items makes several batches of at most 64 MiB."""
    path = write_flat(tmp_path / "a.tfrecord", [{"data": bytes(16 << 20), "x": [*range(9)]}])
    batches = [*tfrtool.read_table(path, explode="x")]
    assert [batch.num_rows for batch in batches] == [3, 3, 3]
    assert [n for batch in batches for n in batch.column("x").to_pylist()] == [*range(9)]


def test_steps_of_sequences(tmp_path: Path) -> None:
    """Feature lists have short names, and the context is repeated."""
    both = sequence(integers(1), integers(2)) + sequence(integers(3, 4), integers(5), name=b"g")
    path = ranking_shard(tmp_path / "a.tfrecord", [both])
    rows = tfrtool.read_table(path, explode=["f", "feature_lists.g"]).to_arrow()
    assert rows.to_pydict() == {
        "f": [1, 2], "g": [[3, 4], [5]], "_record": [0, 0], "_item": [0, 1],
    }  # fmt: skip
    rows = tfrtool.read_table(path, explode="f").to_arrow()
    assert rows.column("feature_lists").to_pylist() == [{"g": [[3, 4], [5]]}] * 2


def test_sql_over_items(robot: Path, run: Run) -> None:
    """The table is one of items; notes say what was renamed, and what has no rows."""
    sql = "SELECT _record, id, sum(steps_id) AS n, max(_item) AS last FROM records GROUP BY ALL"
    code, out, err = run("query", robot, f"{sql} ORDER BY 1, 2", "--explode", "steps", "--json")
    assert code == 0
    assert [json.loads(line) for line in out.splitlines()] == [
        {"_record": 0, "id": "a", "n": 1, "last": 1},
        {"_record": 0, "id": "c", "n": 0, "last": 0},
    ]
    assert "field 'steps/id' becomes column 'steps_id'" in err
    assert "1 record without items in 'steps'" in err
    count = "SELECT count(*) AS n, max(_split) AS split FROM records"
    _, out, _ = run("query", robot, count, "--explode", "steps", "--json")
    assert json.loads(out) == {"n": 3, "split": "train"}


def test_cat_prints_items(run: Run, tmp_path: Path) -> None:
    """As JSON, CSV, text and Arrow; --limit and --records are of records."""
    path = ranking_shard(tmp_path / "a.tfrecord", [elwc(*one) for one in QUERIES])
    words = ("cat", path, "--explode", "examples", "--records", "1,2")
    code, out, err = run(*words)
    rows = [json.loads(line) for line in out.splitlines()]
    assert [(code, row["record"], row["item"]) for row in rows] == [(0, 2, 0), (0, 2, 1)]
    features = {"context": {"query": "q2"}, "grade": 2, "title": ["c"]}
    assert rows[0]["features"] == features
    assert "1 record without items in 'examples'" in err
    _, out, _ = run(*words, "--select", "context/query,examples/score", "--format", "csv")
    lines = [*csv.reader(io.StringIO(out))]
    assert [line[1:] for line in lines] == [
        ["record", "item", "context", "score"],
        ["2", "0", '{"query": "q2"}', ""],
        ["2", "1", '{"query": "q2"}', "1.5"],
    ]
    _, out, _ = run(*words, "--format", "text", "--select", "examples/grade")
    assert [line.strip() for line in out.splitlines()] == [
        f"{path}:2, item 0", "grade  2", f"{path}:2, item 1", "grade  1",
    ]  # fmt: skip


def rows_of_table(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file; in CSV, numbers and structs are texts."""
    if path.suffix == ".parquet":
        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
        return rows
    text = path.read_text()
    if path.suffix == ".csv":
        return [*csv.DictReader(io.StringIO(text))]
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize(("to", "shards"), [("parquet", 1), ("jsonl", 2), ("csv", 2)])
def test_tables_of_items(robot: Path, to: Any, shards: int, run: Run, tmp_path: Path) -> None:
    """Records are numbered within their split, also in several files; there is no way back."""
    target = tmp_path / "there"
    report = tfrtool.convert(robot, target, to=to, explode="steps", shards=shards, workers=1)
    assert (report.job.records_in, report.job.records_out) == (3, 3)
    rows = [row for path in sorted(target.glob(f"*.{to}")) for row in rows_of_table(path)]
    shown = [[row[name] for name in ("id", "_record", "_item", "steps_id")] for row in rows]
    expected = [["a", 0, 0, 0], ["a", 0, 1, 1], ["c", 2, 0, 0]]
    assert shown == ([[*map(str, row)] for row in expected] if to == "csv" else expected)
    assert report.job.warnings == ("1 record without items in 'steps', and thus without rows",)
    code, _, err = run("convert", target, tmp_path / "back", "--to", "tfrecord")
    assert (code, "a row for each item of steps; records can't be made of it" in err) == (1, True)


def test_what_explode_does_not_go_with(robot: Path, run: Run, tmp_path: Path) -> None:
    """Records can't be written, and neither can payloads be kept."""
    words = ("convert", robot, tmp_path / "there", "--explode", "steps", "--to")
    code, _, err = run(*words, "arrayrecord")
    assert (code, "use a table format" in err) == (2, True)
    code, _, err = run("cat", "-", "--explode", "steps")
    assert (code, "needs two passes" in err) == (2, True)
    code, _, err = run(*words, "parquet", "--exact")
    assert (code, "--explode and --exact can't be used together" in err) == (2, True)


def test_features_of_several_types(run: Run, tmp_path: Path) -> None:
    """SQL has them as structs of lists, and other tables can't, unless they are not selected."""
    path = write_flat(tmp_path / "a.tfrecord", [{"x": [1, 2], "m": 1}, {"x": [3, 4], "m": "a"}])
    sql = "SELECT x, m.int64_list AS m FROM records LIMIT 1"
    _, out, _ = run("query", path, sql, "--explode", "x", "--json")
    assert json.loads(out) == {"x": 1, "m": [1]}
    with pytest.raises(tfrtool.SchemaError, match="feature 'm' has several types") as caught:
        tfrtool.convert(path, tmp_path / "a.jsonl", explode="x")
    assert caught.value.hint == "use --select to leave it out"
    tfrtool.convert(path, tmp_path / "a.jsonl", explode="x", select=["x"])
    lines = (tmp_path / "a.jsonl").read_text().splitlines()
    assert [json.loads(line)["x"] for line in lines] == [1, 2, 3, 4]


def test_documents_in_pandas(tmp_path: Path) -> None:
    """All documents of ranking queries are rows, with the query repeated."""
    path = ranking_shard(tmp_path / "a.tfrecord", [elwc(*one) for one in QUERIES])
    rows = tfrtool.read_table(path, explode="examples").to_arrow().to_pylist()
    assert [{**row.pop("context"), **row} for row in rows] == [
        {**row, "_record": record, "_item": item}
        for row, (record, item) in zip(ROWS, [(0, 0), (2, 0), (2, 1)], strict=True)
    ]


ITEMS = st.lists(st.fixed_dictionaries({"a": st.integers(0, 9), "b": st.lists(st.text("xy"))}))
RECORDS = st.lists(
    st.fixed_dictionaries(
        {"n": st.integers(0, 9) | st.none(), "steps": ITEMS | st.none(), "others": ITEMS}
    )
)


@settings(max_examples=settings().max_examples // 4)
@given(records=RECORDS, start=st.integers(0, 3))
def test_any_lists(records: list[dict[str, Any]], start: int) -> None:
    """The rows are those of a loop, also of a part of a batch."""
    item = pa.list_(pa.struct({"a": pa.int64(), "b": pa.list_(pa.string())}))
    schema = pa.schema({"n": pa.int64(), "steps": item, "others": item})
    table = ExplodedTable.of(schema, ["steps"])
    found = table.explode(pa.RecordBatch.from_pylist(records, schema=schema).slice(start))
    rows = [row for batch in found.batches for row in batch.to_pylist()]
    assert rows == [
        {"n": record["n"], "others": record["others"], **fields, "_item": number}
        for record in records[start:]
        for number, fields in enumerate(record["steps"] or ())
    ]
    assert found.empty == sum(not record["steps"] for record in records[start:])
