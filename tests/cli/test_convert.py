"""``tfrtool convert``: what it prints, and how it ends."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

import tfrtool
from tests.datasets import flip_bit
from tests.records.strategies import shard_of
from tfrtool.cli import main
from tfrtool.convert.formats.format_specs import FORMATS
from tfrtool.storage.atomic_files import temporary_name
from tfrtool.storage.lock import LOCK
from tfrtool.storage.progress import Progress

Capture = pytest.CaptureFixture[str]


def run(*words: object) -> int:
    """Run the command, and return its exit code."""
    return main([str(word) for word in words])


def failure(capsys: Capture, code: int, *words: object) -> str:
    """Run the command, which must fail with ``code``; return the error's line."""
    capsys.readouterr()
    assert run(*words) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = (line for line in captured.err.splitlines() if "error: " in line)
    return line


def run_json(capsys: Capture, *words: object) -> tuple[int, dict[str, Any]]:
    """Run the command with --json; return its exit code and the object that it printed."""
    capsys.readouterr()
    code = run(*words, "--json")
    return code, json.loads(capsys.readouterr().out)


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Return a folder of two splits, four records each."""
    folder = tmp_path / "rows"
    folder.mkdir()
    for split in ("train", "test"):
        payloads = [tfrtool.encode_example({"n": n, "xs": [n, n]}) for n in range(4)]
        (folder / f"rows-{split}.tfrecord-00000-of-00001").write_bytes(shard_of(payloads))
    return folder


def test_it_says_what_it_did(shards: Path, tmp_path: Path, capsys: Capture) -> None:
    """Losses on stderr, results on stdout; and the same as JSON."""
    assert run("convert", shards, tmp_path / "out", "--to", "csv", "--workers", "1") == 0
    out, err = capsys.readouterr()
    assert "8 records in, 8 out" in out
    assert "tfrecord to csv" in out
    assert "train: 4 records, 1 file" in out
    assert re.fullmatch("tfrtool: .*lists .*JSON.*: 'xs'\n", err)
    code, report = run_json(capsys, "convert", shards, tmp_path / "other", "--to", "parquet")
    assert (code, report["from"], report["to"], report["records_out"]) == (
        0,
        "tfrecord",
        "parquet",
        8,
    )
    assert report["columns"] == {"n": "int64", "xs": "list<item: int64>"}
    assert report["digest_in"] is not None
    assert report["digest_out"] is None  # a table has no payloads
    written = json.loads((tmp_path / "other" / "write_report.json").read_text())
    assert written["splits"] == report["splits"]


def test_a_dry_run_writes_nothing(shards: Path, tmp_path: Path, capsys: Capture) -> None:
    """It says on stdout what would be written, and what can't be kept."""
    assert run("convert", shards, tmp_path / "out", "--to", "csv", "--dry-run") == 0
    out, err = capsys.readouterr()
    assert "nothing written" in out
    assert re.search("not kept: .*lists .*JSON.*: 'xs'", out)
    assert err == ""
    assert run("convert", shards, tmp_path / "out.jsonl", "--select", "n", "--dry-run") == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows"]


def test_damaged_records_are_skipped(shards: Path, tmp_path: Path, capsys: Capture) -> None:
    """They are named, and the exit code is 3; or the first stops the work, and nothing is left."""
    path = shards / "rows-train.tfrecord-00000-of-00001"
    flip_bit(path, 20)
    code, report = run_json(capsys, "convert", shards, tmp_path / "out", "--to", "jsonl")
    assert code == 3
    assert report["splits"]["train"]["records"] == 3
    assert report["faults"][0]["record"] == 0
    stop = ("convert", shards, tmp_path / "new", "--to", "jsonl", "--on-error", "stop")
    assert ":0, offset 0" in failure(capsys, 1, *stop)
    assert not (tmp_path / "new").exists()


def test_unknown_formats_are_refused(shards: Path, tmp_path: Path, capsys: Capture) -> None:
    """The error lists all formats, and so does the one for a directory without --to."""
    line = failure(capsys, 2, "convert", shards, tmp_path / "out", "--to", "excel")
    assert "'excel' is not one of " + ", ".join(map(repr, FORMATS)) in line
    line = failure(capsys, 2, "convert", shards, tmp_path / "out")
    assert "use --to with one of " + ", ".join(FORMATS) in line


