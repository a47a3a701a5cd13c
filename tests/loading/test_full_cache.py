"""A disk that the copies of a store's shards fill."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.emulators import Bucket

pytest.importorskip("obstore")

FETCH = """
import sys
from tfrtool.errors import TfrtoolError
from tfrtool.storage.arguments import as_path
from tfrtool.storage.remote.shard_cache import ShardCache

try:
    for url in sys.argv[2:]:
        print(len(ShardCache(sys.argv[1]).fetch(as_path(url)).read_bytes()))
except TfrtoolError as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


def _fetch(folder: Path, *urls: str) -> subprocess.CompletedProcess[str]:
    """Fetch shards to a disk of 1 MB, which a file system in memory is."""
    folder.mkdir()
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    mounted = 'mount -t tmpfs -o size=1m none "$0" && exec "$@"'
    if (
        shutil.which("unshare") is None
        or subprocess.run([*command, mounted, folder, "true"], capture_output=True).returncode
    ):
        pytest.skip("no file system can be mounted here")
    return subprocess.run(
        [*command, mounted, folder, sys.executable, "-c", FETCH, folder / "cache", *urls],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_others_go_for_what_is_needed(bucket: Bucket, tmp_path: Path) -> None:
    """On a full disk, copies of other datasets are deleted, the least recently used first."""
    for name in "abc":
        bucket.put(name, bytes(700_000))
    done = _fetch(tmp_path / "disk", *(f"{bucket.url}/{name}" for name in "abca"))
    assert (done.stdout, done.stderr) == ("700000\n" * 4, "")
    bodies = [entry["down"] for entry in bucket.log() if entry["method"] == "GET"]
    assert sum(bodies) == 4 * 700_000


def test_a_shard_that_does_not_fit_is_an_error(bucket: Bucket, tmp_path: Path) -> None:
    """The error says that the disk is full, and what to do; nothing is fetched for nothing."""
    bucket.put("a", bytes(3_000_000))
    done = _fetch(tmp_path / "disk", f"{bucket.url}/a")
    assert done.returncode == 1
    assert "the disk of the shard cache is full" in done.stderr
    assert "--shard-cache" in done.stderr
    assert bucket.requests()["GET"] == 0
