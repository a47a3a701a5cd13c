"""``tfrtool inspect shard``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.inspecting import (
    CAT,
    COMMAND,
    DOG,
    JPEG,
    Capture,
    damaged,
    failure,
    run,
    run_json,
)
from tests.conftest import MakeShard
from tests.examples.strategies import UNSET, float32, int64, string, tf_sequence
from tests.records.strategies import offsets_of, shard_of
from tfrtool.cli import main
from tfrtool.examples.example import encode_example

NAMELESS = encode_example({"image": string(JPEG)})


def test_json_keys(capsys: Capture, tf: Any, make_shard: MakeShard) -> None:
    """The keys of --json are those of the contract, in every object."""
    sequence = tf_sequence(tf, {"id": int64(1)}, {"x": [float32(1.0)]}).SerializeToString()
    paths = [
        damaged(make_shard([CAT, DOG], "a.tfrecord"), 8 * 20),
        make_shard([sequence], "b.tfrecord"),
        make_shard([b"hello"], "c.tfrecord"),
        make_shard([], "d.tfrecord"),
    ]
    code, found = run_json(capsys, *paths)
    assert code == 3
    assert [item["path"] for item in found] == [str(path) for path in paths]
    for item in found:
        assert {
            "path", "bytes", "compression", "records", "payload", "features", "faults", "sample",
        } <= item.keys()  # fmt: skip
        for feature in item["features"]:
            assert {
                "name", "dtype", "present", "min_length", "max_length", "content",
            } <= feature.keys()  # fmt: skip
        for fault in item["faults"]:
            assert {"kind", "offset", "record", "message"} <= fault.keys()
        for sample in item["sample"]:
            assert {"record", "offset", "length", "features"} <= sample.keys()
    assert [item["payload"] for item in found] == [
        "example",
        "sequence_example",
        "unknown",
        "empty",
    ]
    assert [feature.get("list") for feature in found[1]["features"]] == [None, True]
    assert [[fault["kind"] for fault in item["faults"]] for item in found] == [
        ["payload-crc"],
        [],
        [],
        ["empty"],
    ]
    assert found[1]["sample"][0]["features"] == {"id": 1, "x": [1.0]}


def test_text(capsys: Capture, make_shard: MakeShard) -> None:
    """The text tells the file, its records, payload, CRCs, features and first records."""
    path = make_shard([CAT, DOG, CAT, DOG])
    assert run(path) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    for words in (str(path), "4", "tf.train.Example", "all match", "image/jpeg", "label", "int64"):
        assert words in captured.out
    assert "record 2" in captured.out
    assert "record 3" not in captured.out
    assert max(map(len, captured.out.splitlines()[1:])) <= 80


def test_several_shards(capsys: Capture, make_shard: MakeShard) -> None:
    """Each shard is told, and one with damage makes the exit code 3, wherever it stands."""
    good, bad = make_shard([CAT], "good"), damaged(make_shard([CAT], "bad"), 8 * 15)
    for order in ([good, bad], [bad, good]):
        assert run(*order) == 3
        out = capsys.readouterr().out
        assert out.index(str(order[0])) < out.index(str(order[1]))


def test_fault_in_text(capsys: Capture, make_shard: MakeShard) -> None:
    """A fault is told with its kind, offset and record."""
    path = damaged(make_shard([CAT, DOG]), 8 * (offsets_of([CAT])[1] + 20))
    assert run(path) == 3
    assert f"payload-crc at offset {offsets_of([CAT])[1]} (record 1)" in capsys.readouterr().out


@pytest.mark.parametrize("limit", [0, 1, 4, 9])
def test_limit(capsys: Capture, make_shard: MakeShard, limit: int) -> None:
    """So many records are shown, or as many as there are; all are counted."""
    code, (found,) = run_json(capsys, make_shard([CAT, DOG, CAT, DOG]), "--limit", str(limit))
    assert code == 0
    assert [sample["record"] for sample in found["sample"]] == list(range(min(limit, 4)))
    assert found["records"] == 4


def test_record(capsys: Capture, make_shard: MakeShard) -> None:
    """The record that is asked for is shown alone, with its index and offset."""
    code, (found,) = run_json(capsys, make_shard([CAT, DOG, CAT]), "--record", "1")
    assert code == 0
    (sample,) = found["sample"]
    assert (sample["record"], sample["offset"]) == (1, offsets_of([CAT])[1])
    assert sample["features"]["label"] == 1


def test_missing_record(capsys: Capture, make_shard: MakeShard) -> None:
    """A record that is in no shard makes the command fail, and says so."""
    assert run(make_shard([CAT, DOG]), "--record", "2") == 1
    assert "no record 2" in capsys.readouterr().err


def test_damaged_record(capsys: Capture, make_shard: MakeShard) -> None:
    """A record that is asked for and damaged is not missing: its fault is told."""
    path = damaged(make_shard([CAT, DOG]), 8 * 20)
    code, (found,) = run_json(capsys, path, "--record", "0")
    assert code == 3
    assert found["sample"] == []
    assert found["faults"][0]["record"] == 0


def test_raw(capsys: Capture, make_shard: MakeShard) -> None:
    """The serialized bytes come as Python prints them, with offset, length and both CRCs."""
    assert run(make_shard([CAT, DOG]), "--record", "1", "--raw") == 0
    out = capsys.readouterr().out
    framed = shard_of([DOG])
    assert repr(DOG) in out.splitlines()
    for number in (offsets_of([CAT])[1], len(DOG)):
        assert str(number) in out
    for crc in (framed[8:12], framed[-4:]):
        assert crc[::-1].hex() in out


def test_raw_json(capsys: Capture, make_shard: MakeShard) -> None:
    """The same in JSON."""
    _, (found,) = run_json(capsys, make_shard([CAT]), "--raw")
    assert found["sample"][0]["raw"] == repr(CAT)


def test_features(capsys: Capture, make_shard: MakeShard) -> None:
    """Records are parsed with the features that are given, and only with those."""
    path = make_shard([CAT, DOG])
    code, (found,) = run_json(capsys, path, "--feature", "label:int64=-1")
    assert code == 0
    assert [sample["features"] for sample in found["sample"]] == [{"label": 0}, {"label": 1}]


def test_misfit(capsys: Capture, make_shard: MakeShard) -> None:
    """A record that doesn't fit is named, with what was expected and found; exit code 3."""
    wrong = encode_example({"image": string(JPEG), "label": string(b"dog")})
    path = make_shard([CAT, wrong])
    words = ["--feature", "image:string=", "--feature", "label:int64=-1"]
    code, (found,) = run_json(capsys, path, *words)
    assert code == 3
    (fault,) = found["faults"]
    assert (fault["kind"], fault["record"], fault["offset"]) == ("parse", 1, offsets_of([CAT])[1])
    assert "int64" in fault["message"]
    assert "string" in fault["message"]
    assert run(path, *words) == 3
    assert "parse at offset" in capsys.readouterr().out


