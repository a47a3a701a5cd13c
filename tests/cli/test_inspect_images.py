"""``tfrtool inspect images``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.conftest import MakeShard
from tests.datasets import flip_bit, image_payload
from tests.examples.strategies import int64, string
from tfrtool.cli import main
from tfrtool.examples.example import encode_example

Capture = pytest.CaptureFixture[str]
GOLDEN = Path(__file__).parents[2] / "fixtures" / "golden"


def run(*words: str | Path) -> int:
    """Run the command, and return its exit code."""
    return main(["inspect", "images", *map(str, words)])


def run_json(capsys: Capture, *words: str | Path) -> tuple[int, dict[str, Any]]:
    """Run the command with --json; return its exit code and the object that it printed."""
    code = run("--json", *words)
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert isinstance(found, dict)
    return code, found


def test_a_sheet_is_drawn(capsys: Capture, tmp_path: Path) -> None:
    """The sheet is there, and the text tells its size and what is on it."""
    out = tmp_path / "sheet.png"
    assert run(GOLDEN / "plain.tfrecord", "--out", out) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    with Image.open(out) as sheet:
        assert f"{sheet.width:,} x {sheet.height:,} pixels" in captured.out
    assert "images   8" in captured.out
    assert "broken   0" in captured.out


def test_json(capsys: Capture, make_shard: MakeShard, tmp_path: Path) -> None:
    """The object has the keys of the contract; a broken image makes the exit code 3."""
    path = make_shard(
        [image_payload(0), image_payload(1, data=b"\xff\xd8\xff cut"), image_payload(2)]
    )
    out = tmp_path / "sheet.png"
    code, found = run_json(capsys, path, "--out", out, "--columns", "2")
    assert code == 3
    assert {"out", "images", "broken", "columns", "rows"} <= found.keys()
    assert (found["out"], found["images"]) == (str(out), 3)
    assert (found["columns"], found["rows"]) == (2, 2)
    (broken,) = found["broken"]
    assert {"path", "record", "offset", "reason"} <= broken.keys()
    assert (broken["path"], broken["record"]) == (str(path), 1)


def test_broken_images_are_told(capsys: Capture, make_shard: MakeShard, tmp_path: Path) -> None:
    """The text says which records are broken and why; of many the first, and how many more."""
    path = make_shard([image_payload(0), *[image_payload(1, data=b"\xff\xd8\xff cut")] * 12])
    flip_bit(path, 100)
    assert run(path, "--out", tmp_path / "sheet.png") == 3
    out = capsys.readouterr().out
    assert "broken   13" in out
    assert "payload-crc" in out
    assert "record 1 at offset" in out
    assert "and 3 more" in out
    assert max(map(len, out.splitlines()[1:])) <= 80


def test_options_reach_the_sheet(capsys: Capture, make_shard: MakeShard, tmp_path: Path) -> None:
    """Limit, size, feature and label are those that were asked for."""
    features = {"image": string(b"no"), "second": string(b"\x00\x80" * 32), "label": int64(1)}
    path = make_shard([encode_example(features)] * 9)
    out = tmp_path / "sheet.jpg"
    words = ("--limit", "4", "--thumb", "32", "--feature", "second", "--label", "label")
    code, found = run_json(capsys, path, "--out", out, *words)
    assert (code, found["images"], found["guessed"]) == (0, 4, 4)
    with Image.open(out) as sheet:
        assert sheet.format == "JPEG"
        assert sheet.size == (found["width"], found["height"])


def test_guesses_and_shards_without_images_are_warned_of(
    capsys: Capture, make_shard: MakeShard, tmp_path: Path
) -> None:
    """What is doubtful or left out is said on stderr, whatever goes to stdout."""
    guess = make_shard([encode_example({"image": string(b"\x00\x80" * 392)})], "guess.tfrecord")
    text = make_shard([encode_example({"name": string(b"Ada")})], "text.tfrecord")
    assert run("--json", guess, text, "--out", tmp_path / "sheet.png") == 3
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 1
    assert "guessed the size of 1 image" in captured.err
    assert f"{text}: no feature" in captured.err


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*[!n]")), ids=lambda path: path.name)
def test_golden_shards(path: Path, capsys: Capture, tmp_path: Path) -> None:
    """Shards with images give a sheet, others an error in one line; none a traceback."""
    code = run(path, "--out", tmp_path / "sheet.png")
    captured = capsys.readouterr()
    pictured = {"plain", "members", "empty-member", "misnamed"}
    if path.name.split(".")[0] in pictured:
        assert code == 0
    else:
        assert code == 1
        assert len(captured.err.splitlines()) == 1
        assert "unexpected" not in captured.err


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--out", "sheet"],
        ["--out", "sheet.pdf"],
        ["--out", "sheet.png", "--limit", "0"],
        ["--out", "sheet.png", "--limit", "1000000"],
        ["--out", "sheet.png", "--thumb", "5000"],
        ["--out", "missing/sheet.png"],
    ],
)
def test_usage(
    words: list[str], capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests that make no sense end with exit code 2, and write nothing."""
    monkeypatch.chdir(tmp_path)
    assert run(GOLDEN / "plain.tfrecord", *words) == 2
    assert capsys.readouterr().out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("label", ["nosuch", "image"])
def test_a_label_that_is_none_is_refused(
    label: str, capsys: Capture, make_shard: MakeShard, tmp_path: Path
) -> None:
    """A label that no record has, or that is the image itself, is not passed over."""
    shard, out = make_shard([image_payload(0)]), tmp_path / "sheet.png"
    assert run(shard, "--out", out, "--label", label) == 2
    assert f"no feature {label!r}" in capsys.readouterr().err
    assert not out.exists()
