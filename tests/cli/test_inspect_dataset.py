"""``tfrtool inspect dataset``."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.test_import_budget import HEAVY, loaded_by
from tests.datasets import write_pets
from tests.examples.strategies import int64, string
from tfrtool.cli import main
from tfrtool.examples.example import encode_example
from tfrtool.records.framing import frame
from tfrtool.records.reader import read_records

Capture = pytest.CaptureFixture[str]


def run(*words: str | Path) -> int:
    """Run the command, and return its exit code."""
    return main(["inspect", "dataset", *map(str, words)])


def run_json(capsys: Capture, *words: str | Path) -> tuple[int, dict[str, Any]]:
    """Run the command with --json; return its exit code and the one object that it printed."""
    code = run("--json", *words)
    captured = capsys.readouterr()
    assert captured.err == ""
    (line,) = captured.out.splitlines()
    return code, json.loads(line)


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset that is shuffled; it is not to be changed."""
    return write_pets(tmp_path_factory.mktemp("pets"), count=120, shards=3)


@pytest.fixture
def unshuffled(pets: Path, tmp_path: Path) -> Path:
    """Return the same records in the order of their classes, as foreign shards."""
    payloads = []
    for path in sorted(pets.glob("*-train*")):
        with path.open("rb") as file:
            payloads += [item.payload for item in read_records(file) if not hasattr(item, "kind")]
    payloads.sort(key=lambda payload: b"cat/" not in payload)
    size = -(-len(payloads) // 3)
    for number in range(3):
        part = payloads[number * size : (number + 1) * size]
        path = tmp_path / f"pets-train.tfrecord-0000{number}-of-00003"
        path.write_bytes(b"".join(map(frame, part)))
    return tmp_path


@pytest.mark.tf
def test_sorted_records(capsys: Capture, unshuffled: Path) -> None:
    """Records in the order of their classes are told as sorted, with what to do."""
    assert run(unshuffled) == 0
    out = capsys.readouterr().out
    assert "sorted by label" in out
    assert "shuffle with a buffer of all" in out
    assert "can't be checked" in out
    assert max(map(len, out.splitlines()[1:])) <= 80
    _, found = run_json(capsys, unshuffled)
    split = found["splits"]["train"]
    assert split["order"] == "sorted"
    assert split["shuffle_buffer"] == split["records"]
    assert split["shuffle"].startswith("sorted by label")


def test_no_label(capsys: Capture, tmp_path: Path) -> None:
    """Without a label all else is told, and what it could be."""
    payload = encode_example({"apples": int64(1), "pears": int64(2)})
    (tmp_path / "a-train-00000-of-00001").write_bytes(frame(payload) * 20)
    assert run(tmp_path) == 0
    out = capsys.readouterr().out
    assert "--label-feature: " in out
    assert "apples, pears" in out
    assert run(tmp_path, "--label", "pears") == 0
    assert "pears, 1 class" in capsys.readouterr().out
    assert run(tmp_path, "--label", "plums") == 2
    assert "'plums'" in capsys.readouterr().err


def test_payloads_that_are_no_examples(capsys: Capture, tmp_path: Path) -> None:
    """Other payloads are counted."""
    (tmp_path / "a.tfrecord").write_bytes(frame(b"hello") * 3)
    assert run(tmp_path) == 0
    out = capsys.readouterr().out
    assert "neither Example nor SequenceExample" in out
    assert "3 in 1 shard" in out


def test_hostile_names(capsys: Capture, tmp_path: Path) -> None:
    """Escape sequences in labels, features and file names don't reach the terminal."""
    payload = encode_example({"label": string(b"red\x1b]0;x\x07")})
    (tmp_path / "x\x07-train.tfrecord-00000-of-00002").write_bytes(frame(payload) * 20)
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.tfrecord")).write_bytes(frame(payload))
    assert run(tmp_path) == 3
    captured = capsys.readouterr()
    assert not set("\x07\x1b") & set(captured.out + captured.err)
    code, found = run_json(capsys, tmp_path)
    assert code == 3
    assert not set("\x07\x1b") & set(str(found))


@pytest.mark.tf
@pytest.mark.parametrize(
    ("words", "code"), [(["none"], 1), ([""], 2), ([".", "--workers", "0"], 2), ([], 2)]
)
def test_usage(
    capsys: Capture, pets: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int
) -> None:
    """What makes no sense is told in a line."""
    monkeypatch.chdir(pets)
    assert run(*words) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("tfrtool: error: ")


@pytest.mark.tf
def test_nothing_heavy_is_loaded(pets: Path, unshuffled: Path) -> None:
    """Nothing heavy is loaded, but numpy and Arrow where there is a features.json."""
    words = ["inspect", "dataset", "--workers", "1"]
    assert loaded_by([*words, str(pets)], HEAVY) == (0, ["numpy", "pyarrow"])
    assert loaded_by([*words, str(unshuffled)], HEAVY) == (0, [])


def test_real_datasets(capsys: Capture, shared_data: Path) -> None:
    """What other software wrote: TFDS' MNIST is shuffled, TFX's penguins are sorted by species."""
    code, found = run_json(capsys, shared_data / "tfrecord" / "tfds_mnist")
    assert (code, found["label"]) == (0, "label")
    assert found["splits"]["test"]["records"] == 10_000
    assert found["splits"]["test"]["labels"]["1"] == 1135
    assert found["splits"]["test"]["shuffle"] == "well shuffled"
    code, found = run_json(capsys, shared_data / "tfrecord" / "tfx_penguin")
    assert (code, found["label"], found["label_candidates"]) == (0, None, ["species"])
    words = (shared_data / "tfrecord" / "tfx_penguin", "--label", "species")
    code, found = run_json(capsys, *words)
    assert (code, found["label"]) == (0, "species")
    assert {name: split["order"] for name, split in found["splits"].items()} == {
        "train": "sorted",
        "eval": "sorted",
    }
    code, found = run_json(capsys, shared_data / "tfrecord" / "spotify_tfreader")
    assert (code, found["label"]) == (3, None)
    assert {fault["kind"] for fault in found["faults"]} == {"missing-shard"}


def test_names_are_told_apart(capsys: Capture, tmp_path: Path) -> None:
    """Labels, splits and shards whose names begin or end alike are not cut to the same text."""
    labels = [f"n01440764_a_name_that_is_long_{number}" for number in range(3)]
    for split in ("train_of_the_first_half", "train_of_the_second_half"):
        for number in range(3):
            payloads = [encode_example({"label": string(name.encode())}) for name in labels * 9]
            path = tmp_path / f"x-{split}.tfrecord-{number:05d}-of-00003"
            path.write_bytes(b"".join(map(frame, payloads)))
    assert run(tmp_path) == 0
    out = capsys.readouterr().out
    for name in (*labels, "train_of_the_first_half", "train_of_the_second_half"):
        assert name in out


def test_what_of_the_metadata_was_compared(capsys: Capture, tmp_path: Path) -> None:
    """Only what was compared is said to match: counts, records, or neither."""
    directory = write_pets(tmp_path)
    assert main(["inspect", "dataset", str(directory)]) == 0
    out = capsys.readouterr().out
    assert "  metadata   record counts match dataset_info.json\n" in out
    assert "  features   20 records match features.json\n" in out
    features = json.loads((directory / "features.json").read_text())
    kinds = features["featuresDict"]["features"]
    kinds["absent"] = kinds["label"]
    (directory / "features.json").write_text(json.dumps(features))
    assert main(["inspect", "dataset", str(directory)]) == 3
    assert "  metadata   see the faults below\n\n" in capsys.readouterr().out
    (directory / "features.json").unlink()
    assert main(["inspect", "dataset", str(directory)]) == 0
    assert "  metadata   record counts match dataset_info.json\n" in capsys.readouterr().out
    info = json.loads((directory / "dataset_info.json").read_text())
    for split in info["splits"]:
        del split["shardLengths"]
    (directory / "dataset_info.json").write_text(json.dumps(info))
    assert main(["inspect", "dataset", str(directory)]) == 0
    assert "  metadata   dataset_info.json does not list the" in capsys.readouterr().out


def test_files_of_another_format(capsys: Capture, tmp_path: Path) -> None:
    """ArrayRecord files that TFDS wrote next to the shards are noted, and are no damage."""
    directory = write_pets(tmp_path)
    other = "pets-train.array_record-00000-of-00001"
    (directory / other).write_bytes(b"not TFRecord" * 9)
    for command in (["inspect", "dataset"], ["verify"]):
        assert main([*command, str(directory)]) == 0
        assert f"1 file of another format not included ({other})" in " ".join(
            capsys.readouterr().out.split()
        )
