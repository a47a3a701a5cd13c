"""Copies of remote shards: each is fetched once and checked; old ones make room."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.emulators import REPOSITORY, Bucket, Misbehaviour
from tfrtool.errors import CorruptShardError, ShardError, UsageError, WriteError
from tfrtool.storage.arguments import as_path
from tfrtool.storage.remote.shard_cache import ShardCache, look_at
from tfrtool.storage.remote_path import RemotePath

SIZE = 100_000


def _shard(bucket: Bucket, number: int) -> RemotePath:
    path = as_path(f"{bucket.url}/pets/shard-{number}")
    assert isinstance(path, RemotePath)
    return path


def _bytes(number: int) -> bytes:
    return bytes([65 + number]) * SIZE


@pytest.fixture
def shards(bucket: Bucket) -> list[RemotePath]:
    """Return six shards of a store, of 100,000 bytes each."""
    for number in range(6):
        bucket.put(f"pets/shard-{number}", _bytes(number))
    bucket.forget()
    return [_shard(bucket, number) for number in range(6)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return where the cache is to be."""
    return tmp_path / "shards"


def _held(folder: Path) -> int:
    """Return how many bytes of shards there are."""
    return sum(path.stat().st_size for path in folder.iterdir())


def _read(cache: ShardCache, shard: RemotePath) -> bytes:
    return cache.fetch(shard).read_bytes()


def test_shard_is_fetched_once(bucket: Bucket, shards: list[RemotePath], folder: Path) -> None:
    """Another cache in the same folder, as of another process, transfers nothing."""
    for _ in range(2):
        assert _read(ShardCache(folder), shards[0]) == _bytes(0)
    assert _read(ShardCache(folder), _shard(bucket, 0)) == _bytes(0)
    assert bucket.down() == SIZE
    assert folder.stat().st_mode & 0o777 == 0o700


