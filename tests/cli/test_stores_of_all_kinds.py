"""Stores of all kinds are read alike: Google's, Azure's, web servers, and what fsspec has."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.datasets import write_pets
from tests.emulators import Bucket, Controlled, Website
from tfrtool.cli import main
from tfrtool.errors import DatasetError
from tfrtool.records.shards import find_shards
from tfrtool.storage.arguments import as_path
from tfrtool.storage.opening import open_regular
from tfrtool.storage.remote_path import RemotePath
from tfrtool.storage.stores import ChangedError, store_of

Capture = pytest.CaptureFixture[str]

pytestmark = pytest.mark.tf


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of two shards."""
    return write_pets(tmp_path_factory.mktemp("kinds") / "pets")


def records(place: str, capsys: Capture) -> list[int]:
    """Return how many records `count` finds in each shard."""
    assert main(["count", place, "--json"]) == 0
    return [json.loads(line)["records"] for line in capsys.readouterr().out.splitlines()]


def test_changes(any_bucket: Controlled) -> None:
    """What is replaced only if it is what is known, and made only if nothing is there."""
    url = any_bucket.url
    store = store_of(url)
    first = store.put("a/x", b"one", only_new=True)
    with pytest.raises(FileExistsError):
        store.put("a/x", b"two", only_new=True)
    second = store.put("a/x", b"three", replacing=first)
    with pytest.raises(ChangedError):
        store.put("a/x", b"four", replacing=first)
    assert store.read_range("a/x", 1, 3, second) == b"hre"
    with pytest.raises(ChangedError, match="it was changed while it was being read"):
        store.read_range("a/x", 0, 3, first)
    store.copy("a/x", "a/y")
    path = as_path(f"{url}/a")
    assert isinstance(path, RemotePath)
    for one in path.entries()[0]:
        with open_regular(one) as file:
            assert file.read() == b"three"
    store.delete(["a/x", "a/y", "a/z"])
    assert [*store.list("a")] == []


def test_a_web_server(website: Website, pets: Path, capsys: Capture) -> None:
    """Of a web server files are read, and datasets, whose metadata names their shards."""
    website.put_folder(pets, "pets/")
    shard = next(pets.glob("*-train.tfrecord-00000*"))
    assert records(f"{website.url}/pets/{shard.name}", capsys) == records(str(shard), capsys)
    assert main(["count", f"{website.url}/pets/{shard.name}x"]) == 1
    assert "no such file" in capsys.readouterr().err
    website.put("other/a.tfrecord", shard.read_bytes())
    assert main(["count", f"{website.url}/other"]) == 1
    assert main(["query", f"{website.url}/pets", "SELECT 1", "--out", f"{website.url}/new"]) == 1
    assert "read-only" in capsys.readouterr().err


def test_metadata_of_a_web_server_that_leads_elsewhere(website: Website) -> None:
    """Names of shards don't lead out of the folder that their metadata is in."""
    info = {
        "name": "x",
        "splits": [{"name": "s", "shardLengths": ["1"], "filepathTemplate": "../../{SPLIT}"}],
    }
    website.put("d/dataset_info.json", json.dumps(info).encode())
    with pytest.raises(DatasetError):
        find_shards(f"{website.url}/d")


def test_a_signed_url(website: Website, pets: Path, capsys: Capture) -> None:
    """The query of a signed URL goes along with requests, and is shown nowhere."""
    shard = next(pets.glob("*-train.tfrecord-00000*"))
    website.put("a.tfrecord", shard.read_bytes())
    website.forget()
    url = f"{website.url}/a.tfrecord?X-Signature=hidden%2Fthing&b=1"
    for words in (["count", url, "--json"], ["verify", url], ["cat", url, "--limit", "1"]):
        assert main(words) == 0
        captured = capsys.readouterr()
        assert "hidden" not in captured.out + captured.err
    targets = [one["target"] for one in website.log() if "/a.tfrecord?" in one["target"]]
    assert [one["target"] for one in website.log() if one["target"].endswith("a.tfrecord")] == []
    assert targets
    assert all("X-Signature=hidden%2Fthing&b=1" in target for target in targets)
    assert "hidden" not in repr(as_path(url)) + str(as_path(url).__reduce__())
    assert main(["count", url.replace("a.tfrecord", "none.tfrecord"), "--debug"]) == 1
    assert "hidden" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["count", "{bucket}"], 1, "can't be read: it is empty"),
        (["count", "s3:///pets"], 2, "no bucket or host"),
        (["count", "http://127.0.0.1:99999/x"], 1, "invalid URL"),
        (["count", "http://[::1"], 1, "invalid URL"),
        (["count", "hf://datasets"], 1, "invalid URL"),
        (["count", "ftp://127.0.0.1:1/x"], 2, "ftp:// URLs are not supported"),
        (["count", "sftp://127.0.0.1/x"], 2, "sftp://"),
        (["reshard", "{pets}", "hf://datasets/a/b"], 2, "read-only"),
        (["write", "{pets}", "http://127.0.0.1:1/new"], 2, "read-only"),
        (["append", "{pets}", "{pets}", "--out", "http://127.0.0.1:1/new"], 2, "read-only"),
        (["convert", "{pets}", "http://127.0.0.1:1/new.parquet"], 2, "read-only"),
    ],
)
def test_urls_that_lead_nowhere(
    words: list[str],
    code: int,
    said: str,
    bucket: Bucket,
    pets: Path,
    run: Callable[..., tuple[int, str, str]],
) -> None:
    """One line says what is wrong with them, before anything is asked of another machine."""
    places = {"bucket": bucket.url, "pets": pets}
    found, _, error = run(*(word.format(**places) for word in words))
    assert (found, error.count("\n"), said in error) == (code, 1, True), error


def test_what_fsspec_reads(pets: Path, capsys: Capture) -> None:
    """Any file system of fsspec is read, and none is written."""
    fsspec = pytest.importorskip("fsspec")
    fsspec.filesystem("memory").put(str(pets), "/tests-of-tfrtool/pets", recursive=True)
    assert records("memory://tests-of-tfrtool/pets", capsys) == records(str(pets), capsys)
    assert main(["inspect", "dataset", "memory://tests-of-tfrtool/pets"]) == 0
    capsys.readouterr()
    pattern = "memory://tests-of-tfrtool/pets/*-train.tfrecord-*"
    assert records(pattern, capsys) == records(f"{pets}/*-train.tfrecord-*", capsys)
    shard = next(pets.glob("*-train.tfrecord-00000*"))
    url = f"memory://tests-of-tfrtool/pets/{shard.name}"
    assert main(["repair", url, "memory://tests-of-tfrtool/new"]) == 1
    assert "read-only" in capsys.readouterr().err
    fsspec.filesystem("memory").rm("/tests-of-tfrtool", recursive=True)
    os.environ.pop("TFRTOOL_SIGNED_URLS", None)
