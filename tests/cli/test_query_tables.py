"""``tfrtool query`` with other tables, statements besides SELECT, and what tables show."""

from __future__ import annotations

import gzip
import io
import json
import os
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

import tfrtool
from tests.datasets import flip_bit
from tests.more import thinned
from tests.photos import image_bytes
from tests.records.strategies import shard_of
from tfrtool.cli import main

ARROW = ["--format", "arrow"]
Capture = pytest.CaptureFixture[str]
ROWS: list[dict[str, Any]] = [
    {"image": image_bytes(size=(20 + n, 30), tint=n), "label": n % 3, "name": f"{n}.jpg"}
    for n in range(12)
]
NAMES = ("label", "word", "day")
WORDS = [(0, "zero", "2020-02-29"), (1, "one, 1", None), (5, "five", "1999-12-31")]


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a shard of small images with labels and names."""
    path = tmp_path_factory.mktemp("rows") / "rows.tfrecord"
    path.write_bytes(shard_of([tfrtool.encode_example(row) for row in ROWS]))
    return path


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return files of each format that all have the words of some labels."""
    folder = tmp_path_factory.mktemp("words")
    table = pa.table(dict(zip(NAMES, map(list, zip(*WORDS, strict=True)), strict=True)))
    lines = "".join(json.dumps(row) + "\n" for row in table.to_pylist())
    rows = "".join(f'{a},"{b}",{c or ""}\n' for a, b, c in WORDS)
    files = {one: folder / f"words.{one}" for one in ("csv", "csv.gz", "jsonl", "parquet", "arrow")}
    files["csv"].write_text(f"label,word,day\n{rows}")
    files["csv.gz"].write_bytes(gzip.compress(files["csv"].read_bytes()))
    files["jsonl"].write_text(lines)
    pq.write_table(table, files["parquet"])
    feather.write_feather(table, files["arrow"])
    files["tfrecord"] = folder / "words.tfrecord"
    examples = [
        {name: value for name, value in row.items() if value is not None}
        for row in table.to_pylist()
    ]
    files["tfrecord"].write_bytes(shard_of(list(map(tfrtool.encode_example, examples))))
    return files


def query(capsys: Capture, *arguments: str | Path, code: int = 0) -> tuple[str, str]:
    """Run the command; return what it printed on stdout and stderr."""
    assert main(["query", *map(str, arguments)]) == code
    out, err = capsys.readouterr()
    return out, err


def _rows(capsys: Capture, *arguments: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in query(capsys, *arguments, "--json")[0].splitlines()]


def _expected(sql: str) -> list[dict[str, Any]]:
    """Return what DuckDB itself answers with the same tables."""
    with duckdb.connect() as connection:
        connection.register("records", pa.Table.from_pylist(ROWS))
        connection.register(
            "w", pa.Table.from_pylist([dict(zip(NAMES, one, strict=True)) for one in WORDS])
        )
        found = connection.sql(sql)
        return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]


JOIN = (
    "SELECT r.label, w.word, CAST(w.day AS VARCHAR) AS day, count(*) AS n FROM records r "
    "LEFT JOIN w ON w.label = r.label GROUP BY ALL ORDER BY ALL"
)


@pytest.mark.parametrize(
    "form", thinned(["csv", "csv.gz", "jsonl", "arrow", "parquet", "tfrecord"], every=2)
)
def test_a_file_is_joined(shard: Path, words: dict[str, Path], form: str, capsys: Capture) -> None:
    """Each format gives what DuckDB gives for the same rows."""
    found = _rows(capsys, shard, JOIN, "--with", f"w={words[form]}")
    assert found == _expected(JOIN)
    assert {"label": 1, "word": "one, 1", "day": None, "n": 4} in found


