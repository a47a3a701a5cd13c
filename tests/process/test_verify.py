"""What only a process of its own can show about ``tfrtool verify``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.datasets import image_payload
from tests.photos import image_bytes
from tfrtool.records.framing import frame

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")


def test_ctrl_c_ends_at_once_and_leaves_nothing(tmp_path: Path) -> None:
    """Interrupted while its processes decode, it ends with 130, and changes nothing."""
    record = frame(image_payload(0, data=image_bytes("PNG", size=(1200, 900))))
    for index in range(4):
        (tmp_path / f"x-{index:05d}-of-00004").write_bytes(record * 600)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    process = subprocess.Popen(
        [sys.executable, "-m", "tfrtool", "verify", str(tmp_path), "--images", "--workers", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # so that Ctrl-C reaches the workers, as from a terminal
    )
    time.sleep(1.5)
    assert process.poll() is None, "it ended before it could be interrupted"
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert output == ""
    assert errors.strip() == "tfrtool: interrupted"
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
