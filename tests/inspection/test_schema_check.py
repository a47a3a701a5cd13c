"""``verify --schema``: how records differ from a schema, as TFDV sees it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tfrtool
from tests.conftest import MakeShard
from tests.examples.strategies import entry, float32, int64, raw_example, string
from tests.inspection.anomaly_cases import CASES, Record
from tests.inspection.test_split_shards import parts_of
from tests.records.strategies import shard_of
from tfrtool.cli import main
from tfrtool.errors import SchemaError, UsageError
from tfrtool.examples.example import encode_example

TFDV: dict[str, Any] = json.loads(Path(__file__).with_name("anomalies.json").read_text())
FIXTURES = Path(__file__).parents[2] / "fixtures"
MAKE: dict[type, Callable[..., Any]] = {int: int64, float: float32, bytes: string}
Infer = Callable[..., Path]


def payload(record: Record) -> bytes:
    """Return a record as an Example; a feature without values is an int64."""
    return encode_example(
        {name: MAKE[type(values[0]) if values else int](*values) for name, values in record.items()}
    )


@pytest.fixture
def infer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Infer:
    """Return what writes the schema of shards to a file."""

    def schema_of(*shards: Path, form: str = "schema") -> Path:
        assert main(["inspect", "schema", *map(str, shards), "--emit", form]) == 0
        path = tmp_path / f"schema.{form}"
        path.write_text(capsys.readouterr().out)
        return path

    return schema_of


@pytest.mark.parametrize("name", CASES)
def test_anomalies_are_those_of_tfdv(name: str, tmp_path: Path) -> None:
    """The same features have anomalies of the same names, recorded with TFDV's own code."""
    schema, records = CASES[name]
    shard, file = tmp_path / "a.tfrecord", tmp_path / "schema.pbtxt"
    shard.write_bytes(shard_of([*map(payload, records)]))
    file.write_text(schema)
    found: dict[str, list[str]] = {}
    for one in tfrtool.verify(shard, schema=file).anomalies or ():
        found.setdefault(one.feature, []).append(one.anomaly)
    expected = {
        feature: [kind for kind in kinds if kind != "INT_TYPE_NOT_INT_STRING"]  # says it again
        for feature, kinds in TFDV[name].items()
    }
    assert found == expected


def test_records_and_values_are_named(
    tmp_path: Path, make_shard: MakeShard, capsys: pytest.CaptureFixture[str]
) -> None:
    """An anomaly has all of its records, of all shards, and counts as a fault."""
    rows: list[Record] = [{"color": [b"red"]}] * 3 + [{"color": [b"green"]}, {}]
    for name in "ab":
        make_shard(map(payload, rows), f"d/{name}.tfrecord")
    file = tmp_path / "schema.pbtxt"
    file.write_text(
        'feature { name: "color" type: BYTES presence { min_fraction: 0.9 } '
        'string_domain { value: "red" } } '
        'feature { name: "a" skew_comparator { infinity_norm { threshold: 0.1 } } }'
    )
    words = ["verify", str(tmp_path / "d"), "--schema", str(file), "--workers", "1"]
    assert main(words) == 3
    out = capsys.readouterr().out
    assert "expected 'red', found 'green'; a.tfrecord:3" in " ".join(out.split())
    assert "skew_comparator of 'a'" in out
    assert main([*words, "--json"]) == 3
    data = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (data["fault_count"], data["sound"]) == (2, False)
    new, absent = data["anomalies"]
    assert new["anomaly"] == "ENUM_TYPE_UNEXPECTED_STRING_VALUES"
    places = [(Path(one["path"]).name, one["record"]) for one in new["records"]]
    assert (new["feature"], new["count"], places) == (
        "color", 2, [("a.tfrecord", 3), ("b.tfrecord", 3)]
    )  # fmt: skip
    assert absent["anomaly"] == "FEATURE_TYPE_LOW_FRACTION_PRESENT"
    assert [one["record"] for one in absent["records"]] == [4, 4]


def test_a_schema_that_asks_for_more_than_all_records(
    tmp_path: Path, make_shard: MakeShard, capsys: pytest.CaptureFixture[str]
) -> None:
    """A feature that all records have is still too rare, and no record is named for it."""
    shard = make_shard([payload({"n": [1], "m": [1]})] * 2, "a.tfrecord")
    file = tmp_path / "schema.pbtxt"
    file.write_text(
        'feature { name: "n" type: INT presence { min_fraction: 1.5 } } '
        'feature { name: "m" type: INT presence { min_count: 3 } }'
    )
    assert main(["verify", str(shard), "--schema", str(file)]) == 3
    out = capsys.readouterr().out
    assert "present in 2 of 2 records, expected in at least 150%\n" in out
    assert "present in 2 of 2 records, expected in at least 3\n" in out


