"""``tfrtool convert`` of tables that other software wrote: delimiters, names, types, formats."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tfrtool
from tests.convert.formats.test_conversion import payloads_in
from tests.more import thinned
from tests.records.strategies import shard_of
from tfrtool.cli import main
from tfrtool.examples.example import DType, Feature, decode_example
from tfrtool.records.compression import Compression

Capture = pytest.CaptureFixture[str]


def run(*words: object) -> int:
    """Run the command, and return its exit code."""
    return main([str(word) for word in words])


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Return the features of each record, single values as they are."""
    found = []
    for payload in payloads_in(folder):
        features = decode_example(payload).features
        found.append(
            {k: f.values[0] if len(f.values) == 1 else f.values for k, f in features.items()}
        )
    return found


@pytest.mark.parametrize(
    ("name", "text", "note"),
    [
        ("a.csv", "a;b\n1,5;x\n2,5;y, z\n", "delimiter ';'"),
        ("a.csv", "a\tb\n1,5\tx\n2,5\ty, z\n", "delimiter tab"),
        ("a.csv", "a|b\n1,5|x\n2,5|y, z\n", "delimiter '|'"),
        ("a.tsv", "a\tb\n1,5\tx\n2,5\ty, z\n", "delimiter tab"),
        ("a.csv", 'a,b\n"1,5",x\n"2,5","y, z"\n', ""),
    ],
)
def test_the_delimiter_is_found(
    tmp_path: Path, capsys: Capture, name: str, text: str, note: str
) -> None:
    """Semicolons, tabs and bars make columns as commas do, and a note says so."""
    (tmp_path / name).write_text(text)
    assert run("convert", tmp_path / name, tmp_path / "out") == 0
    assert rows_of(tmp_path / "out") == [{"a": b"1,5", "b": b"x"}, {"a": b"2,5", "b": b"y, z"}]
    err = capsys.readouterr().err
    assert (note in err) if note else (err == "")


def test_the_delimiter_is_chosen(tmp_path: Path, capsys: Capture) -> None:
    """An option overrides what the rows look like; other formats have no delimiter."""
    (tmp_path / "a.csv").write_text("a;b:c\n1;2:3\n")
    assert run("convert", tmp_path / "a.csv", tmp_path / "out", "--delimiter", ":") == 0
    assert rows_of(tmp_path / "out") == [{"a;b": b"1;2", "c": 3}]
    (tmp_path / "a.csv").write_text("a\tb;c\n1\t2;3\n")
    assert run("convert", tmp_path / "a.csv", tmp_path / "tab", "--delimiter", "tab") == 0
    assert rows_of(tmp_path / "tab") == [{"a": 1, "b;c": b"2;3"}]
    assert run("convert", tmp_path / "a.csv", tmp_path / "x", "--delimiter", "ab") == 2
    assert "invalid --delimiter 'ab'" in capsys.readouterr().err
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n')
    assert run("convert", tmp_path / "a.jsonl", tmp_path / "x", "--delimiter", ";") == 2
    assert "--delimiter applies to CSV, not to jsonl or tfrecord" in capsys.readouterr().err


ROWS: list[dict[str, Any]] = [
    {"id": 1, "text": "it's; 'x'", "score": 1.5, "list": [1, 2]},
    {"id": 2, "text": "NA", "list": [3]},
    {"id": 3, "score": float("nan"), "list": Feature(dtype=DType.INT64, values=())},
    {"id": 4, "text": "", "score": -2.0},
]


