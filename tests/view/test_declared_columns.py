"""The viewer and the report of datasets whose features.json says what records mean."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.datasets import flip_bit
from tests.examples.strategies import entry, int64, raw_example, string
from tests.features.random_trees import random_set
from tests.features.ranking_records import QUERIES, elwc, ranking_shard
from tests.features.robot import write_robot
from tests.more import more
from tests.photos import image_bytes
from tests.records.strategies import shard_of
from tests.view.test_pages import Open, open_viewer
from tfrtool.cli import main
from tfrtool.inspection.rows.query import query
from tfrtool.inspection.table.record_query import Question, answer, query_of
from tfrtool.view.findings import Findings

__all__ = ["open_viewer"]


@pytest.fixture(scope="module")
def robot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Findings]:
    """Return what is found in a dataset of episodes."""
    with Findings(write_robot(tmp_path_factory.mktemp("robot") / "1.0.0")) as found:
        found.fill(workers=1)
        yield found
    query_of.cache_clear()


def _found(findings: Findings, **question: Any) -> list[int]:
    return [row.record for row in answer(findings.table, Question(**question), 0, 1000).rows]


def _write(folder: Path, features: dict[str, Any], *records: dict[str, Any]) -> Path:
    """Write records with a features.json."""
    folder.mkdir()
    (folder / "features.json").write_text(json.dumps(_struct(**features)))
    payloads = [tfrtool.encode_example(record) for record in records]
    (folder / "a-train.tfrecord-00000-of-00001").write_bytes(shard_of(payloads))
    return folder


def _tensor(dtype: str, *sizes: int, encoding: str = "none") -> dict[str, Any]:
    shape = {"dimensions": [str(size) for size in sizes]} if sizes else {}
    tensor = {"shape": shape, "dtype": dtype, "encoding": encoding}
    return {"pythonClassName": "Tensor", "tensor": tensor}


def test_columns_are_those_of_query(robot: Findings) -> None:
    """Names, types and values of all columns and paths are the same, at any depth."""
    columns = query_of(robot.table).types
    assert len(columns) == 10
    assert _viewed(robot, columns) == _queried(robot, columns)


def test_nested_columns_are_those_of_query(tmp_path: Path) -> None:
    """So are those of SequenceExamples and of lists of Examples, which no file describes."""
    clip = raw_example([entry(b"id", int64(5))], {b"word": [string(b"a"), string(b"b")]})
    short = raw_example([entry(b"id", int64(6)), entry(b"note", string(b"x"))], {b"word": []})
    queries = [elwc(context, documents) for context, documents in QUERIES]
    for name, payloads in {"clips": [clip, short], "queries": queries}.items():
        (tmp_path / name).mkdir()
        shard = ranking_shard(tmp_path / name / "a.tfrecord", payloads)
        with Findings(shard) as found:
            found.fill(workers=1)
            columns = query_of(found.table).features
            assert [*columns] in (["context", "feature_lists"], ["context", "examples"])
            assert _viewed(found, columns) == _queried(found, columns)
        query_of.cache_clear()


@pytest.mark.parametrize("seeds", [more(range(first, first + 10)) for first in range(0, 30, 10)])
def test_random_columns_are_those_of_query(tf: Any, tmp_path: Path, seeds: range) -> None:  # noqa: ARG001
    """So are those of any features that TFDS writes."""
    compared = 0
    for seed in seeds:
        dataset = random_set(seed, 3)
        if dataset is None:
            continue
        folder = tmp_path / str(seed)
        folder.mkdir()
        (folder / "features.json").write_text(json.dumps(dataset.content))
        (folder / "a-train.tfrecord-00000-of-00001").write_bytes(shard_of(dataset.payloads))
        with Findings(folder) as found:
            found.fill(workers=1)
            columns = query_of(found.table).types
            if found.declared is not None and columns:
                compared += 1
                assert _viewed(found, columns) == _queried(found, columns), seed
    assert compared > len(seeds) // 2


def _viewed(found: Findings, columns: Iterable[str]) -> tuple[list[Any], list[Any]]:
    """Return the types and the values of columns in the viewer."""
    table = query_of(found.table)
    names = ", ".join(table.quoted[one] for one in columns)
    types = [row[:2] for row in table.fetch(f"DESCRIBE SELECT {names} FROM records")]
    rows = table.fetch(f"SELECT {names} FROM records ORDER BY _shard, _record")
    return types, [*map(_comparable, rows)]


def _queried(found: Findings, columns: Iterable[str]) -> tuple[list[Any], list[Any]]:
    """Return the types and the values of columns in ``tfrtool query``."""
    quoted = query_of(found.table).quoted
    sql = f"SELECT {', '.join(quoted[one] for one in columns)} FROM records"
    with query(found.paths, f"DESCRIBE {sql}", on_fault=print) as reader:
        types = [(*row.values(),)[:2] for row in reader.read_all().to_pylist()]
    with query(found.paths, f"{sql} ORDER BY _shard, _record", on_fault=print) as reader:
        return types, [_comparable((*row.values(),)) for row in reader.read_all().to_pylist()]


def _comparable(value: Any) -> Any:
    """Return a value with lists for tuples, null for long bytes, and NaN that is equal to NaN."""
    if isinstance(value, list | tuple):
        return [*map(_comparable, value)]
    if isinstance(value, dict):
        return {name: _comparable(one) for name, one in value.items()}
    if isinstance(value, float):
        return repr(value)
    return None if isinstance(value, bytes) and len(value) > 1024 else value


def _steps(**features: Any) -> dict[str, Any]:
    """Return a list of structs."""
    sequence = {"feature": _struct(**features), "length": "-1"}
    return {"pythonClassName": "Sequence", "sequence": sequence}


def _struct(**features: Any) -> dict[str, Any]:
    return {"pythonClassName": "FeaturesDict", "featuresDict": {"features": features}}


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ({"where": "steps[2].reward > 0"}, [0, 2]),
        ({"where": "len(steps) > 2"}, [2]),
        ({"where": 'list_sum("steps/reward") > 1'}, [2]),
        ({"where": "steps[2].is_last"}, [0]),
        ({"where": '"steps/observation/state"[3][1] = 2'}, [2]),
        ({"sort": "steps", "descending": True}, [0, 2, 1]),  # by the first step that differs
        ({"sort": "steps/reward", "descending": True}, [2, 0, 1]),
        ({"text": "EPISODES/1"}, [1]),
        ({"text": "is_last"}, []),  # a name, not a value
    ],
)
def test_questions_about_steps(robot: Findings, question: dict[str, Any], expected: Any) -> None:
    """Conditions, sorting and search use fields of steps and their paths."""
    assert _found(robot, **question) == expected


def test_pages_show_structs(tmp_path: Path, open_viewer: Open) -> None:
    """The table has a column for each path, the page of a record a row for each step."""
    viewer = open_viewer(write_robot(tmp_path / "robot"))
    page = viewer.get("/", view="table", where="len(steps) = 2")
    assert "1 record" in page.text
    assert "2 items [[0, 1], [2, 3]] [0, 1] [false, true]" in page.text
    assert "steps/observation/state" in page.text
    record = viewer.record(0, 2)
    assert "steps: 3 items # action reward is_last camera observation/wrist" in record.text
    assert "2 [4.0, 5.0] 2.0 true 83 bytes of image/png" in record.text
    assert "steps/is_last" not in record.text


def test_a_record_that_differs_is_a_fault(tmp_path: Path, open_viewer: Open) -> None:
    """It has a row without values, its page says why, and shows what it stores.

    The first 100 rows are there before the others, and a damaged record has a row, too.
    """
    records = [{"n": n, "a": [1.0, 2.0]} for n in range(200)]
    records[150] = {"n": 150, "a": [1.0, 2.0, 3.0]}
    features = {"n": _tensor("int64"), "a": _tensor("float32", 2)}
    folder = _write(tmp_path / "a", features, *records)
    (shard,) = folder.glob("*.tfrecord*")
    flip_bit(shard, shard.stat().st_size // 20 + 20)
    viewer = open_viewer(folder)
    assert [piece.rows for piece in viewer.live.found.table.pieces] == [100, 100]
    assert viewer.get("/", fault="payload-crc").values["seen"] == ["0/10"]
    assert viewer.get("/", fault="schema").values["seen"] == ["0/150"]
    assert viewer.get("/", where="n IS NULL").values["seen"] == ["0/10", "0/150"]
    assert "198 records" in viewer.get("/", where="a[2] = 2").text
    page = viewer.record(0, 150)
    assert "'a': expected" in page.text
    assert "features are shown as stored" in page.text
    assert "[1.0, 2.0, 3.0]" in page.text


def test_as_stored_shows_flat_columns(tmp_path: Path) -> None:
    """Paths are then features of plain lists."""
    with Findings(write_robot(tmp_path / "robot"), as_stored=True) as found:
        found.fill(workers=1)
        assert _found(found, where='"steps/action"[5] = 4 AND "steps/is_last"[3] = 1') == [2]
        assert "steps" not in query_of(found.table).types


def test_a_wrong_features_json_is_not_followed(tmp_path: Path, open_viewer: Open) -> None:
    """If most records differ from it, features are shown as stored, and the page says so."""
    records = [{"a": [1.0, 2.0, float(n)]} for n in range(9)]
    viewer = open_viewer(_write(tmp_path / "a", {"a": _tensor("float32", 2)}, *records))
    page = viewer.get("/", where="a[3] > 6")
    assert "2 records" in page.text
    assert "features: shown as stored, because" in page.text


def test_long_values_in_lists_are_null(tmp_path: Path) -> None:
    """So are long tensors in encoded form: decoded, they may take many times as much room."""
    text = {"pythonClassName": "Text", "text": {}}
    steps = _steps(text=text, z=_tensor("uint8", -1, encoding="zlib"))
    sizes = {"text": (16 * 1024, 16 * 1024 + 1), "z": (1024, 1025)}
    record = {
        "steps/text": ["y" * size for size in sizes["text"]],
        "steps/z": [zlib.compress(bytes(size)) for size in sizes["z"]],
    }
    with Findings(_write(tmp_path / "a", {"steps": steps}, record)) as found:
        found.fill(workers=1)
        for name, (longest, _) in sizes.items():
            where = f"len(steps[1].{name}) = {longest} AND steps[2].{name} IS NULL"
            assert _found(found, where=where) == [0], found.errors


def test_classes_of_objects_are_found_in_structs(tmp_path: Path, open_viewer: Open) -> None:
    """The filter by class works where labels are in a list of structs."""
    objects = _steps(bbox=_tensor("float32", 4), label=_tensor("int64"))
    image = {"pythonClassName": "Image", "image": {"dtype": "uint8"}}
    records = [
        {"image": image_bytes(), "objects/label": labels, "objects/bbox": [0.1, 0.2, 0.3, 0.4] * 2}
        for labels in ([3, 4], [4, 4])
    ]
    folder = _write(tmp_path / "a", {"image": image, "objects": objects}, *records)
    viewer = open_viewer(folder)
    assert viewer.get("/", label="3").values["seen"] == ["0/0"]
    assert viewer.get("/", label="4", where="objects[1].label = 4").values["seen"] == ["0/1"]


def test_structs_that_sql_can_not_name_are_left_out(tmp_path: Path) -> None:
    """Fields that differ in case alone make no column, and the others are shown."""
    struct = _struct(a=_tensor("int64"), A=_tensor("bool"))
    features = {"s": struct, "n": _tensor("uint8")}
    with Findings(_write(tmp_path / "a", features, {"s/a": 1, "s/A": 1, "n": 5})) as found:
        found.fill(workers=1)
        assert _found(found, where="n = 5") == [0]
        assert [*query_of(found.table).types] == ["n"]


def test_the_report_has_the_option(tmp_path: Path) -> None:
    """A report of a dataset with features.json is written either way."""
    folder = write_robot(tmp_path / "robot")
    for words in ((), ("--as-stored",)):
        out = tmp_path / f"{len(words)}.html"
        assert main(["report", str(folder), "--out", str(out), *words]) == 0
        assert "episodes" in out.read_text("utf-8")
