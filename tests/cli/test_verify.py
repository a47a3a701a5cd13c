"""``tfrtool verify``, as a user sees it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MakeShard
from tests.contracts.test_import_budget import HEAVY, loaded_by
from tests.datasets import flip_bit, image_payload, write_foreign, write_pets
from tfrtool.cli import main

FIXTURES = Path(__file__).parents[2] / "fixtures"
DAMAGED = sorted(path for path in (FIXTURES / "damaged").iterdir() if path.suffix != ".json")

Capture = pytest.CaptureFixture[str]


def run(*words: str | Path) -> int:
    """Run the command, and return its exit code."""
    return main(["verify", *map(str, words)])


def run_json(capsys: Capture, *words: str | Path) -> tuple[int, list[dict[str, Any]]]:
    """Run the command with --json; return its exit code and the objects that it printed."""
    code = run("--json", *words)
    captured = capsys.readouterr()
    assert captured.err == ""
    return code, [json.loads(line) for line in captured.out.splitlines()]


@pytest.fixture(scope="module")
def _pets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pets(tmp_path_factory.mktemp("pets"))


@pytest.fixture
def pets(_pets: Path, tmp_path: Path) -> Path:
    """Return a sound dataset that a test may damage."""
    return Path(shutil.copytree(_pets, tmp_path / "pets"))


@pytest.mark.parametrize("path", [pytest.param(path, id=path.name) for path in DAMAGED])
def test_damaged_fixture_agrees_with_inspection(path: Path, capsys: Capture) -> None:
    """Verify --json and inspect shard --json tell the same faults, and both exit with 3."""
    code, (shard, last) = run_json(capsys, path)
    assert code == 3
    assert main(["inspect", "shard", "--json", "--limit", "0", str(path)]) == 3
    inspected = json.loads(capsys.readouterr().out)
    causes = [fault.pop("cause") for fault in shard["faults"]]
    for fault in inspected["faults"]:
        fault.pop("cause", None)  # only where it takes no look at the file
    assert len(causes) == shard["fault_count"] == last["fault_count"]
    for key in ("path", "bytes", "compression", "records", "payload", "faults"):
        assert shard[key] == inspected[key]


@pytest.mark.parametrize("name", ["payload-bit", "length-bit", "last-payload", "first-length"])
def test_offset_is_that_of_tensorflow_s_message(tf: Any, name: str, capsys: Capture) -> None:
    """TensorFlow says "corrupted record at N" and no file; N is ours, or the payload's place."""
    path = FIXTURES / "damaged" / f"{name}.tfrecord"
    with pytest.raises(tf.errors.DataLossError) as caught:
        list(tf.data.TFRecordDataset(str(path)))
    _, (shard, _) = run_json(capsys, path)
    (fault,) = shard["faults"]
    place = fault["offset"] + (12 if fault["kind"] == "payload-crc" else 0)
    assert f"corrupted record at {place} " in str(caught.value)
    assert run(path) == 3
    assert f"; TensorFlow: corrupted record at {place}\n" in capsys.readouterr().out


@pytest.mark.tf
def test_cause_and_next_step(pets: Path, capsys: Capture) -> None:
    """A damaged shard comes with its likely cause and what to do; the sound ones are not named."""
    flip_bit(pets / "pets-train.tfrecord-00001-of-00002", 20)
    assert run(pets) == 3
    out = capsys.readouterr().out
    assert "payload-crc at offset 0 (record 0)" in out
    assert "(bit 0 of the byte at offset 20)" in out
    assert "train with --on-error skip" in " ".join(out.split())
    assert "repair" not in out  # a repaired shard would not have the records that are said
    assert "pets-train.tfrecord-00000-of-00002" not in out
    assert "1 fault\n" in out


def test_broken_image(tmp_path: Path, capsys: Capture) -> None:
    """--images decodes; without it an image is bytes."""
    image = (FIXTURES / "pets" / "dog" / "dog-061.jpg").read_bytes()
    directory = write_foreign(tmp_path / "a", [[image_payload(0), image_payload(1, data=image)]])
    assert run(directory) == 0
    capsys.readouterr()
    code, objects = run_json(capsys, directory, "--images")
    assert code == 3
    (fault,) = objects[0]["faults"]
    assert (fault["kind"], fault["record"]) == ("parse", 1)
    assert "'image'" in fault["message"]


def test_leakage(tmp_path: Path, capsys: Capture) -> None:
    """The same image in two splits is a fault, with shard, record, label and split."""
    directory = write_foreign(tmp_path / "a", [[image_payload(0), image_payload(1)]])
    (directory / "part-00000-of-00001.tfrecord").rename(directory / "train-00000-of-00001")
    shutil.copy(directory / "train-00000-of-00001", directory / "test-00000-of-00001")
    with (directory / "test-00000-of-00001").open("ab") as file:
        file.write((directory / "test-00000-of-00001").read_bytes()[:0])
    assert run(directory, "--images") == 3
    out = capsys.readouterr().out
    assert "duplicate images: 2 in more than one split" in out
    assert "train-00000-of-00001:0 (train, 0)" in out
    code, objects = run_json(capsys, directory, "--images")
    assert code == 3
    assert [group["across_splits"] for group in objects[-1]["duplicates"]] == [True, True]
    counts = {"spoiled": 2, "across_splits": 2, "across_labels": 0, "within": 0}
    assert objects[-1]["duplicate_counts"] == counts


