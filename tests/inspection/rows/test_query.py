"""Queries over records: their answers, what they read, and what they can't reach."""

from __future__ import annotations

import re
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfrtool
from tests.conftest import MakeShard
from tests.examples.strategies import int64, raw_example, string
from tests.records.strategies import shard_of
from tfrtool.errors import CorruptShardError, ShardError, UsageError
from tfrtool.examples.arrow.columns import Columns
from tfrtool.examples.example import PayloadKind, feature_key
from tfrtool.inspection.rows import query_tables
from tfrtool.inspection.rows.batches import infer_columns
from tfrtool.inspection.rows.batches import read_batches as read
from tfrtool.inspection.rows.database import connect
from tfrtool.inspection.rows.query import matching_records, query
from tfrtool.inspection.rows.query_request import QueryRequest
from tfrtool.inspection.rows.sandbox import unpack_batch
from tfrtool.inspection.rows.statement import Statement, check_condition
from tfrtool.records.framing import LocatedFault
from tfrtool.storage.progress import Progress

NOISE = np.random.default_rng(0)
N = NOISE.integers(-(2**62), 2**62, 500)
X = NOISE.normal(size=500).astype(np.float32)
LABELS = [b"cat", b"dog", b"\xff"]
ROWS = [{"n": int(N[i]), "x": float(X[i]), "label": LABELS[i % 3]} for i in range(500)]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return two shards of these rows."""
    folder = tmp_path_factory.mktemp("query")
    for name, rows in (("a", ROWS[:300]), ("b", ROWS[300:])):
        (folder / name).write_bytes(shard_of([tfrtool.encode_example(row) for row in rows]))
    return [folder / "a", folder / "b"]


def answer(
    paths: list[Path], sql: str, faults: list[LocatedFault] | None = None
) -> list[tuple[Any, ...]]:
    """Return the rows of an answer, without the process that a query has of its own."""
    sent: list[Any] = []
    columns = infer_columns(paths) if paths else Columns(PayloadKind.EXAMPLE)
    with pytest.MonkeyPatch.context() as patch, closing(connect()) as connection:
        statement = Statement.parse(connection, sql, ["records"])
        patch.setattr(query_tables, "send_to_parent", sent.append)
        known = {"records": query_tables._ShardTable(paths, columns, paths, {})}
        request = QueryRequest(shards=paths, sql=sql)
        query_tables._answer(connection, known, statement, request)
    found = [one for one in sent if isinstance(one, LocatedFault)]
    if faults is None:
        assert found == []
    else:
        faults += found
    batches = [unpack_batch(one) for one in sent if isinstance(one, bytes)]
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def test_answers_are_those_of_numpy(paths: list[Path]) -> None:
    """Figures of the records are what numpy makes of the same numbers."""
    is_dog = np.arange(500) % 3 == 1
    assert answer(paths, "SELECT count(*), sum(n), min(n), max(x) FROM records") == [
        (500, sum(N.tolist()), N.min(), float(X.max()))
    ]
    ((count, mean),) = answer(
        paths, "SELECT count(*), avg(x) FROM records WHERE label = 'dog' AND n > 0"
    )
    assert count == (is_dog & (N > 0)).sum()
    assert mean == pytest.approx(X[is_dog & (N > 0)].astype(float).mean(), abs=1e-12)
    groups = answer(paths, "SELECT label, count(*) FROM records GROUP BY label ORDER BY label")
    assert groups == [(b"cat", 167), (b"dog", 167), (b"\xff", 166)]
    top = answer(paths, "SELECT n FROM records WHERE x < 1 ORDER BY n DESC LIMIT 5")
    assert [n for (n,) in top] == sorted(N[X < 1].tolist(), reverse=True)[:5]


def test_rows_are_where_they_are(paths: list[Path]) -> None:
    """The columns of places say which record of which shard a row is; rows keep their order."""
    found = answer(paths, "SELECT n, _shard, _record, _offset, _bytes, _split FROM records")
    records = [
        (str(path), one.index, one.offset, len(one.payload), None)
        for path in paths
        for one in tfrtool.read(path)
        if isinstance(one, tfrtool.Record)
    ]
    assert found == [(n, *place) for n, place in zip(N.tolist(), records, strict=True)]


def test_a_join_of_records_with_themselves(paths: list[Path]) -> None:
    """A query may go through the records several times."""
    sql = "SELECT count(*) FROM records a JOIN records b ON a._record = b._record + 299"
    assert answer(paths, sql) == [(2,)]  # the last of one, and the first of both
    sql = "SELECT n FROM records WHERE n = (SELECT max(n) FROM records)"
    assert answer(paths, sql) == [(N.max(),)]


def test_only_what_is_named_is_decoded(paths: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A query decodes the columns that it names, in filters and joins as well."""
    asked: list[tuple[str, ...]] = []

    def spy(shards: Any, columns: Any, **options: Any) -> Any:
        asked.append(columns.names)
        return read(shards, columns, **options)

    monkeypatch.setattr(query_tables, "read_batches", spy)
    for sql, names in {
        "SELECT label, count(*) FROM records GROUP BY 1": [("label",)],
        "SELECT x FROM records WHERE n > 5 LIMIT 1": [("n", "x")],
        "SELECT count(*) FROM records": [()],
        "SELECT * FROM records": [("label", "n", "x")],
        "SELECT * EXCLUDE (label) FROM records": [("n", "x")],
        "WITH a AS (SELECT n FROM records) SELECT max(n), count(*) FROM a": [("n",)],
        "DESCRIBE records": [],
        "SELECT 1": [],
    }.items():
        asked.clear()
        answer(paths, sql)
        assert [*dict.fromkeys(asked)] == names, sql