MANY = "".join(f"{n},{n}\n" for n in range(30_000))
CSV = {
    "a;b\n1;x, y\n": [{"a": 1, "b": "x, y"}],
    "a,d\n1,2024-01-05\n2,05/06/2024\n": [{"a": 1, "d": "2024-01-05"}, {"a": 2, "d": "05/06/2024"}],
    "d\n05/06/2024\n": [{"d": "05/06/2024"}],
    "t\n05/06/2024 10:00:00\n": [{"t": "05/06/2024 10:00:00"}],
    "t,u\n2024-05-06T10:00,2024-02-30 10:00\n": [
        {"t": "2024-05-06T10:00", "u": "2024-02-30 10:00"}
    ],
    "a,b,c\n1e400,1e300,inf\n2,3,4\n": [
        {"a": "1e400", "b": 1e300, "c": "Infinity"},
        {"a": "2", "b": 3.0, "c": 4.0},
    ],
    "n,m\n9007199254740993,9007199254740992\n1.5,1.5\n": [
        {"n": "9007199254740993", "m": 9007199254740992.0},
        {"n": "1.5", "m": 1.5},
    ],
    "zip,b\n02134,#1\n#2,\n": [{"zip": "02134", "b": "#1"}, {"zip": "#2", "b": None}],
    "a,b\n1,2\n3,4,5\n": "w.csv, record 1: 3 cells in a table of 2 columns",
    "a,b\n1,2,\n": "w.csv, record 0: 3 cells in a table of 2 columns",
    "# note\na,b\n1,2\n": "w.csv, record 0: 2 cells in a table of 1 column",
    'a,b\n1,"x\n2,y\n': "w.csv: line 3: invalid CSV: the file ends inside a quoted cell",
    f"a,b\n{MANY}1,2,3\n": "w.csv, record 30000: 3 cells in a table of 2 columns",
    'a,b,c\n1,"",""\n2,,\n,"x, y",3\n': [
        {"a": 1, "b": "", "c": None},
        {"a": 2, "b": None, "c": None},
        {"a": None, "b": "x, y", "c": 3},
    ],
    "id,n\n0x10,9007199254740993.0\n0x1F,0.5\n": [
        {"id": "0x10", "n": "9007199254740993.0"},
        {"id": "0x1F", "n": "0.5"},
    ],
    "time,big,bigger,yes\n13:00:00.1234567,18446744073709551615,18446744073709551616,true\n": [
        {
            "time": "13:00:00.1234567",
            "big": 18446744073709551615,
            "bigger": "18446744073709551616",
            "yes": "true",
        }
    ],
}


JSON = (
    {"a b": 12345678901234567890123, "n": {"x y": ["1"]}, "d": 1.5, "mixed": 1, "deep": [[1]]},
    {"a b": 1, "n": None, "d": 1e30, "mixed": "1", "deep": [None, [2**63 + 1, 0.5]]},
    {"n": {"x y": []}, "d": 2**53, "mixed": {"k": [2**70]}, "a\0b": 1, "a\0c": 2, "": 3},
)


def test_no_value_of_json_is_changed(shard: Path, tmp_path: Path, capsys: Capture) -> None:
    """A column that no type holds exactly has text: the numbers, or JSON of values of all kinds."""
    (tmp_path / "w.jsonl").write_text("".join(json.dumps(row) + "\n" for row in JSON))
    found = _rows(capsys, shard, "SELECT * FROM w", "--with", f"w={tmp_path / 'w.jsonl'}")
    rows = [dict.fromkeys({**JSON[0], **JSON[2]}) | row for row in JSON]
    for row in rows:
        row["a b"] = row["a b"] and str(row["a b"])
        row["mixed"] = json.dumps(row["mixed"])
        row["_"] = row.pop("")
    rows[0]["deep"], rows[1]["deep"] = [["1"]], [None, [str(2**63 + 1), "0.5"]]
    assert found == rows