@pytest.mark.parametrize("to", ["parquet", "csv", "arrayrecord"])
def test_records_that_are_no_examples_are_skipped(
    shards: Path, to: str, tmp_path: Path, capsys: Capture
) -> None:
    """Among Examples they are named with their places and left out, as by query; or end the work.

    Their CRCs hold, and a damaged record stands before them; the last one's value is broken.
    """
    path = shards / "rows-train.tfrecord-00000-of-00001"
    examples = [tfrtool.encode_example({"n": n, "xs": [n, n]}) for n in range(3)]
    broken = examples[2].replace(b"\x1a", b"\x2a")
    payloads = [examples[0], b"damaged", b"no example \xff", examples[1], broken, examples[2]]
    path.write_bytes(shard_of(payloads))
    starts = [sum(len(one) + 16 for one in payloads[:at]) for at in range(len(payloads))]
    flip_bit(path, starts[1] + 12)
    words = ("convert", shards, tmp_path / "out", "--to", to, "--select", "n", "--shards", "2")
    code, report = run_json(capsys, *words, "--name", "rows")
    assert code == 3
    faults = [(one["kind"], one["record"], one["offset"]) for one in report["faults"]]
    parse = [("parse", at, starts[at]) for at in (2, 4)]
    assert faults == [("payload-crc", 1, starts[1]), *parse]
    assert {one["path"] for one in report["faults"]} == {str(path)}
    assert (report["corrupt"], report["records_in"], report["records_out"]) == (3, 9, 7)
    assert report["splits"]["train"]["records"] == 3
    if to == "arrayrecord":
        info = json.loads((tmp_path / "out" / "dataset_info.json").read_text())
        lengths = {one["name"]: one["shardLengths"] for one in info["splits"]}
        assert sum(map(int, lengths["train"])) == 3
    flip_bit(path, starts[1] + 12)
    stop = ("convert", shards, tmp_path / "new", "--to", to, "--select", "n", "--on-error")
    line = failure(capsys, 1, *stop, "stop")
    assert f"{path}:1, offset {starts[1]}: " in line
    assert not (tmp_path / "new").exists()
    assert "skip" in failure(capsys, 2, *stop, "repair")


def test_records_of_arrayrecord_that_are_no_examples(tmp_path: Path, capsys: Capture) -> None:
    """They have a number in their file, too; with --exact the digest is that of what is left."""
    examples = [tfrtool.encode_example({"n": n}) for n in range(3)]
    shard, out = tmp_path / "a.tfrecord", tmp_path / "a.array_record"
    shard.write_bytes(shard_of([*examples, b"\xff"]))
    assert run("convert", shard, out) == 0  # payloads as they are
    code, report = run_json(capsys, "convert", out, tmp_path / "a.parquet", "--exact")
    assert (code, report["records_in"], report["records_out"]) == (3, 4, 3)
    ((kind, record),) = ((one["kind"], one["record"]) for one in report["faults"])
    assert (kind, record) == ("parse", 3)
    code, again = run_json(capsys, "convert", tmp_path / "a.parquet", tmp_path / "b.tfrecord")
    assert (code, again["digest_out"]) == (0, report["digest_out"])


def test_a_dry_run_says_what_no_table_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """Records that are no Examples, and names of features beyond the most that are kept."""
    payloads = [tfrtool.encode_example({f"n{n}": n, "x": 1}) for n in range(4)]
    shard = tmp_path / "a.tfrecord"
    shard.write_bytes(shard_of([*payloads, b"\xff"]))
    monkeypatch.setattr("tfrtool.examples.schema_fold.MAX_NAMES", 3)
    words = ("convert", shard, tmp_path / "a.parquet", "--workers", "1", "--dry-run")
    _, report = run_json(capsys, *words)
    odd, names = report["losses"]
    assert "Examples: 1" in odd
    assert "first 3" in names
    assert run_json(capsys, *words, "--select", "x")[1]["losses"] == [odd]
    assert run("convert", shard, tmp_path / "b.tfrecord", "--dry-run") == 0
    assert "not kept" not in capsys.readouterr().out


