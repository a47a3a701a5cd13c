"""Queries in two: what is asked of each record alone, and what is left for all answers."""

from __future__ import annotations

import re
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
    """Return both halves, with short names for the columns between them."""
    sandbox.check(sql)
    found = split_query(sandbox, sql)
    return found and (re.sub(r"x[0-9a-f]{16}_", "x", found[0]), re.sub(r"x\w{16}_", "x", found[1]))


SPLIT = {
    "SELECT * EXCLUDE (name) FROM records r WHERE r.label = 2 LIMIT 3": (
        'SELECT "label" AS x0, "o""d" AS x1, _record AS x2 FROM records AS r WHERE (r."label" = 2)',
        'SELECT x0 AS "label", x1 AS "o""d", x2 AS _record FROM records LIMIT 3',
    ),
    "SELECT label % 2 AS odd, avg(octet_length(name) + 1) AS mean FROM records "
    "WHERE label > random() GROUP BY odd HAVING mean > 1 ORDER BY sum(label), odd": (
        'SELECT ("label" % 2) AS x0, (octet_length("name") + 1) AS x1, "label" AS x2 FROM records',
        "SELECT x0 AS odd, avg(x1) AS mean FROM records WHERE (x2 > random()) GROUP BY odd "
        "HAVING (mean > 1) ORDER BY sum(x2), odd",
    ),
    "SELECT DISTINCT label, row_number() OVER (ORDER BY name) AS k FROM records": (
        'SELECT "label" AS x0, "name" AS x1 FROM records',
        'SELECT DISTINCT x0 AS "label", row_number() OVER (ORDER BY x1) AS k FROM records',
    ),
    "SELECT count(*) AS c FROM records WHERE name = 'cat'": (
        "SELECT _record FROM records WHERE (\"name\" = 'cat')",
        "SELECT count_star() AS c FROM records",
    ),
}


@pytest.mark.parametrize("sql", SPLIT)
def test_what_is_asked_of_each_record(sandbox: Sandbox, sql: str) -> None:
    """Expressions of one record are, and a WHERE of them; what may change each time is not."""
    assert halves(sandbox, sql) == tuple(" ".join(half.split()) for half in SPLIT[sql])


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
