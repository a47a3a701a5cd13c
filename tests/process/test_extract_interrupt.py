"""What an extract leaves when its process is stopped, or the disk is full."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.inspection.extracting import JPEG, photo, write_shard
from tfrtool.inspection.extract_files import STAGING

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")


def start(
    shard: Path, out: Path, before: Callable[[], None] | None = None
) -> subprocess.Popen[str]:
    """Start the command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "tfrtool", "extract", str(shard), str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=before,
    )


def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    """Interrupted while files come out, it ends with 130; neither DIR nor DIR.jsonl is there."""
    payloads = [photo(JPEG + bytes(100), b"%d.jpg" % n, n % 7) for n in range(60_000)]
    shard = write_shard(tmp_path / "a.tfrecord", payloads)
    process = start(shard, tmp_path / "out")
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(f"out/{STAGING}*/3")):
        assert process.poll() is None, "it ended before it could be interrupted"
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert [path.name for path in tmp_path.iterdir()] == ["a.tfrecord"]


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    """Where a file can't grow any more, the error names it, and nothing is left."""
    payloads = [photo(JPEG, b"cat/1.jpg", 0), photo(JPEG + bytes(50_000), b"cat/2.jpg", 0)]
    shard = write_shard(tmp_path / "a.tfrecord", payloads)

    def limit() -> None:
        # What a full disk does to write(2), for files above 16 KiB.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (16 * 1024, 16 * 1024))

    process = start(shard, tmp_path / "out", limit)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert output == ""
    (line,) = errors.splitlines()
    assert f"{tmp_path}/out/0/cat/2.jpg: can't be written: file too large" in line
    assert [path.name for path in tmp_path.iterdir()] == ["a.tfrecord"]