def test_a_missing_shard_is_told(shards: Path, tmp_path: Path, capsys: Capture) -> None:
    """A folder that lacks a file by the names of the others ends with 3."""
    path = shards / "rows-train.tfrecord-00000-of-00001"
    path.rename(path.with_name("rows-train.tfrecord-00000-of-00002"))
    code, report = run_json(capsys, "convert", shards, tmp_path / "out", "--to", "jsonl")
    assert code == 3
    assert report["faults"][0]["kind"] == "missing-shard"
    assert "1 shard missing" in report["faults"][0]["message"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"PAR1 and no more", "not a Parquet file"),
        (b'{"a": [{"b": 1}, {}]}\n', "record 0: column 'a': only some objects of a list"),
        (b'{"a": 1}\n[2]\n', "line 2: not a JSON object"),
        (b'{"a": 1}\n{"a": "x"}\n', "record 1: column 'a': mixes int64 and string"),
        (b'{"a": 9223372036854775808}\n', "record 0: column 'a'"),
        (b'{"a": [1, null]}\n', "record 0: column 'a': lists can't hold null"),
        (b"a,b\n1,2\n\n1\n", "record 1: 1 cell in a table of 2"),
        (b"\xff\xfe", "unknown format"),
    ],
)
def test_what_is_wrong_is_named(content: bytes, said: str, tmp_path: Path, capsys: Capture) -> None:
    """Decoys and rows that nothing holds end with one line that names file, row and column."""
    ending = {b"{": ".jsonl", b"a": ".csv"}.get(content[:1], ".data")
    path = tmp_path / f"bad{ending}"
    path.write_bytes(content)
    line = failure(capsys, 1, "convert", path, tmp_path / "new", "--to", "tfrecord")
    assert said in line
    assert "bad" in line
    assert not (tmp_path / "new").exists()


def test_what_is_there_stays(shards: Path, tmp_path: Path, capsys: Capture) -> None:
    """A folder with something in it is refused; --overwrite replaces what a conversion wrote."""
    out = tmp_path / "out"
    assert run("convert", shards, out, "--to", "jsonl") == 0
    assert "already exists" in failure(capsys, 2, "convert", shards, out, "--to", "csv")
    assert run("convert", shards, out, "--to", "csv", "--overwrite", "--shards", "2") == 0
    assert not list(out.glob("*.jsonl"))
    assert run("convert", shards, out, "--to", "csv", "--resume", "--shards", "2") == 0
    assert "already complete" in capsys.readouterr().out
    assert "outside" in failure(capsys, 2, "convert", shards, shards / "in", "--to", "csv")


def test_resuming_with_other_options_is_refused(
    shards: Path, tmp_path: Path, capsys: Capture
) -> None:
    """A complete conversion is only taken for one with the same options."""
    words = ("convert", shards, tmp_path / "out", "--to", "csv", "--workers", "1")
    assert run(*words) == 0
    for other in ("--select n", "--rename n=m", "--lists", "--as-stored", "--exact", "--null NA"):
        line = failure(capsys, 2, *words, "--resume", *other.split())
        assert "already complete, but written with other options" in line, other
    assert run(*words, "--resume", "--verify", "none") == 0


