"""The columns that a statement may need: enough for DuckDB's own answer, and no more than that."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tests.more import thinned
from tfrtool.errors import UsageError
from tfrtool.inspection.rows.database import connect
from tfrtool.inspection.rows.sandbox import Sandbox
from tfrtool.inspection.rows.statement import Statement

RECORDS = pa.table(
    {
        "label": [0, 1, 1, 2],
        "image": [b"0", b"1", b"22", b"333"],
        "size": [5, 4, 3, 2],
        "Tags": [["a"], [], ["b", "c"], ["a"]],
        "place": [{"x": n, "y": [n, -n]} for n in range(4)],
        "records": [7, 8, 9, 9],
    }
)
WORDS = pa.table({"label": [0, 1, 5], "word": ["zero", "one", "five"], "size": [1, 4, 3]})
TABLES = {"records": RECORDS, "words": WORDS}
ALL = [*RECORDS.column_names]
WITHOUT_IMAGE = [name for name in ALL if name != "image"]

NEEDED: dict[str, Collection[str]] = {
    # references
    "SELECT label, count(*) FROM records GROUP BY 1 ORDER BY 1": ["label"],
    "SELECT count(*) FROM records": ["label"],  # some column
    "SELECT LABEL, r.Size FROM Records r ORDER BY 2": ["label", "size"],
    "SELECT main.records.label FROM records": ["label", "records"],
    "SELECT place.x, r.place.y[1], place['x'] FROM records r": ["place"],
    "SELECT label AS s, sum(size) AS label_sum FROM records GROUP BY s ORDER BY s": [
        "label", "size",
    ],
    "SELECT shown: label FROM records": ["label"],
    "SELECT label FROM records WHERE size > 2 ORDER BY octet_length(image)": [
        "image", "label", "size",
    ],
    # queries in queries
    "SELECT label, (SELECT max(word) FROM words w WHERE w.size = r.size) FROM records r": [
        "label", "size",
    ],
    "SELECT label FROM records WHERE label IN (SELECT size FROM words)": ["label", "size"],
    "WITH big AS (SELECT label FROM records WHERE size > 2) SELECT * FROM big": ["label", "size"],
    "WITH records AS (SELECT label FROM records) SELECT count(*) FROM records": ["label"],
    "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t WHERE n < "
    "(SELECT max(size) FROM records)) SELECT * FROM t": ["size"],
    "WITH t(a, b) AS (SELECT size, label FROM records) SELECT a FROM t": ["label", "size"],
    "SELECT * FROM (SELECT label FROM records) ORDER BY 1": ["label"],
    "SELECT b.* FROM records a, LATERAL (SELECT a.label + 1 AS n) b": ["label"],
    "SELECT label FROM records UNION BY NAME SELECT word FROM words ORDER BY ALL": ["label"],
    # lambdas, windows and lists
    "SELECT list_transform(Tags, lambda x: x || size) FROM records": ["Tags", "size"],
    "SELECT [x || label FOR x IN Tags IF x != 'a'] FROM records": ["Tags", "label"],
    "SELECT label, u.t FROM records, unnest(Tags) u(t) ORDER BY ALL": ["Tags", "label"],
    "SELECT label FROM records WINDOW w AS (PARTITION BY label ORDER BY size) "
    "QUALIFY row_number() OVER w = 1": ["label", "size"],
    "SELECT sum(label) FILTER (size > 3), list(label ORDER BY size) FROM records": [
        "label", "size",
    ],
    "SELECT label, size, count(*) FROM records GROUP BY ROLLUP (label, size) ORDER BY ALL": [
        "label", "size",
    ],
    "SELECT label, count(*) FROM records GROUP BY ALL ORDER BY ALL": ["label"],
    "SELECT size FROM records ORDER BY *": ["size"],
    "SELECT label FROM records ORDER BY COLUMNS('si.*')": ALL,
    "SELECT DISTINCT ON (label) label, size FROM records ORDER BY label, size": ["label", "size"],
    # all columns
    "SELECT * FROM records": ALL,
    "FROM records": ALL,
    "TABLE records": ALL,
    "FROM records SELECT label": ["label"],
    "SELECT * EXCLUDE (image) FROM records": WITHOUT_IMAGE,
    "SELECT r.* EXCLUDE (image) FROM records r": WITHOUT_IMAGE,
    "SELECT * EXCLUDE (image), octet_length(image) FROM records": ALL,
    "SELECT * EXCLUDE (image) REPLACE (size + 1 AS size) FROM records": WITHOUT_IMAGE,
    "SELECT * RENAME (label AS l) FROM records": ALL,
    "SELECT COLUMNS('l.*|size') FROM records": ALL,
    "SELECT COLUMNS(lambda c: c LIKE 'l%') FROM records": ALL,
    "SELECT count(COLUMNS(*)) FROM records": ALL,
    "SELECT list(label ORDER BY ALL) FROM records": ALL,
    "SELECT * LIKE 'l%' FROM records": ALL,
    "SELECT place.* FROM records": ["place"],
    "SELECT unnest(place) FROM records": ["place"],
    "SELECT r FROM records r": ALL,
    "SELECT main.records FROM records": ALL,
    "SELECT count(DISTINCT r) FROM records r": ALL,
    "SELECT struct_extract(r, 'label') FROM records r": ALL,
    "SELECT records FROM records r": ["records"],
    "SELECT #2 FROM records": ALL,
    "SELECT c FROM records AS t(a, b, c)": ALL,
    "SELECT a FROM (FROM records) AS t(a)": ALL,
    "SELECT * FROM query('FROM records')": ALL,
    "SELECT label FROM query_table('records')": ALL,
    "VALUES (1), (2)": [],
    # joins
    "SELECT word FROM records JOIN words USING (label) ORDER BY ALL": ["label"],
    "SELECT word, image FROM records NATURAL JOIN words": ALL,
    "SELECT w.*, count(*) FROM records r JOIN words w USING (label) GROUP BY ALL ORDER BY ALL": [
        "label",
    ],
    "SELECT word FROM records POSITIONAL JOIN words": ["label"],
    "SELECT w.word FROM records r ASOF JOIN words w ON r.size >= w.size ORDER BY 1": ["size"],
    "SELECT label FROM records SEMI JOIN words USING (size)": ["label", "size"],
    "SELECT * FROM words WHERE label NOT IN (SELECT label FROM records)": ["label"],
    # statements besides SELECT
    "PIVOT (SELECT label, size FROM records) ON label IN (0, 1) USING sum(size)": ["label", "size"],
    "FROM (PIVOT records ON label IN (0, 1) USING sum(size) GROUP BY records)": ALL,
    'SELECT "0" FROM records PIVOT (sum(size) FOR label IN (0, 1))': ALL,
    "UNPIVOT (SELECT label, size FROM records) ON label, size INTO NAME n VALUE v": [
        "label", "size",
    ],
    "UNPIVOT records ON label, size INTO NAME n VALUE v": ALL,
    "DESCRIBE records": [],
    "DESCRIBE SELECT label FROM records": [],
    "SELECT column_name FROM (SHOW records)": [],
    "SUMMARIZE SELECT label, size FROM records": ["label", "size"],
    "SUMMARIZE records": ALL,
    "EXPLAIN ANALYZE SELECT label FROM records": ["label"],
}  # fmt: skip

if duckdb.__version__ >= "2":
    NEEDED["SELECT b.* FROM records a, LATERAL (SELECT a.*) b"] = ALL
    NEEDED["PIVOT records ON label USING sum(size) GROUP BY records"] = ALL


def _narrowed(
    sql: str, tables: dict[str, pa.Table] = TABLES
) -> tuple[list[dict[str, Any]], set[str]]:
    """Return the rows of a statement, and the columns of the records that were read for it."""
    columns: set[str] = set()

    def scan(name: str, names: Collection[str]) -> Iterator[pa.RecordBatch]:
        if name == "records":
            columns.update(names)
        return iter(tables[name].select([*names]).to_batches())

    scans = {name: (table.schema, partial(scan, name)) for name, table in tables.items()}
    with closing(connect()) as connection:
        sandbox = Sandbox(connection, scans, Statement.parse(connection, sql, tables))
        try:
            sandbox.check()
            return sandbox.read(as_text=False).read_all().to_pylist(), columns
        except Exception as error:
            raise sandbox.as_error(error) from error


@pytest.mark.parametrize("sql", thinned(NEEDED, every=3))
def test_answers_are_those_of_whole_tables(sql: str) -> None:
    """Only the columns that are needed are read, and DuckDB's answer is the same without others."""
    rows, columns = _narrowed(sql)
    assert columns == {*NEEDED[sql]}
    if sql.startswith("EXPLAIN"):
        return
    with duckdb.connect() as connection:
        for name, table in TABLES.items():
            connection.from_arrow(table).create(name)
        expected = connection.sql(sql).to_arrow_table().to_pylist()
    assert sorted(map(repr, rows)) == sorted(map(repr, expected))


