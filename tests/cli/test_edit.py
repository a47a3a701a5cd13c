"""``tfrtool edit``: notations, exit codes, and what is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tfrtool
from tests.cli.inspecting import Capture
from tests.datasets import flip_bit, write_foreign
from tests.records.strategies import shard_of
from tfrtool.cli import main
from tfrtool.examples.parsing import parse_example
from tfrtool.records.framing import Record

_HOSTILE = "a\n\x1b[31m"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a directory with one shard of three records."""
    payloads = [
        tfrtool.encode_example({"id": n, "text": f"{n}.5", "x=y": 1.5, _HOSTILE: b"secret"})
        for n in range(3)
    ]
    return write_foreign(tmp_path / "in", [payloads])


def _first(folder: Path) -> dict[str, object]:
    (shard,) = tfrtool.find_shards(folder)
    record = next(iter(tfrtool.read(shard)))
    assert isinstance(record, Record)
    return dict(parse_example(record.payload))


def test_notations(source: Path, tmp_path: Path, capsys: Capture) -> None:
    """Lists, pairs and values are read as they stand; names may have = in them."""
    words = ["edit", str(source), str(tmp_path / "out"), "--json"]
    words += [
        "--select",
        "id,text",
        "--select",
        "x=y",
        "--rename",
        "x=y=z",
        "--cast",
        "text=float32",
    ]
    words += ["--add", "n=7", "--add", "f=0.5", "--add", "t=a=b", "--add", "s:string=7"]
    words += ["--add", "box:float32:[2]=0,1", "--add", "odd:float32=nan", "--drop", _HOSTILE]
    assert main(words) == 0
    found = _first(tmp_path / "out")
    assert str(found.pop("odd")) == "nan"
    assert found == {
        "id": 0, "text": 0.5, "z": 1.5, "n": 7, "f": 0.5, "t": b"a=b", "s": b"7", "box": [0.0, 1.0],
    }  # fmt: skip
    report = json.loads(capsys.readouterr().out)
    assert (report["command"], report["records_in"], report["records_out"]) == ("edit", 3, 3)
    assert report["options"]["add"]["odd"] == ["nan"]
    assert report["options"]["rename"] == {"x=y": "z"}
    assert report["digest_in"] != report["digest_out"]
    assert json.loads((tmp_path / "out" / "write_report.json").read_text()) == report


def test_what_is_skipped_is_named_and_hostile_names_are_escaped(
    source: Path, tmp_path: Path, capsys: Capture
) -> None:
    """Damage and values that don't fit are listed, exit code 3; no payload byte is shown."""
    words = ["edit", str(source), str(tmp_path / "out")]
    assert main([*words, "--cast", f"{_HOSTILE}=int64"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert ":0, offset 0" in line
    assert "secret" not in line
    assert line.isprintable()
    flip_bit(source / "part-00000-of-00001.tfrecord", 30)
    assert main([*words, "--cast", f"{_HOSTILE}=int64", "--on-error", "skip"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "no record can be used" in line
    assert not (tmp_path / "out").exists()
    with (source / "part-00000-of-00001.tfrecord").open("ab") as file:
        file.write(shard_of([tfrtool.encode_example({"id": 3, _HOSTILE: b"5"})]))
    assert main([*words, "--cast", f"{_HOSTILE}=int64", "--on-error", "skip"]) == 3
    shown = capsys.readouterr().out
    assert ":0: payload-crc at offset 0" in shown
    assert shown.count("can't be cast to int64") == 2
    assert "\x1b" not in shown
    assert "secret" not in shown
    assert main([*words[:2], str(tmp_path / "other"), "--drop", "id", "--on-error", "skip"]) == 3
    assert main([*words[:2], str(tmp_path / "third"), "--drop", "id"]) == 1


def test_a_file_that_is_no_shard(tmp_path: Path, capsys: Capture) -> None:
    """Nothing can be read of it, whatever is to be done to its features."""
    (tmp_path / "a.tfrecord").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    for change in ("--drop", "--add"):
        words = ["edit", str(tmp_path / "a.tfrecord"), str(tmp_path / "out"), change, "x=1"]
        for choice in ("skip", "stop"):
            assert main([*words, "--on-error", choice]) == 1
            line = capsys.readouterr().err
            assert "a.tfrecord" in line
            assert "git lfs pull" in line