def test_an_inferred_schema_is_useful(infer: Infer, make_shard: MakeShard) -> None:
    """It has types, counts, presence, few frequent strings, and the range of named classes."""
    rows: list[Record] = [
        {"label": [n % 2], "word": [b"ab"[n % 2 :][:1]], "name": [b"%d" % n], "n": [n % 3]}
        for n in range(20)
    ]
    rows[7]["tags"] = [b"x"] * 3
    shard = make_shard(map(payload, rows), "d/a.tfrecord")
    shard.with_name("label.labels.txt").write_text("cat\ndog\nbird\n")
    found = {one.pop("name"): one for one in json.loads(infer(shard).read_text())["feature"]}
    always = {
        "presence": {"min_fraction": 1.0, "min_count": 1},
        "value_count": {"min": 1, "max": 1},
    }
    assert found == {
        "label": {
            "type": "INT", **always, "int_domain": {"min": 0, "max": 2, "is_categorical": True}
        },
        "n": {"type": "INT", **always},
        "name": {"type": "BYTES", **always},
        "tags": {
            "type": "BYTES",
            "presence": {"min_fraction": 0.0, "min_count": 1},
            "value_count": {"min": 3, "max": 3},
        },
        "word": {"type": "BYTES", **always, "string_domain": {"value": ["a", "b"]}},
    }  # fmt: skip
    wrong = make_shard([payload({**rows[0], "label": [3], "word": [b"c"]})], "e/a.tfrecord")
    report = tfrtool.verify(wrong, schema=infer(shard, form="pbtxt"))
    assert [(one.anomaly, one.feature) for one in report.anomalies or ()] == [
        ("INT_TYPE_BIG_INT", "label"),
        ("SCHEMA_MISSING_COLUMN", "tags"),
        ("ENUM_TYPE_UNEXPECTED_STRING_VALUES", "word"),
    ]


@pytest.mark.parametrize("name", ["kinds", "sequence", "plain"])
@pytest.mark.parametrize("form", ["schema", "pbtxt"])
def test_records_fit_their_own_schema(name: str, form: str, infer: Infer) -> None:
    """Whatever the types, with feature lists, in both notations."""
    shard = FIXTURES / "golden" / f"{name}.tfrecord"
    report = tfrtool.verify(shard, schema=infer(shard, form=form))
    assert report.anomalies == ()
    assert not [note for note in report.notes if "schema" in note]


_values = st.lists(st.integers(0, 3), max_size=3) | st.lists(st.sampled_from([b"a", b"\xff"]))


@given(
    records=st.lists(
        st.dictionaries(st.sampled_from(["a", "b", "é"]), _values | st.just([0.5])), min_size=1
    )
)
def test_any_records_fit_their_own_schema(
    records: list[Record], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Also those whose types, presence and counts differ."""
    from tfrtool.inspection.schema.data_schema import schema_text

    folder = tmp_path_factory.mktemp("own")
    shard, file = folder / "a.tfrecord", folder / "schema.json"
    shard.write_bytes(shard_of([*map(payload, records)]))
    content, _ = tfrtool.infer_schema(shard).requirements()
    for form in ("schema", "pbtxt"):
        file.write_text(schema_text(content, form))
        assert tfrtool.verify(shard, schema=file).anomalies == ()


def test_in_parts(make_shard: MakeShard, tmp_path: Path) -> None:
    """A large shard has the same anomalies with the same record numbers."""
    rows: list[Record] = [{"n": [n % 11]} if n % 7 else {} for n in range(300)]
    shard, file = make_shard(map(payload, rows)), tmp_path / "schema.pbtxt"
    file.write_text(CASES["all fits"][0])
    whole = tfrtool.verify(shard, schema=file)
    assert {one.count for one in whole.anomalies or ()} == {
        sum(not n % 7 for n in range(300)),
        sum(n % 11 == 10 and n % 7 > 0 for n in range(300)),
    }
    with parts_of(700):
        assert tfrtool.verify(shard, schema=file).anomalies == whole.anomalies


def test_new_features_beyond_the_limit_are_counted(
    make_shard: MakeShard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names that are kept are limited; the others are one anomaly with their number."""
    monkeypatch.setattr("tfrtool.inspection.verify.schema_check.MAX_NAMES", 3)
    rows: list[Record] = [{f"new{n}": [1]} for n in range(10)]
    shard, file = make_shard(map(payload, rows)), tmp_path / "schema.pbtxt"
    file.write_text('feature { name: "n" type: INT }')
    for least in (700, 10):
        with parts_of(least):
            found = tfrtool.verify(shard, schema=file).anomalies or ()
        assert [one.feature for one in found if one.feature != "n"] == [
            "...",
            "new0",
            "new1",
            "new2",
        ]
        assert "7 more" in found[0].message


def test_feature_lists(make_shard: MakeShard, infer: Infer) -> None:
    """The number of steps, and of values in each step, is checked."""
    make = [raw_example([entry(b"id", int64(1))], {b"s": [int64(1, 2)] * n}) for n in (2, 2, 3)]
    file = infer(make_shard(make[:2], "a.tfrecord"))
    found = tfrtool.verify(make_shard(make, "b.tfrecord"), schema=file).anomalies or ()
    assert [(one.anomaly, one.records[0].record) for one in found] == [
        ("FEATURE_TYPE_HIGH_NUMBER_VALUES", 2)
    ]
    odd = raw_example([entry(b"id", int64(1))], {b"s": [int64(1, 2), int64(1)]})
    found = tfrtool.verify(make_shard([odd], "c.tfrecord"), schema=file).anomalies or ()
    assert [one.anomaly for one in found] == ["FEATURE_TYPE_LOW_NUMBER_VALUES"]


@pytest.mark.parametrize(
    "text",
    ["feature {", "{", "[1]", '{"feature": [{"type": "INT"}]}', 'feature { name: "a" domain: "b" }',
     'feature { name: "a" } feature { name: "a" }', "\xff", "{" * 5000],
)  # fmt: skip
def test_files_that_are_not_schemas(text: str, make_shard: MakeShard, tmp_path: Path) -> None:
    """They are refused before any record is read, with the file's name."""
    file = tmp_path / "schema.pbtxt"
    file.write_text(text, "latin-1")
    with pytest.raises(SchemaError, match="invalid schema") as caught:
        tfrtool.verify(make_shard([payload({"n": [1]})]), schema=file)
    assert str(file) in str(caught.value)
    with pytest.raises(UsageError):
        tfrtool.verify(make_shard([payload({"n": [1]})]), schema=tmp_path / "none")