def test_duplicates_within_a_split_are_no_damage(tmp_path: Path, capsys: Capture) -> None:
    """They are told, and the exit code is 0."""
    directory = write_foreign(tmp_path / "a", [[image_payload(0)] * 3])
    assert run(directory, "--images") == 0
    out = capsys.readouterr().out
    assert "duplicate images: 1 within one split and label" in out
    assert "no faults found" in out


@pytest.mark.tf
def test_unreadable_shard_does_not_hide_the_others(pets: Path, capsys: Capture) -> None:
    """The others are reported, the exit code is 1, and one line on stderr names the file."""
    if not Path("/proc/self/mem").exists():
        pytest.skip("needs Linux")
    bad = pets / "pets-train.tfrecord-00000-of-00002"
    bad.unlink()
    bad.symlink_to("/proc/self/mem")  # opens, and fails to be read at 0
    flip_bit(pets / "pets-train.tfrecord-00001-of-00002", 20)
    assert run(pets) == 1
    captured = capsys.readouterr()
    assert "payload-crc" in captured.out
    assert "1 shard can't be read" in captured.out
    assert re.search(r"read +3 shards", captured.out)
    (line,) = captured.err.splitlines()
    assert line.startswith(f"tfrtool: error: {bad}: can't be read")


@pytest.mark.tf
def test_broken_metadata(pets: Path, capsys: Capture) -> None:
    """A dataset_info.json that is no JSON is a fault, and the shards are verified."""
    (pets / "dataset_info.json").write_text("{")
    assert run(pets) == 3
    out = capsys.readouterr().out
    assert "dataset_info.json" in out
    assert re.search(r"records +20\b", out)


def test_hostile_counts(tmp_path: Path, capsys: Capture) -> None:
    """An absurd count costs nothing, and is told in few lines."""
    directory = write_foreign(tmp_path / "a", [[image_payload(0)]])
    shutil.copy(directory / "part-00000-of-00001.tfrecord", directory / "-00000-of-99999999999")
    assert run(directory) == 3
    out = capsys.readouterr().out
    assert "91 more; use --json" in out
    assert len(out) < 10_000
    code, objects = run_json(capsys, directory)
    assert code == 3
    assert any("99,999,999,898 more" in fault["message"] for fault in objects[-1]["faults"])


@pytest.mark.parametrize("flipped", [False, True], ids=["missing", "damaged"])
def test_hostile_names(tmp_path: Path, flipped: bool, capsys: Capture) -> None:
    """Escape sequences and line breaks in names reach no terminal."""
    directory = write_foreign(tmp_path / "a", [[image_payload(0)] * 2])
    (shard,) = directory.iterdir()
    hostile = shard.rename(directory / "\x1b[31m\n-00000-of-00002")
    if flipped:
        flip_bit(hostile, 20)
    assert run(directory, "--images") == 3
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\\x1b[31m\\n-00001-of-00002" in out


def test_files_of_two_directories(tmp_path: Path, capsys: Capture) -> None:
    """Each directory is looked at for itself."""
    for name in ("a", "b"):
        write_foreign(tmp_path / name, [[image_payload(0)], [image_payload(1)]])
    (tmp_path / "b" / "part-00001-of-00002.tfrecord").unlink()
    code, objects = run_json(capsys, tmp_path / "a", tmp_path / "b")
    assert code == 3
    (fault,) = objects[-1]["faults"]
    assert fault["path"] == str(tmp_path / "b" / "part-00001-of-00002.tfrecord")


@pytest.mark.tf
@pytest.mark.parametrize("words", [[], ["--json"]], ids=["text", "json"])
def test_verifying_is_light(pets: Path, words: list[str]) -> None:
    """Nothing heavy is loaded, but numpy and Arrow where there is a features.json."""
    assert loaded_by(["verify", str(pets), *words], HEAVY) == (0, ["numpy", "pyarrow"])
    (pets / "features.json").unlink()
    assert loaded_by(["verify", str(pets), *words], HEAVY) == (0, [])


@pytest.mark.tf
def test_images_need_pillow_besides(pets: Path) -> None:
    """With --images Pillow is loaded, too, and nothing else that is heavy."""
    found = loaded_by(["verify", str(pets), "--images", "--workers", "1"], HEAVY)
    assert found == (0, ["numpy", "PIL", "pyarrow"])


def test_no_damaged_shard_is_said_to_hold(make_shard: MakeShard, capsys: Capture) -> None:
    """The sum says that CRCs hold where they all do, also beside a record that is no Example."""
    whole = make_shard([image_payload(n) for n in range(3)], "whole.tfrecord")
    odd = make_shard([*(image_payload(n) for n in range(3)), b"\xff"], "odd.tfrecord")
    for shard, code in ((whole, 0), (odd, 3)):
        assert run(shard) == code
        assert "all checksums (CRCs) match" in capsys.readouterr().out
    flip_bit(whole, 40)
    assert run(whole) == 3
    out = capsys.readouterr().out
    assert "2 intact, 1 damaged" in out
    assert "(CRCs) match" not in out
    odd.write_bytes(odd.read_bytes()[:-3])
    assert run(odd) == 3
    assert "(CRCs) match" not in capsys.readouterr().out