def test_hidden_default(capsys: Capture, make_shard: MakeShard) -> None:
    """A missing value that a default hides is told with its record; it is no misfit."""
    path = make_shard([CAT, NAMELESS, encode_example({"image": string(b"x"), "label": UNSET})])
    words = ["--feature", "image:string=", "--feature", "label:int64=-1"]
    code, (found,) = run_json(capsys, path, *words)
    assert code == 0
    assert found["hidden_by_default"] == [{"name": "label", "records": [1, 2]}]
    assert run(path, *words) == 0
    out = capsys.readouterr().out
    assert "'label', which is missing in 2 records (1, 2)" in out
    assert "-1  (default)" in out


def test_description(capsys: Capture, make_shard: MakeShard, tmp_path: Path) -> None:
    """A feature_description in a file is used like the same features."""
    description = tmp_path / "features.json"
    description.write_text('{"label": {"dtype": "int64", "default": -1}}')
    path = make_shard([CAT, NAMELESS])
    by_file = run_json(capsys, path, "--description", description)
    by_words = run_json(capsys, path, "--feature", "label:int64=-1")
    assert by_file == by_words


@pytest.mark.parametrize(
    ("text", "words"),
    [("{", "JSON"), ('{"a": {"dtype": "int32"}}', "int32"), (None, "no such")],
)
def test_bad_description(
    capsys: Capture, make_shard: MakeShard, tmp_path: Path, text: str | None, words: str
) -> None:
    """A description that is none is a usage error that names its file."""
    description = tmp_path / "features.json"
    if text is not None:
        description.write_text(text)
    line = failure(capsys, 2, make_shard([CAT]), "--description", description)
    assert str(description) in line
    assert words in line


