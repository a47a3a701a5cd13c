"""``tfrtool query``."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import resource
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import tfrtool
from tests.examples.strategies import int64
from tests.records.strategies import shard_of
from tfrtool.cli import main
from tfrtool.sources.formats.csv_options import CsvOptions
from tfrtool.storage.atomic_files import temporary_name

Capture = pytest.CaptureFixture[str]
COUNT = "SELECT label, count(*) AS n FROM records GROUP BY label ORDER BY n, label"


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    """Return a shard of rows with labels of bytes, of which some are no text."""
    path = tmp_path / "rows.tfrecord"
    labels = ["größer", b"\xff", "a,b"]
    rows = [{"label": labels[n % 3], "x": n / 10, "n": int64(*[n] * (n % 2))} for n in range(20)]
    path.write_bytes(shard_of([tfrtool.encode_example(row) for row in rows]))
    return path


def query(capsys: Capture, *words: str | Path, code: int = 0) -> tuple[str, str]:
    """Run the command; return what it printed on stdout and stderr."""
    assert main(["query", *map(str, words)]) == code
    out, err = capsys.readouterr()
    return out, err


def test_a_table(shard: Path, capsys: Capture) -> None:
    """Rows are a table: numbers at the right, text as text."""
    out, err = query(capsys, shard, COUNT)
    assert out.splitlines() == [
        "  label               n",
        "  a,b                 6",
        "  größer              7",
        '  {"base64": "/w=="}  7',
    ]
    assert err == ""
    out, err = query(capsys, shard, "SELECT * FROM range(1001)")
    assert len(out.splitlines()) == 1001
    assert "1,000" in err
    assert "--format jsonl" in err


def test_lines(shard: Path, capsys: Capture) -> None:
    """JSON has numbers as they are, float32 in few digits, and sums of int64 as int."""
    sql = "SELECT x, n, label, sum(n) OVER () AS s, 0.1::DOUBLE AS d, 'NaN'::FLOAT AS f, "
    sql += "DATE '2024-02-29' AS day, 1.5::DECIMAL(3,1) AS e FROM records WHERE x < 0.15"
    out, _ = query(capsys, shard, sql, "--json")
    assert out == query(capsys, shard, sql, "--format", "jsonl")[0]
    rest = {"s": 1, "d": 0.1, "f": "NaN", "day": "2024-02-29", "e": 1.5}
    assert [json.loads(line) for line in out.splitlines()] == [
        {"x": 0.0, "n": None, "label": "größer", **rest},
        {"x": 0.1, "n": 1, "label": {"base64": "/w=="}, **rest},
    ]
    out, _ = query(capsys, shard, COUNT, "--format", "csv")
    rows = list(csv.reader(io.StringIO(out)))
    assert rows == [["label", "n"], ["a,b", "6"], ["größer", "7"], ['{"base64": "/w=="}', "7"]]
    assert query(capsys, shard, "SELECT 1 AS one WHERE false", "--format", "csv")[0] == "one\n"


@pytest.mark.parametrize(("words", "null"), [([], ""), (["--null", "NA"], "NA")])
def test_texts_are_not_nulls(shard: Path, capsys: Capture, words: list[str], null: str) -> None:
    """A text that looks like a missing value is in quotation marks."""
    sql = "SELECT NULL AS a, 'NA' AS b, '' AS c, 'x, \"y\"' AS d"
    out, _ = query(capsys, shard, sql, "--format", "csv", *words)
    texts = [f'"{text}"' if text == null else text for text in ("NA", "")]
    assert out.splitlines()[1] == ",".join([null, *texts, '"x, ""y"""'])
    several = ["--null", "NA", "--null", "-"]
    _, err = query(capsys, shard, sql, "--format", "csv", *several, code=2)
    assert "--null can be given only once" in err


def test_files(shard: Path, capsys: Capture, tmp_path: Path) -> None:
    """A file has the format of its suffix, appears whole, and is replaced only if asked for."""
    parquet, table = tmp_path / "a.parquet", tmp_path / "a.csv"
    sql = "SELECT label, _record, n FROM records"
    wrote = f"tfrtool: wrote 20 rows to {parquet}\n"
    assert query(capsys, shard, sql, "--out", parquet) == ("", wrote)
    found = pq.read_table(parquet).to_pydict()
    assert found["_record"] == list(range(20))
    assert found["label"][:3] == ["größer".encode(), b"\xff", b"a,b"]
    _, err = query(capsys, shard, sql, "--out", parquet, code=2)
    assert str(parquet) in err
    assert "--overwrite" in err
    query(capsys, shard, sql + " LIMIT 1", "--out", parquet, "--overwrite", "--json")
    assert pq.read_table(parquet).num_rows == 1
    query(capsys, shard, COUNT, "--out", table)
    assert table.read_text("utf-8").splitlines()[1] == '"a,b",6'
    before = sorted(tmp_path.iterdir())
    query(capsys, shard, "SELECT error('x') FROM records", "--out", tmp_path / "b.csv", code=1)
    query(capsys, shard, sql, "--out", tmp_path / "no" / "b.csv", code=1)
    query(capsys, shard, sql, "--format", "parquet", code=2)
    assert sorted(tmp_path.iterdir()) == before