def test_a_statement_that_is_deeper_than_json_can_be() -> None:
    """All columns may be needed for a tree that Python doesn't parse."""
    rows, columns = _narrowed(f"SELECT label{' + 1' * 480} AS n FROM records")
    assert [row["n"] for row in rows] == [480, 481, 481, 482]
    assert "label" in columns


def test_values_are_cast_whatever_follows_the_statement() -> None:
    """Types that Arrow doesn't have are text, and names that differ in case alone stay apart."""
    sql = 'SELECT INTERVAL 1 DAY AS "a""b", label AS d, size + 5 AS "D" FROM records'
    for end in ("", ";", "; -- the end", " -- the end", "; /* ; */ "):
        rows, _ = _narrowed(f"{sql} ORDER BY label DESC LIMIT 1{end}")
        assert rows == [{'a"b': "1 day", "d": 2, "D": 7}]


UNREADABLE = {
    "SELECT id FROM records": [{"id": 1}],
    "SELECT * EXCLUDE (Odd) FROM records": [{"id": 1}],
    "SELECT id FROM (FROM records)": [{"id": 1}],
    "SELECT count(*) AS n FROM records": [{"n": 1}],
    "SELECT column_name AS c FROM (DESCRIBE records)": [{"c": "odd"}, {"c": "id"}],
    "SELECT * FROM records": None,
    "SELECT count(ODD) FROM records": None,
    "SELECT r FROM records r": None,
    "SUMMARIZE records": None,
}


