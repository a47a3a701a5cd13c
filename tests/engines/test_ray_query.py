"""Queries on a cluster, held against one machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfrtool
from tests.datasets import flip_bit
from tests.engines.running import Nodes
from tests.examples.strategies import string
from tests.records.strategies import shard_of
from tfrtool.errors import UsageError
from tfrtool.inspection.rows import query as queries
from tfrtool.inspection.rows.batches import read_batches
from tfrtool.inspection.rows.query import query
from tfrtool.records.framing import LocatedFault

pytest.importorskip("ray")
pytest.importorskip("duckdb")

pytestmark = [pytest.mark.several, pytest.mark.usefixtures("cluster")]

QUERIES = [
    "SELECT * FROM records",
    "SELECT * EXCLUDE (n) FROM records WHERE label = 2 LIMIT 20",
    "SELECT name, upper(name) AS u, label + 1 FROM records WHERE name LIKE 'c%'",
    'SELECT name, "odd""Name" FROM records WHERE name = \'é\' ORDER BY n',
    "SELECT count(*), sum(n), min(n), max(x), count(DISTINCT label) FROM records",
    "SELECT count(*) FROM records WHERE label > 100",
    "SELECT label % 2 AS odd, count(*) AS c, avg(n) FROM records GROUP BY odd ORDER BY odd",
    "SELECT label, max(octet_length(name)) FROM records GROUP BY ALL ORDER BY 1",
    "SELECT label, n FROM records QUALIFY row_number() OVER (PARTITION BY label ORDER BY n) = 1 "
    "ORDER BY label",
    "SELECT _shard, _record, unnest(tags) AS t FROM records WHERE x BETWEEN 0 AND 1",
    "SELECT n::HUGEINT * 1000 AS large FROM records ORDER BY large LIMIT 3",
    "SELECT a.label FROM records a JOIN records b ON a.n = b.n ORDER BY a.n",
    "SELECT label FROM records WHERE n = (SELECT max(n) FROM records)",
    "SELECT CAST(upper(name) AS INTEGER) FROM records WHERE name LIKE '%'",
    "SELECT label, label FROM records",
    "SELECT typeof(max(n::HUGEINT)) AS kind FROM records",
    "SELECT nosuch FROM records",
]


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return shards with a column of odd name; a record of one of them is damaged."""
    folder, draw = tmp_path_factory.mktemp("queried"), np.random.default_rng(0)
    for name in "abcd":
        rows = [
            {
                "n": int(draw.integers(-(2**62), 2**62)),
                "x": float(draw.normal()),
                "label": int(draw.integers(5)),
                "name": [b"cat", b"dog", b"\xff", "é".encode()][draw.integers(4)],
                "tags": string(*[b"a", b"b"][: draw.integers(1, 3)]),
                'odd"Name': int(draw.integers(3)),
            }
            for _ in range(100)
        ]
        (folder / name).write_bytes(shard_of([tfrtool.encode_example(row) for row in rows]))
    flip_bit(folder / "c", 3000)
    return sorted(folder.iterdir())


def answer(shards: list[Path], sql: str, **words: Any) -> object:
    """Return the names, types and rows of an answer, and the damage; or its error."""
    faults: list[LocatedFault] = []
    try:
        with query(shards, sql, on_fault=faults.append, **words) as reader:
            rows = reader.read_all()
    except UsageError as error:
        return str(error)
    found = faults if "LIMIT 20" not in sql else []  # whether it was met depends on the threads
    return rows.schema, rows.to_pylist(), found


@pytest.mark.parametrize("sql", QUERIES)
def test_answers_are_the_same(sql: str, shards: list[Path], nodes: Nodes) -> None:
    """Rows come in the same order, with the same names, types and damage; errors are the same."""
    there = answer(shards, sql, engine="ray", engine_address=nodes.address)
    assert there == answer(shards, sql)


@pytest.mark.parametrize("sql", [QUERIES[0], QUERIES[5], QUERIES[11]])
def test_a_shard_with_more_than_a_task_sends_is_read_here(
    sql: str, shards: list[Path], nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is the same, in order, and damage is told once."""
    read_here: list[Path] = []

    def read(some: list[Path], *words: Any, **named: Any) -> Any:
        read_here.extend(some)
        return read_batches(some, *words, **named)

    here = answer(shards, sql)
    monkeypatch.setattr(queries, "_SENT", 3000)
    monkeypatch.setattr(queries, "read_batches", read)
    assert answer(shards, sql, engine="ray", engine_address=nodes.address) == here
    large = {QUERIES[0]: 1, QUERIES[5]: 0, QUERIES[11]: 2}[sql]
    assert read_here == shards * large


@pytest.mark.parametrize(
    "what", ["label, count(*) AS c", "sum(CAST(upper(name) AS INTEGER)), label"]
)
def test_the_command_line(
    what: str, shards: list[Path], nodes: Nodes, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing is printed but what one machine prints, errors included."""
    sql = f"SELECT {what} FROM records WHERE name LIKE '%' GROUP BY label ORDER BY label"
    command = [sys.executable, "-m", "tfrtool", "query", str(shards[0]), sql]
    there = [*command, "--engine", "ray", "--engine-address", nodes.address]
    told = []
    for words in (command, there):
        code = subprocess.run(words, timeout=100, check=False).returncode
        told.append((code, capfd.readouterr()))
    assert told[0] == told[1]
