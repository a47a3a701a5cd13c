"""`tfrtool train` and `bench` on a dataset in a store, as a user calls them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.datasets import write_pets
from tests.emulators import Bucket, Misbehaviour
from tfrtool.cli import main

pytestmark = [pytest.mark.tf, pytest.mark.usefixtures("quick_graphs", "quick_cnn")]

SMALL = ["--model", "cnn", "--image-size", "32", "--batch-size", "4", "--epochs", "2"]
SMALL += ["--trainable", "head"]


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a local dataset of 14 images to train on and 6 to validate on, in three shards."""
    return write_pets(tmp_path_factory.mktemp("data"), shards=3)


@pytest.fixture
def url(bucket: Bucket, pets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URL of the same dataset in a store."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    bucket.put_folder(pets, "pets/1.0.0/")
    return f"{bucket.url}/pets/1.0.0"


def _losses(printed: str) -> list[tuple[float, ...]]:
    lines = [json.loads(line) for line in printed.splitlines()]
    return [(line["loss"], line["accuracy"], line["val_loss"]) for line in lines[:-1]]


@pytest.mark.more
def test_losses_are_those_of_local_files(
    pets: Path, url: str, bucket: Bucket, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Every epoch of both has the same losses; each shard is copied once, to a given folder."""
    folder = tmp_path / "shards"
    arguments = [*SMALL, "--cache", "none", "--json"]
    assert main(["train", str(pets), *arguments]) == 0
    local = _losses(capfd.readouterr().out)
    bucket.forget()
    assert main(["train", url, *arguments, "--shard-cache", str(folder)]) == 0
    assert len([*folder.glob("*.shard")]) == 6
    assert _losses(capfd.readouterr().out) == local
    whole = [entry for entry in bucket.log() if entry["method"] == "GET" and _is_shard(entry)]
    size = {path.name: path.stat().st_size for path in pets.glob("*.tfrecord*")}
    heads = 3  # what a split's first shard is like, twice, and the first record
    assert sum(entry["down"] for entry in whole) <= sum(size.values()) + heads * max(size.values())


def _is_shard(entry: dict[str, Any]) -> bool:
    return ".tfrecord" in entry["target"]


def test_local_dataset_has_no_shard_cache(pets: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """An option that would do nothing is refused."""
    for command in (["train", str(pets), *SMALL], ["bench", str(pets)]):
        assert main([*command, "--shard-cache", "cache"]) == 2
        assert "--shard-cache" in capfd.readouterr().err


@pytest.mark.more
def test_shard_that_is_not_what_was_written(
    url: str, bucket: Bucket, pets: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is named by its URL, with what to do; that leaves out its damaged record alone."""
    name = "pets-train.tfrecord-00001-of-00003"
    data = bytearray((pets / name).read_bytes())
    data[-50] ^= 1
    bucket.put(f"pets/1.0.0/{name}", bytes(data))
    assert main(["train", url, *SMALL]) == 1
    error = capfd.readouterr().err
    assert (
        f"error: {url}/{name}: the shard differs from what was written: expected SHA-256" in error
    )
    assert "--on-error skip" in error
    assert main(["train", url, *SMALL, "--on-error", "skip", "--json"]) == 3
    printed = capfd.readouterr()
    assert f"warning: skipped: {url}/{name}:3, offset " in printed.err
    assert json.loads(printed.out.splitlines()[-1])["skipped"] == 1


def test_store_that_is_out_of_order(
    url: str, bucket: Bucket, capfd: pytest.CaptureFixture[str]
) -> None:
    """A store that refuses a shard in the middle of training is told as that."""
    rule = Misbehaviour(matching="train.tfrecord-00002", status=403, code="AccessDenied")
    bucket.misbehave(rule)
    assert main(["train", url, *SMALL]) == 1
    error = capfd.readouterr().err
    assert f"{url}/pets-train.tfrecord-00002-of-00003: can't be fetched: access denied" in error
    assert "Traceback" not in error