def test_description_in_a_pipe(capsys: Capture, make_shard: MakeShard, tmp_path: Path) -> None:
    """A FIFO without a writer is refused, and not waited for."""
    os.mkfifo(tmp_path / "pipe")
    line = failure(capsys, 2, make_shard([CAT]), "--description", tmp_path / "pipe")
    assert "not a regular file" in line


@pytest.mark.parametrize(
    "words",
    [
        ["--feature", "label:int32"],
        ["--feature", "label"],
        ["--feature", "a:int64", "--feature", "a:string"],
        ["--feature", "a:int64", "--description", "features.json"],
    ],
)
def test_bad_features(capsys: Capture, make_shard: MakeShard, words: list[str]) -> None:
    """Features that make no sense are a usage error."""
    failure(capsys, 2, make_shard([CAT]), *words)


@pytest.mark.parametrize(
    "words",
    [["--bogus"], ["--limit", "-1"], ["--limit", "x"], ["--record", "-1"], ["--limit"]],
)
def test_bad_options(capsys: Capture, make_shard: MakeShard, words: list[str]) -> None:
    """Options that make no sense end with exit code 2, and print no result."""
    assert run(make_shard([CAT]), *words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err


def test_no_shards(capsys: Capture) -> None:
    """SHARDS is needed."""
    assert run() == 2
    assert "SHARDS" in capsys.readouterr().err


def test_no_payload_crc(capsys: Capture, make_shard: MakeShard) -> None:
    """Without payload CRCs a damaged payload passes, and the text says so; lengths don't."""
    path = damaged(make_shard([b"hello world", b"second"]), 8 * 12)
    assert run(path, "--no-payload-crc") == 0
    assert "not checked" in capsys.readouterr().out
    assert run(damaged(path, 3), "--no-payload-crc") == 3


def test_many_faults(capsys: Capture, make_shard: MakeShard) -> None:
    """The text shows the first faults and how many more there are; JSON has all."""
    payloads = [b"hello world"] * 30
    path = damaged(make_shard(payloads), *(8 * (at + 12) for at in offsets_of(payloads)[:-1]))
    assert run(path) == 3
    assert "and 20 more" in capsys.readouterr().out
    assert len(run_json(capsys, path)[1][0]["faults"]) == 30


def test_long_values_are_cut(capsys: Capture, make_shard: MakeShard) -> None:
    """Long values stay within the width of a terminal, and tell their size."""
    payload = encode_example(
        {"text": string(b"x" * 5000), "many": int64(*range(5000)), "n" * 30: float32(0.1)}
    )
    assert run(make_shard([payload])) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert max(map(len, lines)) <= 80
    assert any("5,000" in line for line in lines)


def test_debug_shows_a_traceback(capsys: Capture, tmp_path: Path) -> None:
    """--debug adds a traceback to the error, wherever it stands."""
    for words in (["--debug", *COMMAND], [*COMMAND, "--debug"]):
        assert main([*words, str(tmp_path / "missing")]) == 1
        captured = capsys.readouterr()
        assert "Traceback" in captured.err
        assert captured.err.splitlines()[-1].startswith("tfrtool: error: ")


def test_head_ends_quietly(make_shard: MakeShard) -> None:
    """Where the reader of a pipe goes away, the command ends without a word."""
    paths = [make_shard([CAT] * 2000, f"{number}.tfrecord") for number in range(3)]
    tool = [sys.executable, "-m", "tfrtool", *COMMAND, *map(str, paths), "--limit", "2000"]
    with subprocess.Popen(tool, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0
