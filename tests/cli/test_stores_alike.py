"""The same commands on every kind of store: what they make, and what they say of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.emulators import Controlled
from tests.photos import write_class_folders
from tfrtool.cli import main

pytest.importorskip("obstore")
pytestmark = pytest.mark.usefixtures("hurry")

Run = Callable[..., tuple[int, str, str]]

READING = (
    ("count", "--json"),
    ("verify", "--json"),
    ("cat", "--limit", "3"),
    ("cat", "--records", "1", "--bytes", "base64"),
    ("inspect", "schema", "--json"),
    ("inspect", "shard", "--json"),
    ("inspect", "dataset", "--json"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with photographs, and the dataset that `write` makes of them."""
    root = tmp_path_factory.mktemp("alike")
    write_class_folders(root / "photos", count=5)
    assert main(["write", str(root / "photos"), str(root / "pets"), "--shards", "2"]) == 0
    return root


def _shards(names: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in names.items() if ".tfrecord-" in name}


def _same(run: Run, here: str, there: str) -> None:
    for command in READING:
        code, out, err = run(*command, there)
        assert (code, out.replace(there, here), err.replace(there, here)) == run(*command, here), (
            command
        )


@pytest.mark.tf
def test_write_and_read(any_bucket: Controlled, folder: Path, run: Run) -> None:
    """Photographs of a store become the same dataset in it, of which commands say the same."""
    any_bucket.put_folder(folder / "photos", "a folder/photos/")
    source, target = (f"{any_bucket.url}/a folder/{name}" for name in ("photos", "pets"))
    code, _, err = run("write", source, target, "--shards", "2")
    assert (code, err) == (0, "")
    here = {path.name: path.read_bytes() for path in (folder / "pets").iterdir()}
    names = any_bucket.names("a folder/pets/")
    there = {name.rpartition("/")[2]: any_bucket.get(name) for name in names}
    assert sorted(there) == sorted(here)
    assert _shards(there) == _shards(here)
    assert there["features.json"] == here["features.json"]
    _same(run, str(folder / "pets"), target)
    assert run("write", source, target)[0] == 2
    assert run("write", source, target, "--shards", "2", "--resume")[0] == 0


def test_replace(any_bucket: Controlled, folder: Path, run: Run, tmp_path: Path) -> None:
    """What replaces a dataset is read, and nothing of the old one is left."""
    target = f"{any_bucket.url}/pets"
    for number in (3, 1):
        words = ("--shards", str(number), "--overwrite", "--name", "pets")
        assert run("reshard", folder / "pets", target, *words)[::2] == (0, "")
    assert run("reshard", folder / "pets", tmp_path / "pets", "--shards", "1")[0] == 0
    _, said, _ = run("count", target, "--json")
    assert [json.loads(line)["records"] for line in said.splitlines()] == [10]
    shards = [name for name in any_bucket.names() if ".tfrecord-" in name]
    here = {path.name: path.read_bytes() for path in (tmp_path / "pets").glob("*.tfrecord-*")}
    assert {name.rpartition("/")[2]: any_bucket.get(name) for name in shards} == here