@pytest.mark.parametrize("header", [True, False])
def test_csv_is_written_as_chosen(header: bool, tmp_path: Path) -> None:
    """Pandas reads CSV with the same options, and converting it back gives the same records."""
    records = shard_of([tfrtool.encode_example(row) for row in ROWS])
    (tmp_path / "a.tfrecord").write_bytes(records)
    options: Any = {"delimiter": ";", "quote": "'", "header": header, "null": ["NA", "-"]}
    tfrtool.convert(tmp_path / "a.tfrecord", tmp_path / "a.csv", **options)
    frame = pd.read_csv(
        tmp_path / "a.csv",
        sep=";",
        quotechar="'",
        header=0 if header else None,
        names=["id", "list", "score", "text"],
        keep_default_na=False,
        na_values=["NA"],
    )
    assert frame["id"].tolist() == [1, 2, 3, 4]
    assert frame["text"][0] == "it's; 'x'"
    assert frame["text"].isna().tolist() == [False, False, True, False]
    assert frame["score"].isna().tolist() == [False, True, False, False]
    assert frame["list"].tolist()[:3] == ["[1, 2]", "[3]", "[]"]
    tfrtool.convert(tmp_path / "a.csv", tmp_path / "b.tfrecord", **options)
    assert (tmp_path / "b.tfrecord").read_bytes() == records


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--null", "0"], "--null '0' is a number"),
        (["--null", "nan"], "--null 'nan' is a number"),
        (["--quote", "none"], "invalid --quote 'none': expected one character"),
        (["--quote", ";", "--delimiter", ";"], "invalid --quote ';'"),
    ],
)
def test_csv_that_can_not_be_written(
    words: list[str], error: str, tmp_path: Path, capsys: Capture
) -> None:
    """Options with which the values would not come back are refused before anything is written."""
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n')
    assert run("convert", tmp_path / "a.jsonl", tmp_path / "b.csv", *words) == 2
    assert error in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_a_tsv_is_written_with_tabs(tmp_path: Path) -> None:
    """The ending of the file says what is between columns, there and back."""
    (tmp_path / "a.csv").write_text('a,b\n1,"x, y"\n')
    tfrtool.convert(tmp_path / "a.csv", tmp_path / "rows")
    tfrtool.convert(tmp_path / "rows", tmp_path / "b.tsv")
    assert (tmp_path / "b.tsv").read_text().splitlines() == ['"a"\t"b"', '1\t"x, y"']
    tfrtool.convert(tmp_path / "b.tsv", tmp_path / "again")
    assert payloads_in(tmp_path / "again") == payloads_in(tmp_path / "rows")


def test_the_index_of_pandas_gets_a_name(tmp_path: Path) -> None:
    """A column without a name is not a feature called nothing."""
    pd.DataFrame({"a": [5, 6]}).to_csv(tmp_path / "a.csv")
    assert run("convert", tmp_path / "a.csv", tmp_path / "out") == 0
    assert rows_of(tmp_path / "out") == [{"a": 5, "index": 0}, {"a": 6, "index": 1}]
    pd.DataFrame({"index": [5]}).to_csv(tmp_path / "b.csv")
    tfrtool.convert(tmp_path / "b.csv", tmp_path / "two")
    assert rows_of(tmp_path / "two") == [{"index": 5, "Unnamed: 0": 0}]


def test_a_feature_without_a_name_comes_back(tmp_path: Path) -> None:
    """In a table of ours a name may be empty."""
    payload = tfrtool.encode_example({"": 1, "b": 2})
    (tmp_path / "a.tfrecord").write_bytes(shard_of([payload]))
    tfrtool.convert(tmp_path / "a.tfrecord", tmp_path / "a.csv")
    tfrtool.convert(tmp_path / "a.csv", tmp_path / "out")
    assert payloads_in(tmp_path / "out") == [payload]


@pytest.mark.parametrize(
    ("cells", "expected", "note"),
    [
        (
            ["02134", "10001"],
            [b"02134", b"10001"],
            "is text: record 0 has '02134'",
        ),
        (["1", "NA"], [b"1", b"NA"], "is text: record 1 has 'NA'"),
        (["1", str(2**63)], [b"1", str(2**63).encode()], f"is text: record 1 has '{2**63}'"),
        (["0", "-7"], [0, -7], ""),
    ],
)
def test_columns_of_text(
    tmp_path: Path, capsys: Capture, cells: list[str], expected: list[Any], note: str
) -> None:
    """Codes keep their zeros; a note says which cell made text of a column of numbers."""
    (tmp_path / "a.csv").write_text("n,x\n" + "".join(f"{n},{c}\n" for n, c in enumerate(cells)))
    assert run("convert", tmp_path / "a.csv", tmp_path / "out") == 0
    assert [row["x"] for row in rows_of(tmp_path / "out")] == expected
    err = capsys.readouterr().err
    assert (f"column 'x' {note}" in err or note in err) if note else "'x'" not in err


