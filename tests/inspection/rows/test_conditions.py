"""Conditions: what they say of rows, and what they can't be."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tfrtool
from tests.records.strategies import shard_of
from tfrtool.errors import ShardError, UsageError
from tfrtool.inspection.rows.batches import RowColumns, infer_columns, read_batches
from tfrtool.inspection.rows.conditions import Condition
from tfrtool.inspection.rows.sandbox import SqlChild

NAMES = [b"cat", b"dog", "käse".encode(), b"\xff\xd8", b""]
ROWS: list[dict[str, Any]] = [
    {"n": n, "name": NAMES[n % 5], "x": n / 4, "Odd \"one'": n % 2}
    | ({"tags": [b"a"]} if n % 3 else {})
    for n in range(30)
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a shard of these rows."""
    path = tmp_path_factory.mktemp("conditions") / "rows.tfrecord"
    path.write_bytes(shard_of([tfrtool.encode_example(row) for row in ROWS]))
    return path


@pytest.fixture(scope="module")
def child() -> Iterator[SqlChild]:
    """Return a process that evaluates conditions."""
    with SqlChild() as child:
        yield child


def kept(
    path: Path, sql: str, child: SqlChild, batch_records: int = 7
) -> tuple[tuple[str, ...], list[int]]:
    """Return the columns that a condition names, and the records for which it holds."""
    return matches(path, Condition(sql, infer_columns([path]), RowColumns(), child), batch_records)


def matches(
    path: Path, condition: Condition, batch_records: int = 7
) -> tuple[tuple[str, ...], list[int]]:
    """Return the columns that a condition names, and the records for which it holds."""
    found: list[int] = []
    batches = read_batches(
        [path],
        condition.columns,
        batch_records=batch_records,
        on_fault=lambda fault: pytest.fail(str(fault)),
    )
    for batch in batches:
        holds = condition.keep(batch)
        assert holds.dtype == bool
        found += [one.index for one, hold in zip(batch.records, holds, strict=True) if hold]
    return condition.columns.names, found


def where(test: Any) -> list[int]:
    """Return the records that a test in Python takes."""
    return [n for n, row in enumerate(ROWS) if test(row)]


HOLDS = [
    ("n = 5", ("n",), lambda r: r["n"] == 5),
    ("name = 'cat' AND x > 2", ("name", "x"), lambda r: r["name"] == b"cat" and r["x"] > 2),
    ("name LIKE '%a%'", ("name",), lambda r: b"a" in r["name"] and b"\xff" not in r["name"]),
    ("name = 'käse'", ("name",), lambda r: r["name"] == "käse".encode()),
    ("name IN ('dog', '') -- or a cat", ("name",), lambda r: r["name"] in (b"dog", b"")),
    ("tags IS NULL", ("tags",), lambda r: "tags" not in r),
    ("list_contains(tags, 'a')", ("tags",), lambda r: "tags" in r),
    ("tags[1] = 'a' OR N = 3", ("n", "tags"), lambda r: "tags" in r or r["n"] == 3),
    ('"Odd ""one\'" = 1', ("Odd \"one'",), lambda r: r["n"] % 2),
    ("_record >= 28 AND _bytes > 0", (), lambda r: r["n"] >= 28),
    ("_shard LIKE '%rows.tfrecord' AND n", ("n",), lambda r: r["n"]),
    ("n IN (SELECT range FROM range(4))", ("n",), lambda r: r["n"] < 4),
    ("name = 'cat) OR (1 = 1'", ("name",), lambda _: False),
    ("name <> 'random()'", ("name",), lambda _: True),
    ("NULL", (), lambda _: False),
    ("true", (), lambda _: True),
]


@pytest.mark.parametrize(("sql", "columns", "test"), HOLDS, ids=[sql for sql, *_ in HOLDS])
def test_what_holds(
    path: Path, child: SqlChild, sql: str, columns: tuple[str, ...], test: Any
) -> None:
    """A condition names its columns alone, and holds where Python says so, in any batches."""
    assert kept(path, sql, child) == (columns, where(test))


