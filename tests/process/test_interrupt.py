"""What only a process of its own can show: signals, full disks, pipes."""

from __future__ import annotations

import fcntl
import os
import pty
import resource
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.photos import write_class_folders
from tfrtool.writing.dataset_folder import STAGING

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")


def _start(arguments: list[str], before: Callable[[], None] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tfrtool", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=before,
    )


def test_ctrl_c_leaves_no_shard(tmp_path: Path) -> None:
    """Interrupted while it writes, a write leaves nothing behind."""
    source = write_class_folders(tmp_path / "photos", count=600)
    dataset = tmp_path / "pets"
    process = _start(["write", str(source), str(dataset), "--shards", "20", "--workers", "1"])
    staging = dataset / STAGING
    deadline = time.monotonic() + 60
    while not (staging.is_dir() and any(staging.iterdir())):
        assert process.poll() is None, "the write ended before it could be interrupted"
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert not dataset.exists()


@pytest.mark.slow
def test_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    """Where a file can't grow any more, the error names the shard, and nothing is left."""
    source = write_class_folders(tmp_path / "photos", count=60)

    def limit() -> None:
        # What a full disk does to write(2), for files above 16 KiB.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (16 * 1024, 16 * 1024))

    process = _start(["write", str(source), str(tmp_path / "pets")], before=limit)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    assert output == ""
    assert "pets-train.tfrecord-00000-of-00001" in errors
    assert len([line for line in errors.splitlines() if line.startswith("tfrtool")]) == 1
    assert "Traceback" not in errors
    assert not (tmp_path / "pets").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_no_permission_to_write(tmp_path: Path) -> None:
    """A directory that may not be written to ends with 1."""
    source = write_class_folders(tmp_path / "photos", count=2)
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    process = _start(["write", str(source), str(locked / "pets")])
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "permission denied" in errors


def test_python_m_is_the_command() -> None:
    """`python -m tfrtool` prints the same version as the package has."""
    process = _start(["--version"])
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert output.startswith("tfrtool, version ")


@pytest.mark.slow
def test_progress_on_a_terminal(tmp_path: Path) -> None:
    """On a terminal there is a bar for each phase, and it is gone in the end."""
    source = write_class_folders(tmp_path / "photos", count=40)
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    splits = ["--split", "train=0.5", "--split", "test=0.5"]  # so that it looks first
    process = subprocess.Popen(
        [sys.executable, "-m", "tfrtool", "write", str(source), str(tmp_path / "pets"), *splits],
        stdout=subprocess.PIPE,
        stderr=slave,
        text=True,
    )
    os.close(slave)
    output, _ = process.communicate(timeout=120)
    drawn = os.read(master, 100_000).decode()
    os.close(master)
    assert process.returncode == 0
    assert "80 records" in output
    for phase in ("checking", "writing"):
        assert f"{phase}:" in drawn
    assert "/80" in drawn
    assert drawn.endswith("\r")