def test_short_values_are_read_once(tmp_path: Path) -> None:
    """What doesn't need long values is answered from the pass that finds the types."""
    for n in range(2):
        rows = [{"image": b"\xff" + bytes(2000 + i), "label": i % 3} for i in range(5 + n)]
        (tmp_path / f"{n}").write_bytes(shard_of([tfrtool.encode_example(row) for row in rows]))
    shards = sorted(tmp_path.iterdir())

    def rows_of(sql: str, *, late: bool = False) -> list[Any]:
        def remove(progress: Progress) -> None:
            if late and progress.done == progress.total:
                for shard in shards:
                    shard.unlink(missing_ok=True)

        with query(shards, sql, on_fault=lambda _: None, on_progress=remove) as reader:
            return [tuple(row.values()) for row in reader.read_all().to_pylist()]

    long = "SELECT max(octet_length(image)) FROM records"
    assert rows_of(long) == [(2006,)]
    places = "SELECT _record, _offset, _bytes, label FROM records WHERE _shard LIKE '%1'"
    expected = rows_of(f"{places} AND octet_length(image) > 0")
    assert len(expected) == 6
    assert rows_of(places, late=True) == expected
    with pytest.raises(ShardError):
        rows_of(long)


def test_text_of_bytes(paths: list[Path]) -> None:
    """What takes text takes no bytes, and says how to make text of them: NULL if they are none."""
    text = "try(decode(label))"
    assert answer(paths, f"SELECT count(*) FROM records WHERE {text} LIKE '%o%'") == [(167,)]
    sql = f"SELECT DISTINCT replace({text}, 'o', 'ä') AS l FROM records ORDER BY l"
    assert answer(paths, sql) == [("cat",), ("däg",), (None,)]
    assert answer(paths, "SELECT count(*) FROM records WHERE label IN ('dog', 'cat')") == [(334,)]
    for condition, what in {
        "label LIKE '%o%'": "'LIKE': .BLOB",
        "upper(label) = 'DOG'": "'upper': .BLOB",
        "label IN ('dog', 'ä')": "can't be compared with 'ä'",
    }.items():
        with pytest.raises(UsageError, match=what + r".*try\(decode\(x\)\)"):
            answer(paths, f"SELECT count(*) FROM records WHERE {condition}")