@pytest.mark.parametrize("sql", UNREADABLE)
def test_only_using_a_type_that_sql_cannot_read_is_an_error(sql: str) -> None:
    """The column exists all the same, and the error says to leave it out."""
    union = pa.UnionArray.from_dense(
        pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])]
    )
    tables = {"records": pa.table({"odd": union, "id": [1]})}
    expected = UNREADABLE[sql]
    if expected is not None:
        assert _narrowed(sql, tables)[0] == expected
        return
    with pytest.raises(UsageError, match=r"'odd' has the type dense_union<.*leave this column out"):
        _narrowed(sql, tables)


def test_an_unknown_column_is_compared_with_all_columns() -> None:
    """The hint has columns that the statement doesn't need."""
    with pytest.raises(UsageError, match=r"no column 'imag'; did you mean 'image'\?"):
        _narrowed("SELECT label, imag FROM records")


def test_types_that_sql_reads_as_others() -> None:
    """Half floats and tensors that DuckDB would reserve much memory for are read at any depth."""
    tensor = pa.array(
        [[[0] * 3_000] * 2 + [[7] * 3_000] * 2], pa.list_(pa.list_(pa.int8(), 3000), 4)
    )
    half = pa.array([[1.5, -2.0]], pa.list_(pa.float16(), 2))
    steps = pa.StructArray.from_arrays([tensor, half], ["tensor", "half"])
    sql = "SELECT r.steps.tensor[4][3000] + list_sum(r.steps.half) AS n FROM records r"
    assert _narrowed(sql, {"records": pa.table({"steps": steps})})[0] == [{"n": 6.5}]
    described = "SELECT column_type AS t FROM (DESCRIBE records)"
    ((row,), _) = _narrowed(described, {"records": pa.table({"steps": steps})})
    assert row["t"] == "STRUCT(tensor TINYINT[3000][], half FLOAT[2])"