def test_a_folder_names_no_column(
    shard: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parents such as a=5 replace neither columns of a joined file nor those of a report's rows."""
    folder = tmp_path / "a=5" / "shard=7" / "[x]"
    folder.mkdir(parents=True)
    (folder / "w.csv").write_text("a,b\n1,2\n")
    pq.write_table(pa.table({"a": [1], "shard": [2]}), folder / "w.parquet")
    tables = ["--with", f"c={folder / 'w.csv'}", "--with", f"p={folder / 'w.parquet'}"]
    sql = "SELECT c.a, c.b, p.a AS d, p.shard FROM c JOIN p USING (a)"
    assert _rows(capsys, shard, sql, *tables) == [{"a": 1, "b": 2, "d": 1, "shard": 2}]
    texts = list[bytes]()
    for temporary in (tmp_path, folder):
        monkeypatch.setattr("tempfile.tempdir", str(temporary))
        page = tmp_path / f"{len(texts)}.html"
        assert main(["report", str(shard), "--out", str(page)]) == 0
        texts.append(page.read_bytes())
    assert texts[0] == texts[1]


@pytest.mark.more
def test_types_that_sql_cannot_read(shard: Path, tmp_path: Path, capsys: Capture) -> None:
    """float16 is read as float32. A union is an error only if the query uses it."""
    values = pa.UnionArray.from_dense(
        pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32()), [pa.array([1]), pa.array(["x"])]
    )
    halves = pa.array([[1.5], [65504.0]], pa.list_(pa.float16()))
    table = pa.table([[0, 1], halves, values], names=["id", "half", "any"])
    with pa.ipc.new_file(tmp_path / "w.arrow", table.schema) as file:
        file.write_table(table)
    words = "--with", f"w={tmp_path / 'w.arrow'}"
    found = _rows(capsys, shard, "SELECT id, half FROM w ORDER BY id", *words)
    assert found == [{"id": 0, "half": [1.5]}, {"id": 1, "half": [65504.0]}]
    _, err = query(capsys, shard, "SELECT * FROM w", *words, code=2)
    spans = pa.table({"span": pa.array([1000, 1500], pa.duration("ns"))})
    for name, rows in (("even", spans[:1]), ("fine", spans)):
        with pa.ipc.new_file(tmp_path / f"{name}.arrow", rows.schema) as file:
            file.write_table(rows)
    words = "--with", f"w={tmp_path / 'even.arrow'}"
    assert _rows(capsys, shard, "FROM w", *words) == [{"span": "00:00:00.000001"}]
    _, fine = query(capsys, shard, "FROM w", "--with", f"w={tmp_path / 'fine.arrow'}", code=1)
    assert "SQL can't hold durations finer than microseconds" in fine
    assert err.startswith("tfrtool: error: column 'any' has the type dense_union<")
    assert err.endswith(", which SQL can't read; leave this column out\n")


@pytest.mark.parametrize("number", thinned(range(len(CSV)), every=4))
def test_no_value_of_csv_is_changed_or_skipped(
    shard: Path, tmp_path: Path, number: int, capsys: Capture
) -> None:
    """All lines are rows, days and months are not guessed, and zeros stay; or it is an error."""
    text, expected = [*CSV.items()][number]
    (tmp_path / "w.csv").write_text(text)
    words = shard, "SELECT * FROM w", "--with", f"w={tmp_path / 'w.csv'}"
    if isinstance(expected, list):
        assert _rows(capsys, *words) == expected
    else:
        assert str(expected) in query(capsys, *words, code=1)[1]


def test_several_tables_are_joined(shard: Path, words: dict[str, Path], capsys: Capture) -> None:
    """Tables of all kinds can be in one query, the records of the shards twice."""
    sql = "SELECT a.word, b.day, count(*) AS n FROM records r JOIN a USING (label) JOIN b "
    sql += "USING (label) JOIN again ON again.name = r.name GROUP BY ALL ORDER BY ALL"
    tables = ["--with", f"a={words['csv']}", "--with", f"b={words['parquet']}"]
    found = _rows(capsys, shard, sql, *tables, "--with", f"again={shard}")
    assert found == [
        {"word": "one, 1", "day": None, "n": 4},
        {"word": "zero", "day": "2020-02-29", "n": 4},
    ]


def test_damage_in_a_joined_shard_is_listed(shard: Path, tmp_path: Path, capsys: Capture) -> None:
    """It is skipped like that of the records, and the exit code says so."""
    copy = tmp_path / "copy.tfrecord"
    copy.write_bytes(shard.read_bytes())
    flip_bit(copy, copy.stat().st_size - 30)
    sql = "SELECT count(*) AS n FROM records JOIN again USING (name)"
    out, err = query(capsys, shard, sql, "--with", f"again={copy}", "--json", code=3)
    assert json.loads(out) == {"n": 11}
    assert "copy.tfrecord:11: payload-crc at offset" in err