@pytest.mark.parametrize(
    ("expression", "what"),
    [
        ("n % 0", "division by zero in .* use TRY"),
        ("n::DATE", "BIGINT can't be converted to DATE"),
        ("n.x", "n is not a struct, so it has no field 'x'"),
        ("CAST('abc' AS INTEGER)", "'abc' is not a valid INT32"),
    ],
)
def test_errors_of_expressions(paths: list[Path], expression: str, what: str) -> None:
    """They say what is wrong without advice that can't be followed, such as to change settings."""
    with pytest.raises((UsageError, ShardError), match=what) as found:
        answer(paths, f"SELECT {expression} FROM records")
    assert "SET " not in str(found.value)


def test_columns_that_the_check_does_not_need(make_shard: MakeShard) -> None:
    """A condition that is NULL for a row of nulls still reads its columns."""
    values: list[dict[str, Any]] = [{"a": 1}, {"b": ["x"]}, {"b": ["x", "y"]}]
    path = make_shard([tfrtool.encode_example(value) for value in values])
    compared = " OR ".join(f'(len("b") {sign} 0)' for sign in "=<>")
    assert matching_records([path], f"NOT ({compared})", on_fault=print) == {path: []}
    assert matching_records([path], compared, on_fault=print) == {path: [1, 2]}


def test_names_of_any_sort(tmp_path: Path) -> None:
    """Names in SQL may have quotes, be empty, differ in case alone, or be no UTF-8."""
    from tests.examples.strategies import entry

    keys = [b'a"b', b"", b"X", b"x", b"\xff", b"records", b"c0", b"_shard"]
    payload = raw_example([entry(key, int64(n)) for n, key in enumerate(keys)])
    path = tmp_path / "a"
    path.write_bytes(shard_of([payload]))
    sql = 'SELECT "a""b", "X", "x_", records.records, "c0" FROM records'
    assert answer([path], sql) == [(0, 2, 3, 5, 6)]
    sql = "SELECT * EXCLUDE (_record, _offset, _bytes) FROM records"
    ((*values,),) = answer([path], sql)
    assert {one for one in values if isinstance(one, int)} == set(range(8))
    assert feature_key("a") == b"a"


def test_damage_is_skipped(tmp_path: Path) -> None:
    """Damaged records and those that are no Examples are told once, and leave no rows."""
    data = bytearray(shard_of([tfrtool.encode_example({"n": n}) for n in range(9)] + [b"noise"]))
    data[20] ^= 1
    path = tmp_path / "a"
    path.write_bytes(data)
    faults: list[LocatedFault] = []
    sql = "SELECT count(*) FROM records a, records b WHERE a.n = b.n"
    with query([path], sql, on_fault=faults.append) as rows:
        assert rows.read_all().to_pydict() == {"count_star()": [8]}
    assert [(one.fault.kind.value, one.fault.record) for one in faults] == [
        ("payload-crc", 0),
        ("parse", 9),
    ]

    def stop(found: LocatedFault) -> None:
        raise CorruptShardError("stopped", path=found.path, record=found.fault.record)

    with pytest.raises(CorruptShardError) as caught, query([path], sql, on_fault=stop) as rows:
        rows.read_all()
    assert caught.value.record == 0


