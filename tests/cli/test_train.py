"""`tfrtool train`, as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.datasets import flip_bit, image_payload, write_foreign, write_pets
from tfrtool.cli import main

FAST = ["--model", "cnn", "--image-size", "32", "--epochs", "2", "--batch-size", "8"]


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a dataset of two classes and two splits."""
    return str(write_pets(tmp_path_factory.mktemp("data")))


def test_json_has_the_promised_keys(pets: str, capfd: pytest.CaptureFixture[str]) -> None:
    """--json prints an object an epoch and a last one, with the keys of the contract."""
    assert main(["train", pets, *FAST, "--json"]) == 0
    first, second, last = map(json.loads, capfd.readouterr().out.splitlines())
    for number, epoch in enumerate((first, second), 1):
        assert epoch.keys() >= {
            "epoch",
            "seconds",
            "images_per_second",
            "loss",
            "accuracy",
            "val_loss",
            "val_accuracy",
            "input_wait_fraction",
        }
        assert epoch["epoch"] == number
    assert last.keys() >= {"model", "cache", "recipe", "seconds", "epochs"}
    assert (last["model"], last["recipe"], last["epochs"]) == ("cnn", "tfrtool", 2)


def test_text_is_a_table(pets: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """People read the plan, a line an epoch, and where the model is; stderr stays clean."""
    assert main(["train", pets, *FAST, "--out", str(tmp_path / "run")]) == 0
    output = capfd.readouterr()
    assert "classes  2 (cat, dog)" in output.out
    assert "14 to train on, 6 to validate on" in output.out
    assert "2 epochs in " in output.out
    assert str(tmp_path / "run") in output.out
    assert (tmp_path / "run" / "model.keras").is_file()
    assert output.err == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--epochs", "0"],
        ["--split", "nope"],
        ["--validation", "nope"],
        ["--validation", "1.5"],
        ["--model", "resnet"],
        ["--recipe", "naive", "--cache", "memory"],
        ["--weights", "imagenet"],
    ],
)
def test_usage_errors(arguments: list[str], pets: str, capfd: pytest.CaptureFixture[str]) -> None:
    """A request that makes no sense ends with 2 and prints no result."""
    assert main(["train", pets, *FAST, *arguments]) == 2
    output = capfd.readouterr()
    assert output.out == ""
    assert output.err != ""


def test_no_dataset(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A directory that isn't there ends with 1 and one line that names it."""
    assert main(["train", str(tmp_path / "nope"), *FAST]) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert str(tmp_path / "nope") in line


def test_corrupt_record_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A run that meets a damaged record ends with 1, and one line says where it is."""
    first = image_payload(0)
    directory = write_foreign(tmp_path / "d", [[first, image_payload(1)]])
    (directory / "label.labels.txt").write_text("cat\ndog\n")
    (shard,) = directory.glob("*.tfrecord")
    flip_bit(shard, len(first) + 16 + 30)
    assert main(["train", str(directory), *FAST]) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert str(shard) in line
    assert f"record 1, offset {len(first) + 16}" in line


def test_weights_that_are_not_there(
    pets: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A missing file of weights ends with 1, and is named."""
    assert main(["train", pets, *FAST, "--weights", str(tmp_path / "no.h5")]) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert str(tmp_path / "no.h5") in line
