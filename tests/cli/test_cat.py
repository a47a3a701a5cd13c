"""``tfrtool cat``."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tfrtool
from tests.examples.strategies import entry, int64, raw_example, string
from tests.records.strategies import shard_of
from tfrtool.cli import main

Capture = pytest.CaptureFixture[str]
IMAGE = b"\xff\xd8\xff\xe0\x00\x10JFIF"
ROWS: list[dict[str, Any]] = [{"label": n % 3, "image": IMAGE, "name": f"a,{n}"} for n in range(20)]


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    """Return a shard of these rows."""
    path = tmp_path / "rows.tfrecord"
    path.write_bytes(shard_of([tfrtool.encode_example(row) for row in ROWS]))
    return path


def cat(capsys: Capture, *words: str | Path, code: int = 0) -> tuple[str, str]:
    """Run the command; return what it printed on stdout and stderr."""
    assert main(["cat", *map(str, words)]) == code
    out, err = capsys.readouterr()
    return out, err


def test_csv_and_text(shard: Path, capsys: Capture, tmp_path: Path) -> None:
    """CSV has the columns of the selection, or of the first record; text is for people."""
    out, _ = cat(capsys, shard, "--format", "csv", "--select", "name,label", "--limit", "2")
    rows = list(csv.reader(io.StringIO(out)))
    place = str(shard)
    assert rows == [
        ["shard", "record", "name", "label"],
        [place, "0", "a,0", "0"],
        [place, "1", "a,1", "1"],
    ]
    out, _ = cat(capsys, shard, "--format", "text", "--records", "3")
    assert out.splitlines()[0].endswith("rows.tfrecord:3")
    assert '  image  {"bytes": 10, "content": "image/jpeg"}' in out.splitlines()
    other = tmp_path / "other"
    payloads: list[dict[str, Any]] = [{"a": [1, 2]}, {"a": 1, "b": 2}, {}]
    other.write_bytes(shard_of([tfrtool.encode_example(one) for one in payloads]))
    out, err = cat(capsys, other, "--format", "csv", code=3)
    assert [row[2:] for row in csv.reader(io.StringIO(out))] == [["a"], ["[1, 2]"], ["1"], [""]]
    assert ": b; use --select" in err
    sequence = raw_example([entry(b"id", int64(1))], {b"words": [string(b"a")]})
    other.write_bytes(shard_of([sequence]))
    out, _ = cat(capsys, other, "--format", "csv")
    assert out.splitlines()[0] == "shard,record,context.id,feature_lists.words"
    lines = ["a\nb", "a\rb", 'a "b"\r\n']
    other.write_bytes(shard_of([tfrtool.encode_example({"text": text}) for text in lines]))
    out, _ = cat(capsys, other, "--format", "csv", "--select", "text")
    assert [row[2:] for row in csv.reader(io.StringIO(out, newline=""))][1:] == [[t] for t in lines]


def test_csv_of_sequences_has_what_json_has(tmp_path: Path, capsys: Capture) -> None:
    """Context and steps are columns, selected by their names alone or with where they are."""
    path = tmp_path / "sequences"
    context = [entry(b"id", int64(7)), entry(b"label", int64(1, 2))]
    steps = {b"words": [string(b"a"), string(b"b")], b"sizes": [int64(1), int64(2, 3), int64()]}
    path.write_bytes(shard_of([raw_example(context, steps), raw_example(context, steps)]))
    expected = {"words": ["a", "b"], "sizes": [[1], [2, 3], []]}
    (line, _) = cat(capsys, path, "--limit", "1")
    assert json.loads(line)["feature_lists"] == expected
    for names in (["id", "sizes", "words"], ["feature_lists.words", "context.id", "label"]):
        words = path, "--select", ",".join(names)
        found = [json.loads(line) for line in cat(capsys, *words)[0].splitlines()]
        rows = list(csv.reader(io.StringIO(cat(capsys, *words, "--format", "csv")[0])))
        assert rows[0] == ["shard", "record", *names]
        for row, cells in zip(found, rows[1:], strict=True):
            values = row["context"] | row["feature_lists"]
            assert [json.loads(cell) for cell in cells[2:]] == [
                values[name.rpartition(".")[2]] for name in names
            ]
    _, err = cat(capsys, path, "--select", "context.no", code=2)
    assert "no feature 'context.no'" in err


def test_features_named_like_the_position(tmp_path: Path, capsys: Capture) -> None:
    """A feature called shard or record replaces neither the file nor the number."""
    path = tmp_path / "rows"
    path.write_bytes(shard_of([tfrtool.encode_example({"shard": 5, "record": "x"})]))
    for words in ((), ("--select", "record,shard")):
        out, _ = cat(capsys, path, "--format", "csv", *words)
        (row,) = csv.DictReader(io.StringIO(out))
        assert row == {"shard": str(path), "record": "0", "shard_": "5", "record_": "x"}
    out, _ = cat(capsys, path, "--format", "text")
    assert out.splitlines()[0] == f"{path}:0"
    assert [line.split() for line in out.splitlines()[1:]] == [["record", "x"], ["shard", "5"]]


def test_conditions_and_samples(shard: Path, capsys: Capture) -> None:
    """A condition and a sample choose records; the seed decides the sample."""
    out, _ = cat(capsys, shard, "--where", "label = 1 AND name LIKE '%6'", "--select", "name")
    assert [json.loads(line)["record"] for line in out.splitlines()] == [16]
    drawn = [cat(capsys, shard, "--sample", "5", "--seed", seed)[0] for seed in "112"]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(drawn[0].splitlines()) == 5
    assert cat(capsys, shard, "--where", "label = 9") == ("", "")


def test_damage(shard: Path, capsys: Capture) -> None:
    """Damage that is met is named and left out, or stopped at; that behind the end is not met."""
    data = bytearray(shard.read_bytes())
    start = [one.offset for one in tfrtool.open_records(shard)][4]
    data[start + 20] ^= 1
    shard.write_bytes(data)
    out, err = cat(capsys, shard, code=3)
    assert len(out.splitlines()) == 19
    assert f":4: payload-crc at offset {start}" in err
    out, err = cat(capsys, shard, "--on-error", "stop", code=1)
    assert len(out.splitlines()) == 4
    assert f":4, offset {start}" in err
    assert cat(capsys, shard, "--limit", "4")[1] == ""
    assert cat(capsys, shard, "--records", "3,5")[1] == ""
    assert cat(capsys, shard, "--records", "4", code=3)[0] == ""


def test_a_pipe_in_and_out(shard: Path) -> None:
    """Standard input is a shard; when nobody reads any more, that is the end, without a word."""
    command = [sys.executable, "-m", "tfrtool", "cat"]
    data = shard.read_bytes()
    done = subprocess.run(
        [*command, "-", "--records", "2"], input=data, capture_output=True, check=True
    )
    assert json.loads(done.stdout)["shard"] == "-"
    shard.write_bytes(data * 2000)
    with subprocess.Popen(
        [*command, str(shard)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert b'"record": 0' in process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_lines_are_printed_before_input_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever writes slowly into the pipe sees all lines of what was read."""
    pieces = [shard_of([tfrtool.encode_example({"n": n})] * 5000) for n in range(3)]
    printed, shown = io.StringIO(), list[int]()

    class SlowInput(io.RawIOBase):
        def read(self, _size: int = -1) -> bytes:
            shown.append(printed.getvalue().count("\n"))
            return pieces.pop(0) if pieces else b""

    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=SlowInput(), isatty=lambda: False))
    with contextlib.redirect_stdout(printed):
        assert main(["cat", "-"]) == 0
    assert shown[-1] == 15000