def test_threads_fetch_a_shard_once(bucket: Bucket, shards: list[RemotePath], folder: Path) -> None:
    """Who comes while it is fetched waits, and gets the same file."""
    bucket.misbehave(Misbehaviour(methods=("GET",), delay=0.2))
    caches = [ShardCache(folder) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        found = [*pool.map(lambda cache: _read(cache, shards[0]), caches)]
    assert set(found) == {_bytes(0)}
    assert bucket.down() == SIZE
    assert sum(len(cache.fetched) for cache in caches) == 1


_FETCH = """
import sys
from tfrtool.storage.arguments import as_path
from tfrtool.storage.remote.shard_cache import ShardCache
cache = ShardCache(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for url in sys.argv[2:]:
    assert len(cache.fetch(as_path(url)).read_bytes()) == 100_000
print(len(cache.fetched))
"""


def _process(folder: Path, *shards: RemotePath) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _FETCH, str(folder), *map(str, shards)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    child = subprocess.Popen(command, cwd=REPOSITORY, text=True, **pipes)  # type: ignore[call-overload]
    assert child.stdout.readline() == "ready\n"
    return child  # type: ignore[no-any-return]


def test_processes_fetch_each_shard_once(
    bucket: Bucket, shards: list[RemotePath], folder: Path
) -> None:
    """Two processes that need the same shards at the same time share the work."""
    bucket.misbehave(Misbehaviour(methods=("GET",), delay=0.05))
    children = [_process(folder, *shards) for _ in range(2)]
    bucket.forget()
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    fetched = [int(child.communicate(timeout=300)[0]) for child in children]
    assert [child.returncode for child in children] == [0, 0]
    assert sum(fetched) == len(shards)
    assert bucket.down() == len(shards) * SIZE


def test_process_that_is_killed_leaves_nothing_whole(
    bucket: Bucket, shards: list[RemotePath], folder: Path
) -> None:
    """What it had begun is fetched again."""
    bucket.misbehave(Misbehaviour(methods=("GET",), rate=200, first=1))
    child = _process(folder, shards[0])
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()
    while not [*folder.glob("*.part")]:
        time.sleep(0.01)
    time.sleep(0.2)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert [*folder.glob("*.part")]
    assert _read(ShardCache(folder), shards[0]) == _bytes(0)
    assert _held(folder) == SIZE


def test_other_bytes_than_were_written(shards: list[RemotePath], folder: Path) -> None:
    """A shard that differs from the report is named with both digests, and not kept."""
    expected = hashlib.sha256(b"other").hexdigest()
    cache = ShardCache(folder, sha256={"shard-0": expected})
    with pytest.raises(CorruptShardError, match=rf"shard-0: .*{expected}.*found") as caught:
        cache.fetch(shards[0])
    assert hashlib.sha256(_bytes(0)).hexdigest() in str(caught.value)
    assert _held(folder) == 0
    right = {"shard-0": hashlib.sha256(_bytes(0)).hexdigest()}
    assert _read(ShardCache(folder, sha256=right), shards[0]) == _bytes(0)


def test_copy_that_nobody_checked_is_not_believed(
    bucket: Bucket, shards: list[RemotePath], folder: Path
) -> None:
    """Who knows a digest has it held against the bytes, whoever fetched them before without."""
    assert _read(ShardCache(folder), shards[0]) == _bytes(0)
    cache = ShardCache(folder, sha256={"shard-0": "0" * 64})
    with pytest.raises(CorruptShardError):
        cache.fetch(shards[0])
    assert bucket.down() == 2 * SIZE


def test_shard_that_changes(bucket: Bucket, shards: list[RemotePath], folder: Path) -> None:
    """A copy stays in use; a shard that changes before it is fetched is an error of this run."""
    cache = ShardCache(folder)
    _read(cache, shards[0])
    look_at(shards[1])
    for number in range(2):
        bucket.put(f"pets/shard-{number}", b"y" * SIZE)
    assert _read(cache, shards[0]) == _bytes(0)
    with pytest.raises(ShardError, match=r"shard-1: can't be fetched: it was changed"):
        cache.fetch(shards[1])
    assert _read(ShardCache(folder), _shard(bucket, 0)) == b"y" * SIZE


def test_store_that_fails_for_a_while(
    bucket: Bucket, shards: list[RemotePath], folder: Path
) -> None:
    """Errors of the store, and answers that are cut, are tried again."""
    bucket.misbehave(
        Misbehaviour(methods=("GET",), status=503, code="SlowDown", first=3),
        Misbehaviour(methods=("GET",), cut_after=1000, after=3, first=2),
    )
    assert _read(ShardCache(folder), shards[0]) == _bytes(0)


def test_shard_that_is_gone(bucket: Bucket, folder: Path) -> None:
    """The error names the shard, and leaves no file."""
    with pytest.raises(ShardError, match=rf"{bucket.url}/pets/shard-9: can't be fetched: no such"):
        ShardCache(folder).fetch(_shard(bucket, 9))
    assert not folder.exists() or _held(folder) == 0


def test_folder_of_others_is_refused(tmp_path: Path) -> None:
    """A folder that others may write to, and a link, are no place for what is believed later."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(WriteError, match="other users can write to it"):
        ShardCache(tmp_path / "open")
    (tmp_path / "own").mkdir(0o700)
    (tmp_path / "link").symlink_to(tmp_path / "own")
    with pytest.raises(WriteError, match="is a link"):
        ShardCache(tmp_path / "link")
    with pytest.raises(UsageError, match="local folder"):
        ShardCache("s3://bucket/shards")


def test_planted_links_are_not_followed(shards: list[RemotePath], folder: Path) -> None:
    """A link under the name of a shard or of its part is not read or written through."""
    cache = ShardCache(folder)
    whole = cache.fetch(shards[0])
    precious = folder.parent / "precious"
    precious.write_bytes(b"precious")
    for name in (whole, whole.with_suffix(".part")):
        whole.unlink(missing_ok=True)
        name.symlink_to(precious)
        with pytest.raises(WriteError):
            cache.fetch(shards[0])
        name.unlink()
    assert precious.read_bytes() == b"precious"


def test_a_full_disk_stops_before_anything_is_fetched(
    shards: list[RemotePath], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says how much is needed."""

    class Usage:
        free = 250_000

    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage())
    with pytest.raises(WriteError, match=r"full: expected 600,000 bytes"):
        ShardCache(folder).fetch_ahead(shards)
    assert not list(folder.iterdir())


def test_shards_are_fetched_ahead(shards: list[RemotePath], folder: Path) -> None:
    """Each is fetched once, by whoever comes first; errors wait for who needs the shard."""
    cache = ShardCache(folder, {"shard-1": "0" * 64})
    cache.fetch_ahead(shards)
    for number in (5, 0, 2, 3, 4):
        assert _read(cache, shards[number]) == _bytes(number)
    with pytest.raises(CorruptShardError):
        cache.fetch(shards[1])
    assert len(cache.fetched) == 5


def test_the_default_is_in_the_user_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache without a folder is in XDG_CACHE_HOME."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert ShardCache().folder == tmp_path / "home" / "tfrtool" / "shards"
