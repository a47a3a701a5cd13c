"""JSON Lines with objects, lists of objects and ragged lists: records that give them back."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import datasets
import duckdb
import pandas as pd
import pyarrow.parquet as pq
import pytest

import tfrtool
from tests.convert.formats.test_conversion import payloads_in
from tfrtool.cli import main

BOX = {"bbox": [1, 2, 3, 4], "label": "cat", "hard": False, "tags": ["a"]}
ROWS: list[dict[str, Any]] = [
    {
        "id": 1,
        "ok": True,
        "meta": {"name": "ü", "score": 1.5, "deep": {"x": [1, 2], "y": {"base64": "/w=="}}},
        "objects": [BOX, {**BOX, "label": "dog", "hard": True, "tags": []}],
        "ragged": [[1, 2], [3], []],
        "grid": [[0.5, 1], [2, 3]],
    },
    {"id": 2, "ok": False, "meta": {"deep": {"x": []}}, "objects": [], "ragged": [], "grid": []},
    {"id": 3, "ok": True, "ragged": [[]], "objects": [{**BOX, "tags": ["b", "c"]}]},
]
TYPES = """\
id: int64
ok: bool
meta:
  name: text
  score: float32
  deep:
    x: list of int64
    y: bytes
objects: list of structs
  bbox: int64[4]
  label: text
  hard: bool
  tags: list of text