def test_sequences_and_others(tmp_path: Path) -> None:
    """SequenceExamples have two structs, records of disagreeing types one, others a payload."""
    from tests.examples.strategies import entry

    payload = raw_example([entry(b"id", int64(7))], {b"words": [string(b"a"), string(b"b")]})
    path = tmp_path / "a"
    path.write_bytes(shard_of([payload] * 2))
    sql = "SELECT context.id, len(feature_lists.words) FROM records LIMIT 1"
    assert answer([path], sql)[0][1] == 2
    # DuckDB 1.5, the last for Python 3.10, has no structs with an empty name.
    unnamed = {b"": [int64(1)]} if sys.version_info >= (3, 11) else {}
    odd = raw_example([entry(b'"a\'b" (', int64(7))], {b"\xff": [string(b"a")]} | unnamed)
    path.write_bytes(shard_of([odd] * 2))
    assert answer([path], "SELECT _record FROM records") == [(0,), (1,)]
    assert answer([path], "SELECT context FROM records")[0] == ({'"a\'b" (': 7},)
    path.write_bytes(shard_of([tfrtool.encode_example({"a": value}) for value in (1, b"x")]))
    assert answer([path], "SELECT a.int64_list, a.bytes_list FROM records") == [
        ([1], None),
        (None, [b"x"]),
    ]
    path.write_bytes(shard_of([b"some text", b"more"]))
    assert answer([path], "SELECT payload FROM records WHERE _bytes < 5") == [(b"more",)]


ATTACKS = {
    "SELECT 1; DROP VIEW records": "single SELECT",
    "COPY records TO '/tmp/out.csv'": "COPY",
    "COPY (SELECT 1) TO '/tmp/out.csv'": "COPY",
    "ATTACH '/tmp/a.db'": "ATTACH",
    "INSTALL httpfs": "SELECT|LOAD",
    "LOAD httpfs": "LOAD",
    "SET memory_limit = '1TB'": "SET|VARIABLE",
    "PRAGMA memory_limit = '1TB'": "single SELECT|locked",
    "CALL pragma_version()": "CALL",
    "CREATE TABLE a AS SELECT 1": "CREATE",
    "EXPORT DATABASE '/tmp/x'": "EXPORT",
    "": "nothing",
    "-- nothing": "nothing",
    "SELECT * FROM read_csv('/etc/passwd')": "only the records",
    "SELECT * FROM read_parquet('/tmp/x.parquet')": "only the records",
    "SELECT * FROM read_text('/etc/passwd')": "only the records",
    "SELECT * FROM read_blob('https://localhost/x')": "only the records",
    "SELECT * FROM '/etc/passwd'": "passwd",
    "SELECT * FROM glob('/etc/*')": "only the records",
    "SELECT * FROM duckdb_extensions()": "disabled by configuration",
    "SELECT getenv('HOME')": "getenv",
    "SELECT * FROM paths": "paths",
    "SELECT * FROM query('COPY (SELECT 1) TO ''/tmp/x''')": "SELECT",
    "SELECT * FROM json_execute_serialized_sql(json_serialize_sql("
    "'SELECT * FROM read_text(''/etc/passwd'')'))": "only the records",
    "SELECT * FROM query('SELECT * FROM read_text(''/etc/passwd'')')": "only the records",
    "SELECT * FROM sniff_csv('/etc/passwd')": "only the records",
    "DESCRIBE SELECT * FROM read_text('/etc/passwd')": "only the records",
    "SELECT * FROM arrow_scan_dumb(1, 2, 3)": "argument types",
    "SELECT * FROM arrow_scan_dumb(1::POINTER, 2::POINTER, 3::POINTER)": "POINTER",
    "FROM enable_logging(storage := 'stdout')": "locked",
    "FROM query('FROM enable_' || 'profiling()')": "locked",
    "WITH a AS (INSERT INTO records VALUES (1)) SELECT 1": "found.*INSERT|a SELECT",
    "WITH a AS (COPY (SELECT 1) TO '/tmp/out.csv') SELECT * FROM a": "found.*COPY|a SELECT",
    "SELECT (WITH a AS (DELETE FROM records) SELECT 1)": "found.*DELETE|a SELECT",
    "EXPLAIN ANALYZE DELETE FROM records": "DELETE",
    "ANALYZE SELECT 1": "syntax error",
    "SELECT * FROM sys": "sys",
    "SELECT n, n FROM records": "'n'.*AS",
    "SELECT lable FROM records": "did you mean 'label'",
    "SELECT nothing FROM elsewhere": "elsewhere",
    "SELEC": "syntax error",
}


