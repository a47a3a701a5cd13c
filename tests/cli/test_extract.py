"""`tfrtool extract`, as a user calls it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contracts.test_import_budget import HEAVY, PROGRAM
from tests.datasets import flip_bit
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


def test_json_has_the_promised_keys(shard: Path, tmp_path: Path, capsys: Capture) -> None:
    """--json prints one object, with everything that was taken, renamed and left out."""
    assert run(shard, tmp_path / "out", "--json") == 3
    captured = capsys.readouterr()
    (line,) = captured.out.splitlines()
    assert json.loads(line) == {
        "dir": str(tmp_path / "out"),
        "metadata": str(tmp_path / "out.jsonl"),
        "feature": "image",
        "by": "label",
        "name": "image/filename",
        "files": 3,
        "bytes": 2 * len(JPEG) + len(PNG),
        "classes": {"cat": 1, "dog": 2},
        "unlabelled": 0,
        "skipped": [{"shard": str(shard), "record": 3, "reason": "no feature 'image'"}],
        "skipped_count": 1,
        "renamed": [{"file": "dog/1.jpg", "from": "../dog/1.jpg"}],
        "renamed_count": 1,
        "faults": [],
        "fault_count": 0,
        "label_guess": None,
    }


def test_text_tells_what_came_out(shard: Path, tmp_path: Path, capsys: Capture) -> None:
    """The page names the features, the folders, and all that is not as recorded, in 80 columns."""
    flip_bit(shard, 40)
    assert run(shard, tmp_path / "out") == 3
    text = capsys.readouterr().out
    for part in (
        "2 from feature 'image'",
        "by feature 'label'",
        "from feature 'image/filename'",
        "out.jsonl",
        "dog/        2",
        "renamed: 1",
        "../dog/1.jpg -> dog/1.jpg",
        "skipped: 1 record",
        "no feature 'image': record 3 of pets.tfrecord",
        "damaged: 1 fault",
        "payload-crc at offset 0 (record 0)",
    ):
        assert part in text
    paths = {str(tmp_path / "out.jsonl"), str(shard)}
    assert all(len(line) <= 80 for line in text.splitlines() if not any(p in line for p in paths))


def test_options(shard: Path, tmp_path: Path) -> None:
    """--flat, --limit, --by, --name and --feature do what the help says."""
    assert run(shard, tmp_path / "a", "--flat", "--limit", "2") == 0
    assert set(files_below(tmp_path / "a")) == {"1.jpg", "1_2.jpg"}
    assert run(shard, tmp_path / "b", "--by", "image/filename", "--limit", "1") == 0
    assert set(files_below(tmp_path / "b")) == {"cat%2F1.jpg/cat/1.jpg"}
    words = ("--feature", "image/filename", "--limit", "1")
    assert run(shard, tmp_path / "c", *words) == 0
    assert files_below(tmp_path / "c") == {"cat/pets-000000.txt": b"cat/1.jpg"}


def test_overwrite(shard: Path, tmp_path: Path, capsys: Capture) -> None:
    """An extract can be run again where only its metadata are left, and where all is."""
    assert run(shard, tmp_path / "out") == 3
    shutil.rmtree(tmp_path / "out")
    capsys.readouterr()
    assert run(shard, tmp_path / "out") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "out.jsonl" in line
    assert "--overwrite" in line
    for _ in range(2):
        assert run(shard, tmp_path / "out", "--overwrite") == 3
    assert len(files_below(tmp_path / "out")) == 3


def test_a_shard_directory_and_globs(tmp_path: Path) -> None:
    """SHARDS are files, globs and directories."""
    for number in range(2):
        payload = photo(JPEG + bytes([number]), b"%d.jpg" % number, b"cat")
        write_shard(tmp_path / "in" / f"x-{number}.tfrecord", [payload])
    assert run(tmp_path / "in", tmp_path / "a") == 0
    assert run(f"{tmp_path}/in/*.tfrecord", tmp_path / "b") == 0
    assert files_below(tmp_path / "a") == files_below(tmp_path / "b")
    assert len(files_below(tmp_path / "a")) == 2


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (["--feature", "imagee"], 2, "no feature 'imagee'"),
        (["--feature", "label"], 2, "expected string, found int64"),
        (["--by", "x"], 2, "no feature 'x'"),
        (["--by", "label", "--flat"], 2, "--by and --flat cannot be used together"),
        (["--limit", "0"], 2, "--limit"),
    ],
)
def test_usage_errors(
    words: list[str], code: int, part: str, shard: Path, tmp_path: Path, capsys: Capture
) -> None:
    """A request that makes no sense ends with one line, and leaves nothing."""
    assert run(shard, tmp_path / "out", *words) == code
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert part in line
    assert captured.out == ""
    assert not (tmp_path / "out").exists()


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