def test_a_condition_goes_to_other_processes(path: Path) -> None:
    """A pickled condition says the same as the one that it was made of, and both are ended."""
    with (
        Condition("n = 5", infer_columns([path]), RowColumns()) as condition,
        pickle.loads(pickle.dumps(condition)) as other,
    ):
        assert matches(path, other) == matches(path, condition) == (("n",), [5])


def test_memory_is_bounded(path: Path) -> None:
    """A condition that needs more memory than there may be ends the work with an error."""
    with (
        pytest.raises(ShardError, match=r"2\.0 GiB of memory"),
        Condition("len(range(800000000 + n)) > 0", infer_columns([path]), RowColumns()) as it,
    ):
        matches(path, it)


def test_a_value_that_fails(path: Path, child: SqlChild) -> None:
    """An error at a value of a record is not one of the command line."""
    with pytest.raises(ShardError, match=r"decode|UTF-8") as caught:
        kept(path, "CAST(decode(name) AS INT) = 1", child)
    assert caught.value.exit_code == 1


@settings(max_examples=15)
@given(st.integers(1, 40), st.integers(-1, 31), st.sampled_from(["<", ">=", "=", "<>"]))
def test_batches_make_no_difference(
    path: Path, child: SqlChild, size: int, bound: int, sign: str
) -> None:
    """Each row is asked alone, in its order."""
    test = {"<": int.__lt__, ">=": int.__ge__, "=": int.__eq__, "<>": int.__ne__}[sign]
    assert kept(path, f"n {sign} {bound}", child, size)[1] == where(
        lambda row: test(row["n"], bound)
    )


REFUSED = {
    "nam = 'cat'": "did you mean 'name'",
    "frob(n) = 1": "frob",
    "": "empty",
    " ": "empty",
    "-- nothing": "invalid condition",
    "n =": "incomplete",
    "n = 1)": "brackets",
    "n = 1; DROP TABLE records": "invalid condition",
    "n = 1) OR (n = 2": "invalid condition",
    "n = 1) LIMIT (5": "invalid condition",
    "n = 1) UNION SELECT (1": "invalid condition",
    "n = 1) --": "invalid condition",
    "n = 1) /*": "invalid condition|unterminated",
    "(n = 1": "invalid condition",
    "n = 1 ORDER BY n": "syntax error",
    "'": "unterminated|invalid condition",
    "count(*) > 1": "aggregate",
    "row_number() OVER () < 3": "window",
    "unnest([true, false])": "UNNEST",
    "n = (SELECT max(n) FROM records)": "subquery",
    "random() < 0.1": "--sample",
    "RANDOM ( ) < 0.1": "--sample",
    '"random"() < 0.1': "--sample",
    '(n)."RANDOM"() < 0.1': "--sample",
    "n IN (FROM range(CAST(9 * random() AS INT)))": "--sample",
    "n IN (FROM query('SELECT 9 * random()'))": r"query\(\)",
    "n IN (FROM range(9) USING SAMPLE 5)": "SAMPLE",
    "uuidv7() IS NULL": r"uuidv7\(\)",
    "n = 'cat'": "'cat'.*INT64",
    "n LIKE '1%'": "argument types for '~~'",
    "'x' IN (SELECT content FROM read_text('/etc/passwd'))": "only the records",
    "EXISTS (FROM '/etc/passwd')": "subquery|passwd",
    "EXISTS (FROM glob('/*'))": "only the records",
    "getenv('HOME') = 'x'": "getenv",
}


@pytest.mark.parametrize("sql", REFUSED)
def test_what_is_refused(path: Path, child: SqlChild, sql: str) -> None:
    """What is no condition on one record, or reaches out of it, is a usage error in one line."""
    with pytest.raises(UsageError, match=REFUSED[sql]) as caught:
        Condition(sql, infer_columns([path]), RowColumns(), child)
    assert "\n" not in str(caught.value)
