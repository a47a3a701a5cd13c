"""Lists of Examples with a context, as TensorFlow Ranking stores them, as two columns."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tfrtool
from tests.examples.wire import field
from tests.features.ranking_records import NO_TEXT, QUERIES, ROWS, eie, elwc, ranking_shard
from tfrtool.records.framing import LocatedFault

Run = Callable[..., tuple[int, str, str]]
DOCUMENT = pa.struct({"grade": pa.int64(), "score": pa.float32(), "title": pa.list_(pa.string())})


@pytest.mark.parametrize("packed", [elwc, eie])
def test_context_and_examples_are_columns(packed: Callable[..., bytes], tmp_path: Path) -> None:
    """Both packings give the same table, with types that fit the Examples of all records."""
    path = ranking_shard(tmp_path / "a.tfrecord", [packed(*one) for one in QUERIES])
    rows = tfrtool.read_table(path)
    assert rows.schema.field("context").type == pa.struct({"query": pa.string()})
    assert rows.schema.field("examples").type == pa.list_(DOCUMENT)
    found = [(one["context"], one["examples"]) for one in rows.to_arrow().to_pylist()]
    assert [context for context, _ in found] == [context for context, _ in QUERIES]
    documents = [{**context, **one} for context, examples in found for one in examples]
    assert (documents, found[1][1]) == (ROWS, [])
    grades = tfrtool.read_table(path, columns=["examples/grade", "context/query"]).to_arrow()
    assert grades.to_pydict() == {
        "examples/grade": [[0], [], [2, 1]],
        "context/query": ["q0", "q1", "q2"],
    }
    stored = tfrtool.read_table(path, as_stored=True).schema.names
    names = ["serialized_context", "serialized_examples"]
    assert stored == (names if packed is eie else ["payload"])


def test_a_record_without_a_context_has_null(tmp_path: Path) -> None:
    """A context that is missing is null, and one that comes in two parts is merged."""
    parts = [field(2, tfrtool.encode_example({name: 1})) for name in "ab"]
    document = field(1, tfrtool.encode_example({"n": 1}))
    path = ranking_shard(tmp_path / "a.tfrecord", [document, document + b"".join(parts), b""])
    found = tfrtool.read_table(path, columns="context").to_arrow().to_pydict()
    assert found == {"context": [None, {"a": 1, "b": 1}, None]}


DOCUMENTS = [field(1, tfrtool.encode_example({"n": 1}))] * 2
OTHERS: dict[str, tuple[list[bytes], list[str]]] = {
    "another field": ([*DOCUMENTS, DOCUMENTS[0] + field(3, b"x")], ["payload"]),
    "another message": ([*DOCUMENTS, field(1, field(1, b"text"))], ["payload"]),
    "another feature": (
        [eie(*QUERIES[0]), tfrtool.encode_example({"serialized_context": b"\n\0", "n": 1})],
        ["n", "serialized_context", "serialized_examples"],
    ),
    "text": ([tfrtool.encode_example({"serialized_context": "q"})], ["serialized_context"]),
}


@pytest.mark.parametrize("case", OTHERS)
def test_other_messages_stay_what_they_are(case: str, tmp_path: Path) -> None:
    """One of the first records that is something else shows that none are lists of Examples."""
    payloads, names = OTHERS[case]
    path = ranking_shard(tmp_path / "a.tfrecord", payloads)
    assert tfrtool.read_table(path).schema.names == names


def test_later_records_that_differ_are_faults(tmp_path: Path) -> None:
    """Only a damaged record is left out, and the fault says which Example is wrong."""
    good = elwc({"q": 1}, [{"n": 1}])
    bad = [field(1, b"\x08\x01"), field(4, b""), field(2, b"\xff")]
    path = ranking_shard(tmp_path / "a.tfrecord", [*[good] * 100, *bad, good])
    faults: list[LocatedFault] = []
    rows = tfrtool.read_table(path, on_fault=faults.append).to_arrow()
    assert rows.num_rows == 101
    assert rows.column("examples").to_pylist() == [[{"n": 1}]] * 101
    found = {one.fault.record: str(one.fault) for one in faults}
    assert [*found] == [100, 101, 102]
    for text, part in zip(
        found.values(), ["in an Example", "not an Ex", "in the con"], strict=True
    ):
        assert part in text


def test_query_has_both_and_says_what_is_not_shown(run: Run, tmp_path: Path) -> None:
    """SQL takes the lists apart; features of several types are left out with a note."""
    documents: list[dict[str, Any]] = [{"n": 1, "x": 1}, {"n": 2, "x": 0.5}]
    path = ranking_shard(tmp_path / "a.tfrecord", [elwc({"q": "a"}, documents)])
    sql = "SELECT context.q, unnest(examples).n AS n FROM records"
    code, out, err = run("query", path, sql, "--format", "csv")
    assert (code, out.split()) == (0, ["q,n", "a,1", "a,2"])
    assert "not shown: 1 feature of several types: examples/x" in err


@pytest.mark.parametrize("to", ["parquet", "jsonl", "csv"])
@pytest.mark.parametrize("packed", [elwc, eie])
def test_tables_have_both_and_come_back(
    packed: Callable[..., bytes], to: str, tmp_path: Path
) -> None:
    """Whatever is missing or empty, and in tables of tables."""
    queries = [*QUERIES, ({"query": NO_TEXT}, []), ({"id": 1}, [{"grade": 1}, {}])]
    path = ranking_shard(tmp_path / "a.tfrecord", [packed(*one) for one in queries])
    tfrtool.convert(path, tmp_path / f"a.{to}", workers=1)
    tfrtool.convert(tmp_path / f"a.{to}", tmp_path / "b.jsonl", workers=1)
    lines = [json.loads(line) for line in (tmp_path / "b.jsonl").read_text().splitlines()]
    assert [len(line["examples"]) for line in lines] == [1, 0, 2, 0, 2]
    assert lines[0]["context"] == {"query": ["q0"]}
    tfrtool.convert(tmp_path / "b.jsonl", tmp_path / "back.tfrecord", workers=1)
    assert (tmp_path / "back.tfrecord").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("packed", [elwc, eie])
def test_hugging_face_gets_both(packed: Callable[..., bytes], tmp_path: Path) -> None:
    """A dataset for Hugging Face has the same rows as Parquet."""
    path = ranking_shard(tmp_path / "a.tfrecord", [packed(*one) for one in QUERIES])
    report = tfrtool.convert(path, tmp_path / "hf", to="hf", workers=1)
    tfrtool.convert(path, tmp_path / "a.parquet", workers=1)
    table = pq.read_table(tmp_path / "a.parquet")
    (shard,) = (tmp_path / "hf").glob("*.parquet")
    assert pq.read_table(shard).to_pylist() == table.to_pylist()
    assert (table.column("context").null_count, report.notes) == (0, [])


def test_a_missing_context_comes_back(tmp_path: Path) -> None:
    """It is null, and not an Example without features."""
    document = field(1, tfrtool.encode_example({"n": 1}))
    context = [field(2, tfrtool.encode_example(one)) for one in ({"q": 1}, {})]
    path = ranking_shard(tmp_path / "a.tfrecord", [document, *(document + one for one in context)])
    tfrtool.convert(path, tmp_path / "a.parquet", workers=1)
    tfrtool.convert(tmp_path / "a.parquet", tmp_path / "back.tfrecord", workers=1)
    assert (tmp_path / "back.tfrecord").read_bytes() == path.read_bytes()


def test_tables_of_parts_have_no_way_back(run: Run, tmp_path: Path) -> None:
    """Neither have those with other names; an exact table has the records themselves."""
    path = ranking_shard(tmp_path / "a.tfrecord", [elwc(*one) for one in QUERIES])
    parts, exact = tmp_path / "parts.parquet", tmp_path / "exact.parquet"
    tfrtool.convert(path, parts, workers=1, select=["examples/grade", "context"])
    code, _, err = run("convert", parts, tmp_path / "parts.tfrecord")
    assert (code, "they can't be converted back" in err) == (1, True)
    tfrtool.convert(path, exact, workers=1, exact=True)
    tfrtool.convert(exact, tmp_path / "back.tfrecord", workers=1)
    assert (tmp_path / "back.tfrecord").read_bytes() == path.read_bytes()


def test_inspect_shard_names_them(run: Run, tmp_path: Path) -> None:
    """Also in JSON."""
    path = ranking_shard(tmp_path / "a.tfrecord", [elwc(*QUERIES[0])])
    code, out, _ = run("inspect", "shard", path)
    assert (code, "payload     ExampleListWithContext, " in out) == (0, True)
    _, out, _ = run("inspect", "shard", path, "--json")
    assert json.loads(out)["content"] == "ExampleListWithContext"


def test_inspect_shard_shows_documents(run: Run, tmp_path: Path) -> None:
    """A line for the context and for each of the first five documents, and how many there are."""
    documents = [{"grade": number} for number in range(7)]
    lists = [elwc(*QUERIES[0]), elwc({"query": "long"}, documents)]
    code, out, _ = run("inspect", "shard", ranking_shard(tmp_path / "a.tfrecord", lists))
    lines = [" ".join(line.split()) for line in out.splitlines()]
    short = lines.index('context {"query": "q0"}')
    assert lines[short + 1].startswith('examples[0] {"grade": 0, "score": 0.5, "title": ["a", "b"]')
    long = lines.index('context {"query": "long"}')
    shown = [f'examples[{number}] {{"grade": {number}}}' for number in range(5)]
    assert (code, lines[long + 1 :]) == (0, [*shown, 'examples "... 7 in all"'])


def test_inspect_schema_says_how_to_see_columns(run: Run, tmp_path: Path) -> None:
    """The hint is a query that shows them."""
    path = ranking_shard(tmp_path / "a.tfrecord", [elwc(*QUERIES[0])])
    code, _, err = run("inspect", "schema", path)
    assert (code, "found ExampleListWithContext payloads" in err) == (1, True)
    assert f"run tfrtool query {path} 'DESCRIBE records'" in err
    _, out, _ = run("query", path, "DESCRIBE records", "--json")
    columns = [json.loads(line) for line in out.splitlines()]
    types = {column["column_name"]: column["column_type"] for column in columns}
    assert types["context"] == "STRUCT(query VARCHAR)"