def test_a_nan_among_numbers(tmp_path: Path) -> None:
    """The column stays numeric, as pandas reads it."""
    (tmp_path / "a.csv").write_text("n,x\n0,1\n1,nan\n2,0.5\n")
    tfrtool.convert(tmp_path / "a.csv", tmp_path / "out")
    expected = pd.read_csv(tmp_path / "a.csv")["x"].tolist()
    assert repr([row["x"] for row in rows_of(tmp_path / "out")]) == repr(expected)


def test_an_object_that_only_looks_like_base64(tmp_path: Path, capsys: Capture) -> None:
    """The error names the file, the record and the column, and is not an unexpected one."""
    (tmp_path / "a.jsonl").write_text('{"a": {"base64": 1}}\n')
    assert run("convert", tmp_path / "a.jsonl", tmp_path / "out") != 0
    err = capsys.readouterr().err
    assert "a.jsonl, record 0: column 'a': base64 " in err
    member = b'{"a": {"base64": 1}, "__features__": {}}'
    info = tarfile.TarInfo("0.json")
    info.size = len(member)
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.addfile(info, io.BytesIO(member))
    assert run("convert", tmp_path / "a.tar", tmp_path / "out") != 0
    err = capsys.readouterr().err
    assert "a.tar, record 0: column 'a': base64 " in err


WIDE: dict[str, Callable[[], str]] = {
    "csv": lambda: (
        ",".join(f"c{n}" for n in range(50_000)) + "\n" + ",".join(["1"] * 50_000) + "\n"
    ),
    "jsonl": lambda: json.dumps({f"c{n}": 1 for n in range(200_000)}) + "\n",
}


@pytest.mark.parametrize("form", thinned(WIDE, every=2))
def test_tables_with_too_many_columns(tmp_path: Path, capsys: Capture, form: str) -> None:
    """They are refused with the limit before any column is looked at."""
    (tmp_path / f"a.{form}").write_text(WIDE[form]())
    assert run("convert", tmp_path / f"a.{form}", tmp_path / "out") == 1
    err = capsys.readouterr().err
    assert f"a.{form}: too many columns: expected at most 10,000, found" in err
    assert not (tmp_path / "out").exists()


def test_parquet_with_too_many_columns(tmp_path: Path, capsys: Capture) -> None:
    """Parquet has the same limit."""
    pq.write_table(pa.table({f"c{n}": [n] for n in range(12_000)}), tmp_path / "a.parquet")
    assert run("convert", tmp_path / "a.parquet", tmp_path / "out") == 1
    assert "expected at most 10,000, found 12,000" in capsys.readouterr().err