def test_lines_come_before_the_damage_behind_them(shard: Path) -> None:
    """Where results and warnings go to the same place, their order is that of the records."""
    data = bytearray(shard.read_bytes())
    data[[record.offset for record in tfrtool.open_records(shard)][4] + 20] ^= 1
    shard.write_bytes(data)
    for choice, after in (("skip", 15), ("stop", 0)):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            main(["cat", str(shard), "--on-error", choice])
        warned = [line.startswith("tfrtool: ") for line in printed.getvalue().splitlines()]
        assert warned == [False] * 4 + [True] + [False] * after


@pytest.mark.parametrize("form", ["jsonl", "csv", "text"])
def test_an_unknown_feature_is_found_before_anything_is_printed(
    shard: Path, capsys: Capture, form: str
) -> None:
    """A feature that comes late is not unknown."""
    out, err = cat(capsys, shard, "--select", "label,agee", "--format", form, code=2)
    assert out == ""
    assert "no feature 'agee'" in err
    late = shard.with_name("late.tfrecord")
    payload = tfrtool.encode_example({"label": 1, "agee": 7})
    late.write_bytes(shard.read_bytes() + shard_of([payload]))
    out, _ = cat(capsys, late, "--select", "label,agee", "--format", form)
    assert "7" in out.splitlines()[-1]
    assert out.count("late.tfrecord") == 21