BAD_TABLES = {
    "w={empty}": "empty.csv: it is empty",
    "w": "invalid --with 'w': expected NAME=FILE",
    "records={csv}": "invalid table name 'records': expected letters, digits and _",
    "a b={csv}": "invalid table name 'a b': expected letters, digits and _",
    "w={csv}.none.csv": "can't be read: no such file or directory",
    "w=s3://bucket/a.csv": "only local CSV and JSON files can be joined",
    "w={fifo}": "a pipe or a device, not a regular file",
    "w={broken}": "b.jsonl: line 2: not valid JSON (column 6)",
    "w={utf16}": "u.csv: line 1 is not valid UTF-8; save the table as UTF-8",
    "w={twice}": "2 columns are named 'a'",
    "w={fake}": "not a Parquet file",
    "w=/etc/passwd": "not a TFRecord file",
}


@pytest.mark.parametrize("table", thinned(BAD_TABLES, every=3))
def test_what_cannot_be_joined(
    shard: Path,
    words: dict[str, Path],
    table: str,
    tmp_path: Path,
    capsys: Capture,
) -> None:
    """One line says what is wrong with the table, and which file it is."""
    broken, fake, fifo = tmp_path / "b.jsonl", tmp_path / "f.parquet", tmp_path / "p.csv"
    empty = tmp_path / "empty.csv"
    empty.touch()
    broken.write_text('{"a": 1}\n{"a": \n')
    utf16, twice = tmp_path / "u.csv", tmp_path / "t.parquet"
    utf16.write_text("a,b\n1,2\n", "utf-16")
    pq.write_table(pa.table([[1], [2]], names=["a", "a"]), twice)
    fake.write_bytes(b"PAR1 and nothing else")
    os.mkfifo(fifo)
    text = table.format(
        csv=words["csv"],
        broken=broken,
        fake=fake,
        fifo=fifo,
        empty=empty,
        utf16=utf16,
        twice=twice,
    )
    assert main(["query", str(shard), "SELECT 1", "--with", text]) in (1, 2)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert BAD_TABLES[table] in err


def test_no_other_file_can_be_read(shard: Path, words: dict[str, Path], capsys: Capture) -> None:
    """A joined file opens no way to those beside it, by whatever function."""
    other = words["csv"].with_name("words.jsonl")
    for sql in (f"FROM read_json('{other}')", f"FROM '{other.parent}/*'", f"FROM '{other}'"):
        out, err = query(capsys, shard, sql, "--with", f"w={words['csv']}", code=2)
        assert out == ""
        assert err.count("\n") == 1


def test_pivot_describe_and_summarize(shard: Path, capsys: Capture) -> None:
    """Values to pivot on are found in the records; other statements work on named columns."""
    pivot = "PIVOT (SELECT label, length(name) AS size FROM records) ON label USING count(*) AS n"
    pivot += " ORDER BY size"
    assert _rows(capsys, shard, pivot) == _expected(pivot)
    fixed = "PIVOT (SELECT label, 1 AS one FROM records) ON label IN (0, 2) USING count(*)"
    assert _rows(capsys, shard, fixed) == _expected(fixed)
    described = _rows(capsys, shard, "DESCRIBE SELECT image, label, name FROM records")
    assert [(one["column_name"], one["column_type"]) for one in described] == [
        ("image", "BLOB"),
        ("label", "BIGINT"),
        ("name", "VARCHAR"),
    ]
    (summed,) = _rows(capsys, shard, "SUMMARIZE SELECT label FROM records")
    assert (summed["min"], summed["max"], summed["count"]) == ("0", "2", 12)


def test_images_in_tables_are_described(shard: Path, capsys: Capture) -> None:
    """A table has what an image is; JSON has its bytes."""
    sql = "SELECT image, [image] AS images FROM records WHERE _record = 3"
    out, _ = query(capsys, shard, sql)
    size = len(ROWS[3]["image"])
    shown = f"<JPEG 23x30, {size} B>" if size < 1024 else f"<JPEG 23x30, {size / 1024:.1f} KiB>"
    assert out.split("\n")[1].split("  ")[1:] == [shown, f'["{shown}"]']
    assert '{"base64": ' in query(capsys, shard, sql, "--json")[0]
    out, _ = query(capsys, shard, "SELECT encode(repeat('a', 50)) || '\\xFF'::BLOB AS b")
    assert out.splitlines()[1] == "  <binary, 51 B>"
    out, _ = query(capsys, shard, "SUMMARIZE SELECT image FROM records")
    assert max(map(len, out.splitlines())) < 250