def test_nested_arrow_with_too_many_columns(tmp_path: Path, capsys: Capture) -> None:
    """Fields of structs in lists count, as they do in Parquet."""
    kind = pa.list_(pa.struct([(f"c{n}", pa.null()) for n in range(10_000)]))
    with pa.ipc.new_file(tmp_path / "a.arrow", pa.schema([("a", kind), ("b", pa.int8())])):
        pass
    assert run("convert", tmp_path / "a.arrow", tmp_path / "out") == 1
    assert "expected at most 10,000, found 10,001" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("a.json", "unknown format"),
        ("a.parquet.gz", "unknown format"),
        ("a.xyz", "unknown format"),
    ],
)
def test_formats_that_are_not_read(tmp_path: Path, capsys: Capture, name: str, what: str) -> None:
    """The first error says what the file is, or that in a folder, and which formats are read."""
    folder = tmp_path / "in"
    folder.mkdir()
    data = b'{"rows": [\n{"a": 1}\n]}\n'
    (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    for source in (folder / name, folder)[: 1 if name.endswith("xyz") else 2]:
        assert run("convert", source, tmp_path / "out") == 1
        err = capsys.readouterr().err
        assert f"{name}: {what}: expected one of tfrecord, parquet, hf, arrow, jsonl" in err


def test_json_lines_called_json(tmp_path: Path) -> None:
    """A .json file with an object on each line is JSON Lines."""
    (tmp_path / "a.json").write_text('{"a": 1}\n{"a": 2}\n')
    tfrtool.convert(tmp_path / "a.json", tmp_path / "out")
    assert rows_of(tmp_path / "out") == [{"a": 1}, {"a": 2}]


def test_the_ending_decides_the_compression(tmp_path: Path, capsys: Capture) -> None:
    """A file called .gz is compressed, and read back; what can't be compressed is refused."""
    (tmp_path / "a.csv").write_text("a\n1\n2\n")
    assert run("convert", tmp_path / "a.csv", tmp_path / "a.tfrecord.gz") == 0
    payloads = [tfrtool.encode_example({"a": n}) for n in (1, 2)]
    assert gzip.decompress((tmp_path / "a.tfrecord.gz").read_bytes()) == shard_of(payloads)
    assert run("convert", tmp_path / "a.tfrecord.gz", tmp_path / "b.parquet.gz") == 2
    line = capsys.readouterr().err
    assert "only TFRecord, JSON Lines, CSV" in line
    assert line.endswith("files can be compressed; remove .gz from the name\n")
    assert "Parquet" not in line
    assert run("convert", tmp_path / "a.csv", tmp_path / "b.tfrecord.zst") == 2
    assert "files ending in .zst can't be written" in capsys.readouterr().err
    for words in (("reshard",), ("filter", "--sample", "1"), ("edit", "--rename", "a=b")):
        target = tmp_path / f"{words[0]}.tfrecord.gz"
        assert run(words[0], tmp_path / "a.tfrecord.gz", target, *words[1:]) == 2
        assert "the name of a compressed file" in capsys.readouterr().err
        assert not target.exists()
    assert (
        run("query", tmp_path / "a.tfrecord.gz", "SELECT a FROM records", "--out", "b.csv.gz") == 2
    )


def test_repair_follows_the_ending(tmp_path: Path) -> None:
    """A repaired shard called .gz is compressed though the damaged one was not."""
    payloads = [tfrtool.encode_example({"a": n}) for n in (1, 2)]
    (tmp_path / "a.tfrecord").write_bytes(shard_of(payloads))
    report = tfrtool.repair(tmp_path / "a.tfrecord", tmp_path / "b.tfrecord.gz")
    assert report.compression is Compression.GZIP
    assert gzip.decompress((tmp_path / "b.tfrecord.gz").read_bytes()) == shard_of(payloads)


def test_similar_notes_of_many_columns_are_counted(tmp_path: Path, capsys: Capture) -> None:
    """Three of a kind are shown; JSON has all."""
    names = [f"code{n}" for n in range(50)]
    rows = [[f"0{n}" for n in range(50)], ["7"] * 50]
    lines = [
        ",".join([*row, last]) for row, last in zip([names, *rows], ["z", "1", "a"], strict=True)
    ]
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    assert run("convert", tmp_path / "a.csv", tmp_path / "out") == 0
    expected = [
        *(f"column 'code{n}' is text: record 0 has '0{n}'" for n in range(3)),
        "48 similar notes",
    ]
    lines = capsys.readouterr().err.splitlines()
    for line, start in zip(lines, expected, strict=True):
        assert line.startswith(f"tfrtool: {start}")
    assert "--json" in lines[3]
    assert run("convert", tmp_path / "a.csv", tmp_path / "out", "--overwrite", "--dry-run") == 0
    out = capsys.readouterr().out
    assert all(line in out for line in expected)
    assert out.count("is text") == 3
    words = ("--overwrite", "--dry-run", "--json")
    assert run("convert", tmp_path / "a.csv", tmp_path / "out", *words) == 0
    assert len(json.loads(capsys.readouterr().out)["notes"]) == 51


@pytest.mark.parametrize("number", ["1e400", "-1E+0400", f"{'9' * 400}.5"])
def test_numbers_beyond_doubles_are_refused(
    number: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A number of JSON that no double holds is an error, and not infinity."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 0.5}\n{"a": ' + number + "}\n")
    assert main(["convert", str(path), str(tmp_path / "new")]) == 1
    assert "a.jsonl: line 2: the number" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_numbers_beyond_doubles_are_refused_in_samples(tmp_path: Path, capsys: Capture) -> None:
    """So they are in the JSON of a WebDataset's sample."""
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        data = b'{"a": 1e400}'
        member = tarfile.TarInfo("one.json")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    assert main(["convert", str(path), str(tmp_path / "new")]) == 1
    assert "a.tar: one.json: the number 1e400 is too large" in capsys.readouterr().err