@pytest.mark.parametrize("sql", ATTACKS)
def test_what_sql_can_not_do(paths: list[Path], sql: str) -> None:
    """It reads nothing but the records, writes nothing, and changes no settings."""
    with pytest.raises(UsageError, match=ATTACKS[sql]):
        answer(paths, sql)
    assert not Path("/tmp/out.csv").exists()


@pytest.mark.parametrize("word", ['column "', "Function with ", "no column '"])
def test_a_long_value_in_an_error_takes_no_time(tmp_path: Path, word: str) -> None:
    """A record's value looks like DuckDB's messages, again and again: it would take hours."""
    value = word * (3_000_000 // len(word))
    path = tmp_path / "a.tfrecord"
    path.write_bytes(shard_of([tfrtool.encode_example({"text": value})]))
    with pytest.raises(tfrtool.ShardError) as caught:
        answer([path], "SELECT CAST(text AS INTEGER) FROM records")
    assert len(str(caught.value)) < 1000


WRONG = {
    "SELECT lable FROM records": "no column 'lable'; did you mean 'label'",
    "SELECT quux FROM records": "no column 'quux'; columns are ",
    'SELECT n FROM records WHERE label = "quux"': "single quotes.*'quux'",
    "SELECT n": "no column 'n'; add FROM records",
    "SELECT n FROM elsewhere": "no table 'elsewhere'; use FROM records",
    "SELECT elsewhere.n FROM records": "no table 'elsewhere'; use FROM records",
    "SELECT lenght(label) FROM records": "no function 'lenght'; did you mean 'length'",
    "SELECT n + label FROM records": r"types for '\+': \(BIGINT, BLOB\)",
    "SELECT n FORM records": "syntax error near 'records'",
}


@pytest.mark.parametrize("sql", WRONG)
def test_what_is_wrong_is_said_in_terms_of_the_query(paths: list[Path], sql: str) -> None:
    """One line with the name or value that is wrong, and none of the database's own names."""
    with pytest.raises(tfrtool.TfrtoolError, match=WRONG[sql]) as caught:
        answer(paths, sql)
    line = str(caught.value)
    assert re.search(r"LINE|Error|clause!|Candidate|\b[ctv][0-9a-f]{16}\b", line) is None


def test_settings_are_locked(paths: list[Path]) -> None:
    """What locks the database down is in force, and can't be taken back."""
    names = (
        "enable_external_access", "lock_configuration", "autoload_known_extensions",
        "autoinstall_known_extensions", "allow_community_extensions", "temp_directory",
    )  # fmt: skip
    settings = ", ".join(f"current_setting('{name}')" for name in names)
    assert answer(paths, f"SELECT {settings}") == [(False, True, False, False, False, "")]


def test_no_setting_shows_where_the_user_lives(paths: list[Path]) -> None:
    """None of DuckDB's settings names a folder of this machine."""
    found = dict(answer(paths, "SELECT name, value FROM duckdb_settings()"))
    folders = [str(Path.home()), str(Path.cwd())]
    assert [name for name, value in found.items() if any(map(str(value).count, folders))] == []
    assert found["allowed_paths"] == found["allowed_directories"] == "[]"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT len(range(800000000))",
        "SELECT repeat('abcdefgh', 500000000)",
        "SELECT list(i) FROM range(1000000000000) t(i)",
    ],
)
def test_memory_is_bounded(paths: list[Path], sql: str) -> None:
    """A query that needs more memory than there may be ends, however the memory would be used."""
    with (
        pytest.raises(ShardError, match=r"2\.0 GiB of memory"),
        query(paths, sql, on_fault=print) as rows,
    ):
        rows.read_all()


