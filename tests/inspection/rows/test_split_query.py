"""Queries in two: what is asked of each record alone, and what is left for all answers."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from tfrtool.inspection.rows.sandbox import Sandbox
from tfrtool.inspection.rows.split_query import split_query

SCHEMA = pa.schema(
    [("_record", pa.int64()), ("label", pa.int64()), ("name", pa.binary()), ('o"d', pa.float32())]
)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """Return a database of records with these columns."""
    made = Sandbox(SCHEMA, lambda _: iter(()))
    yield made
    made.close()


def halves(sandbox: Sandbox, sql: str) -> tuple[str, str] | None:
    """Return both halves of a query."""
    sandbox.check(sql)
    return split_query(sandbox, sql)


SPLIT = {
    "SELECT * EXCLUDE (name) FROM records r WHERE r.label = 2 LIMIT 3": (
        ["BIGINT", "BIGINT", "FLOAT"],
        (True, False),
    ),
    "SELECT label % 2 AS odd, avg(octet_length(name) + 1) AS mean FROM records "
    "WHERE label > random() GROUP BY odd HAVING mean > 1 ORDER BY sum(label), odd": (
        ["BIGINT", "BIGINT", "BIGINT"],
        (False, True),
    ),
    "SELECT octet_length(name) // 10 AS tens, count(*) FROM records GROUP BY tens": (
        ["BIGINT"],
        (False, False),
    ),
    "SELECT DISTINCT label, row_number() OVER (ORDER BY name) AS k FROM records": (
        ["BIGINT", "BLOB"],
        (False, False),
    ),
    "SELECT count(*) AS c FROM records WHERE name = 'cat'": (["BIGINT"], (True, False)),
}


@pytest.mark.parametrize("sql", SPLIT)
def test_what_is_asked_of_each_record(sandbox: Sandbox, sql: str) -> None:
    """Expressions of one record are, and a WHERE of them; what may change each time is not."""
    first, rest = halves(sandbox, sql) or ("", "")
    kinds = sorted(kind for _, kind in sandbox.types(first))
    assert (kinds, ("WHERE" in first, "WHERE" in rest)) == SPLIT[sql]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a.label FROM records a JOIN records b USING (label)",
        "SELECT label FROM records WHERE label = (SELECT max(label) FROM records)",
        "WITH t AS (SELECT label FROM records) SELECT * FROM t",
        "SELECT label FROM records UNION SELECT 1",
        "SELECT label FROM records USING SAMPLE 3 ROWS (reservoir, 1)",
        "SELECT #2 FROM records",
        "SELECT * REPLACE (1 AS label) FROM records",
        "SELECT label AS name, name AS label FROM records ORDER BY name",
        "SELECT 1",
    ],
)
def test_what_is_not_split(sandbox: Sandbox, sql: str) -> None:
    """Queries that see the records twice, or some of them, or under other names."""
    assert halves(sandbox, sql) is None
