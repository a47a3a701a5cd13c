"""Stores: objects are read, made, listed and deleted; errors are those of files."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from tests.emulators import SECRET, Bucket, Misbehaviour
from tfrtool.cli import main
from tfrtool.records.framing import frame
from tfrtool.storage import stores
from tfrtool.storage.arguments import as_path
from tfrtool.storage.atomic_files import new_file
from tfrtool.storage.opening import file_sha256, open_regular
from tfrtool.storage.remote import obstore_stores
from tfrtool.storage.remote_path import RemotePath
from tfrtool.storage.stores import Store, store_of

PathOf = Callable[[str], RemotePath]


@pytest.fixture
def store(bucket: Bucket) -> Store:
    """An empty bucket."""
    return store_of(bucket.url)


@pytest.fixture
def path_of(bucket: Bucket) -> PathOf:
    """Make an object's path."""

    def make(key: str) -> RemotePath:
        path = as_path(f"{bucket.url}/{key}")
        assert isinstance(path, RemotePath)
        return path

    return make


@pytest.mark.more
def test_ranges(store: Store) -> None:
    """Ranges hold what stands there, whether near or far, and end where the object does."""
    data = random.Random(0).randbytes(3_000_000)
    store.put("x", data)
    draw = random.Random(1)
    ranges = [(draw.randrange(len(data)), draw.randrange(50_000)) for _ in range(200)]
    for wanted in (ranges, sorted(ranges)):
        assert [*store.read_ranges("x", wanted)] == [data[at:][:size] for at, size in wanted]
    assert store.read_range("x", len(data) - 5, 100) == data[-5:]
    assert store.read_range("x", len(data) + 5, 100) == b""
    assert b"".join(store.stream("x")) == data


def test_a_file_of_parts(store: Store, path_of: PathOf, tmp_path: Path) -> None:
    """A large file is uploaded in parts, and read in any pieces as a local one is."""
    data = random.Random(2).randbytes(20_000_000)
    (tmp_path / "x").write_bytes(data)
    store.upload("big", tmp_path / "x")
    path = path_of("big")
    assert file_sha256(path) == hashlib.sha256(data).hexdigest()
    with open_regular(path) as file:
        file.seek(7_000_000)
        assert file.read(10) == data[7_000_000:7_000_010]
        file.seek(0)
        draw, parts = random.Random(3), []
        while part := file.read(draw.randrange(1, 700_000)):
            parts.append(part)
        assert b"".join(parts) == data
        assert file.seek(-3, os.SEEK_END) == len(data) - 3
        assert file.read() == data[-3:]


def test_listing(store: Store, path_of: PathOf) -> None:
    """Folders hold files with sizes, and folders; patterns find what they match."""
    for key in ("d/a.1", "d/a.2", "d/e/a.3", "d/e/.hidden", "other"):
        store.put(key, key.encode())
    folder = path_of("d")
    assert {path.name: path.stat().st_size for path in folder.iterdir() if path.is_file()} == {
        "a.1": 5,
        "a.2": 5,
    }
    assert [path.name for path in folder.iterdir() if path.is_dir()] == ["e"]
    assert [path.name for path in path_of("d/*").matching()] == ["a.1", "a.2"]
    assert [path.name for path in path_of("**/a.*").matching()] == ["a.1", "a.2", "a.3"]
    assert sorted(key for key, _ in store.list("d")) == ["d/a.1", "d/a.2", "d/e/.hidden", "d/e/a.3"]


def test_what_is_not_there(store: Store, path_of: PathOf) -> None:
    """What is missing is an error as that of a file; to delete it is none."""
    with pytest.raises(FileNotFoundError):
        open_regular(path_of("none"))
    with pytest.raises(FileNotFoundError):
        path_of("none").stat()
    assert not path_of("none").exists()
    store.delete(["none"])
    with pytest.raises(FileNotFoundError, match="no such bucket"):
        list(store_of("s3://no-such-bucket-here").list(""))


def test_paths(store: Store, path_of: PathOf) -> None:
    """A path of a store has parents and names, and travels without what is secret."""
    path = path_of("d/x.tfrecord")
    assert (str(path.parent), path.name, path.suffix) == (
        str(path_of("d")),
        "x.tfrecord",
        ".tfrecord",
    )
    assert path.with_name("y") == path_of("d/y")
    assert path.parent.parent.parent == path_of("")
    store.put("d/x.tfrecord", b"12345")
    assert path.stat().st_size == 5
    text = pickle.dumps(path)
    assert SECRET.encode() not in text
    assert pickle.loads(text).status == path.status
    assert not isinstance(path, Path)