def test_a_value_that_fails_is_not_a_wrong_query(paths: list[Path]) -> None:
    """What fails at a value of the records is an error of these; a wrong query is one of usage."""
    for sql in ("SELECT CAST(decode(label) AS INT) FROM records", "SELECT n * n FROM records"):
        with pytest.raises(ShardError) as caught:
            answer(paths, sql)
        assert caught.value.exit_code == 1
    with pytest.raises(UsageError, match="no column 'lable'; did you mean 'label'"):
        answer(paths, "SELECT lable FROM records")


def test_splits_and_class_names(tmp_path: Path) -> None:
    """A row knows its split, and the name of its class where such names are known."""
    for split, labels in (("train", [0, 1, 5]), ("test", [1])):
        payloads = [tfrtool.encode_example({"label": label}) for label in labels]
        path = tmp_path / f"pets-{split}.tfrecord-00000-of-00001"
        path.write_bytes(shard_of(payloads))
    sql = "SELECT _split, label, label_name FROM records ORDER BY ALL"
    shards = tfrtool.find_shards(tmp_path)
    with (
        pytest.raises(UsageError, match="no column 'label_name'"),
        query(shards, sql, on_fault=print) as rows,
    ):
        rows.read_all()
    tmp_path.joinpath("label.labels.txt").write_text("cat\ndog\n")
    with query(shards, sql, sources=tmp_path, on_fault=print) as rows:
        found = [tuple(row.values()) for row in rows.read_all().to_pylist()]
    assert found == [
        ("test", 1, "dog"), ("train", 0, "cat"), ("train", 1, "dog"), ("train", 5, None)
    ]  # fmt: skip


REFUSED = {
    "": "empty",
    "-- nothing": "invalid condition",
    "n =": "incomplete",
    "n = 1)": "brackets",
    "n = 1; DROP TABLE records": "invalid condition",
    "n = 1) OR (n = 2": "invalid condition",
    "n = 1) UNION SELECT (1": "invalid condition",
    "n = 1) /*": "invalid condition|unterminated",
    "(n = 1": "invalid condition",
    "n = 1 ORDER BY n": "syntax error",
}


@pytest.mark.parametrize("sql", REFUSED)
def test_what_is_no_condition(sql: str) -> None:
    """A text that is more or less than an expression is a usage error in one line."""
    refused = pytest.raises(UsageError, match=REFUSED[sql])
    with closing(connect()) as connection, refused as caught:
        check_condition(connection, sql)
    assert "\n" not in str(caught.value)


def test_matching_records(paths: list[Path]) -> None:
    """A condition finds the numbers of records in each shard."""
    found = matching_records(paths, "label = 'dog' AND n > 0 -- and a comment", on_fault=print)
    wanted = [i for i in range(500) if i % 3 == 1 and N[i] > 0]
    assert found == {
        paths[0]: [i for i in wanted if i < 300],
        paths[1]: [i - 300 for i in wanted if i >= 300],
    }
    with pytest.raises(UsageError, match="aggregates"):
        matching_records(paths, "count(*) > 1", on_fault=print)


def test_columns_of_large_shards(
    paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several processes find the columns of large shards, before that of the query answers."""
    damaged = tmp_path / "damaged"
    data = bytearray(paths[0].read_bytes())
    data[20] ^= 1
    damaged.write_bytes(data)
    monkeypatch.setattr("tfrtool.inspection.rows.query._SHORT", 0)
    sql = "SELECT label, count(*) AS n FROM records GROUP BY label ORDER BY label"
    faults = list[LocatedFault]()
    with query([*paths, damaged], sql, on_fault=faults.append) as reader:
        found = [(*row.values(),) for row in reader.read_all().to_pylist()]
    assert found == [(b"cat", 167 + 99), (b"dog", 167 + 100), (b"\xff", 166 + 100)]
    assert [(one.path, one.fault.record) for one in faults] == [(damaged, 0)]