def test_a_full_disk(
    shard: Path, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no fault of the query's: the file that can't be written is named, exit code 1."""

    def full(*_: Any) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(CsvOptions, "line", full)
    _, err = query(capsys, shard, COUNT, "--out", tmp_path / "a.csv", code=1)
    assert err == f"tfrtool: error: {tmp_path}/a.csv: can't be written: no space left on device\n"
    assert [*tmp_path.iterdir()] == [shard]


def test_what_fails_while_a_query_starts_is_not_blamed_on_its_output(
    shard: Path, capsys: Capture, tmp_path: Path
) -> None:
    """If only one more file can be opened, the error is not about writing the result."""
    query(capsys, shard, COUNT)  # loads all modules
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 1, limits[1]))
    try:
        code = main(["query", str(shard), COUNT])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    error = capsys.readouterr().err
    assert code == 1
    assert error == "tfrtool: error: the query can't be started: too many open files\n"
    killed = temporary_name(tmp_path / "a.csv")  # what a killed query left
    killed.touch()
    query(capsys, shard, COUNT, "--out", tmp_path / "a.csv")
    assert not killed.exists()


EXACT = {
    "170141183460469231731687303715884105727::HUGEINT": 2**127 - 1,
    "340282366920938463463374607431768211455::UHUGEINT": str(2**128 - 1),
    "repeat('9', 50)::BIGNUM": "9" * 50,
    "TIME '24:00:00'": "24:00:00",
    "TIMETZ '10:00:00+05'": "10:00:00+05",
    "DATE 'infinity'": "infinity",
    "DATE '-infinity'": "-infinity",
    "DATE '10000-01-01'": "10000-01-01",
    "TIMESTAMP 'infinity'": "infinity",
    "TIMESTAMP_MS '2024-01-01 00:00:00.5'": "2024-01-01 00:00:00.5",
    "TIMESTAMP_NS '2024-01-01 00:00:00.123456789'": "2024-01-01 00:00:00.123456789",
    "TIMESTAMPTZ '2024-01-01 00:00:00+02'": "2023-12-31 22:00:00+00",
    "INTERVAL '1 year 2 days 3 seconds'": "1 year 2 days 00:00:03",
    "12345678901234567890123456789.123456789::DECIMAL(38,9)":
        "12345678901234567890123456789.123456789",
    "1.5::DECIMAL(38,2)": 1.5,
    "'0101'::BIT": "0101",
    "'00000000-0000-0000-0000-000000000001'::UUID": "00000000-0000-0000-0000-000000000001",
    "'a'::ENUM('a', 'b')": "a",
    "MAP {'a': 0.1::FLOAT}": [["a", 0.1]],
    "MAP {1: [DATE 'infinity']}": "{1=[infinity]}",
    "union_value(n := 1)": "1",
    "union_value(d := DATE 'infinity')": "infinity",
    "{'a': TIME '24:00:00'}": "{'a': '24:00:00'}",
    "{'b': {'c': 0.1::FLOAT}}": {"b": {"c": 0.1}},
    "[NULL, TIME '24:00:00']": [None, "24:00:00"],
    "18446744073709551615::UBIGINT": 2**64 - 1,
}  # fmt: skip


def test_values_of_every_type(shard: Path, capsys: Capture, tmp_path: Path) -> None:
    """Lines, CSV and tables have the very value, as DuckDB's own cast to text says it."""
    sql = "SELECT " + ", ".join(f"{one} AS v{n}" for n, one in enumerate(EXACT))
    out, _ = query(capsys, shard, sql, "--json")
    assert dict(zip(EXACT, json.loads(out).values(), strict=True)) == EXACT
    texts = [one if isinstance(one, str) else json.dumps(one) for one in EXACT.values()]
    out, _ = query(capsys, shard, f"{sql} -- the end;", "--format", "csv")
    assert [*csv.reader(io.StringIO(out))][1] == texts
    simple = {one: str(value) for one, value in EXACT.items() if isinstance(value, str | int)}
    casts = ", ".join(f"CAST({one} AS VARCHAR) AS v{n}" for n, one in enumerate(simple))
    out, _ = query(capsys, shard, f"SELECT {casts};", "--json")
    assert dict(zip(simple, json.loads(out).values(), strict=True)) == simple
    path = tmp_path / "a.parquet"
    query(capsys, shard, sql, "--out", path)
    held = pq.read_table(path, columns=["v1", "v4"]).to_pydict()
    assert held == {"v1": [str(2**128 - 1)], "v4": ["10:00:00+05"]}


def test_swapped_arguments(shard: Path, capsys: Capture) -> None:
    """SQL in the place of the shards is seen, and the right order is shown."""
    _, err = query(capsys, COUNT, shard, code=2)
    assert f"swap the arguments: tfrtool query {shard} '{COUNT}'" in err