ragged: list of list of int64
grid: list of float32[2]
"""


def write_rows(path: Path, rows: list[Any]) -> Path:
    """Write JSON Lines, and return their path."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read_rows(path: Path) -> list[Any]:
    """Return the objects of JSON Lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("form", ["parquet", "arrow", "csv", "jsonl.gz"])
def test_objects_come_back(form: str, tmp_path: Path) -> None:
    """Records and tables of each format give back equal objects; features.json has the types."""
    source = write_rows(tmp_path / "a.jsonl", ROWS)
    tfrtool.convert(source, tmp_path / "new")
    assert str(tfrtool.Features.read(tmp_path / "new")) == TYPES.strip()
    first: Any = tfrtool.parse_example(payloads_in(tmp_path / "new")[0])
    assert [*first["objects/bbox"]] == [1, 2, 3, 4] * 2
    assert first["meta/deep/y"] == b"\xff"
    tfrtool.convert(tmp_path / "new", tmp_path / f"b.{form}")
    tfrtool.convert(tmp_path / f"b.{form}", tmp_path / "c.jsonl")
    assert read_rows(tmp_path / "c.jsonl") == ROWS
    tfrtool.convert(source, tmp_path / f"d.{form}")
    tfrtool.convert(tmp_path / f"d.{form}", tmp_path / "again")
    assert payloads_in(tmp_path / "again") == payloads_in(tmp_path / "new")


def test_values_are_those_of_other_readers(tmp_path: Path) -> None:
    """After a trip through records, DuckDB, pandas and `datasets` have the same values."""
    rows = [{**row, "meta": ROWS[0]["meta"] | {"deep": {"x": [1]}}} for row in ROWS]
    rows = [{"grid": [[1, 2]], **row} for row in rows]
    source = write_rows(tmp_path / "a.jsonl", rows)
    tfrtool.convert(source, tmp_path / "new")
    tfrtool.convert(tmp_path / "new", tmp_path / "b.parquet")
    tfrtool.convert(tmp_path / "new", tmp_path / "c.jsonl")
    found = pq.read_table(tmp_path / "b.parquet").to_pylist()
    assert found == rows
    names = ", ".join(rows[0])
    readers = (f"read_json('{source}')", f"read_parquet('{tmp_path / 'b.parquet'}')")
    in_duckdb = [duckdb.sql(f"SELECT {names} FROM {one}").fetchall() for one in readers]
    assert in_duckdb[0] == in_duckdb[1]
    pandas = [pd.read_json(tmp_path / name, lines=True) for name in ("a.jsonl", "c.jsonl")]
    assert pandas[0][[*rows[0]]].to_dict("records") == pandas[1][[*rows[0]]].to_dict("records")
    loaded = datasets.load_dataset(
        "json", data_files=str(source), split="train", cache_dir=str(tmp_path / "cache")
    )
    assert loaded.to_list() == found


def random_value(rng: random.Random, kind: Any, level: int = 0) -> Any:
    """Return a value of a kind: a dict is an object, a list has one kind of items."""
    if isinstance(kind, dict):
        keys = [key for key in kind if level or rng.random() < 0.8]
        return {key: random_value(rng, kind[key], level) for key in keys}
    if isinstance(kind, list):
        counts = [kind[1]] if level and kind[1] else [0, 1, 3]
        items = range(rng.choice(counts))
        return [random_value(rng, kind[0], level + 1) for _ in items]
    return rng.choice(kind)


def random_kind(rng: random.Random, depth: int = 0) -> Any:
    """Return a kind of values, for `random_value`."""
    number = rng.random() if depth < 4 else 1
    if number < 0.3:
        return {f"k{n}": random_kind(rng, depth + 1) for n in range(rng.randint(1, 3))}
    if number < 0.6:
        return [random_kind(rng, depth + 1), rng.choice([0, 2])]
    return rng.choice([(0, -5, 2**62), (0.5, 1e10, 2.0), (True, False), ("", "é", "NaN")])


def without_empty(value: Any) -> Any:
    """Return a value without empty lists and objects, as a list that is always empty is lost."""
    if isinstance(value, dict):
        members = {key: without_empty(one) for key, one in value.items()}
        return {key: one for key, one in members.items() if one not in ({}, [])}
    return [*map(without_empty, value)] if isinstance(value, list) else value


@pytest.mark.parametrize("seed", range(12))
def test_random_rows_come_back(seed: int, tmp_path: Path) -> None:
    """Rows of any nesting, in two files, are the same after a trip through records."""
    rng = random.Random(seed)
    kinds = {f"c{number}": random_kind(rng) for number in range(3)}
    rows = [{"n": number, **random_value(rng, kinds)} for number in range(6)]
    write_rows(tmp_path / "a.jsonl", rows[:4])
    write_rows(tmp_path / "b.jsonl", rows[4:])
    tfrtool.convert(str(tmp_path / "?.jsonl"), tmp_path / "new")
    tfrtool.convert(tmp_path / "new", tmp_path / "back.jsonl")
    assert without_empty(read_rows(tmp_path / "back.jsonl")) == without_empty(rows)


def test_files_have_one_type(tmp_path: Path) -> None:
    """Keys and lengths of lists that one file has are those of all; notes name what is lost."""
    write_rows(tmp_path / "a.jsonl", [{"n": 1, "s": {"x": 1, "none": []}, "v": [[1, 2]]}])
    write_rows(tmp_path / "b.jsonl", [{"n": 2, "s": {"x": 0.5, "y": "t"}, "v": [[1, 2, 3]]}])
    write_rows(tmp_path / "c.jsonl", [{"n": 3}])
    report = tfrtool.convert(str(tmp_path / "?.jsonl"), tmp_path / "new.jsonl")
    assert read_rows(tmp_path / "new.jsonl") == [
        {"n": 1, "s": {"x": 1}, "v": [[1, 2]]},
        {"n": 2, "s": {"x": 0.5, "y": "t"}, "v": [[1, 2, 3]]},
        {"n": 3},
    ]
    assert "column 's/none' has no values; skipped" in report.notes
    assert "column 's/x': numbers become float32; no value changes" in report.notes
    write_rows(tmp_path / "c.jsonl", [{"s": 1}])
    with pytest.raises(tfrtool.SchemaError, match=r"'s': structs in .*a\.jsonl and int64 in .*c"):
        tfrtool.convert(str(tmp_path / "?.jsonl"), tmp_path / "new")


def test_paths_of_nested_columns(tmp_path: Path) -> None:
    """Options take paths such as meta/score, and `--flatten` changes nothing."""
    rows: list[Any] = [ROWS[0], {**ROWS[1], "objects": [{**BOX, "mark": 1}]}]
    source = write_rows(tmp_path / "a.jsonl", rows)
    tfrtool.convert(
        source,
        tmp_path / "b.jsonl",
        select=["meta/score", "objects/label", "objects/mark", "id"],
        cast={"meta/score": "string", "id": "float32"},
        rename={"objects/label": "names"},
    )
    assert read_rows(tmp_path / "b.jsonl") == [
        {"meta/score": "1.5", "names": ["cat", "dog"], "id": 1.0},
        {"names": ["cat"], "objects/mark": [1], "id": 2.0},
    ]
    tfrtool.convert(source, tmp_path / "new")
    assert main(["convert", str(source), str(tmp_path / "flat"), "--flatten"]) == 0
    assert payloads_in(tmp_path / "flat") == payloads_in(tmp_path / "new")


REFUSED = {
    '{"a": {"b": 1}, "a/b": 2}': "columns 'a' and 'a/b' are both stored as 'a/b'",
    '{"a": {"b/c": 1, "b": {"c": 2}}}': "two fields are stored as 'a/b/c'",
    '{}\n{"a": [{"b": 1}, {"c": 2}]}': "record 1: column 'a': only some .* the key 'b'",
    '{"a": [[{"b": 1}]]}\n{"a": [[{"c": 1}]]}': "record 1: column 'a': only some .* the key 'c'",
    '{"a": [[{"b": 1}]]}\n{"a": [[{"b": 1, "c": 1}]]}': "record 1: column 'a': only .* key 'c'",
    '{"a": [{"b": {"c": 1}}, {"b": {}}]}': "record 0: column 'a/b': only some .* the key 'c'",
    '{"a": [{}, {}]}': "record 0: column 'a': objects without values in a list",
    '{"a": [{"b": 1}, null]}': "record 0: column 'a': lists can't hold null",
    '{"a": {"b": [[1], null]}}': "record 0: column 'a/b': lists can't hold null",
    '{"a": {"b": 1}}\n{"a": 2}': "record 1: column 'a': mixes objects and single values",
    '{"a": [1]}\n{"a": [{"b": 1}]}': "record 1: column 'a': mixes single values and objects",
    '{"a": [1]}\n{"a": [[1, 2]]}': "record 1: column 'a': mixes single values and lists",
    '{"a": 1}\n{"a": [[1], [2, 3]]}': "record 1: column 'a': mixes single values and lists",
    '{"a": [{"b": 1}, {"b": "x"}]}': "record 0: column 'a/b': mixes int64 and string",
    '{"a": {"b": 18446744073709551615}}': "record 0: column 'a': .* not a valid int64",
    '{"a": {"b": [16777217, 0.5]}}': "record 0: column 'a/b' .* float32.* --cast a/b:string",
    '{"a": {"": 1}}': "invalid name of a field: ''",
    '{"a": {"b": 1}, "_payload": 1}': "invalid column name '_payload'",
    '{"a":' * 100 + "1" + "}" * 100: "record 0: column 'a(/a)+': nested more than 32 levels deep",
    '{"a":' + "[" * 33 + "1" + "]" * 33 + "}": "column 'a': nested more than 32 levels deep",
}


@pytest.mark.parametrize("lines", REFUSED)
def test_what_records_cannot_store(lines: str, tmp_path: Path) -> None:
    """The error names the file and the column, mostly the record, and nothing is written."""
    (tmp_path / "a.jsonl").write_text(lines + "\n")
    with pytest.raises(tfrtool.TfrtoolError, match=rf"a\.jsonl.*{REFUSED[lines]}"):
        tfrtool.convert(tmp_path / "a.jsonl", tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_a_key_that_a_file_lacks(tmp_path: Path) -> None:
    """Of objects in lists of lists it is an error that names the file; others may lack it."""
    paths = [tmp_path / "a.jsonl", tmp_path / "c.jsonl"]
    write_rows(paths[0], [{"a": [[{"b": 1}]]}])
    write_rows(paths[1], [{"a": [[{"b": 1, "c": 2}], []]}])
    with pytest.raises(tfrtool.SchemaError, match=r"a\.jsonl: column 'a': .* lack the key 'c'"):
        tfrtool.convert(paths, tmp_path / "new", workers=1)
    write_rows(paths[0], [{"a": [{"b": 1}]}])
    write_rows(paths[1], [{"a": [{"b": 1, "c": 2}]}])
    assert tfrtool.convert(paths, tmp_path / "new", workers=1).job.records_out == 2


def test_keys_are_limited(tmp_path: Path) -> None:
    """A file whose objects have too many keys together is refused."""
    rows = [{"a": {f"{n}{m}": 1 for m in range(5001)}} for n in "xy"]
    write_rows(tmp_path / "a.jsonl", rows)
    with pytest.raises(tfrtool.SourceError, match=r"too many columns: expected at most 10,000"):
        tfrtool.convert(tmp_path / "a.jsonl", tmp_path / "new")