def test_new_file(store: Store, path_of: PathOf) -> None:
    """A file appears when it is whole; what raises leaves nothing."""
    with contextlib.suppress(RuntimeError), new_file(path_of("f")) as file:
        file.write(b"half")
        raise RuntimeError
    assert [*store.list("")] == []
    with new_file(path_of("f"), replace=False) as file:
        file.write(b"whole")
    assert store.read_range("f", 0, 100) == b"whole"
    with pytest.raises(FileExistsError), new_file(path_of("f"), replace=False) as file:
        file.write(b"another")
    assert store.read_range("f", 0, 100) == b"whole"


def test_what_changes_under_the_reader(store: Store, path_of: PathOf) -> None:
    """An object that is replaced while it is read, or after it was listed, is an error."""
    store.put("x", bytes(1_000_000))
    with open_regular(path_of("x")) as file:
        file.read(10)
        store.put("x", b"\1" * 1_000_000)
        with pytest.raises(OSError, match="it was changed while it was being read"):
            file.read()


def test_more_objects_than_may_be_are_counted(
    bucket: Bucket, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder's entries are counted, of which one may have more objects below it."""
    monkeypatch.setattr("tfrtool.storage.stores.MAX_OBJECTS", 20)
    for number in range(30):
        bucket.put(f"d/e/{number}", b"")
    assert [*store.level("d")[1]] == ["d/e"]
    with pytest.raises(OSError, match="more than 20 objects"):
        store.level("d/e")


@pytest.mark.usefixtures("hurry")
def test_more_bytes_than_asked_for_are_an_error_of_the_store(
    bucket: Bucket, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are not taken for damage of a shard."""
    bucket.put("x.tfrecord", frame(b"record"))
    bucket.misbehave(Misbehaviour(methods=("GET",), extra=7))
    assert main(["verify", f"{bucket.url}/x.tfrecord"]) == 1
    assert "the store sent more bytes" in capsys.readouterr().err
    bucket.misbehave()


@pytest.mark.parametrize(("seconds", "requests"), [("0", 1), ("60", 21)])
def test_refused_requests_are_repeated_for_a_time(
    bucket: Bucket, seconds: str, requests: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TFRTOOL_STORE_SECONDS says for how long, however short the pauses turn out."""
    monkeypatch.setenv("TFRTOOL_STORE_SECONDS", seconds)
    pause = timedelta(milliseconds=1)
    backoff = {"init_backoff": pause, "max_backoff": pause, "base": 2}
    monkeypatch.setitem(obstore_stores._RETRIES, "backoff", backoff)
    bucket.put("x", b"some")
    bucket.forget()
    bucket.misbehave(Misbehaviour(methods=("GET",), first=20, status=503))
    stores._store.cache_clear()
    try:
        found = store_of(bucket.url).read_range("x", 0, 4)
    except OSError as error:
        found = str(error).encode()
    stores._store.cache_clear()
    assert (found == b"some") == (requests > 1)
    assert len(bucket.log()) == requests


def test_a_time_that_makes_no_sense(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The variable and the value are named."""
    monkeypatch.setenv("TFRTOOL_STORE_SECONDS", "soon")
    stores._store.cache_clear()
    assert main(["count", f"{bucket.url}/x"]) == 2
    assert "invalid TFRTOOL_STORE_SECONDS 'soon'" in (capsys.readouterr().err)


@pytest.mark.parametrize(
    "endpoint",
    [
        "",
        "localhost:9000",
        "http://",
        "http://[::1",
        "http://[zz]",
        "http://a b",
        "http://a\n",
        "http://x:99999",
    ],
)
def test_an_endpoint_that_is_not_a_url(
    endpoint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The variable is named, and what it should contain."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    stores._store.cache_clear()
    assert main(["count", "s3://bucket/x.tfrecord"]) == 2
    error = capsys.readouterr().err
    assert "AWS_ENDPOINT_URL is not a URL: expected http://HOST:PORT or https://HOST" in error
    stores._store.cache_clear()