def test_a_full_disk(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """The error says so, and nothing is left."""
    import pyarrow.parquet as pq

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    line = failure(capsys, 1, "convert", shards, tmp_path / "out", "--to", "parquet")
    assert "no space left" in line
    assert not (tmp_path / "out").exists()


def test_what_differs_is_found(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """If a file doesn't hold what was to be in it, the record is named, and nothing is left."""
    from tfrtool.convert.formats import json_lines

    monkeypatch.setattr(json_lines, "as_json", lambda row: {**row, "n": min(row["n"], 2)})
    line = failure(capsys, 1, "convert", shards, tmp_path / "out", "--to", "jsonl")
    assert "record 3" in line
    assert "read back" in line
    assert not (tmp_path / "out").exists()
    assert run("convert", shards, tmp_path / "out", "--to", "jsonl", "--verify", "none") == 0


def test_tables_of_the_same_stem_have_schemas_of_their_own(
    shards: Path, tmp_path: Path, capsys: Capture
) -> None:
    """rows.jsonl, rows.csv and rows.csv.gz can be next to each other, and keep their types."""
    names = ["rows.jsonl", "rows.csv", "rows.csv.gz"]
    columns = {"rows.jsonl": "n", "rows.csv": "xs", "rows.csv.gz": "n"}
    for name in names:
        chosen = ("--select", columns[name])
        assert run("convert", f"{shards}/*train*", tmp_path / name, *chosen) == 0
    found = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert found == {*names, *(f"{name}.schema.json" for name in names)}
    capsys.readouterr()
    for name in names:
        schema = json.loads((tmp_path / f"{name}.schema.json").read_text())
        assert columns[name] in json.dumps(schema)
        assert run("convert", tmp_path / name, tmp_path / f"{name}.tfrecord") == 0
    assert capsys.readouterr().err == ""


def test_an_existing_file_is_refused_before_anything_is_read(shards: Path, tmp_path: Path) -> None:
    """A long conversion doesn't end with the news that its target exists."""
    (tmp_path / "t.csv").write_text("dear")
    calls = list[Progress]()
    with pytest.raises(tfrtool.UsageError, match=r"t\.csv: already exists; use --overwrite"):
        tfrtool.convert(
            [*map(str, shards.glob("*train*"))], tmp_path / "t.csv", on_progress=calls.append
        )
    assert calls == []


def test_the_schema_of_somebody_else_is_not_replaced(
    shards: Path, tmp_path: Path, capsys: Capture
) -> None:
    """A file that has the name of the schema is refused before anything is read."""
    schema = tmp_path / "rows.csv.schema.json"
    schema.write_text("{}")
    line = failure(capsys, 2, "convert", f"{shards}/*train*", tmp_path / "rows.csv")
    assert "rows.csv.schema.json" in line
    assert "--overwrite" in line
    assert schema.read_text() == "{}"
    assert not (tmp_path / "rows.csv").exists()


@pytest.mark.parametrize("appears", ["t.csv", "t.csv.schema.json"])
def test_a_file_that_appears_meanwhile_is_not_replaced(
    appears: str, shards: Path, tmp_path: Path
) -> None:
    """Neither a table nor its schema replaces a file that was made during the conversion."""
    sources, target = [*map(str, shards.glob("*train*"))], tmp_path / "t.csv"

    def create(progress: Progress) -> None:
        if progress.what == "writing":
            (tmp_path / appears).write_text("dear")

    with pytest.raises(tfrtool.WriteError, match="file exists"):
        tfrtool.convert(sources, target, on_progress=create)
    assert [path.name for path in tmp_path.glob("t.csv*")] == [appears]
    assert (tmp_path / appears).read_text() == "dear"
    assert not [*tmp_path.glob(".tfrtool-*")]
    tfrtool.convert(sources, target, existing="overwrite", on_progress=create)
    assert "dear" not in (tmp_path / appears).read_text()


def test_what_a_killed_conversion_left_is_deleted(
    shards: Path, tmp_path: Path, capsys: Capture
) -> None:
    """The next conversion to the same file deletes its temporary folder, and no other."""
    target = tmp_path / "rows.jsonl"
    killed, other = temporary_name(target), temporary_name(tmp_path / "b.jsonl")
    for folder in (killed, other):
        folder.mkdir()
        (folder / "rows.jsonl").write_text("{}")
        (folder / LOCK).write_text("write 1\n")
    assert run("convert", f"{shards}/*train*", target, "--select", "n") == 0
    assert capsys.readouterr().err == ""
    assert [path.name for path in tmp_path.glob(".tfrtool-*")] == [other.name]


def test_files_of_an_interrupted_job_are_not_read(
    shards: Path, tmp_path: Path, capsys: Capture
) -> None:
    """What a killed job leaves in its own folder is not part of the tables around it."""
    tables = tmp_path / "tables"
    assert run("convert", shards, tables, "--to", "parquet") == 0
    staged = tables / ".tfrtool-incomplete"
    staged.mkdir()
    for path in tables.glob("*.parquet"):
        (staged / path.name).write_bytes(path.read_bytes())
    capsys.readouterr()
    assert run("convert", tables, tmp_path / "back") == 0
    assert "8 records in, 8 out" in capsys.readouterr().out
    staged.rename(tables / ".tfrtool-publishing")
    assert run("convert", tables, tmp_path / "other") == 1
    assert "--resume" in capsys.readouterr().err