ERRORS = {
    "EXPLAIN DELETE FROM records": "expected a single SELECT statement, found DELETE",
    "SHOW TABLES": "SHOW is not supported; use DESCRIBE records to list the columns",
    "SELECT label, count(*) FROM records": "column 'label' must be in GROUP BY or in an aggregate",
    "SELECT label[1] FROM records": "a value of type BIGINT is not a list",
    "FROM word": "no table 'word'; did you mean 'words'?",
    "SELECT wrd FROM words": "no column 'wrd'; did you mean 'word'?",
}


@pytest.mark.parametrize("sql", ERRORS)
def test_errors_are_in_the_terms_of_the_query(
    shard: Path, words: dict[str, Path], sql: str, capsys: Capture
) -> None:
    """They name tables and columns as the user knows them."""
    _, err = query(capsys, shard, sql, "--with", f"words={words['csv']}", code=2)
    assert ERRORS[sql] in err


def test_arrow_on_stdout(shard: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Query and cat write a stream with types that pyarrow reads; nothing else is on stdout."""
    assert main(["query", str(shard), "SELECT label, now()::DATE d FROM records", *ARROW]) == 0
    found = pa.ipc.open_stream(capfdbinary.readouterr().out).read_all()
    assert found.column("label").to_pylist() == [row["label"] for row in ROWS]
    assert found.schema.field("d").type == pa.date32()
    assert main(["cat", str(shard), "--where", "label = 1", "--select", "name", *ARROW]) == 0
    rows = pa.ipc.open_stream(capfdbinary.readouterr().out).read_all().to_pylist()
    expected = [(str(shard), n, row["name"]) for n, row in enumerate(ROWS) if row["label"] == 1]
    assert [tuple(row.values()) for row in rows] == expected


def test_arrow_is_not_written_to_a_terminal(
    shard: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cat, query and convert refuse it before they read anything."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for call in (["cat", shard, *ARROW], ["query", shard, "SELECT 1", *ARROW]):
        assert main([*map(str, call)]) == 2
        assert "can't be shown in a terminal" in capsys.readouterr().err
    assert main(["convert", str(shard), "-", "--to", "arrow"]) == 2
    assert not [*tmp_path.iterdir()]


STYLE = ["--format", "csv", "--delimiter", "tab", "--quote", "'", "--null", "NA", "--no-header"]


def test_csv_as_it_is_asked_for(shard: Path, capsys: Capture) -> None:
    """Delimiter, quotation mark, header and null are the same in cat and query."""
    sql = "SELECT label, NULL, 'a\tb' FROM records WHERE label = 1 LIMIT 1"
    assert main(["query", str(shard), sql.replace("NULL", "NULL AS n"), *STYLE]) == 0
    assert capsys.readouterr().out == "1\tNA\t'a\tb'\n"
    assert main(["cat", str(shard), "--records", "1", "--select", "label,name", *STYLE]) == 0
    assert capsys.readouterr().out == f"{shard}\t1\t1\t1.jpg\n"
    for words in (["--null", "x"], ["--format", "csv", "--delimiter", "ab"]):
        assert main(["cat", str(shard), *words]) == 2


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_standard_input_is_a_table(
    shard: Path, words: dict[str, Path], form: str, capsys: Capture, monkeypatch: Any
) -> None:
    """Its format is detected; errors name it -."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(words[form].read_bytes())))
    sql = "SELECT word FROM w WHERE label = 1"
    assert main(["query", str(shard), sql, "--with", "w=-", "--format", "csv"]) == 0
    assert capsys.readouterr().out == 'word\n"one, 1"\n'
    if form == "csv":
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"[1, 2")))
        assert main(["query", str(shard), sql, "--with", "w=-"]) == 1
        assert "error: -, offset 5: invalid JSON" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["EXPLAIN", "explain analyze"])
def test_explain_has_the_names_of_the_query(shard: Path, capsys: Capture, word: str) -> None:
    """A plan is one column of text, without names that only DuckDB has."""
    sql = f"{word} SELECT label, count(*) FROM records WHERE label > 0 GROUP BY label"
    assert main(["query", str(shard), sql, "--format", "csv"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head == "plan"
    assert any("label" in line for line in lines)
    assert not any("c0_" in line for line in lines)
