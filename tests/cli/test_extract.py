"""`tfrtool extract`, as a user calls it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contracts.test_import_budget import HEAVY, PROGRAM
from tests.examples.strategies import int64
from tests.inspection.extracting import JPEG, PNG, files_below, lines_beside, photo, write_shard
from tfrtool.cli import main
from tfrtool.examples.example import encode_example

Capture = pytest.CaptureFixture[str]
DAMAGED = Path(__file__).parents[2] / "fixtures" / "damaged"


def run(*words: str | Path) -> int:
    """Run the command, and return its exit code."""
    return main(["extract", *map(str, words)])


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    """Return a shard with two good records, one with a bad name, and one without an image."""
    payloads = [
        photo(JPEG, b"cat/1.jpg", 0),
        photo(JPEG, b"../dog/1.jpg", 1),
        photo(PNG, b"dog/2.jpg", 1),
        encode_example({"label": int64(1)}),
    ]
    return write_shard(tmp_path / "pets.tfrecord", payloads, ["cat", "dog"])


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("git-lfs.tfrecord", "git lfs pull"),
        ("empty.tfrecord", "file is empty"),
        ("payload-bit.tfrecord", "found id (int64), score (float32), text (string)"),
        ("../golden/events.out.tfevents.1700000000.host", "TensorBoard events"),
        ("../golden/text.tfrecord", "neither Example nor SequenceExample"),
    ],
)
def test_shards_without_images_say_what_they_hold(
    name: str, part: str, tmp_path: Path, capsys: Capture
) -> None:
    """Where there is nothing to take out, the error says what is there instead."""
    assert run(DAMAGED / name, tmp_path / "out") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert part in line
    assert list(tmp_path.iterdir()) == []


def test_one_record_becomes_one_file(shard: Path, tmp_path: Path, capsys: Capture) -> None:
    """Its bytes are those of the record, whatever the name; nothing else is written."""
    for name, record, data in (("a.jpeg", 1, JPEG), ("b.txt", 2, PNG)):
        assert run(shard, "--record", str(record), "--out", tmp_path / name) == 0
        assert (tmp_path / name).read_bytes() == data
    output = capsys.readouterr()
    assert "image/jpeg, 10 B" in output.out
    assert output.err.splitlines() == [
        f"tfrtool: warning: {tmp_path}/b.txt contains image/png; the usual suffix is .png"
    ]
    words = shard, "--record", "2", "--out", tmp_path / "a.jpeg", "--overwrite", "--json"
    assert run(*words) == 0
    assert json.loads(capsys.readouterr().out) == {
        "file": str(tmp_path / "a.jpeg"), "shard": str(shard), "record": 2, "feature": "image",
        "content": "image/png", "bytes": len(PNG),
    }  # fmt: skip
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a.jpeg", "b.txt", "label.labels.txt", "pets.tfrecord"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--record 9 --out {}/a.jpg", "no record 9"),
        ("--record 3 --out {}/a.jpg", "no feature 'image'"),
        ("--record 0 --out {}/label.labels.txt", "already exists; use --overwrite"),
        ("--record 0", "--record and --out must be used together"),
        ("--record 0 --out {}/a.jpg --by label", "--by can't be used with --record"),
        ("{0}/pets.tfrecord --record 0 --out {0}/a.jpg", "--record requires a single shard"),
        ("", "missing SHARDS or TARGET"),
    ],
)
def test_one_file_needs_one_record(
    shard: Path, tmp_path: Path, words: str, message: str, capsys: Capture
) -> None:
    """The error says what is wrong, and no file appears."""
    (tmp_path / "other").mkdir()
    write_shard(tmp_path / "other" / "b.tfrecord", [photo(JPEG)])
    first = tmp_path / "other" / "b.tfrecord" if "{0}" in words else shard
    assert run(first, *words.format(tmp_path).split()) in (1, 2)
    assert message in capsys.readouterr().err
    assert not (tmp_path / "a.jpg").exists()


DAMAGE = [
    path.name
    for path in sorted(DAMAGED.glob("*.tfrecord*"))
    if path.suffix != ".json" and json.loads(Path(f"{path}.json").read_text())["records"]
]


@pytest.mark.parametrize("name", DAMAGE)
def test_every_whole_record_of_a_damaged_shard_comes_out(
    name: str, tmp_path: Path, capsys: Capture
) -> None:
    """Each damaged fixture gives a file for every Example in it, and the faults of its twin."""
    twin = json.loads((DAMAGED / f"{name}.json").read_text())
    code = run(DAMAGED / name, tmp_path / "out", "--feature", "text", "--json")
    data = json.loads(capsys.readouterr().out)
    kinds = [fault["kind"] for fault in data["faults"]]
    assert code == 3
    assert kinds == [fault["kind"] for fault in twin["faults"]]
    assert [f["offset"] for f in data["faults"]] == [f["offset"] for f in twin["faults"]]
    assert data["files"] == twin["records"] - kinds.count("parse")
    assert len(lines_beside(tmp_path / "out")) == data["files"]


def test_extracting_is_light(shard: Path, tmp_path: Path) -> None:
    """Neither TensorFlow nor numpy nor Pillow is loaded."""
    words = json.dumps([["extract", str(shard), str(tmp_path / "out")]])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, words, json.dumps(HEAVY)],
        capture_output=True,
        check=True,
        text=True,
    )
    assert json.loads(done.stderr.splitlines()[-1]) == [3, []]


def test_mnist_comes_out_as_pngs(shared_data: Path, tmp_path: Path, capsys: Capture) -> None:
    """Images without names are PNGs in ten folders, the bytes of their records."""
    words = ("--limit", "2000", "--json")
    assert run(shared_data / "tfrecord" / "tfds_mnist", tmp_path / "out", *words) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["files"] == 2000
    assert set(data["classes"]) == set("0123456789")
    files = files_below(tmp_path / "out")
    assert sum(map(len, files.values())) == data["bytes"]
    assert all(name.endswith(".png") and value.startswith(PNG) for name, value in files.items())
    lines = lines_beside(tmp_path / "out")
    assert all(line["file"].startswith(f"{line['features']['label']}/test-") for line in lines)
